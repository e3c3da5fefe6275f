/* MPI and launchers as `lockstep doctor` tells them. */
#include "comm/launch_findings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static ls_arena *arena;

static const ls_finding *look(const char *subject) {
  ls_findings all = {.arena = arena};
  ls_launch_findings(&all);
  for (int f = 0; f < all.list.count; f++)
    if (strcmp(all.list.items[f].subject, subject) == 0) return &all.list.items[f];
  fail_msg("no line about %s", subject);
  return NULL;
}

static void launchers_are_told(void **state) {
  (void)state;
  static const char *const variables[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS",
                                          "WORLD_SIZE"};
  for (size_t v = 0; v < sizeof variables / sizeof *variables; v++) unsetenv(variables[v]);
  assert_non_null(strstr(look("started by")->found, "no launcher"));
  setenv("SLURM_NTASKS", "4", 1);
  const ls_finding *started = look("started by");
  assert_non_null(strstr(started->found, "SLURM_NTASKS is 4"));
#ifdef LS_HAVE_MPI
  assert_int_equal(look("MPI")->verdict, LS_VERDICT_OK);
  assert_int_equal(started->verdict, LS_VERDICT_OK);
#else
  assert_int_equal(look("MPI")->verdict, LS_VERDICT_WARNING);
  assert_int_equal(started->verdict, LS_VERDICT_FAIL);
#endif
  unsetenv("SLURM_NTASKS");
  setenv("PATH", "/no/such/folder", 1);
  const ls_finding *launcher = look("launcher");
  assert_int_equal(launcher->verdict, LS_VERDICT_WARNING);
  assert_non_null(launcher->remedy);
}

int main(void) {
  arena = ls_arena_create();
  const struct CMUnitTest tests[] = {cmocka_unit_test(launchers_are_told)};
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  ls_arena_destroy(&arena);
  return failed;
}
