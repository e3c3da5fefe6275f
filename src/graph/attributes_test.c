/* What an op goes by besides its inputs: slopes of ALiBi, and which two are the same. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "graph/attributes.h"

/* The values of the paper for 8 heads, and of its rule for a count that is no power of two. */
static void test_slopes_are_the_papers(void **state) {
  (void)state;
  for (int head = 0; head < 8; head++)
    assert_true(ls_alibi_slope(head, 8) == ldexp(1, -(head + 1)));
  for (int head = 0; head < 16; head++)
    assert_true(fabs(ls_alibi_slope(head, 16) - exp2(-0.5 * (head + 1))) < 1e-15);
  for (int head = 0; head < 8; head++)
    assert_true(ls_alibi_slope(head, 12) == ls_alibi_slope(head, 8));
  for (int head = 8; head < 12; head++)
    assert_true(fabs(ls_alibi_slope(head, 12) - exp2(-0.5 - (head - 8))) < 1e-15);
  assert_true(ls_alibi_slope(0, 1) == ldexp(1, -8));
}

typedef struct field {
  const char *name;
  size_t offset;
} field;

/* All that an op goes by, but for the frequencies: a pointer, of which the numbers count. */
static const field fields[] = {
#define FIELD(type, name) {#name, offsetof(ls_attributes, name)},
    LS_ATTRIBUTES(FIELD)
#undef FIELD
};

static void test_any_field_makes_a_difference(void **state) {
  (void)state;
  static const double frequencies[] = {1, 0.5}, same[] = {1, 0.5}, other[] = {1, 0.25};
  const ls_attributes one = {.rope_frequencies = frequencies, .rope_pairs = 2};
  ls_attributes two = one;
  two.rope_frequencies = same;
  assert_true(ls_attributes_equal(&one, &two));
  two.rope_frequencies = other;
  assert_false(ls_attributes_equal(&one, &two));
  for (size_t f = 0; f < sizeof fields / sizeof *fields; f++) {
    two = one;
    ((char *)&two)[fields[f].offset] ^= 1;
    if (ls_attributes_equal(&one, &two)) fail_msg("%s", fields[f].name);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_slopes_are_the_papers),
                                     cmocka_unit_test(test_any_field_makes_a_difference)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
