#include "session/inputs.h"

#include <string.h>

#include "base/random.h"
#include "session/session.h"
#include "session/token_order.h"

static ls_status take_rows(void *context, int64_t step, int64_t first, int64_t count,
                           const ls_batch *batch, ls_error *error) {
  const ls_order *order = context;
  return ls_batch_fill(order, step, first / order->seq_len, count / order->seq_len, batch, error);
}

ls_inputs ls_inputs_of_order(const ls_order *order) {
  return (ls_inputs){.take = take_rows, .context = (void *)order};
}

/* Every token is of the first sentence where nobody says otherwise. */
static ls_batch batch_at(int32_t *staging, int64_t count) {
  const ls_batch batch = {.ids = staging,
                          .labels = staging + count,
                          .positions = staging + 2 * count,
                          .types = staging + 3 * count};
  memset(batch.types, 0, sizeof *batch.types * (size_t)count);
  return batch;
}

/* How many tokens of its document lie behind each, of whole sequences. */
static void count_behind(const int32_t *positions, int64_t count, int64_t sequence,
                         int32_t *remaining) {
  for (int64_t t = count - 1; t >= 0; t--) {
    const bool last = (t + 1) % sequence == 0 || positions[t + 1] != positions[t] + 1;
    remaining[t] = last ? 0 : remaining[t + 1] + 1;
  }
}

static int64_t document_end(const ls_batch *batch, int64_t begin, int64_t limit) {
  int64_t end = begin + 1;
  while (end < limit && batch->positions[end] != 0) end++;
  return end;
}

/* Of pairs of answers, as the loss of pairs counts them in whole sequences: behind what a reference
 * says of each token, 1 at the first label of each pair, 0 elsewhere. */
static void mark_pairs(const ls_batch *batch, int64_t count, int64_t sequence) {
  for (int64_t first = 0; batch->reference && first < count; first += sequence) {
    const int64_t limit = first + sequence < count ? first + sequence : count;
    for (int64_t begin = first, end; begin < limit; begin = end) {
      const int64_t middle = document_end(batch, begin, limit);
      if (middle >= limit) break; /* it is without another */
      end = document_end(batch, middle, limit);
      int64_t label = begin;
      while (label < end && batch->labels[label] < 0) label++;
      if (label < end) batch->reference[count + label] = 1;
    }
  }
}

/* Tokens of the sequences that this rank shares: *begin takes the first. */
static int64_t shared_tokens(const ls_rank *rank, int program, int64_t *begin) {
  const ls_program *from = ls_rank_program(rank, program);
  const ls_view ids = ls_rank_shape(rank, program, from->ids);
  const int64_t shared = ids.valid[0] * ls_mesh_size(&from->mesh, ls_mesh_context(&from->mesh));
  *begin = shared ? ids.start[0] / shared * shared : ids.start[0];
  return shared;
}

int64_t ls_inputs_token(const ls_rank *rank, int program, int64_t row) {
  const ls_program *from = ls_rank_program(rank, program);
  const ls_axes context = ls_mesh_context(&from->mesh);
  const int own = ls_mesh_index(&from->mesh, ls_rank_number(rank), ls_mesh_order(context));
  int64_t begin;
  shared_tokens(rank, program, &begin);
  return begin + ls_token_order(row, from->sequence, ls_mesh_size(&from->mesh, context), own);
}

/* Numbers that a token is told in: ids of a teacher, or words of a set of classes; and how many
 * tokens the sequences have that a rank shares. */
typedef struct told_columns {
  int64_t top, words, shared;
} told_columns;

static int64_t columns_of(const ls_program *program, int value) {
  return value < 0 ? 0 : program->values.items[value].global[1];
}

/* Of the sequences from token `begin` on that this rank shares, its `count` tokens; behind them,
 * which tokens of the microbatch these are, and how many of their documents follow. */
static void pick(const ls_rank *rank, int program, int64_t count, int64_t begin,
                 const ls_batch *whole, const int32_t *remaining, const told_columns *told,
                 ls_batch *batch) {
  int32_t *places = batch->ids + 4 * count;
  for (int64_t row = 0; row < count; row++) {
    const int64_t token = ls_inputs_token(rank, program, row), at = token - begin;
    batch->ids[row] = whole->ids[at];
    batch->labels[row] = whole->labels[at];
    batch->positions[row] = whole->positions[at];
    batch->types[row] = whole->types[at];
    places[row] = (int32_t)token;
    places[count + row] = remaining[at];
    for (int64_t j = 0; j < told->top; j++) {
      batch->top_ids[row * told->top + j] = whole->top_ids[at * told->top + j];
      batch->top_below[row * told->top + j] = whole->top_below[at * told->top + j];
    }
    if (batch->reference) {
      batch->reference[row] = whole->reference[at];
      batch->reference[count + row] = whole->reference[told->shared + at];
    }
    for (int64_t w = 0; w < told->words; w++)
      batch->sets[row * told->words + w] = whole->sets[at * told->words + w];
  }
}

/* One for each row: by the token's place in the step, whichever rank has it. */
static ls_status put_draws(const ls_inputs *inputs, ls_rank *rank, int program, int microbatch,
                           int slot, int64_t step, ls_error *error) {
  const ls_program *from = ls_rank_program(rank, program);
  if (from->draws < 0) return LS_OK;
  const int64_t count = ls_rank_shape(rank, program, from->draws).valid[0];
  const uint64_t stream = ls_random_stream("dropout") + (uint64_t)step;
  int32_t *draws = ls_rank_staging(rank);
  for (int64_t row = 0; row < count; row++) {
    const int64_t token = microbatch * from->tokens + ls_inputs_token(rank, program, row);
    draws[row] = (int32_t)(uint32_t)ls_random_bits(inputs->seed, stream, (uint64_t)token);
  }
  return ls_rank_put(rank, program, from->draws, slot, draws, count, error);
}

/* One for each row: its label's, or the mark of a pair. Of sets those of all classes. */
static ls_status put_weights(const ls_inputs *inputs, ls_rank *rank, int program, int slot,
                             const ls_batch *batch, int64_t count, ls_error *error) {
  const ls_program *from = ls_rank_program(rank, program);
  const int32_t *labels = batch->labels;
  if (from->weights < 0) return LS_OK;
  if (batch->reference)
    return ls_rank_put(rank, program, from->weights, slot, batch->reference + count, count, error);
  double *weights = ls_rank_staging_reference(rank);
  LS_ASSERT(inputs->weights);
  if (from->sets >= 0) {
    const ls_view classes = ls_rank_shape(rank, program, from->weights);
    memcpy(weights, inputs->weights + classes.start[0], sizeof *weights * (size_t)classes.valid[0]);
    return ls_rank_put(rank, program, from->weights, slot, weights, classes.valid[0], error);
  }
  for (int64_t row = 0; row < count; row++)
    weights[row] = labels[row] < 0 ? 0 : inputs->weights[labels[row]];
  return ls_rank_put(rank, program, from->weights, slot, weights, count, error);
}

/* The host's memory for what `count` tokens of this rank are told, and behind it `shared` of the
 * sequences that it shares. Of a teacher's word there is room in fp64 first, should that be asked;
 * then ids and logits. */
static void set_told(const ls_rank *rank, const told_columns *told, int64_t count, int64_t shared,
                     ls_batch *batch, ls_batch *whole) {
  double *wide = ls_rank_staging_top(rank);
  const int64_t numbers = count * told->top;
  if (told->words) {
    batch->sets = (int32_t *)wide;
    whole->sets = batch->sets + count * told->words;
  }
  if (numbers == 0) return;
  batch->top_ids = (int32_t *)(wide + numbers);
  batch->top_below = (float *)(batch->top_ids + numbers);
  whole->top_ids = (int32_t *)(batch->top_below + numbers);
  whole->top_below = (float *)(whole->top_ids + shared * told->top);
}

/* Likewise for two numbers of each token of pairs, all 0. */
static void set_pairs(const ls_rank *rank, int64_t count, int64_t shared, ls_batch *batch,
                      ls_batch *whole) {
  batch->reference = ls_rank_staging_reference(rank);
  memset(batch->reference, 0, sizeof *batch->reference * (size_t)(2 * (count + shared)));
  if (shared > 0) whole->reference = batch->reference + 2 * count;
}

static ls_status put_told(ls_rank *rank, int program, int slot, const ls_batch *batch,
                          int64_t numbers, ls_error *error) {
  const ls_program *from = ls_rank_program(rank, program);
  if (from->top_ids < 0) return LS_OK;
  const ls_dtype dtype = from->values.items[from->top_below].dtype;
  double *wide = ls_rank_staging_top(rank);
  LS_TRY(ls_rank_put(rank, program, from->top_ids, slot, batch->top_ids, numbers, error));
  if (dtype == LS_F64) ls_convert(wide, LS_F64, batch->top_below, LS_F32, numbers);
  return ls_rank_put(rank, program, from->top_below, slot,
                     dtype == LS_F64 ? (const void *)wide : batch->top_below, numbers, error);
}

ls_status ls_inputs_fill(const ls_inputs *inputs, ls_rank *rank, int program, int microbatch,
                         int64_t step, ls_error *error) {
  const ls_program *from = ls_rank_program(rank, program);
  const int slot = from->kind == LS_PROGRAM_STEP ? microbatch : 0;
  const ls_view ids = ls_rank_shape(rank, program, from->ids);
  const int64_t count = ids.valid[0];
  int32_t *staging = ls_rank_staging(rank);
  told_columns told = {columns_of(from, from->top_ids), columns_of(from, from->sets), 0};
  ls_batch batch = batch_at(staging, count), whole = {0};
  int32_t *places = staging + 4 * count;
  if (ls_mesh_size(&from->mesh, ls_mesh_context(&from->mesh)) == 1) {
    if (from->reference >= 0) set_pairs(rank, count, 0, &batch, &whole);
    set_told(rank, &told, count, 0, &batch, &whole);
    LS_TRY(inputs->take(inputs->context, step, microbatch * from->tokens + ids.start[0], count,
                        &batch, error));
    for (int64_t row = 0; row < count && from->places >= 0; row++)
      places[row] = (int32_t)ls_inputs_token(rank, program, row);
    count_behind(batch.positions, count, from->sequence, places + count);
    mark_pairs(&batch, count, from->sequence);
  } else {
    int64_t begin;
    const int64_t shared = told.shared = shared_tokens(rank, program, &begin);
    whole = batch_at(staging + 6 * count, shared);
    if (from->reference >= 0) set_pairs(rank, count, shared, &batch, &whole);
    set_told(rank, &told, count, shared, &batch, &whole);
    int32_t *remaining = staging + 6 * count + 4 * shared;
    LS_TRY(inputs->take(inputs->context, step, microbatch * from->tokens + begin, shared, &whole,
                        error));
    count_behind(whole.positions, shared, from->sequence, remaining);
    mark_pairs(&whole, shared, from->sequence);
    pick(rank, program, count, begin, &whole, remaining, &told, &batch);
  }
  if (from->places >= 0)
    LS_TRY(ls_rank_put(rank, program, from->places, slot, places, count, error));
  if (from->remaining >= 0)
    LS_TRY(ls_rank_put(rank, program, from->remaining, slot, places + count, count, error));
  if (from->types >= 0)
    LS_TRY(ls_rank_put(rank, program, from->types, slot, batch.types, count, error));
  LS_TRY(ls_rank_put(rank, program, from->ids, slot, batch.ids, count, error));
  LS_TRY(ls_rank_put(rank, program, from->positions, slot, batch.positions, count, error));
  if (from->reference >= 0)
    LS_TRY(ls_rank_put(rank, program, from->reference, slot, batch.reference, count, error));
  LS_TRY(put_weights(inputs, rank, program, slot, &batch, count, error));
  if (from->labels >= 0)
    LS_TRY(ls_rank_put(rank, program, from->labels, slot, batch.labels, count, error));
  LS_TRY(put_told(rank, program, slot, &batch, count * told.top, error));
  if (from->sets >= 0)
    LS_TRY(ls_rank_put(rank, program, from->sets, slot, batch.sets, count * told.words, error));
  return put_draws(inputs, rank, program, microbatch, slot, step, error);
}
