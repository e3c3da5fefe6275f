/* Decoding where ranks share tokens and the rows of the caches (mesh.cp), which each deals with the
 * others row by row: of a model of every family texts and logits are one device's, alone and of
 * several sequences at once, over products with tensor parallelism and stages. In fp64.
 * LS_LAYOUTS=all: all of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/layouts.h"
#include "support/same_texts.h"
#include "support/test_seed.h"

static const struct product {
  int cp, tp, pp;
} products[] = {{2, 1, 1}, {4, 1, 1}, {2, 2, 1}, {3, 1, 1}, {2, 1, 2},
                {4, 2, 1}, {2, 4, 1}, {1, 4, 1}, {4, 4, 1}, {2, 2, 2}};
enum { PRODUCTS = sizeof products / sizeof *products, SAMPLE = 2 };

/* Families of three heads have others. */
static int heads_of(const ls_test_family *family, int tp) {
  return family->tp % 4 == 0 || tp == 1 ? tp : 3;
}

static void every_family_shares_rows(void **state) {
  (void)state;
  const uint64_t seed = test_seed(20261128);
  const int each = ls_test_all_layouts() ? PRODUCTS : SAMPLE;
  int run = 0, drawn = 0;
  ls_arena *arena = ls_arena_create();
  for (int f = 0; f < ls_test_family_count; f++) {
    const ls_test_family *family = &ls_test_families[f];
    ls_test_texts texts;
    ls_test_texts_expect(arena, seed, ls_arena_printf(arena, LS_TEST_TRACES "%s", family->name),
                         &texts);
    for (int p = 0; p < each; p++, drawn++) {
      const struct product *of = &products[drawn % PRODUCTS];
      const int ranks = of->cp * heads_of(family, of->tp) * of->pp;
      const ls_generator_options layout = {
          .pp = of->pp, .cp = of->cp, .sequences = (f + p) % 3 ? 1 : 3, .ahead = p % 2 ? 3 : 0};
      ls_test_texts_compare(&texts, ranks, &layout);
      run++;
    }
  }
  assert_int_equal(run, each * ls_test_family_count);
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_family_shares_rows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
