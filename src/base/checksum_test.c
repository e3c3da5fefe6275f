/* Checksums: by parts in any order, against the definition, and of changed files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/checksum.h"
#include "base/random.h"
#include "support/test_seed.h"

enum { BYTES = 40000 };

static uint64_t seed;
static unsigned char data[BYTES];

static size_t below(uint64_t stream, uint64_t index, size_t bound) {
  return (size_t)(ls_random_bits(seed, stream, index) % bound);
}

static int fill(void **state) {
  (void)state;
  for (size_t i = 0; i < BYTES; i++) data[i] = (unsigned char)ls_random_bits(seed, 1, i);
  return 0;
}

static ls_checksum whole(size_t bytes) {
  ls_checksum sum = {0};
  ls_checksum_add(&sum, 0, data, bytes);
  return sum;
}

static void assert_equal(const ls_checksum *a, const ls_checksum *b) {
  assert_true(a->words == b->words && a->places == b->places);
}

static void is_what_the_header_says(void **state) {
  (void)state;
  for (size_t bytes = 0; bytes <= BYTES; bytes += 1 + below(2, bytes, 400)) {
    ls_checksum expected = {0};
    for (size_t i = 0; i < bytes; i++) {
      const uint64_t value = (uint64_t)data[i] << 8 * (i % 4);
      expected.words += value;
      expected.places += value * (i / 4 + 1);
    }
    const ls_checksum sum = whole(bytes);
    assert_equal(&sum, &expected);
  }
}

/* Parts of any length, the last first. */
static void parts_add_up(void **state) {
  (void)state;
  for (uint64_t round = 0; round < 200; round++) {
    const size_t bytes = below(3, round, BYTES);
    ls_checksum expected = whole(bytes), sum = {0};
    for (size_t end = bytes; end > 0;) {
      size_t part = 1 + below(4 + round, end, round % 2 ? 9 : 20000);
      if (part > end) part = end;
      ls_checksum own = {0};
      ls_checksum_add(&own, end - part, data + end - part, part);
      ls_checksum_join(&sum, &own);
      end -= part;
    }
    assert_equal(&sum, &expected);
  }
}

/* A place beyond 2^32 words counts as such. */
static void far_places_count(void **state) {
  (void)state;
  const uint64_t far = (uint64_t)1 << 40;
  ls_checksum near_sum = {0}, far_sum = {0};
  ls_checksum_add(&near_sum, 0, data, 4);
  ls_checksum_add(&far_sum, far, data, 4);
  assert_true(near_sum.words == far_sum.words);
  assert_true(far_sum.places - near_sum.places == far / 4 * near_sum.words);
}

static void changes_are_seen(void **state) {
  (void)state;
  const ls_checksum before = whole(BYTES);
  for (uint64_t round = 0; round < 500; round++) {
    const size_t a = below(5, round, BYTES), b = below(6, round, BYTES);
    const unsigned char kept[2] = {data[a], data[b]};
    if (round % 2) {
      data[a] ^= (unsigned char)(1 + below(7, round, 255));
    } else { /* exchanged */
      data[a] = kept[1];
      data[b] = kept[0];
    }
    const ls_checksum after = whole(BYTES);
    const bool changed = data[a] != kept[0] || data[b] != kept[1];
    assert_int_equal(after.words != before.words || after.places != before.places, changed);
    data[b] = kept[1];
    data[a] = kept[0];
  }
}

int main(void) {
  seed = test_seed(20261128);
  const struct CMUnitTest tests[] = {cmocka_unit_test_setup(is_what_the_header_says, fill),
                                     cmocka_unit_test_setup(parts_add_up, fill),
                                     cmocka_unit_test_setup(far_places_count, fill),
                                     cmocka_unit_test_setup(changes_are_seen, fill)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
