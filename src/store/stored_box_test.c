/* Tiles of a box: every element is in one of them, none is larger than was asked, and columns that
 * belong together stay so, whichever way the file has them. Random boxes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "store/stored_box.h"
#include "support/test_seed.h"

enum { ROUNDS = 400, SEED = 5, MOST_ROWS = 20, MOST_COLUMNS = 12 * 4 };

static uint64_t seed, drawn;

static int64_t below(int64_t limit) {
  return (int64_t)(ls_random_bits(seed, 1, drawn++) % (uint64_t)limit);
}

static void check_tiles(const ls_stored_layout *layout, const ls_box *box, int64_t most,
                        int64_t together) {
  char seen[MOST_ROWS][MOST_COLUMNS] = {{0}};
  ls_box tile = {0};
  while (ls_stored_tile(layout, box, most, together, &tile)) {
    assert_true(tile.rows > 0 && tile.columns > 0 && ls_box_elements(&tile) <= most);
    assert_int_equal(tile.columns % together, 0);
    assert_int_equal((tile.column - box->column) % together, 0);
    for (int64_t r = tile.row; r < tile.row + tile.rows; r++)
      for (int64_t c = tile.column; c < tile.column + tile.columns; c++) seen[r][c]++;
  }
  for (int64_t r = 0; r < MOST_ROWS; r++)
    for (int64_t c = 0; c < MOST_COLUMNS; c++) {
      const bool inside = r >= box->row && r < box->row + box->rows && c >= box->column &&
                          c < box->column + box->columns;
      assert_int_equal(seen[r][c], inside);
    }
}

static void tiles_are_the_box(void **state) {
  (void)state;
  static const int64_t steps[] = {1, 4};
  seed = test_seed(SEED);
  for (int round = 0; round < ROUNDS; round++) {
    const int64_t together = steps[below(2)], most = together * (1 + below(round % 2 ? 12 : 200));
    const int64_t column = together * below(MOST_COLUMNS / together), row = below(MOST_ROWS);
    const ls_box box = {row, 1 + below(MOST_ROWS - row), column,
                        together * (1 + below((MOST_COLUMNS - column) / together))};
    ls_stored_layout layout = {.ndim = 2, .transposed = round % 3 > 0};
    layout.dims[layout.transposed] = MOST_ROWS;
    layout.dims[!layout.transposed] = MOST_COLUMNS;
    check_tiles(&layout, &box, most, together);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(tiles_are_the_box)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
