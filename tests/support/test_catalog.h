/* The built-in catalog for a test program.
 *
 *   return cmocka_run_group_tests(tests, open_catalog, close_catalog);
 *
 * Of one test program; not thread-safe. */
#ifndef LS_TEST_TEST_CATALOG_H
#define LS_TEST_TEST_CATALOG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cluster/catalog.h"

static ls_arena *arena;
static ls_catalog *catalog;

static int open_catalog(void **state) {
  (void)state;
  arena = ls_arena_create();
  ls_error error = {0};
  const ls_status status = ls_catalog_read(arena, NULL, &catalog, &error);
  if (status != LS_OK) print_error("%s\n", error.text);
  return status;
}

static int close_catalog(void **state) {
  (void)state;
  ls_arena_destroy(&arena);
  return 0;
}

#endif
