/* Files of one process in the hands of others of its host: what memory of devices is shared by.
 *
 * A file of the host's memory is opened again by its name; one of a device cannot be, and is sent
 * over a socket. Sockets have names that are no files (Linux: abstract), so no folder is shared. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/world.h"

/* Longest wait for files that nobody sends. */
static const int64_t PASS_NS = (int64_t)10 * 1000000000;

/* A name that the kernel gives: a zero and five digits. */
enum { NAME_BYTES = 6 };

typedef struct note {
  uint64_t nonce;
  int32_t rank;
} note;

int ls_file_open_of(int process, int number) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", process, number);
  return open(path, O_RDWR | O_CLOEXEC);
}

int64_t ls_files_network(void) {
  struct stat namespace;
  return stat("/proc/self/ns/net", &namespace) == 0 ? (int64_t) namespace.st_ino : 0;
}

ls_status ls_mailbox_open(ls_mailbox *made, ls_error *error) {
  struct sockaddr_un name = {.sun_family = AF_UNIX};
  socklen_t bytes = sizeof name.sun_family;
  *made = (ls_mailbox){.socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  if (made->socket < 0) return ls_fail(error, LS_FAILED, "a socket: %s", strerror(errno));
  /* A name of no bytes asks for one. */
  const bool bound = bind(made->socket, (struct sockaddr *)&name, bytes) == 0;
  bytes = sizeof name;
  if (bound && getsockname(made->socket, (struct sockaddr *)&name, &bytes) == 0 &&
      bytes == offsetof(struct sockaddr_un, sun_path) + NAME_BYTES) {
    memcpy(&made->name, name.sun_path + 1, NAME_BYTES - 1);
    return LS_OK;
  }
  (void)ls_fail(error, LS_FAILED, "a socket gets no name: %s", strerror(errno));
  ls_mailbox_close(made);
  return LS_FAILED;
}

void ls_mailbox_close(ls_mailbox *of) {
  if (of->socket >= 0) close(of->socket);
  *of = (ls_mailbox){.socket = -1};
}

/* Whether it went; false with errno EAGAIN: later. */
static bool send_file(const ls_mailbox *from, int64_t to, const note *what, int file) {
  struct sockaddr_un name = {.sun_family = AF_UNIX};
  memcpy(name.sun_path + 1, &to, NAME_BYTES - 1);
  union {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control = {.bytes = {0}};
  struct iovec data = {(void *)what, sizeof *what};
  struct msghdr message = {.msg_name = &name,
                           .msg_namelen = offsetof(struct sockaddr_un, sun_path) + NAME_BYTES,
                           .msg_iov = &data,
                           .msg_iovlen = 1,
                           .msg_control = control.bytes,
                           .msg_controllen = sizeof control.bytes};
  struct cmsghdr *head = CMSG_FIRSTHDR(&message);
  *head = (struct cmsghdr){
      .cmsg_len = CMSG_LEN(sizeof file), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
  memcpy(CMSG_DATA(head), &file, sizeof file);
  return sendmsg(from->socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof *what;
}

/* A file that has come; -1: none, which errno says. */
static int take_file(const ls_mailbox *of, note *what) {
  union {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control;
  struct iovec data = {what, sizeof *what};
  struct msghdr message = {.msg_iov = &data,
                           .msg_iovlen = 1,
                           .msg_control = control.bytes,
                           .msg_controllen = sizeof control.bytes};
  const ssize_t bytes = recvmsg(of->socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (bytes < 0) return -1;
  struct cmsghdr *head = CMSG_FIRSTHDR(&message);
  int file = -1;
  errno = EBADMSG;
  if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS &&
      head->cmsg_len == CMSG_LEN(sizeof file))
    memcpy(&file, CMSG_DATA(head), sizeof file);
  if (bytes != (ssize_t)sizeof *what) what->nonce = 0;
  return file;
}

/* Takes what has come; what is not meant is closed. */
static void take(const ls_world *world, const ls_mailbox *own, ls_passing *of) {
  note what = {0};
  const int file = take_file(own, &what);
  if (file < 0) return;
  const bool meant = what.nonce == ls_control_nonce(world->control) && what.rank >= 0 &&
                     what.rank < world->size && of->files[what.rank] < 0;
  if (meant) of->files[what.rank] = file;
  if (!meant) close(file);
}

/* How many files of other processes are still to come to this rank, which takes them for its
 * process, and the first of the mailboxes that its own is still to go to. */
static int missing(const ls_comm *comm, const ls_passing *of) {
  const ls_world *world = comm->world;
  int count = 0;
  for (int r = 0; comm->rank == world->first && r < world->size; r++)
    count += world->process[r] != world->process[comm->rank] && of->files[r] < 0;
  return count;
}

static int next_to(const ls_comm *comm, const ls_passing *of, int after) {
  const ls_world *world = comm->world;
  int r = after + 1;
  while (r < world->size && (!of->names[r] || world->process[r] == world->process[comm->rank])) r++;
  return r;
}

ls_status ls_files_pass(ls_comm *comm, const ls_mailbox *own, ls_passing *of, ls_error *error) {
  const ls_world *world = comm->world;
  const note what = {ls_control_nonce(world->control), comm->rank};
  const int64_t started = ls_now_ns();
  ls_wait wait = {.comm = comm, .peer = -1};
  int to = next_to(comm, of, -1);
  for (;;) {
    if (to < world->size && send_file(own, of->names[to], &what, of->file))
      to = next_to(comm, of, to);
    else if (to < world->size && errno != EAGAIN && errno != EINTR)
      return ls_fail(error, LS_FAILED, "its memory cannot be handed to rank %d: %s", to,
                     strerror(errno));
    if (missing(comm, of)) take(world, own, of);
    if (to == world->size && !missing(comm, of)) return LS_OK;
    if (ls_now_ns() - started > PASS_NS)
      return ls_fail(error, LS_FAILED, "memory of another process has not come in 10 s");
    LS_TRY(ls_wait_turn(&wait, error));
  }
}
