/* An arena and a folder of each test's own.
 *
 *   cmocka_unit_test_setup_teardown(something_holds, set_up, tear_down)
 *
 * One thread. */
#ifndef LS_TEST_TEST_FOLDER_H
#define LS_TEST_TEST_FOLDER_H

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"

static ls_arena *arena;
static char folder[64];

static inline int set_up(void **state) {
  (void)state;
  arena = ls_arena_create();
  snprintf(folder, sizeof folder, "/tmp/lockstep-test-XXXXXX");
  return mkdtemp(folder) ? 0 : -1;
}

/* Caches lie in the folder, too. */
static inline int set_up_cache(void **state) {
  return set_up(state) || setenv("XDG_CACHE_HOME", folder, 1) != 0;
}

static inline int tear_down(void **state) {
  (void)state;
  ls_error error;
  ls_arena_destroy(&arena);
  return ls_directory_remove(folder, &error) == LS_OK ? 0 : -1;
}

static inline const char *in_folder(const char *name) {
  return ls_arena_printf(arena, "%s/%s", folder, name);
}

#endif
