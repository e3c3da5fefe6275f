/* Names of accelerators as people write them, and the facts that go wrong most easily. */
#include "cluster/accelerators.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const ls_accelerator *find(ls_arena *arena, const char *text, int expected) {
  int count;
  const ls_accelerator *found = NULL;
  ls_error error = {0};
  if (ls_accelerators_find(arena, text, &count, &found, &error) != LS_OK)
    fail_msg("%s: %s", text, error.text);
  assert_int_equal(count, expected);
  return found;
}

static void test_names(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  static const struct {
    const char *text, *id;
    int count, architecture, memory_mib;
  } known[] = {
      {"64xH100-SXM", "h100-sxm-80", 64, 90, 81559},
      {"h200-sxm-141", "h200-sxm-141", 0, 90, 143771},
      {"8XA100-SXM-80", "a100-sxm-80", 8, 80, 81920}, /* cuDNN's description of it has the H200's */
      {"2xRTX4090", "rtx4090", 2, 89, 24564},
      {"72xGB200", "gb200-186", 72, 100, 190464},
      {"1xl40", "l40", 1, 89, 46068}, /* and l40s is another */
      {"rtx5090", "rtx5090", 0, 120, 32607},
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    const ls_accelerator *found = find(arena, known[i].text, known[i].count);
    assert_string_equal(found->id, known[i].id);
    assert_int_equal(found->architecture, known[i].architecture);
    assert_int_equal(found->memory_mib, known[i].memory_mib);
  }
  ls_arena_destroy(&arena);
}

static void test_refusals(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  static const struct {
    const char *text, *says;
  } wrong[] = {
      {"8xA100", "one of a100-pcie-40, a100-sxm-40, a100-pcie-80, a100-sxm-80"},
      {"8xH1000", "the nearest are h100-pcie-80, h100-sxm-80, h100-nvl-94"},
      {"0xl4", "expected a count and an accelerator"},
      {"-3xl4", "expected a count and an accelerator"},
      {"99999999999999999999xl4", "expected a count and an accelerator"},
      {"8x", "expected a count and an accelerator"},
      {"", "expected a count and an accelerator"},
      {"h", "no such accelerator"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    int count;
    const ls_accelerator *found;
    ls_error error = {0};
    assert_int_equal(ls_accelerators_find(arena, wrong[i].text, &count, &found, &error), LS_INPUT);
    if (!strstr(error.text, wrong[i].says)) fail_msg("%s: %s", wrong[i].text, error.text);
  }
  ls_arena_destroy(&arena);
}

/* Every id is one, every row complete, and none is the beginning of another that it then hides. */
static void test_catalog(void **state) {
  (void)state;
  int count = 0;
  for (const ls_accelerator *a; (a = ls_accelerators_at(count)); count++) {
    assert_true(a->memory_mib >= 8192 && a->memory_mib < 1 << 20 && a->source[0] && a->name[0]);
    for (int j = 0; j < count; j++) assert_string_not_equal(a->id, ls_accelerators_at(j)->id);
  }
  assert_int_equal(count, 82);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_names), cmocka_unit_test(test_refusals),
                                     cmocka_unit_test(test_catalog)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
