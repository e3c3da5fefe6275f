/* A CUDA kernel, run on the CPU by the shim, beside the reference's: operands of random numbers at
 * aligned and unaligned places, in three orders of threads and of blocks, whose results must be
 * the same bits. For the tests that include it, and support/cpu_makers.h before it.
 *
 *   cuda_run_case(&c, &(variant){.dtype = LS_BF16, .accumulate = true});
 *
 * With LS_NATIVE_GPU=1 the kernels run on GPU 0 (support/cuda_native.h). */
#ifndef LS_TESTS_CUDA_CASE_H
#define LS_TESTS_CUDA_CASE_H

#include "cuda/shim_run.h"
#include "device/cuda/kernels/cuda_launch.h"
#include "support/cpu_makers.h"
#include "support/cuda_native.h"
#include "support/cuda_slots.h"
#include "support/cuda_updates.h"

enum { CUDA_ORDERS = 3, CUDA_PROCESSORS = 3 };

/* Facts of a device of few multiprocessors, so that blocks go over rows again. */
static inline ls_device_facts cuda_facts(void) {
  ls_device_facts facts;
  const ls_accelerator of = {.id = "test", .architecture = 80, .processors = CUDA_PROCESSORS};
  assert_true(ls_device_facts_of(&of, &facts));
  return facts;
}

/* The same elements in memory of their own, which ends with them: at a multiple of 16 bytes, or
 * `shifted` by one element. */
static inline void cuda_place(ls_view *view, const operand *o, ls_dtype dtype, const void *data,
                              bool shifted) {
  const size_t bytes = (size_t)stored_count(o) * ls_dtype_bytes(dtype);
  const size_t before = shifted ? ls_dtype_bytes(dtype) : 0;
  char *memory = bytes_of(before + bytes);
  memcpy(memory + before, data, bytes);
  *view = view_of(o, dtype, memory + before);
}

static inline void cuda_release(ls_view *view, bool shifted) {
  free((char *)view->data - (shifted ? ls_dtype_bytes(view->dtype) : 0));
}

/* Runs what was chosen, in order; NULL, or what was wrong. */
static inline const char *cuda_launch_all(const ls_cuda_launches *launches, uint64_t seed) {
  for (int i = 0; i < launches->count; i++) {
    const ls_cuda_launch *launch = &launches->launch[i];
    const ls_shim_launch run = {.name = {launch->name[0], launch->name[1]},
                                .grid = {launch->grid[0], launch->grid[1], launch->grid[2]},
                                .block = launch->block,
                                .shared_bytes = launch->shared_bytes,
                                .arguments = &launch->arguments,
                                .argument_bytes = launch->argument_bytes};
    const char *wrong = ls_shim_run(&run, seed);
    if (wrong) return wrong;
  }
  return NULL;
}

/* What rounding takes off: of what is stored, and in attention of exponentials and of the gradients
 * of scores, which the products of matrices take in 16 bits (support/cpu_case.h has more). */
static inline double cuda_tolerance(const op_case *c, const variant *v, int output,
                                    ls_dtype stored) {
  const bool back = c->kind == LS_OP_ATTENTION_BWD || c->kind == LS_OP_RING_BWD;
  const bool attends = c->kind == LS_OP_ATTENTION || c->kind == LS_OP_RING_ATTENTION ||
                       c->kind == LS_OP_SINK_ATTENTION;
  const bool rounds = back || (attends && output == 0);
  if (v->dtype == LS_BF16 && rounds) return back ? 0x1p-7 : 0x1p-8;
  if (v->dtype == LS_F16 && rounds) return back ? 0x1p-9 : 0x1p-10;
  const bool fp8 = (c->kind == LS_OP_FP8 || c->kind == LS_OP_ROW_FP8) && !v->accumulate;
  if (c->kind == LS_OP_DEQUANTIZE && stored == LS_F32) return 0; /* the same bits */
  if (fp8 && stored != LS_F16) return 0;
  if (c->kind >= LS_OP_RANGE_AMAX && c->kind <= LS_OP_FP8_DECODE && !v->accumulate) return 0;
  if (stored == LS_BF16) return 0x1p-8;
  return stored == LS_F16 ? 0x1p-10 : 1e-5;
}

/* A call on the device: its operands are copies of `from`, in their types. */
static inline void cuda_call(const op_case *c, const variant *v, const ls_kernel_args *from,
                             bool shifted, uint64_t seed, ls_kernel_args *call) {
  *call = *from;
  ls_error error = {0};
  for (int i = 0; i < c->inputs; i++)
    cuda_place(&call->in[i], &c->in[i], from->in[i].dtype, from->in[i].data, shifted);
  for (int i = 0; i < c->outputs; i++) {
    if (c->in_place && i == 0)
      call->out[i] = view_of(&c->out[i], from->out[i].dtype, call->in[0].data);
    else
      cuda_place(&call->out[i], &c->out[i], from->out[i].dtype, from->out[i].data, shifted);
  }
  slots_shape(c, call);
  call->workspace_bytes = ls_device_workspace(call->queue->facts, c->kind, call);
  call->workspace = bytes_of(call->workspace_bytes);
  memset(call->workspace, 0xff, call->workspace_bytes);
  ls_cuda_launches launches;
  const char *wrong;
  if (native_here()) {
    wrong = native_run(native_here(), c, call);
  } else if (ls_cuda_choose(c->kind, call, &launches, &error) != LS_OK) {
    wrong = error.text;
  } else {
    wrong = cuda_launch_all(&launches, seed);
  }
  if (!wrong) return;
  describe(c, v, 0);
  fail_msg("%s", wrong);
}

static inline void cuda_call_end(const op_case *c, ls_kernel_args *call, bool shifted) {
  for (int i = c->in_place ? 1 : 0; i < c->outputs; i++) cuda_release(&call->out[i], shifted);
  for (int i = 0; i < c->inputs; i++) cuda_release(&call->in[i], shifted);
  free(call->workspace);
}

static inline void cuda_same_bits(const op_case *c, const variant *v, const ls_kernel_args *a,
                                  const ls_kernel_args *b) {
  for (int i = 0; i < c->outputs; i++) {
    const size_t bytes = (size_t)stored_count(&c->out[i]) * ls_dtype_bytes(a->out[i].dtype);
    if (!memcmp(a->out[i].data, b->out[i].data, bytes)) continue;
    describe(c, v, i);
    fail_msg("another order of threads gives other bits");
  }
}

static inline void cuda_compare(const op_case *c, const variant *v, const ls_kernel_args *got,
                                const ls_kernel_args *wanted) {
  const bool works = c->kind == LS_OP_ORTHOGONALISE; /* the others are memory to work in */
  for (int i = 0; i < (works ? 1 : c->outputs); i++)
    output_compare_within(c, v, i, &got->out[i], &wanted->out[i],
                          cuda_tolerance(c, v, i, got->out[i].dtype));
  if (c->kind == LS_OP_CACHED_ATTENTION || c->kind == LS_OP_CACHED_PART)
    caches_compare(c, v, got, wanted);
}

/* The input that has the labels of pairs, before the positions; -1: the op is not of pairs. */
static inline int cuda_pair_labels(ls_op_kind kind) {
  if (kind == LS_OP_PAIR_LOSS) return 3;
  if (kind == LS_OP_PAIR_LOSS_BWD || kind == LS_OP_PAIR_REWARDS) return 1;
  return kind == LS_OP_PAIR_SHARES ? 0 : -1;
}

/* And that which has tokens' rows, where they lie in an order of their own. */
static inline int cuda_pair_rows(ls_op_kind kind) {
  if (kind == LS_OP_PAIR_LOSS) return 6;
  if (kind == LS_OP_PAIR_LOSS_BWD) return 4;
  return kind == LS_OP_PAIR_REWARDS ? 3 : 2;
}

/* Rows of tokens from `start` on, or tokens of rows. */
static inline void cuda_pairs_shuffle(ls_view *device, ls_view *reference, int64_t start) {
  int32_t *order = device->data;
  for (int64_t n = 0; n < device->valid[0]; n++) {
    const int64_t other = random_below(n + 1);
    order[n] = order[other];
    order[other] = (int32_t)(start + n);
  }
  memcpy(reference->data, order, (size_t)device->valid[0] * sizeof *order);
}

/* Documents that begin at random. */
static inline void cuda_pairs_prepare(const op_case *c, ls_kernel_args *device,
                                      ls_kernel_args *reference) {
  const int at = cuda_pair_labels(c->kind) + 1, order = cuda_pair_rows(c->kind);
  const int64_t tokens = c->in[at].valid[0], mean = 1 + random_below(40);
  int32_t *positions = device->in[at].data, *row_of_token = NULL;
  if (order < c->inputs) {
    cuda_pairs_shuffle(&device->in[order], &reference->in[order], 0);
    row_of_token = device->in[order].data;
  }
  for (int64_t t = 0, position = 0; t < tokens; t++, position++) {
    if (t % c->attributes.sequence == 0 || random_below(mean) == 0) position = 0;
    positions[row_of_token ? row_of_token[t] : t] = (int32_t)position;
  }
  memcpy(reference->in[at].data, positions, (size_t)tokens * sizeof *positions);
}

/* The input that has positions, where places follow them; -1: there are none. */
static inline int cuda_placed_positions(const op_case *c) {
  if (c->kind == LS_OP_RING_ATTENTION || (c->kind == LS_OP_ATTENTION && c->inputs > 4)) return 3;
  if (c->kind == LS_OP_SINK_ATTENTION && c->inputs > 5) return 4;
  if (c->kind == LS_OP_RING_BWD || (c->kind == LS_OP_ATTENTION_BWD && c->inputs > 7)) return 6;
  return -1;
}

/* A rank has a chunk from the front of each sequence and one from the back; alone it has them in
 * order, or turned. Documents begin at random. */
static inline void cuda_places_prepare(const op_case *c, ls_kernel_args *device,
                                       ls_kernel_args *reference) {
  const int positions = cuda_placed_positions(c);
  const int64_t rows = c->in[positions].valid[0], turns = c->attributes.turns;
  const int64_t sequence = c->attributes.sequence, share = sequence / turns, chunk = share / 2;
  const bool turned = random_below(2);
  int32_t *places = device->in[positions + 1].data, *own = device->in[positions].data;
  int32_t *starts = bytes_of((size_t)(rows * turns) * sizeof *starts);
  const int64_t mean = 1 + random_below(2 * sequence);
  for (int64_t p = 0; p < rows * turns; p++)
    starts[p] = p % sequence == 0 || random_below(mean) == 0 ? (int32_t)p : starts[p - 1];
  for (int64_t row = 0; row < rows * turns; row++) {
    const int64_t rank = row / rows, first = row % rows / share * sequence, at = row % share;
    if (turns == 1)
      places[row] = (int32_t)(turned ? rows - 1 - row : row);
    else
      places[row] =
          (int32_t)(first + (at < chunk ? rank * chunk + at : sequence - (rank + 2) * chunk + at));
  }
  for (int64_t n = 0; n < rows; n++) {
    const int32_t place = places[c->in[positions < 6 ? 0 : 1].start[0] + n];
    own[n] = place - starts[place];
    if (!c->attributes.two_way) continue;
    int32_t last = place; /* of its document */
    while (last + 1 < rows * turns && starts[last + 1] == starts[place]) last++;
    ((int32_t *)device->in[positions + 2].data)[n] = last - place;
  }
  free(starts);
  if (c->attributes.two_way)
    memcpy(reference->in[positions + 2].data, device->in[positions + 2].data,
           (size_t)rows * sizeof *own);
  memcpy(reference->in[positions].data, own, (size_t)rows * sizeof *own);
  memcpy(reference->in[positions + 1].data, places, (size_t)(rows * turns) * sizeof *places);
}

/* `v`: of its threads and workspace nothing is read. */
static inline void cuda_run_case(const op_case *c, const variant *v) {
  const ls_device_facts facts = native_here() ? native_here()->device.facts : cuda_facts();
  const ls_device_queue queue = {.facts = &facts};
  const bool shifted = random_below(3) == 0;
  ls_kernel_table table;
  ls_error error = {0};
  ls_reference_kernels(&table, LS_F32);
  ls_kernel_args given = {
      .queue = &queue, .attributes = &c->attributes, .inputs = c->inputs, .outputs = c->outputs};
  ls_kernel_args reference = given;
  for (int i = 0; i < c->inputs; i++) {
    const ls_dtype dtype = dtype_of(&c->in[i], v->dtype);
    given.in[i] = view_of(&c->in[i], dtype, operand_make(&c->in[i], dtype, false));
    reference.in[i] = view_of(&c->in[i], dtype == LS_F64 ? LS_F64 : reference_dtype(dtype),
                              reference_copy(&c->in[i], dtype, given.in[i].data));
  }
  const bool attends = c->kind == LS_OP_ATTENTION || c->kind == LS_OP_ATTENTION_BWD ||
                       c->kind == LS_OP_SINK_ATTENTION;
  if (cuda_placed_positions(c) >= 0)
    cuda_places_prepare(c, &given, &reference);
  else if (attends && c->in[c->inputs - 1].kind == INDEX)
    documents_prepare(c, &given, &reference);
  if (c->kind == LS_OP_ATTENTION_BWD) attention_prepare(c, &given, &reference);
  if (c->kind == LS_OP_CACHED_ATTENTION || c->kind == LS_OP_CACHED_PART)
    cached_prepare(c, &given, &reference);
  dealt_prepare(c, &given, &reference);
  if (cuda_pair_labels(c->kind) >= 0) cuda_pairs_prepare(c, &given, &reference);
  if (c->kind == LS_OP_TOKEN_ROWS)
    cuda_pairs_shuffle(&given.in[0], &reference.in[0], given.in[0].start[0]);
  for (int i = 0; i < c->outputs; i++) {
    const ls_dtype dtype = dtype_of(&c->out[i], v->dtype);
    const bool shared = c->in_place && i == 0, garbage = !v->accumulate && !c->updates;
    void *data = shared ? given.in[0].data : operand_make(&c->out[i], dtype, garbage);
    given.out[i] = view_of(&c->out[i], dtype, data);
    reference.out[i] =
        view_of(&c->out[i], reference_dtype(dtype),
                shared ? reference.in[0].data : reference_copy(&c->out[i], dtype, data));
    given.accumulate[i] = reference.accumulate[i] = v->accumulate;
  }
  slots_prepare(c, &given, &reference);
  slots_shape(c, &reference);
  if (table.kernel[c->kind](&reference, &error) != LS_OK) fail_msg("%s", error.text);
  ls_kernel_args first, other;
  cuda_call(c, v, &given, shifted, 0, &first);
  cuda_compare(c, v, &first, &reference);
  for (int order = 1; order < CUDA_ORDERS; order++) {
    cuda_call(c, v, &given, shifted, random_bits() | 1, &other);
    cuda_same_bits(c, v, &first, &other);
    cuda_call_end(c, &other, shifted);
  }
  cuda_call_end(c, &first, shifted);
  args_free(&given, c->in_place);
  args_free(&reference, c->in_place);
}

/* A case in each type, written or added, in place or apart, as it falls. */
static inline void cuda_run_all(op_case *c) {
  static const ls_dtype dtypes[] = {LS_F32, LS_BF16, LS_F16};
  const bool may_be_in_place = c->in_place;
  for (int i = 0; i < 3; i++) {
    const variant v = {.dtype = dtypes[i],
                       .threads = 1,
                       .given_workspace = true,
                       .accumulate = !c->no_add && random_below(2)};
    c->in_place = may_be_in_place && !v.accumulate && random_below(2);
    cuda_run_case(c, &v);
  }
}

#endif
