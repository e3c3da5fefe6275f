/* Normals in bulk: the bits of one at a time on every instruction set, near the formula, and as
 * normal as many of them can show. */
#include "base/normals.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"

enum { SAMPLES = 1 << 20 };

static double *make_normals(uint64_t stream) {
  double *values = malloc(SAMPLES * sizeof *values);
  assert_non_null(values);
  ls_random_normals(7, stream, 0, SAMPLES, values);
  return values;
}

static void values_stay_what_they_are(void **state) {
  (void)state;
  static const double known[] = {0x1.5c14e15109e75p+0, -0x1.227888ce6885ap+1, 0x1.603e458b21ae4p+0,
                                 -0x1.4cdf48edd498bp+0};
  double values[4];
  ls_random_normals(1, 2, UINT64_C(0xfffffffe), 4, values);
  assert_memory_equal(values, known, sizeof known);
}

/* Ranges that begin and end anywhere, with an index beyond 32 bits among them. */
static void all_sets_give_the_bits_of_one_at_a_time(void **state) {
  (void)state;
  enum { MOST = 1100 };
  static const uint64_t starts[] = {0, 1, 7, 510, UINT64_C(0xffffff00), UINT64_MAX - 2000};
  static const int counts[] = {0, 1, 2, 3, 7, 8, 9, 31, 511, 512, 513, MOST};
  const ls_normals_set *set;
  int sets = 0;
  for (; (set = ls_normals_at(sets)); sets++) {
    for (size_t s = 0; s < sizeof starts / sizeof *starts; s++)
      for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        double values[MOST + 1];
        values[counts[c]] = 12345;
        set->fill(~UINT64_C(3), UINT64_C(3) << 40 | 1, starts[s], counts[c], values);
        for (int i = 0; i < counts[c]; i++) {
          const double one =
              ls_random_normal(~UINT64_C(3), UINT64_C(3) << 40 | 1, starts[s] + (uint64_t)i);
          assert_memory_equal(&values[i], &one, sizeof one);
        }
        assert_true(values[counts[c]] == 12345);
      }
    print_message("  %s\n", set->name);
  }
  assert_true(sets >= 1);
}

/* As the formula says, with |t - 1/2| - 1/4 exact, in numbers of more bits where there are some. */
static double formula(uint64_t radius_bits, uint64_t turn_bits) {
  const long double u = (long double)((radius_bits >> 11) + 1) / 0x1p53L;
  const long double v = fabsl((long double)(turn_bits >> 11) / 0x1p53L - 0.5L) - 0.25L;
  return (double)(sqrtl(-2 * logl(u)) * sinl(2 * acosl(-1.0L) * v));
}

static void check_near(uint64_t radius_bits, uint64_t turn_bits, double *worst) {
  const double value = ls_normal_of(radius_bits, turn_bits);
  const double expected = formula(radius_bits, turn_bits);
  const double off = fabs(value - expected) / (fabs(expected) + 1e-300);
  if (off > *worst) *worst = off;
}

static void values_are_near_the_formula(void **state) {
  (void)state;
  double worst = 0;
  for (uint64_t i = 0; i < 200000; i++) {
    const uint64_t a = ls_random_bits(11, 1, i), b = ls_random_bits(11, 2, i);
    check_near(a, b, &worst);
    check_near(a >> (i % 64), b, &worst);                             /* large ones */
    check_near(~(a >> (i % 64)), b, &worst);                          /* u near 1 */
    check_near(a, (UINT64_C(1) << 62) + (b >> (2 + i % 62)), &worst); /* a cosine near 0 */
  }
  print_message("  largest error: %.2g of the value\n", worst);
  assert_true(worst < 6e-16);
}

static void ends_of_the_range_are_finite(void **state) {
  (void)state;
  const uint64_t half = UINT64_C(1) << 63;
  assert_true(ls_normal_of(UINT64_MAX, 0) == 0); /* log(1) */
  assert_true(fabs(ls_normal_of(0, 0) - sqrt(106 * log(2))) < 1e-14);
  assert_true(ls_normal_of(0, half) == -ls_normal_of(0, 0));
  assert_true(ls_normal_of(0, half / 2) == 0);
  assert_true(ls_normal_of(0, half / 2 + half) == 0);
  assert_true(isfinite(ls_normal_of(0, UINT64_MAX)) && isfinite(ls_normal_of(UINT64_MAX, 1)));
}

static int compare(const void *a, const void *b) {
  const double left = *(const double *)a, right = *(const double *)b;
  return (left > right) - (left < right);
}

/* Largest distance to the normal distribution, times sqrt(n): 1.95 is passed once in 1,000. */
static void distribution_is_normal(void **state) {
  (void)state;
  double *values = make_normals(2);
  qsort(values, SAMPLES, sizeof *values, compare);
  double distance = 0;
  for (int i = 0; i < SAMPLES; i++) {
    const double below = erfc(-values[i] / sqrt(2)) / 2;
    const double low = (double)i / SAMPLES, high = (double)(i + 1) / SAMPLES;
    distance = fmax(distance, fmax(fabs(below - low), fabs(high - below)));
  }
  assert_true(distance * sqrt(SAMPLES) < 1.95);
  free(values);
}

static void tails_are_as_heavy_as_they_should_be(void **state) {
  (void)state;
  double *values = make_normals(3);
  for (int deviations = 1; deviations <= 4; deviations++) {
    const double expected = SAMPLES * erfc(deviations / sqrt(2));
    int below = 0, above = 0;
    for (int i = 0; i < SAMPLES; i++) {
      below += values[i] < -deviations;
      above += values[i] > deviations;
    }
    assert_true(fabs(below - expected / 2) < 4.5 * sqrt(expected / 2));
    assert_true(fabs(above - expected / 2) < 4.5 * sqrt(expected / 2));
  }
  free(values);
}

/* Mean, variance, and products of neighbours at the distances of vectors and blocks, of the values
 * and of their squares. */
static void neighbours_have_nothing_in_common(void **state) {
  (void)state;
  static const int distances[] = {1, 2, 3, 4, 8, 16, 512, 8192};
  double *values = make_normals(4);
  const double limit = 4.5 * sqrt(SAMPLES);
  double sum = 0, squares = 0;
  for (int i = 0; i < SAMPLES; i++) {
    sum += values[i];
    squares += values[i] * values[i] - 1;
  }
  assert_true(fabs(sum) < limit);
  assert_true(fabs(squares) < sqrt(2) * limit);
  for (size_t d = 0; d < sizeof distances / sizeof *distances; d++) {
    double products = 0, of_squares = 0;
    for (int i = distances[d]; i < SAMPLES; i++) {
      const double a = values[i], b = values[i - distances[d]];
      products += a * b;
      of_squares += (a * a - 1) * (b * b - 1);
    }
    assert_true(fabs(products) < limit);
    assert_true(fabs(of_squares) < 2 * limit);
  }
  free(values);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(values_stay_what_they_are),
      cmocka_unit_test(all_sets_give_the_bits_of_one_at_a_time),
      cmocka_unit_test(values_are_near_the_formula),
      cmocka_unit_test(ends_of_the_range_are_finite),
      cmocka_unit_test(distribution_is_normal),
      cmocka_unit_test(tails_are_as_heavy_as_they_should_be),
      cmocka_unit_test(neighbours_have_nothing_in_common),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
