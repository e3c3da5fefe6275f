/* Products of a GPU against the reference, without one: cuBLASLt's and the driver's stand-ins, on
 * random shapes that are multiples of nothing, padded, in fp32, bf16 and fp16, written and added.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "support/cpu_makers.h"
#include "support/test_seed.h"

enum { CASES = 80, ALIGNMENT = 256, BYTES = 96 << 20 };

/* Operands of a call: ours and the reference's, of the same numbers. */
typedef struct call {
  ls_kernel_args ours, reference;
} call;

static ls_view placed(const operand *o, ls_dtype dtype, const void *data, char **at,
                      const ls_device *device) {
  ls_error error = {0};
  const size_t bytes = (size_t)stored_count(o) * ls_dtype_bytes(dtype);
  const ls_view view = view_of(o, dtype, *at);
  if (device->memory->write(*at, data, bytes, &error) != LS_OK) fail_msg("%s", error.text);
  *at += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  return view;
}

/* What ops before a product in fp8 do: rows of the first operand, all of the weight, are rounded.
 */
static void round_operand(const op_case *c, int which, const operand *o, uint16_t *numbers) {
  const ls_fp8 format = which == 0 && c->kind != LS_OP_LINEAR ? LS_FP8_E5M2 : LS_FP8_E4M3;
  const int64_t each = which == 0 ? o->dims[1] : stored_count(o);
  for (int64_t first = 0; first < stored_count(o); first += each) {
    float largest = 0;
    /* Tokens' magnitudes are apart, so that one with another's scale is seen. */
    const float times = which == 0 ? ldexpf(1, (int)random_below(24) - 12) : 0.02f;
    for (int64_t i = first; i < first + each; i++) {
      numbers[i] = ls_f32_to_bf16(ls_bf16_to_f32(numbers[i]) * times);
      largest = fmaxf(largest, fabsf(ls_bf16_to_f32(numbers[i])));
    }
    const int scale = ls_fp8_scale(format, largest);
    for (int64_t i = first; i < first + each; i++) {
      const double value = ldexp((double)ls_bf16_to_f32(numbers[i]), scale);
      numbers[i] = ls_f32_to_bf16((float)ldexp(ls_fp8_round(format, value), -scale));
    }
  }
}

static void make_call(const op_case *c, const variant *v, const ls_device *device, char *at,
                      call *made) {
  const ls_kernel_args given = {.attributes = &c->attributes, .inputs = 2, .outputs = 1};
  made->ours = made->reference = given;
  for (int i = 0; i < 3; i++) {
    const operand *o = i < 2 ? &c->in[i] : &c->out[0];
    const ls_dtype dtype = dtype_of(o, v->dtype);
    void *data = operand_make(o, dtype, i == 2 && !v->accumulate);
    if (i < 2 && c->attributes.fp8) round_operand(c, i, o, data);
    ls_view *ours = i < 2 ? &made->ours.in[i] : &made->ours.out[0];
    *ours = placed(o, dtype, data, &at, device);
    *(i < 2 ? &made->reference.in[i] : &made->reference.out[0]) =
        view_of(o, reference_dtype(dtype), reference_copy(o, dtype, data));
    free(data);
  }
  made->ours.accumulate[0] = made->reference.accumulate[0] = v->accumulate;
  made->ours.workspace = at;
  made->ours.workspace_bytes = ls_device_workspace(&device->facts, c->kind, &made->ours);
}

/* A third input of a product, which the reference adds by itself. */
static void add_bias(const op_case *c, const variant *v, const ls_device *device, char *at,
                     call *made) {
  const operand bias = vector_of(COMPUTE, c->out[0].valid[1]);
  ls_kernel_table table;
  ls_error error = {0};
  void *data = operand_make(&bias, v->dtype, false);
  ls_reference_kernels(&table, LS_F32);
  made->ours.in[2] = placed(&bias, v->dtype, data, &at, device);
  made->ours.inputs = 3;
  ls_kernel_args then = {.attributes = &c->attributes, .inputs = 2, .outputs = 1};
  then.in[0] = then.out[0] = made->reference.out[0];
  then.in[1] = view_of(&bias, reference_dtype(v->dtype), reference_copy(&bias, v->dtype, data));
  assert_int_equal(table.kernel[LS_OP_BIAS](&then, &error), LS_OK);
  free(then.in[1].data);
  free(data);
}

static void run_case(const op_case *c, const variant *v, const ls_device *device,
                     const ls_device_queue *queue, char *memory) {
  ls_kernel_table table;
  ls_error error = {0};
  call made;
  ls_reference_kernels(&table, LS_F32);
  make_call(c, v, device, memory, &made);
  made.ours.queue = queue;
  assert_int_equal(table.kernel[c->kind](&made.reference, &error), LS_OK);
  const bool makes = c->kind == LS_OP_LINEAR || c->kind == LS_OP_LINEAR_BLOCKS;
  if (makes && !v->accumulate && random_below(2))
    add_bias(c, v, device, memory + BYTES - ALIGNMENT * 64, &made);
  if (device->kernels[LS_TIER_DEVICE].kernel[c->kind](&made.ours, &error) != LS_OK ||
      device->wait(queue, &error) != LS_OK) {
    describe(c, v, 0);
    fail_msg("%s", error.text);
  }
  ls_view got = made.ours.out[0];
  const size_t bytes = (size_t)stored_count(&c->out[0]) * ls_dtype_bytes(got.dtype);
  got.data = malloc(bytes);
  assert_int_equal(device->memory->read(got.data, made.ours.out[0].data, bytes, &error), LS_OK);
  output_compare(c, v, 0, &got, &made.reference.out[0]);
  free(got.data);
  for (int i = 0; i < 2; i++) free(made.reference.in[i].data);
  free(made.reference.out[0].data);
}

/* Columns and depths that are no multiples of 8 and long enough to be taken in parts. */
static void make_odd(op_case *c) {
  static const int64_t sizes[] = {521, 515, 1003};
  const int64_t n = 600 + random_below(9), m = pick(sizes, 3), k = pick(sizes, 3);
  const operand nk = matrix_of(n, k, 1, 64 - k % 64), mk = matrix_of(m, k, 1, 64 - k % 64);
  const operand nm = matrix_of(n, m, 1, 64 - m % 64);
  c->kind = (ls_op_kind[]){LS_OP_LINEAR, LS_OP_LINEAR_DX, LS_OP_LINEAR_DW}[random_below(3)];
  c->inputs = 2, c->outputs = 1;
  switch (c->kind) {
    case LS_OP_LINEAR: c->in[0] = nk, c->in[1] = mk, c->out[0] = nm; break;
    case LS_OP_LINEAR_DX: c->in[0] = nm, c->in[1] = mk, c->out[0] = nk; break;
    default: c->in[0] = nm, c->in[1] = nk, c->out[0] = mk, c->out[0].kind = SUMS; break;
  }
}

static ls_device gpu;
static ls_device_queue gpu_queues[LS_DEVICE_QUEUES];
static char *gpu_memory;

static int enter(void **state) {
  (void)state;
  ls_error error = {0};
  const ls_device_options options = {.kind = "cuda", .compute = LS_BF16};
  if (ls_device_open(&options, &gpu, &error) != LS_OK) fail_msg("%s", error.text);
  assert_int_equal(gpu.enter(&gpu, &(ls_device_place){0, 0}, gpu_queues, &error), LS_OK);
  int none;
  gpu_memory = gpu.memory->reserve(BYTES, false, &none);
  assert_non_null(gpu_memory);
  return 0;
}

static int leave(void **state) {
  (void)state;
  gpu.memory->release(gpu_memory, BYTES);
  gpu.leave(gpu_queues);
  return 0;
}

static void products_are_the_references(void **state) {
  (void)state;
  static const ls_dtype dtypes[] = {LS_F32, LS_BF16, LS_F16};
  for (int n = 0; n < CASES; n++) {
    op_case c = {0};
    if (n % 10 < 6)
      make_linear(&c);
    else if (n % 10 < 8)
      make_linear_blocks(&c);
    else
      make_odd(&c);
    const variant v = {.dtype = dtypes[n % 3], .threads = 1, .accumulate = random_below(2)};
    const ls_dtype sums = dtype_of(&c.out[0], v.dtype);
    if (sums != v.dtype && sums != LS_F32) continue; /* the library has none */
    run_case(&c, &v, &gpu, &gpu_queues[LS_TIER_DEVICE], gpu_memory);
  }
}

/* Which the stand-in has counted; -1: it is the real library. */
static long products_of_codes(void) {
  void *handle = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_NOLOAD);
  long (*count)(const char *) = NULL;
  if (!handle) return -1;
  *(void **)&count = dlsym(handle, "ls_stand_in_count");
  dlclose(handle);
  return count ? count("products of codes") : -1;
}

/* y = x w^T or dx = dy w of operands that were rounded to fp8. `multiple`: of the output's rows. */
static void make_codes(op_case *c, int64_t multiple) {
  static const int64_t sizes[] = {1, 15, 16, 48, 72, 130, 257};
  const int64_t n = 1 + random_below(40), m = pick(sizes, 7), k = pick(sizes, 7);
  const bool back = random_below(2);
  const int64_t pad_m = (multiple - m % multiple) % multiple;
  const int64_t pad_k = (multiple - k % multiple) % multiple;
  const operand nk = matrix_of(n, k, random_below(3), pad_k);
  const operand nm = matrix_of(n, m, random_below(3), pad_m);
  c->kind = back ? LS_OP_LINEAR_DX : LS_OP_LINEAR;
  c->attributes.fp8 = LS_FP8_E4M3;
  c->inputs = 2, c->outputs = 1;
  c->in[0] = back ? nm : nk, c->in[1] = matrix_of(m, k, 0, pad_k), c->out[0] = back ? nk : nm;
}

/* With scales of rows in the product, and by a pass over it; where rows of the output are no
 * multiple of 16 numbers, or are added to by a pass, the product is one of numbers. */
static void products_of_codes_are_those_of_numbers(void **state) {
  (void)state;
  const bool counted = products_of_codes() >= 0;
  const ls_fp8_products here = gpu.facts.fp8;
  if (counted) assert_int_equal(here, LS_FP8_IN_PRODUCT);
  for (int n = 0; n < CASES; n++) {
    op_case c = {0};
    const variant v = {.dtype = LS_BF16, .threads = 1, .accumulate = random_below(3) == 0};
    make_codes(&c, n % 8 > 5 ? 1 : 16);
    gpu.facts.fp8 = here && n % 2 ? LS_FP8_BY_PASS : here;
    const bool takes = c.out[0].dims[1] % 16 == 0 && (n % 2 == 0 || !v.accumulate);
    const long before = products_of_codes();
    run_case(&c, &v, &gpu, &gpu_queues[LS_TIER_DEVICE], gpu_memory);
    const long made = products_of_codes() - before;
    const bool biased = takes && !made && c.out[0].dims[1] > c.out[0].valid[1];
    if (!counted || made == takes || biased) continue;
    describe(&c, &v, 0);
    fail_msg("%ld products of codes", made);
  }
  gpu.facts.fp8 = here;
}

int main(void) {
  random_state = test_seed(20261128);
  const struct CMUnitTest tests[] = {cmocka_unit_test(products_are_the_references),
                                     cmocka_unit_test(products_of_codes_are_those_of_numbers)};
  return cmocka_run_group_tests(tests, enter, leave);
}
