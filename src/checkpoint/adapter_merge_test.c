/* What adapters add to a weight, however its file keeps it and wherever it is cut. */
#include "checkpoint/adapter_merge.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "support/test_folder.h"

enum { RANK = 2, IN = 5, OUT = 3 };

static const float a[RANK][IN] = {{1, 2, 3, 4, 5}, {-1, 0, 1, 0, 2}};
static const float b[OUT][RANK] = {{1, 2}, {0, -3}, {0.5f, 1}};

static ls_safetensors *adapters(void) {
  static const int64_t of_a[] = {RANK, IN}, of_b[] = {OUT, RANK};
  const ls_tensor_spec specs[] = {
      {.name = "base_model.model.x.proj.lora_A.weight", .dtype = LS_F32, .ndim = 2, .dims = of_a},
      {.name = "base_model.model.x.proj.lora_B.weight", .dtype = LS_F32, .ndim = 2, .dims = of_b}};
  ls_safetensors_writer *writer = NULL;
  ls_safetensors *opened;
  ls_error error = {0};
  assert_int_equal(ls_safetensors_create_shards(folder, "adapter_model", 1 << 20, specs, 2, NULL, 0,
                                                &writer, &error),
                   LS_OK);
  assert_int_equal(ls_safetensors_append(writer, a, sizeof a, &error), LS_OK);
  assert_int_equal(ls_safetensors_append(writer, b, sizeof b, &error), LS_OK);
  assert_int_equal(ls_safetensors_finish(&writer, &error), LS_OK);
  assert_int_equal(ls_safetensors_open(folder, "adapter_model", &opened, &error), LS_OK);
  return opened;
}

/* scale B A, at an element of the product's own [out, in]. */
static double expected(int out, int in, double scale) {
  double sum = 0;
  for (int k = 0; k < RANK; k++) sum += (double)b[out][k] * (double)a[k][in];
  return scale * sum;
}

static void a_product_is_added(void **state) {
  (void)state;
  ls_safetensors *opened = adapters();
  ls_error error = {0};
  for (int transposed = 0; transposed < 2; transposed++)
    for (int64_t at_once = 1; at_once <= IN * OUT; at_once++) {
      const ls_stored_layout layout = {.name = "x.proj.weight",
                                       .ndim = 2,
                                       .dims = {transposed ? IN : OUT, transposed ? OUT : IN},
                                       .transposed = transposed};
      ls_adapter_product product;
      assert_int_equal(ls_adapter_product_read(arena, opened, &layout, 1.5, &product, &error),
                       LS_OK);
      assert_int_equal(product.rank, RANK);
      double values[IN * OUT];
      for (int i = 0; i < IN * OUT; i++) values[i] = 100 * i;
      for (int64_t first = 0; first < IN * OUT; first += at_once) {
        const int64_t left = IN * OUT - first;
        ls_adapter_product_add(&product, first, left < at_once ? left : at_once, values + first);
      }
      for (int i = 0; i < IN * OUT; i++) {
        const int out = transposed ? i % OUT : i / IN, in = transposed ? i / OUT : i % IN;
        assert_true(fabs(values[i] - 100 * i - expected(out, in, 1.5)) < 1e-12);
      }
    }
  ls_safetensors_close(&opened);
}

static void others_have_none(void **state) {
  (void)state;
  ls_safetensors *opened = adapters();
  static const char *const names[] = {"x.other.weight", "x.proj.bias", "x.proj", "weight"};
  for (int n = 0; n < 4; n++) {
    const ls_stored_layout layout = {.name = names[n], .ndim = 2, .dims = {OUT, IN}};
    ls_adapter_product product;
    ls_error error = {0};
    assert_int_equal(ls_adapter_product_read(arena, opened, &layout, 1.5, &product, &error), LS_OK);
    assert_int_equal(product.rank, 0);
  }
  ls_safetensors_close(&opened);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_product_is_added, set_up, tear_down),
      cmocka_unit_test_setup_teardown(others_have_none, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
