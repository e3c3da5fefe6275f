/* Findings of a host that is recorded in files, and of this process's own limits. */
#include "cluster/findings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "base/file.h"
#include "cluster/machine.h"

static ls_arena *arena;
static char root[64];

static int set_up(void **state) {
  (void)state;
  arena = ls_arena_create();
  snprintf(root, sizeof root, "/tmp/findings_test.XXXXXX");
  return mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **state) {
  (void)state;
  ls_arena_destroy(&arena);
  return ls_directory_remove(root, NULL) == LS_OK ? 0 : -1;
}

static void put(const char *path, const char *text) {
  char *full = ls_arena_printf(arena, "%s%s", root, path);
  char *slash = strrchr(full, '/');
  *slash = 0;
  assert_int_equal(ls_directory_make(full, NULL), LS_OK);
  *slash = '/';
  assert_int_equal(ls_file_write(full, text, strlen(text), NULL), LS_OK);
}

static const ls_finding *find(const ls_findings *all, const char *subject) {
  for (int f = 0; f < all->list.count; f++)
    if (strcmp(all->list.items[f].subject, subject) == 0) return &all->list.items[f];
  fail_msg("no line about %s", subject);
  return NULL;
}

static void assert_found(const ls_findings *all, const char *subject, ls_verdict verdict,
                         const char *text) {
  const ls_finding *line = find(all, subject);
  if (line->verdict != verdict || !strstr(line->found, text))
    fail_msg("%s: %s, \"%s\"; expected %s, \"%s\"", subject, ls_verdict_name(line->verdict),
             line->found, ls_verdict_name(verdict), text);
  if (verdict != LS_VERDICT_OK) assert_non_null(line->remedy);
}

static void the_worst_is_told(void **state) {
  (void)state;
  ls_findings all = {.arena = arena, .about = "what"};
  assert_int_equal(ls_findings_worst(&all), LS_VERDICT_OK);
  ls_find(&all, LS_VERDICT_FAIL, "a", "b", "%d", 3);
  ls_find(&all, LS_VERDICT_WARNING, "c", NULL, "d");
  assert_int_equal(ls_findings_worst(&all), LS_VERDICT_FAIL);
  assert_string_equal(all.list.items[0].found, "3");
  assert_string_equal(all.list.items[1].about, "what");
  assert_null(all.list.items[1].remedy);
}

static void a_plain_host_is_fine(void **state) {
  (void)state;
  setenv("XDG_CACHE_HOME", root, 1);
  ls_findings all = {.arena = arena};
  ls_host_findings(&all, root);
  assert_found(&all, "NUMA nodes", LS_VERDICT_OK, "1");
  assert_found(&all, "huge pages", LS_VERDICT_OK, "does not say");
  assert_found(&all, "caches", LS_VERDICT_OK, root);
  assert_int_equal(ls_findings_worst(&all), LS_VERDICT_OK);
}

static void what_slows_a_host_is_said(void **state) {
  (void)state;
  put("/sys/devices/system/node/node0/cpulist", "0-3\n");
  put("/sys/devices/system/node/node1/cpulist", "4-7\n");
  put("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  setenv("XDG_CACHE_HOME", "/proc/no/folder", 1);
  ls_findings all = {.arena = arena};
  ls_host_findings(&all, root);
  if (!ls_machine_is_bound()) assert_found(&all, "NUMA nodes", LS_VERDICT_WARNING, "bound to none");
  assert_found(&all, "huge pages", LS_VERDICT_WARNING, "never");
  assert_found(&all, "caches", LS_VERDICT_WARNING, "/proc/no/folder");
  put("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  unsetenv("XDG_CACHE_HOME");
  ls_findings again = {.arena = arena};
  ls_host_findings(&again, root);
  assert_found(&again, "huge pages", LS_VERDICT_OK, "madvise");
}

static void memory_that_is_gone_is_a_failure(void **state) {
  (void)state;
  put("/proc/meminfo", "MemTotal: 1024 kB\nMemAvailable: 0 kB\n");
  ls_findings all = {.arena = arena};
  ls_host_findings(&all, root);
  assert_found(&all, "memory", LS_VERDICT_FAIL, "0 B left");
  put("/proc/meminfo", "MemTotal: 1024 kB\nMemAvailable: 512 kB\n");
  ls_findings again = {.arena = arena};
  ls_host_findings(&again, root);
  assert_found(&again, "memory", LS_VERDICT_OK, "512.0 KiB left");
}

static void limits_are_said(void **state) {
  (void)state;
  struct rlimit before, small;
  assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &before), 0);
  small = before;
  small.rlim_cur = 65536;
  assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &small), 0);
  ls_findings all = {.arena = arena};
  ls_limit_findings(&all, root);
  assert_found(&all, "memlock", LS_VERDICT_OK, "64.0 KiB (no InfiniBand");
  assert_found(&all, "shared memory", LS_VERDICT_WARNING, "no /dev/shm");
  put("/sys/class/infiniband/mlx5_0/node_type", "1: CA\n");
  ls_findings fabric = {.arena = arena};
  ls_limit_findings(&fabric, root);
  assert_found(&fabric, "memlock", LS_VERDICT_WARNING, "64.0 KiB, and 1 InfiniBand adapter");
  assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &before), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(the_worst_is_told, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_plain_host_is_fine, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_slows_a_host_is_said, set_up, tear_down),
      cmocka_unit_test_setup_teardown(memory_that_is_gone_is_a_failure, set_up, tear_down),
      cmocka_unit_test_setup_teardown(limits_are_said, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
