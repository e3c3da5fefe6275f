/* Lets calls of the system fail in a program that is not changed for it: preloaded with LD_PRELOAD.
 *
 *   LS_FAULT_CALLS=write,fsync LS_FAULT_AT=3 LS_FAULT_ERRNO=28 LS_FAULT_UNDER=/var/tmp/run \
 *     LD_PRELOAD=build/tests/libfaults_preload.so lockstep train ...
 *
 * Of the calls named, counted together from 1 and over all threads, the one numbered LS_FAULT_AT
 * fails with that errno; with LS_FAULT_EVER every later one too, as on a full drive; with
 * LS_FAULT_HOLD it never returns, until the program is killed in the middle of it. Calls of files
 * count only under the folder LS_FAULT_UNDER, calls for memory (malloc stands for its kin) only
 * where the program itself makes them and not a library, and calls of MPI (LS_FAULT_ERRNO is the
 * code that they return) only those that start or test a message. With LS_FAULT_LOG each counted
 * call is a line of that file, and without LS_FAULT_AT none fails.
 *
 * With LS_FAULT_HOST=N a process takes itself for one of a container or a host of its own: its
 * numbers of processes are number N's. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static struct {
  bool ready;
  const char *calls, *under;
  long at, number;
  bool ever, hold;
  int log;
  const char *program, *program_end;
} plan;
static atomic_long counted;

/* The first mapping of the file that runs: its code. */
static void find_program(void) {
  static char text[1 << 14], self[512];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  const int file = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (length <= 0 || file < 0) return;
  ssize_t used = 0, got;
  while (used < (ssize_t)sizeof text - 1 &&
         (got = read(file, text + used, sizeof text - 1 - (size_t)used)) > 0)
    used += got;
  close(file);
  for (char *line = text, *next; line && *line; line = next) {
    next = strchr(line, '\n');
    if (next) *next++ = 0;
    unsigned long begin, end;
    if (!strstr(line, self) || sscanf(line, "%lx-%lx", &begin, &end) != 2) continue;
    if (!plan.program) plan.program = (const char *)begin;
    plan.program_end = (const char *)end;
  }
}

__attribute__((constructor)) static void prepare(void) {
  const char *at = getenv("LS_FAULT_AT"), *number = getenv("LS_FAULT_ERRNO");
  const char *log = getenv("LS_FAULT_LOG");
  plan.calls = getenv("LS_FAULT_CALLS");
  plan.under = getenv("LS_FAULT_UNDER");
  plan.at = at ? atol(at) : 0;
  plan.number = number ? atol(number) : ENOSPC;
  plan.ever = getenv("LS_FAULT_EVER") != NULL;
  plan.hold = getenv("LS_FAULT_HOLD") != NULL;
  plan.log =
      log ? (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)
          : -1;
  find_program();
  plan.ready = plan.calls != NULL;
}

static bool is_named(const char *call) {
  const size_t length = strlen(call);
  for (const char *at = plan.calls; (at = strstr(at, call)); at += length)
    if ((at == plan.calls || at[-1] == ',') && (at[length] == ',' || at[length] == 0)) return true;
  return false;
}

/* Whether this one fails. */
static bool fails(const char *call, const char *about) {
  const long now = atomic_fetch_add(&counted, 1) + 1;
  if (plan.log >= 0) {
    char line[600];
    const int length = snprintf(line, sizeof line, "%ld %s %s\n", now, call, about);
    (void)!syscall(SYS_write, plan.log, line, (size_t)length);
  }
  if (!plan.at || now < plan.at || (now > plan.at && !plan.ever)) return false;
  while (plan.hold) pause();
  errno = (int)plan.number;
  return true;
}

static bool path_fails(const char *call, const char *path) {
  if (!plan.ready || !is_named(call)) return false;
  if (plan.under && strncmp(path, plan.under, strlen(plan.under)) != 0) return false;
  return fails(call, path);
}

/* Messages. Handles are numbers in one MPI and pointers in another; as words they are passed on. */
typedef long word;
typedef int message_call(word data, word count, word type, word peer, word tag, word comm,
                         word request);
typedef int test_call(word request, word done, word status);

static bool message_fails(const char *call) {
  return plan.ready && is_named(call) && fails(call, "");
}

static void *next_of(const char *call) {
  void *next = dlsym(RTLD_NEXT, call);
  if (!next) abort();
  return next;
}

message_call MPI_Isend, MPI_Irecv;
test_call MPI_Test;

int MPI_Isend(word data, word count, word type, word peer, word tag, word comm, word request) {
  if (message_fails("MPI_Isend")) return (int)plan.number;
  return ((message_call *)next_of("MPI_Isend"))(data, count, type, peer, tag, comm, request);
}

int MPI_Irecv(word data, word count, word type, word peer, word tag, word comm, word request) {
  if (message_fails("MPI_Irecv")) return (int)plan.number;
  return ((message_call *)next_of("MPI_Irecv"))(data, count, type, peer, tag, comm, request);
}

int MPI_Test(word request, word done, word status) {
  if (message_fails("MPI_Test")) return (int)plan.number;
  return ((test_call *)next_of("MPI_Test"))(request, done, status);
}

static bool file_fails(const char *call, int file) {
  if (!plan.ready || !is_named(call)) return false;
  char link[64], path[512];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  path[length > 0 ? length : 0] = 0;
  return path_fails(call, path);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int open(const char *path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  if (flags & O_CREAT && path_fails("open", path)) return -1;
  return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

ssize_t write(int file, const void *data, size_t bytes) {
  if (file_fails("write", file)) return -1;
  return NEXT(write)(file, data, bytes);
}

ssize_t pwrite(int file, const void *data, size_t bytes, off_t offset) {
  if (file_fails("pwrite", file)) return -1;
  return NEXT(pwrite)(file, data, bytes, offset);
}

int fsync(int file) {
  if (file_fails("fsync", file)) return -1;
  return NEXT(fsync)(file);
}

int ftruncate(int file, off_t bytes) {
  if (file_fails("ftruncate", file)) return -1;
  return NEXT(ftruncate)(file, bytes);
}

int fallocate(int file, int mode, off_t offset, off_t bytes) {
  if (file_fails("fallocate", file)) return -1;
  return NEXT(fallocate)(file, mode, offset, bytes);
}

int posix_fallocate(int file, off_t offset, off_t bytes) {
  if (file_fails("fallocate", file)) return errno;
  return NEXT(posix_fallocate)(file, offset, bytes);
}

int rename(const char *from, const char *to) {
  if (path_fails("rename", to)) return -1;
  return NEXT(rename)(from, to);
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to,
              unsigned int flags) {
  if (path_fails("rename", to)) return -1;
  return NEXT(renameat2)(from_folder, from, to_folder, to, flags);
}

int mkdir(const char *path, mode_t mode) {
  if (path_fails("mkdir", path)) return -1;
  return NEXT(mkdir)(path, mode);
}

int unlink(const char *path) {
  if (path_fails("unlink", path)) return -1;
  return NEXT(unlink)(path);
}

int remove(const char *path) {
  if (path_fails("unlink", path)) return -1;
  return NEXT(remove)(path);
}

int rmdir(const char *path) {
  if (path_fails("rmdir", path)) return -1;
  return NEXT(rmdir)(path);
}

FILE *fopen(const char *path, const char *mode) {
  if (strpbrk(mode, "wa") && path_fails("open", path)) return NULL;
  return NEXT(fopen)(path, mode);
}

size_t fwrite(const void *data, size_t bytes, size_t count, FILE *file) {
  if (file_fails("write", fileno(file))) return 0;
  return NEXT(fwrite)(data, bytes, count, file);
}

int fflush(FILE *file) {
  if (file && file_fails("write", fileno(file))) return EOF;
  return NEXT(fflush)(file);
}

int stat(const char *path, struct stat *found) {
  const char *host = getenv("LS_FAULT_HOST");
  const int result = NEXT(stat)(path, found);
  if (!result && host && strcmp(path, "/proc/self/ns/pid") == 0)
    found->st_ino = (ino_t)strtoul(host, NULL, 10) + 1;
  return result;
}

#if !defined(LS_SANITIZED) /* whose runtimes have their own malloc */
static bool memory_fails(const void *caller) {
  const char *from = caller;
  if (!plan.ready || from < plan.program || from >= plan.program_end || !is_named("malloc"))
    return false;
  const int before = errno;
  char place[32];
  snprintf(place, sizeof place, "%lx", (unsigned long)(from - plan.program));
  const bool failed = fails("malloc", place);
  errno = failed ? ENOMEM : before;
  return failed;
}

void *malloc(size_t bytes) {
  return memory_fails(__builtin_return_address(0)) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
  return memory_fails(__builtin_return_address(0)) ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes) {
  return memory_fails(__builtin_return_address(0)) ? NULL : __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
  return memory_fails(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes) {
  if (memory_fails(__builtin_return_address(0))) return ENOMEM;
  *memory = __libc_memalign(alignment, bytes);
  return *memory ? 0 : ENOMEM;
}

void *mmap(void *place, size_t bytes, int protection, int flags, int file, off_t offset) {
  if (memory_fails(__builtin_return_address(0))) return MAP_FAILED;
  return (void *)syscall(SYS_mmap, place, bytes, protection, flags, file, offset);
}
#endif
