/* Random numbers: the generator's published answers, then the shape of what is made of it. */
#include "base/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Known answers of Philox 4x32-10, from kat_vectors of the authors' Random123 library. */
typedef struct known_answer {
  uint32_t counter[4], key[2], answer[4];
} known_answer;

static const known_answer known_answers[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

static uint64_t wide(const uint32_t *words) {
  return words[0] | (uint64_t)words[1] << 32;
}

static void philox_gives_the_published_answers(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof known_answers / sizeof *known_answers; i++) {
    const known_answer *each = &known_answers[i];
    const uint64_t seed = wide(each->key);
    const uint64_t index = wide(each->counter), stream = wide(each->counter + 2);
    const uint64_t low = wide(each->answer), high = wide(each->answer + 2);
    assert_true(ls_random_bits(seed, stream, index) == low);
    assert_true(ls_random_uniform(seed, stream, index) == (double)(low >> 11) / 0x1p53);
    /* The normal is made of all four words. */
    const double normal = sqrt(-2 * log(((double)(low >> 11) + 1) / 0x1p53)) *
                          cos(2 * acos(-1.0) * ((double)(high >> 11) / 0x1p53));
    assert_true(fabs(ls_random_normal(seed, stream, index) - normal) < 1e-14);
  }
}

static void seed_stream_and_index_all_matter(void **state) {
  (void)state;
  const uint64_t base = ls_random_bits(1, 2, 3);
  for (int bit = 0; bit < 64; bit++) {
    const uint64_t flip = (uint64_t)1 << bit;
    assert_true(ls_random_bits(1 ^ flip, 2, 3) != base);
    assert_true(ls_random_bits(1, 2 ^ flip, 3) != base);
    assert_true(ls_random_bits(1, 2, 3 ^ flip) != base);
  }
}

enum { SAMPLES = 200000 };

static void uniforms_are_uniform(void **state) {
  (void)state;
  int bins[16] = {0};
  double sum = 0;
  for (uint64_t i = 0; i < SAMPLES; i++) {
    const double value = ls_random_uniform(7, 1, i);
    assert_true(value >= 0 && value < 1);
    sum += value;
    bins[(int)(value * 16)]++;
  }
  assert_true(fabs(sum / SAMPLES - 0.5) < 5 * sqrt(1.0 / 12 / SAMPLES));
  double chi_squared = 0;
  for (int i = 0; i < 16; i++) chi_squared += pow(bins[i] - SAMPLES / 16.0, 2) / (SAMPLES / 16.0);
  assert_true(chi_squared < 45); /* 15 degrees of freedom: exceeded once in 13,000 seeds */
}

static void normals_are_normal(void **state) {
  (void)state;
  double power[5] = {0};
  int beyond_two = 0;
  for (uint64_t i = 0; i < SAMPLES; i++) {
    const double value = ls_random_normal(7, 2, i);
    for (int k = 1; k <= 4; k++) power[k] += pow(value, k) / SAMPLES;
    beyond_two += fabs(value) > 2;
  }
  const double sigma = 1 / sqrt(SAMPLES);
  assert_true(fabs(power[1]) < 5 * sigma);
  assert_true(fabs(power[2] - 1) < 5 * sqrt(2) * sigma);
  assert_true(fabs(power[3]) < 5 * sqrt(15) * sigma);
  assert_true(fabs(power[4] - 3) < 5 * sqrt(96) * sigma);
  assert_true(fabs((double)beyond_two / SAMPLES - 0.0455003) < 5 * sqrt(0.0455 * 0.9545) * sigma);
}

static void streams_are_fnv(void **state) {
  (void)state;
  assert_true(ls_random_stream("") == 0xcbf29ce484222325u);
  assert_true(ls_random_stream("a") == 0xaf63dc4c8601ec8cu);
  assert_true(ls_random_stream("foobar") == 0x85944171f73967e8u);
}

static void permutations_hit_each_place_once(void **state) {
  (void)state;
  static const uint64_t counts[] = {1, 2, 3, 4, 5, 16, 17, 100, 1000, 4096, 4097, 65537};
  for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
    char *hit = calloc(counts[k], 1);
    assert_non_null(hit);
    for (uint64_t i = 0; i < counts[k]; i++) {
      const uint64_t place = ls_random_permute(3, 9, counts[k], i);
      assert_true(place < counts[k]);
      assert_int_equal(hit[place], 0);
      hit[place] = 1;
    }
    free(hit);
  }
  /* The largest range there is stays in range and does not collide in a sample. */
  assert_true(ls_random_permute(3, 9, UINT64_MAX, 0) != ls_random_permute(3, 9, UINT64_MAX, 1));
  assert_true(ls_random_permute(3, 9, UINT64_MAX, UINT64_MAX - 1) < UINT64_MAX);
}

/* Over seeds and streams, an index goes to each place about equally often. */
static void permutations_are_fair(void **state) {
  (void)state;
  enum { COUNT = 5, SEEDS = 20000 };
  int seen[COUNT][COUNT] = {{0}};
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    for (uint64_t i = 0; i < COUNT; i++) {
      seen[i][ls_random_permute(seed % 100, seed / 100, COUNT, i)]++;
    }
  }
  const double expected = (double)SEEDS / COUNT;
  for (int i = 0; i < COUNT; i++) {
    for (int j = 0; j < COUNT; j++) {
      assert_true(fabs(seen[i][j] - expected) < 5 * sqrt(expected * (1 - 1.0 / COUNT)));
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(philox_gives_the_published_answers),
      cmocka_unit_test(seed_stream_and_index_all_matter),
      cmocka_unit_test(uniforms_are_uniform),
      cmocka_unit_test(normals_are_normal),
      cmocka_unit_test(streams_are_fnv),
      cmocka_unit_test(permutations_hit_each_place_once),
      cmocka_unit_test(permutations_are_fair),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
