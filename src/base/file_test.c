/* Files, with the system calls below them failing or killing the process at every place. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* The calls that write are ours: the `fault_at`th of them fails with `fault_reason`, or kills. */
static int fault_calls, fault_at, fault_reason;
static bool fault_kills;

static bool fault_now(void) {
  fault_calls++;
  if (fault_calls != fault_at) return false;
  if (fault_kills) kill(getpid(), SIGKILL);
  errno = fault_reason;
  return true;
}

ssize_t write(int descriptor, const void *data, size_t bytes) {
  if (fault_now()) return -1;
  /* Short writes are legal: half of what is asked, to show that the rest follows. */
  return syscall(SYS_write, descriptor, data, bytes > 1 ? bytes / 2 : bytes);
}

int fsync(int descriptor) {
  return fault_now() ? -1 : (int)syscall(SYS_fsync, descriptor);
}

int rename(const char *from, const char *to) {
  if (fault_now()) return -1;
  return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to,
              unsigned int flags) {
  if (fault_now()) return -1;
  return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
}

static void set_fault(int at, int reason, bool kills) {
  fault_calls = 0;
  fault_at = at;
  fault_reason = reason;
  fault_kills = kills;
}

static ls_arena *arena;
static char *root;
static ls_error error;

static char *in_root(const char *name) {
  return ls_arena_printf(arena, "%s/%s", root, name);
}

static int set_up(void **state) {
  (void)state;
  arena = ls_arena_create();
  const char *base = getenv("TMPDIR");
  root = ls_arena_printf(arena, "%s/file_test-XXXXXX", base ? base : "/tmp");
  error = (ls_error){0};
  set_fault(0, 0, false);
  return mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **state) {
  (void)state;
  set_fault(0, 0, false);
  const ls_status status = ls_directory_remove(root, &error);
  ls_arena_destroy(&arena);
  return status == LS_OK ? 0 : -1;
}

static void put(const char *path, const char *text) {
  assert_int_equal(ls_file_write(path, text, strlen(text), &error), LS_OK);
}

static void assert_holds(const char *path, const char *text) {
  char *data;
  size_t bytes;
  assert_int_equal(ls_file_read(arena, path, &data, &bytes, &error), LS_OK);
  assert_int_equal(bytes, strlen(text));
  assert_string_equal(data, text);
}

/* How many entries there are below the test's folder. */
static int entries(void) {
  char *command = ls_arena_printf(arena, "find '%s' -mindepth 1 | wc -l", root);
  FILE *pipe = popen(command, "r");
  assert_non_null(pipe);
  int count = -1;
  assert_int_equal(fscanf(pipe, "%d", &count), 1);
  pclose(pipe);
  return count;
}

static void reads_whole_files(void **state) {
  (void)state;
  char *data;
  size_t bytes;
  put(in_root("a"), "one\ntwo");
  assert_holds(in_root("a"), "one\ntwo");
  put(in_root("empty"), "");
  assert_holds(in_root("empty"), "");
  /* A pipe's size is not known beforehand: the buffer grows from 4096 bytes. */
  enum { PIPE_BYTES = 50000 };
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  char *sent = ls_arena_alloc(arena, PIPE_BYTES + 1);
  for (int i = 0; i < PIPE_BYTES; i++) sent[i] = (char)('a' + i % 23);
  for (size_t put_bytes = 0; put_bytes < PIPE_BYTES;) {
    const ssize_t took = write(ends[1], sent + put_bytes, PIPE_BYTES - put_bytes);
    assert_true(took > 0);
    put_bytes += (size_t)took;
  }
  close(ends[1]);
  const char *name = ls_arena_printf(arena, "/proc/self/fd/%d", ends[0]);
  assert_int_equal(ls_file_read(arena, name, &data, &bytes, &error), LS_OK);
  close(ends[0]);
  assert_int_equal(bytes, PIPE_BYTES);
  assert_string_equal(data, sent);
}

static void names_what_cannot_be_read(void **state) {
  (void)state;
  char *data;
  size_t bytes;
  ls_map map;
  char *absent = in_root("absent");
  assert_int_equal(ls_file_read(arena, absent, &data, &bytes, &error), LS_INPUT);
  assert_string_equal(error.text, ls_arena_printf(arena, "%s: no such file", absent));
  assert_int_equal(ls_file_map(absent, &map, &error), LS_INPUT);
  assert_int_equal(ls_file_read(arena, root, &data, &bytes, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "Is a directory"));
  assert_int_equal(ls_file_map(root, &map, &error), LS_INPUT);
}

/* Opening a pipe would wait for a writer that may never come. */
static void what_is_no_file_is_not_mapped(void **state) {
  (void)state;
  ls_map map;
  assert_int_equal(mkfifo(in_root("pipe"), 0600), 0);
  assert_int_equal(ls_file_map(in_root("pipe"), &map, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "pipe: cannot be read: expected a regular file"));
  assert_int_equal(ls_file_map("/dev/zero", &map, &error), LS_INPUT);
}

static void maps_files(void **state) {
  (void)state;
  ls_map map;
  put(in_root("a"), "mapped");
  assert_int_equal(ls_file_map(in_root("a"), &map, &error), LS_OK);
  assert_int_equal(map.bytes, 6);
  assert_memory_equal(map.data, "mapped", 6);
  ls_file_unmap(&map);
  assert_null(map.data);
  put(in_root("empty"), "");
  assert_int_equal(ls_file_map(in_root("empty"), &map, &error), LS_OK);
  assert_null(map.data);
  assert_int_equal(map.bytes, 0);
  ls_file_unmap(&map);
}

/* Given back and brought in again it is the same; what was cut off is an error, not the end. */
static void maps_are_read_by_pieces(void **state) {
  (void)state;
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char *path = in_root("a"), *text = ls_arena_alloc(arena, 3 * page);
  for (size_t i = 0; i < 3 * page; i++) text[i] = (char)(i % 251);
  assert_int_equal(ls_file_write(path, text, 3 * page, &error), LS_OK);
  ls_map map;
  assert_int_equal(ls_file_map(path, &map, &error), LS_OK);
  const char *data = map.data;
  for (size_t at = 0; at < map.bytes; at += 1000) {
    const size_t left = map.bytes - at, some = left < 1000 ? left : 1000;
    ls_map_expect(data + at, some);
    assert_int_equal(ls_map_fetch(path, data + at, some, &error), LS_OK);
    assert_memory_equal(data + at, text + at, some);
    ls_map_release(data + at, some);
  }
  assert_memory_equal(data, text, map.bytes);
  assert_int_equal(truncate(path, (off_t)page), 0);
  assert_int_equal(ls_map_fetch(path, data, page, &error), LS_OK);
  const ls_status cut = ls_map_fetch(path, data + page, page, &error);
  if (cut == LS_OK)
    print_message("skipped: pages brought in beforehand (not on this system)\n");
  else
    assert_non_null(strstr(error.text, ": cannot be read where it could before"));
  ls_file_unmap(&map);
}

static void every_failed_call_leaves_the_old_file(void **state) {
  (void)state;
  char *path = in_root("a");
  int failures = 0;
  for (int at = 1;; at++) {
    set_fault(0, 0, false);
    put(path, "old");
    set_fault(at, ENOSPC, false);
    const ls_status status = ls_file_write(path, "something new", 13, &error);
    set_fault(0, 0, false);
    if (status == LS_OK) {
      assert_holds(path, "something new");
      break;
    }
    failures++;
    assert_int_equal(status, LS_FAILED);
    assert_string_equal(
        error.text, ls_arena_printf(arena, "%s: cannot be written: No space left on device", path));
    /* The last call flushes the folder, after the file has its name. */
    assert_holds(path, failures == 8 ? "something new" : "old");
    assert_int_equal(entries(), 1);
  }
  /* 13 bytes in halves are five writes; then fsync, rename, fsync of the folder. */
  assert_int_equal(failures, 8);
}

static void every_kill_leaves_a_whole_file(void **state) {
  (void)state;
  char *path = in_root("a");
  put(path, "old");
  int kills = 0;
  for (int at = 1;; at++) {
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      set_fault(at, 0, true);
      _exit(ls_file_write(path, "something new", 13, &error) == LS_OK ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status)) {
      assert_int_equal(WEXITSTATUS(status), 0);
      break;
    }
    assert_int_equal(WTERMSIG(status), SIGKILL);
    kills++;
    /* Calls 1 to 7 come before the new name is there: the last of them is the rename. */
    assert_holds(path, kills <= 7 ? "old" : "something new");
  }
  assert_int_equal(kills, 8);
  assert_holds(path, "something new");
}

/* What a name leads to through links is written; the link stays. */
static void links_are_followed(void **state) {
  (void)state;
  struct stat info;
  put(in_root("real"), "old");
  assert_int_equal(symlink("real", in_root("link")), 0);
  put(in_root("link"), "new");
  assert_holds(in_root("real"), "new");
  assert_int_equal(lstat(in_root("link"), &info), 0);
  assert_true(S_ISLNK(info.st_mode));
  assert_int_equal(symlink("later", in_root("ahead")), 0); /* to nothing yet */
  put(in_root("ahead"), "made");
  assert_holds(in_root("later"), "made");
  assert_int_equal(symlink("itself", in_root("itself")), 0);
  assert_int_equal(ls_file_write(in_root("itself"), "x", 1, &error), LS_FAILED);
  assert_int_equal(entries(), 5);
}

/* Somebody waits there for the bytes; a file in its place would be nothing to them. */
static void a_pipe_is_written_to(void **state) {
  (void)state;
  struct stat info;
  char *path = in_root("pipe"), text[8] = "";
  assert_int_equal(mkfifo(path, 0600), 0);
  const int reader = open(path, O_RDONLY | O_NONBLOCK);
  assert_true(reader >= 0);
  assert_true(ls_file_is_special(path));
  put(path, "bytes");
  assert_int_equal(read(reader, text, sizeof text), 5);
  assert_string_equal(text, "bytes");
  close(reader);
  assert_int_equal(lstat(path, &info), 0);
  assert_true(S_ISFIFO(info.st_mode));
  assert_int_equal(symlink("/dev/full", in_root("full")), 0);
  assert_int_equal(ls_file_write(in_root("full"), "x", 1, &error), LS_FAILED);
  assert_non_null(strstr(error.text, "full: cannot be written: No space left on device"));
  assert_int_equal(lstat(in_root("full"), &info), 0);
  assert_true(S_ISLNK(info.st_mode));
  assert_int_equal(entries(), 2);
}

static void a_full_disk_is_an_error_and_changes_nothing(void **state) {
  (void)state;
  char *disk = in_root("disk");
  assert_int_equal(ls_directory_make(disk, &error), LS_OK);
  if (mount("tmpfs", disk, "tmpfs", 0, "size=64k")) skip();
  char *path = ls_arena_printf(arena, "%s/a", disk);
  const ls_status first = ls_file_write(path, "old", 3, &error);
  static char large[256 * 1024];
  const ls_status second = ls_file_write(path, large, sizeof large, &error);
  char *data = NULL;
  size_t bytes = 0;
  ls_error other = {0};
  const ls_status third = ls_file_read(arena, path, &data, &bytes, &other);
  const ls_status fourth = ls_file_write(path, "newer", 5, &other);
  umount(disk);
  assert_int_equal(first, LS_OK);
  assert_int_equal(second, LS_FAILED);
  assert_non_null(strstr(error.text, "No space left on device"));
  assert_int_equal(third, LS_OK);
  assert_string_equal(data, "old");
  assert_int_equal(fourth, LS_OK);
}

static void makes_folders(void **state) {
  (void)state;
  assert_int_equal(ls_directory_make(in_root("a/b//c/"), &error), LS_OK);
  assert_true(ls_directory_exists(in_root("a/b/c")));
  assert_false(ls_file_exists(in_root("a/b/c")));
  assert_int_equal(ls_directory_make(in_root("a/b"), &error), LS_OK);
  assert_int_equal(ls_directory_check_new(in_root("a/b/none"), &error), LS_OK);
  assert_int_equal(ls_directory_check_new(in_root("a/b/c"), &error), LS_OK); /* it is empty */
  assert_int_equal(ls_directory_check_new(in_root("a/b"), &error), LS_INPUT);
  put(in_root("a/file"), "x");
  assert_true(ls_file_exists(in_root("a/file")));
  assert_int_equal(ls_directory_make(in_root("a/file/d"), &error), LS_INPUT);
  assert_non_null(strstr(error.text, "a file of that name is in the way"));
  assert_int_equal(ls_directory_make(in_root("a/file"), &error), LS_INPUT);
  assert_int_equal(ls_directory_make("", &error), LS_INPUT);
}

static void removes_folders(void **state) {
  (void)state;
  put(in_root("kept"), "x");
  assert_int_equal(ls_directory_make(in_root("a/b/c"), &error), LS_OK);
  put(in_root("a/b/one"), "x");
  assert_int_equal(symlink(in_root("kept"), in_root("a/link")), 0);
  assert_int_equal(ls_directory_remove(in_root("a"), &error), LS_OK);
  assert_false(ls_directory_exists(in_root("a")));
  assert_holds(in_root("kept"), "x");
  assert_int_equal(ls_directory_remove(in_root("a"), &error), LS_OK);
  assert_int_equal(ls_directory_remove(in_root("kept"), &error), LS_FAILED);
  assert_holds(in_root("kept"), "x");
}

static void publishes_folders(void **state) {
  (void)state;
  assert_int_equal(ls_directory_make(in_root("new/inner"), &error), LS_OK);
  put(in_root("new/a"), "1");
  put(in_root("new/inner/b"), "2");
  /* Two files, two folders, then the rename and the parent: fail at each of the first five. */
  for (int at = 1; at <= 5; at++) {
    set_fault(at, EIO, false);
    const ls_status status = ls_directory_publish(in_root("new"), in_root("done"), &error);
    set_fault(0, 0, false);
    assert_int_equal(status, LS_FAILED);
    assert_false(ls_directory_exists(in_root("done")));
    assert_true(ls_directory_exists(in_root("new")));
  }
  set_fault(0, 0, false);
  assert_int_equal(ls_directory_publish(in_root("new"), in_root("done"), &error), LS_OK);
  assert_int_equal(fault_calls, 6);
  assert_holds(in_root("done/inner/b"), "2");
  assert_false(ls_directory_exists(in_root("new")));
}

static void publishes_over_nothing(void **state) {
  (void)state;
  assert_int_equal(ls_directory_make(in_root("new"), &error), LS_OK);
  assert_int_equal(ls_directory_make(in_root("done"), &error), LS_OK);
  assert_int_equal(ls_directory_publish(in_root("new"), in_root("done"), &error), LS_FAILED);
  assert_true(ls_directory_exists(in_root("new")));
  assert_int_equal(ls_directory_publish(in_root("none"), in_root("other"), &error), LS_FAILED);
  /* A file system that cannot refuse by itself answers EINVAL: then we look. */
  set_fault(2, EINVAL, false);
  assert_int_equal(ls_directory_publish(in_root("new"), in_root("done"), &error), LS_FAILED);
  set_fault(2, EINVAL, false);
  assert_int_equal(ls_directory_publish(in_root("new"), in_root("other"), &error), LS_OK);
}

static char *globbed(const char *pattern) {
  char **paths;
  int count;
  if (ls_file_glob(arena, in_root(pattern), &paths, &count, &error) != LS_OK) {
    return ls_arena_printf(arena, "error %d", error.status);
  }
  char *all = "";
  for (int i = 0; i < count; i++) {
    all = ls_arena_printf(arena, "%s%s%s", all, i ? " " : "", paths[i] + strlen(root) + 1);
  }
  return all;
}

static void globs(void **state) {
  (void)state;
  static const char *const files[] = {"b.txt",       "a.txt",          "c.md",
                                      ".hidden.txt", "one/d.txt",      "two/d.txt",
                                      "x[1].txt",    "one/deep/e.txt", "one/deep/.f.txt"};
  assert_int_equal(ls_directory_make(in_root("one/deep"), &error), LS_OK);
  assert_int_equal(ls_directory_make(in_root("two"), &error), LS_OK);
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) put(in_root(files[i]), "x");
  assert_int_equal(symlink(root, in_root("one/circle")), 0);
  assert_string_equal(globbed("*.txt"), "a.txt b.txt x[1].txt");
  assert_string_equal(globbed("[ab].txt"), "a.txt b.txt");
  assert_string_equal(globbed("*/d.txt"), "one/d.txt two/d.txt");
  assert_string_equal(globbed("one//?.txt"), "one/d.txt");
  assert_string_equal(globbed("**/*.txt"),
                      "a.txt b.txt one/d.txt one/deep/e.txt two/d.txt x[1].txt");
  assert_string_equal(globbed("**/**/e.txt"), "one/deep/e.txt");
  assert_string_equal(globbed("one/**"), "one/d.txt one/deep/e.txt");
  assert_string_equal(globbed("**/deep/*"), "one/deep/e.txt");
  assert_string_equal(globbed("x[1].txt"), "x[1].txt");
  assert_string_equal(globbed("x\\[1].txt"), "x[1].txt");
  assert_string_equal(globbed("a.txt"), "a.txt");
  assert_string_equal(globbed("*.json"), "error -2");
  assert_string_equal(globbed("none/*.txt"), "error -2");
  assert_string_equal(globbed("one"), "error -2");
  assert_non_null(strstr(error.text, "is a folder"));
  char **paths;
  int count;
  assert_int_equal(ls_file_glob(arena, "src/base/file_*.c", &paths, &count, &error), LS_OK);
  assert_string_equal(paths[0], "src/base/file_test.c");
  assert_int_equal(ls_file_glob(arena, "", &paths, &count, &error), LS_INPUT);
}

#define FILE_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      FILE_TEST(reads_whole_files),
      FILE_TEST(names_what_cannot_be_read),
      FILE_TEST(what_is_no_file_is_not_mapped),
      FILE_TEST(maps_files),
      FILE_TEST(maps_are_read_by_pieces),
      FILE_TEST(every_failed_call_leaves_the_old_file),
      FILE_TEST(every_kill_leaves_a_whole_file),
      FILE_TEST(links_are_followed),
      FILE_TEST(a_pipe_is_written_to),
      FILE_TEST(a_full_disk_is_an_error_and_changes_nothing),
      FILE_TEST(makes_folders),
      FILE_TEST(removes_folders),
      FILE_TEST(publishes_folders),
      FILE_TEST(publishes_over_nothing),
      FILE_TEST(globs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
