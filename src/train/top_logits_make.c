#include "train/top_logits_make.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/stop.h"
#include "session/agree.h"
#include "session/forward.h"
#include "session/predictions.h"
#include "session/teacher.h"
#include "train/evaluate_ranks.h"

/* What a rank finds of a token in its part of the vocabulary: HEAD numbers, then `top` ids and as
 * many logits. */
enum { FOUND, LARGEST, SUM, HEAD };

typedef struct job {
  const ls_session *session;
  const ls_dataset *dataset;
  const ls_evaluating *told;
  const char *path;
  ls_top_about about;
  ls_top_made *made;
} job;

typedef struct pick {
  int32_t id;
  float log_prob;
} pick;

typedef struct teller {
  const job *of;
  ls_rank *rank;
  ls_arena *arena;
  ls_top_writer *writer; /* of rank 0 */
  int64_t parts, width;  /* of the vocabulary; numbers that each part of a token has */
  double *found;         /* [tokens of a microbatch, parts, width] */
  double *row, *ids, *logits;
  int32_t *tokens, *top_ids; /* ids, labels and positions of a sequence; what is told of it */
  float *log_probs;
  pick *picked;
  ls_top_made made;
} teller;

/* The worse of two: of equal ones the later id. A heap of them has the worst first. */
static bool worse(const double *ids, const double *logits, int64_t a, int64_t b) {
  return logits[a] < logits[b] || (logits[a] == logits[b] && ids[a] > ids[b]);
}

static void swap(double *values, int64_t a, int64_t b) {
  const double kept = values[a];
  values[a] = values[b];
  values[b] = kept;
}

static void sink(double *ids, double *logits, int64_t at, int64_t count) {
  for (int64_t child; (child = 2 * at + 1) < count; at = child) {
    if (child + 1 < count && worse(ids, logits, child + 1, child)) child++;
    if (!worse(ids, logits, child, at)) return;
    swap(ids, at, child);
    swap(logits, at, child);
  }
}

int64_t ls_top_pick(const double *from, int64_t first, int64_t count, int64_t top, double *ids,
                    double *logits, double *largest, double *sum) {
  const int64_t kept = top < count ? top : count;
  *largest = -INFINITY;
  *sum = 0;
  for (int64_t v = 0; v < count; v++)
    if (from[v] > *largest) *largest = from[v];
  for (int64_t v = 0; v < count; v++) *sum += exp(from[v] - *largest);
  for (int64_t v = 0; v < kept; v++) ids[v] = (double)(first + v), logits[v] = from[v];
  for (int64_t at = kept / 2; at-- > 0;) sink(ids, logits, at, kept);
  for (int64_t v = kept; v < count && kept > 0; v++) {
    if (from[v] <= logits[0]) continue;
    ids[0] = (double)(first + v);
    logits[0] = from[v];
    sink(ids, logits, 0, kept);
  }
  return kept;
}

/* Of a rank's rows and columns of the logits: each row's place is its token of the microbatch. */
static ls_status pick_rows(teller *self, int number, ls_error *error) {
  const ls_program *program = ls_rank_program(self->rank, number);
  if (!ls_gives_logits(program, ls_rank_number(self->rank))) return LS_OK;
  const ls_view part = ls_rank_shape(self->rank, number, program->logits);
  const ls_view ids = ls_rank_shape(self->rank, number, program->ids);
  const ls_value *value = &program->values.items[program->logits];
  const ls_axes cut = ls_placement_axes(&program->mesh, &value->placement, LS_SHARDED, 1);
  const int own = ls_mesh_index(&program->mesh, ls_rank_number(self->rank), ls_mesh_order(cut));
  const size_t row_bytes = (size_t)part.dims[1] * ls_dtype_bytes(part.dtype);
  const int64_t top = self->of->about.top;
  ls_arena *scratch = ls_arena_create();
  char *stored = ls_arena_alloc(scratch, (size_t)part.valid[0] * row_bytes + 1);
  const ls_status status = ls_rank_get(self->rank, number, program->logits, 0, stored,
                                       part.valid[0] * part.dims[1], error);
  for (int64_t r = 0; r < part.valid[0] && status == LS_OK; r++) {
    const int64_t token = ls_inputs_token(self->rank, number, part.start[0] - ids.start[0] + r);
    double *to = self->found + (token * self->parts + own) * self->width;
    ls_convert(self->row, LS_F64, stored + (size_t)r * row_bytes, part.dtype, part.valid[1]);
    to[FOUND] = (double)ls_top_pick(self->row, part.start[1], part.valid[1], top, to + HEAD,
                                    to + HEAD + top, &to[LARGEST], &to[SUM]);
  }
  ls_arena_destroy(&scratch);
  return status;
}

static int by_id(const void *a, const void *b) {
  const int32_t first = ((const pick *)a)->id, second = ((const pick *)b)->id;
  return (first > second) - (first < second);
}

/* What all parts of the vocabulary have found of a token, as one. */
static ls_status join(teller *self, const double *found, int32_t *ids, float *log_probs,
                      ls_error *error) {
  const int64_t top = self->of->about.top;
  double largest = -INFINITY, sum = 0;
  int64_t count = 0;
  for (int64_t p = 0; p < self->parts; p++)
    if (found[p * self->width + FOUND] > 0)
      largest = fmax(largest, found[p * self->width + LARGEST]);
  for (int64_t p = 0; p < self->parts; p++) {
    const double *part = found + p * self->width;
    if (part[FOUND] > 0) sum += part[SUM] * exp(part[LARGEST] - largest);
    for (int64_t j = 0; j < (int64_t)part[FOUND]; j++) {
      const bool full = count == top;
      self->ids[count] = part[HEAD + j];
      self->logits[count] = part[HEAD + top + j];
      if (full && !worse(self->ids, self->logits, 0, count)) continue;
      if (full) {
        self->ids[0] = self->ids[count];
        self->logits[0] = self->logits[count];
      } else if (++count < top) {
        continue;
      }
      for (int64_t at = full ? 1 : count / 2; at-- > 0;) sink(self->ids, self->logits, at, count);
    }
  }
  pick *picked = self->picked;
  const double total = largest + log(sum);
  if (!isfinite(total) || count != top)
    return ls_fail(error, LS_FAILED, "a logit of the teacher is no number");
  for (int64_t j = 0; j < top; j++)
    picked[j] = (pick){(int32_t)self->ids[j], (float)(self->logits[j] - total)};
  qsort(picked, (size_t)top, sizeof *picked, by_id);
  for (int64_t j = 0; j < top; j++) {
    ids[j] = picked[j].id;
    log_probs[j] = picked[j].log_prob;
    self->made.probability += exp((double)picked[j].log_prob);
  }
  return LS_OK;
}

/* Rank 0 writes the microbatch's sequences, from sample `first` of the order on. */
static ls_status write_sequences(teller *self, const ls_order *order, int64_t first, int64_t count,
                                 int64_t written, ls_error *error) {
  const int64_t length = order->seq_len, top = self->of->about.top;
  const ls_batch row = {
      .ids = self->tokens, .labels = self->tokens + length, .positions = self->tokens + 2 * length};
  for (int64_t r = 0; r < count && first + r < order->sequences; r++) {
    const int64_t sample = first + r;
    LS_TRY(ls_batch_fill(order, sample / order->batch, sample % order->batch, 1, &row, error));
    for (int64_t t = 0; t < length; t++)
      LS_TRY(join(self, self->found + (r * length + t) * self->parts * self->width,
                  self->top_ids + t * top, self->log_probs + t * top, error));
    LS_TRY(ls_top_writer_put(self->writer, written + sample, row.ids, row.positions, self->top_ids,
                             self->log_probs, error));
    self->made.sequences++;
    self->made.tokens += length;
  }
  return LS_OK;
}

/* Every sequence of a part once; `written`: those of the part before it. */
static ls_status tell_part(teller *self, const ls_order *part, int64_t written, double *sum,
                           ls_error *error) {
  const job *of = self->of;
  const bool first = ls_rank_number(self->rank) == 0;
  ls_order plain = *part;
  plain.shuffled = false;
  const ls_inputs inputs = ls_inputs_of_order(&plain);
  const int64_t batches = plain.sequences > 0 ? ls_order_batches(&plain) : 0;
  for (int64_t b = 0; b < batches; b++) {
    bool stops;
    LS_TRY(ls_agree_any(self->rank, ls_stop_asked(), "whether to stop", &stops, error));
    if (stops) return ls_fail(error, LS_STOPPED, "stopped; %s is not written", of->path);
    if (first && of->told->batch)
      of->told->batch(of->told->context, written / plain.batch + b,
                      (of->about.training + of->about.evaluation) / plain.batch + 1);
    for (int m = 0; m < of->session->layout.microbatches; m++) {
      int number;
      LS_TRY(ls_forward(of->session, self->rank, &inputs, m, b, &number, error));
      const int64_t tokens = ls_rank_program(self->rank, number)->tokens;
      const int64_t numbers = tokens * self->parts * self->width, rows = tokens / plain.seq_len;
      *sum += ls_rank_cell(self->rank, LS_CELL_LOSS_SUM);
      self->made.counted += (int64_t)ls_rank_cell(self->rank, LS_CELL_VALID_TOKENS);
      memset(self->found, 0, sizeof *self->found * (size_t)numbers);
      LS_TRY(pick_rows(self, number, error));
      LS_TRY(ls_all_reduce(ls_rank_world_group(self->rank), self->found, numbers, LS_F64, LS_SUM,
                           error));
      if (first)
        LS_TRY(write_sequences(self, &plain, b * plain.batch + m * rows, rows, written, error));
    }
  }
  return LS_OK;
}

/* Into how many parts ranks have cut the vocabulary. */
static ls_status count_parts(teller *self, ls_error *error) {
  const ls_program *program = ls_rank_program(self->rank, LS_SESSION_EVALUATE);
  self->parts = 1;
  if (program->logits >= 0) {
    const ls_value *value = &program->values.items[program->logits];
    self->parts = ls_mesh_size(&program->mesh,
                               ls_placement_axes(&program->mesh, &value->placement, LS_SHARDED, 1));
  }
  return ls_all_reduce(ls_rank_world_group(self->rank), &self->parts, 1, LS_I64, LS_MAX, error);
}

static void make_room(teller *self) {
  const ls_top_about *about = &self->of->about;
  const int64_t tokens = ls_rank_program(self->rank, LS_SESSION_EVALUATE)->tokens;
  self->width = HEAD + 2 * about->top;
  self->found = LS_NEW_ARRAY(self->arena, double, tokens * self->parts * self->width);
  self->row = LS_NEW_ARRAY(self->arena, double, about->vocabulary);
  self->ids = LS_NEW_ARRAY(self->arena, double, about->top + 1);
  self->logits = LS_NEW_ARRAY(self->arena, double, about->top + 1);
  self->picked = LS_NEW_ARRAY(self->arena, pick, about->top);
  self->tokens = LS_NEW_ARRAY(self->arena, int32_t, 3 * about->seq_len);
  self->top_ids = LS_NEW_ARRAY(self->arena, int32_t, about->seq_len * about->top);
  self->log_probs = LS_NEW_ARRAY(self->arena, float, about->seq_len * about->top);
}

static ls_status tell_all(teller *self, ls_error *error) {
  const job *of = self->of;
  double sum = 0;
  LS_TRY(tell_part(self, &of->dataset->training, 0, &sum, error));
  LS_TRY(tell_part(self, &of->dataset->evaluation, of->about.training, &sum, error));
  self->made.probability /= (double)(self->made.tokens > 0 ? self->made.tokens : 1);
  self->made.loss = sum / (double)self->made.counted;
  return ls_rank_number(self->rank) == 0 ? ls_top_writer_end(self->writer, error) : LS_OK;
}

static ls_status tell(void *context, ls_rank *rank, ls_arena *arena, bool first, ls_error *error) {
  const job *of = context;
  teller self = {.of = of, .rank = rank, .arena = arena};
  LS_TRY(count_parts(&self, error));
  make_room(&self);
  ls_status status = LS_OK;
  if (ls_rank_number(rank) == 0)
    status = ls_top_writer_begin(arena, of->path, &of->about, &self.writer, error);
  status = ls_agree(rank, status, error);
  if (status == LS_OK) status = tell_all(&self, error);
  if (status != LS_OK) ls_top_writer_abandon(self.writer);
  if (first && status == LS_OK) *of->made = self.made;
  return status;
}

ls_status ls_top_logits_make(const ls_session *session, const ls_dataset *dataset, ls_world *world,
                             const ls_evaluating *told, const char *path, int64_t top,
                             ls_top_made *made, ls_error *error) {
  job all = {session,
             dataset,
             told,
             path,
             {.teacher = session->run->model,
              .dataset = ls_teacher_dataset(session->arena, dataset),
              .vocabulary = session->config.vocabulary,
              .seq_len = session->sequence,
              .top = top,
              .training = dataset->training.sequences,
              .evaluation = dataset->evaluation.sequences},
             made};
  return ls_evaluate_ranks(session, world, tell, &all, error);
}
