#include "verify/verify.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/sets.h"
#include "run/rank_threads.h"
#include "session/fit.h"
#include "session/offload_room.h"
#include "session/predictions.h"
#include "session/prove.h"
#include "session/scores.h"
#include "session/step.h"
#include "store/weights.h"
#include "text/run_keys.h"
#include "verify/verify_tolerances.h"

static const char *const kind_names[LS_VERIFY_KINDS] = {"loss", "gradient norm", "logits of step 0",
                                                        "gradients of step 0", "final parameters"};

const char *ls_verify_kind_name(ls_verify_kind kind) {
  return kind_names[kind];
}

/* What all rank threads share. Only the recording rank writes to the rows. */
typedef struct task {
  ls_verification *about;
  const ls_session *session;
  const ls_weights *gradients;      /* the reference's, of step 0 */
  const ls_trace_summary **summary; /* by tensor of the plan */
  double *logits;                   /* the reference's, of row 0 */
  ls_verify_tolerances tolerances;
  double squares; /* of differences between final parameters */
  int recorder;   /* rank */
} task;

typedef struct worker {
  task *of;
  ls_rank *rank;
  ls_arena *arena;
  bool records;
  int running; /* the program that made the last step */
} worker;

/* Enters a difference; NaN is the worst of all. */
static void record(task *of, ls_verify_kind kind, int64_t compared, double difference,
                   double tolerance, const char *where) {
  ls_verify_row *row = &of->about->rows[kind];
  const bool ok = difference <= tolerance;
  const bool first = row->compared == 0;
  row->compared += compared;
  /* Products, since a tolerance may be zero. */
  const bool worse =
      isnan(difference) || difference * row->tolerance > row->worst * tolerance || (row->ok && !ok);
  if (!first && (isnan(row->worst) || !worse)) return;
  row->worst = difference;
  row->tolerance = tolerance;
  row->ok = ok;
  snprintf(row->where, sizeof row->where, "%s", where);
}

/* The largest of the differences of `count` numbers, less what the rounding of theirs explains. */
static double largest_difference(const double *ours, const double *theirs, int64_t count,
                                 double rounding, int64_t *index) {
  double largest = -1;
  *index = 0;
  for (int64_t i = 0; i < count; i++) {
    double difference = fabs(ours[i] - theirs[i]) - rounding * fabs(theirs[i]);
    if (difference < 0) difference = 0;
    if (difference <= largest) continue;
    *index = i;
    largest = difference;
    if (isnan(difference)) return difference;
  }
  return largest;
}

static ls_status take_tokens(void *context, int64_t step, int64_t first, int64_t count,
                             const ls_batch *batch, ls_error *error) {
  (void)error;
  const ls_trace *trace = context;
  const int64_t begin = step * trace->rows * trace->sequence + first;
  for (int64_t i = 0; i < count; i++) {
    batch->ids[i] = ls_trace_token(trace, begin + i);
    batch->labels[i] = ls_trace_token(trace, begin + i + 1);
    batch->positions[i] = (int32_t)((first + i) % trace->sequence);
  }
  return LS_OK;
}

/* Of rows that are given. */
static ls_status take_given(void *context, int64_t step, int64_t first, int64_t count,
                            const ls_batch *batch, ls_error *error) {
  (void)error;
  const ls_trace *trace = context;
  const ls_trace_given *given = &trace->given;
  const int64_t begin = step * trace->rows * trace->sequence + first;
  for (int64_t i = 0; i < count; i++) {
    batch->ids[i] = given->ids[begin + i];
    batch->labels[i] = given->labels[begin + i];
    batch->positions[i] =
        given->positions ? given->positions[begin + i] : (int32_t)((first + i) % trace->sequence);
    if (given->types) batch->types[i] = given->types[begin + i];
    if (batch->sets)
      memcpy(batch->sets + i * given->set_words,
             given->sets + (begin + i) / trace->sequence * given->set_words,
             sizeof *given->sets * (size_t)given->set_words);
  }
  return LS_OK;
}

/* Those of pairs. */
typedef struct pair_inputs {
  const ls_trace *trace;
  double *reference; /* [steps x rows x 2] log-probabilities of both answers; NULL: 0 */
} pair_inputs;

static ls_status take_pairs(void *context, int64_t step, int64_t first, int64_t count,
                            const ls_batch *batch, ls_error *error) {
  (void)error;
  const pair_inputs *self = context;
  const ls_trace_pairs *pairs = &self->trace->pairs;
  const int64_t half = self->trace->sequence / 2;
  const int64_t begin = step * self->trace->rows * self->trace->sequence + first;
  for (int64_t i = 0; i < count; i++) {
    const int64_t at = (begin + i) % half;
    batch->ids[i] = pairs->ids[begin + i];
    batch->labels[i] = pairs->labels[begin + i];
    batch->positions[i] = (int32_t)at;
    if (self->reference) batch->reference[i] = 0;
  }
  for (int64_t i = 0; self->reference && i + half <= count; i += half) {
    int64_t label = i;
    while (label < i + half - 1 && batch->labels[label] < 0) label++;
    batch->reference[label] = self->reference[(begin + i) / half];
  }
  return LS_OK;
}

/* What the start makes of every pair; the first step's are held against the trace's. */
static ls_status find_reference(const worker *self, double *reference, ls_error *error) {
  task *of = self->of;
  const ls_trace *trace = of->about->trace;
  const pair_inputs plain = {.trace = trace};
  const ls_inputs inputs = {.take = take_pairs, .context = (void *)&plain};
  const int64_t half = trace->sequence / 2;
  ls_arena *scratch = ls_arena_create();
  double *scores = LS_NEW_ARRAY(scratch, double, trace->rows * trace->sequence);
  ls_status status = LS_OK;
  for (int64_t s = 0; s < trace->steps && status == LS_OK; s++) {
    status = ls_score_batch(of->session, self->rank, &inputs, s, scores, error);
    for (int64_t d = 0; d < 2 * trace->rows; d++)
      reference[s * 2 * trace->rows + d] = scores[d * half];
  }
  ls_arena_destroy(&scratch);
  LS_TRY(status);
  for (int r = 0; r < trace->pairs.count && self->records; r++) {
    const double off = fmax(fabs(reference[2 * r] - trace->pairs.chosen[r]),
                            fabs(reference[2 * r + 1] - trace->pairs.rejected[r]));
    record(of, LS_VERIFY_LOGITS, 2, off, (double)half * of->tolerances.logits,
           "log-probabilities of answers");
  }
  return LS_OK;
}

static double rate_at(const void *context, int64_t step) {
  const ls_trace *trace = context;
  return trace->step[step].learning_rate;
}

/* Of the logits. */
static int64_t columns_of(const task *of) {
  const ls_model_config *config = &of->session->config;
  return config->classes ? config->classes : config->vocabulary;
}

/* Logits of the first `rows` tokens, assembled from the ranks that hold them. */
static ls_status gather_logits(const worker *self, ls_arena *scratch, int64_t rows, double *whole,
                               ls_error *error) {
  const ls_program *program = ls_rank_program(self->rank, LS_SESSION_EVALUATE);
  const int64_t columns = columns_of(self->of);
  memset(whole, 0, sizeof *whole * (size_t)(rows * columns));
  if (ls_gives_logits(program, ls_rank_number(self->rank))) {
    const ls_view part = ls_rank_shape(self->rank, LS_SESSION_EVALUATE, program->logits);
    const size_t row_bytes = (size_t)part.dims[1] * ls_dtype_bytes(part.dtype);
    const int64_t first = ls_rank_shape(self->rank, LS_SESSION_EVALUATE, program->ids).start[0];
    char *stored = ls_arena_alloc(scratch, (size_t)part.valid[0] * row_bytes);
    LS_TRY(ls_rank_get(self->rank, LS_SESSION_EVALUATE, program->logits, 0, stored,
                       part.valid[0] * part.dims[1], error));
    for (int64_t r = 0; r < part.valid[0]; r++) {
      const int64_t token =
          ls_inputs_token(self->rank, LS_SESSION_EVALUATE, part.start[0] - first + r);
      if (token < rows)
        ls_convert(whole + token * columns + part.start[1], LS_F64, stored + (size_t)r * row_bytes,
                   part.dtype, part.valid[1]);
    }
  }
  return ls_all_reduce(ls_rank_world_group(self->rank), whole, rows * columns, LS_F64, LS_SUM,
                       error);
}

/* Of the first row's logits those that the reference tells: of a text with a class the ones at its
 * last token. */
static void compare_logits(task *of, ls_arena *scratch, const double *ours, int64_t rows) {
  const int32_t *labels = of->about->trace->correct ? of->about->trace->given.labels : NULL;
  const int64_t columns = columns_of(of);
  int64_t first = 0, at;
  while (labels && labels[first] < 0) first++;
  const int64_t told = labels ? 1 : rows;
  const double worst = largest_difference(ours + first * columns, of->logits, told * columns,
                                          of->tolerances.rounding, &at);
  record(of, LS_VERIFY_LOGITS, told * columns, worst, of->tolerances.logits,
         ls_arena_printf(scratch, "token %lld, id %lld", (long long)(first + at / columns),
                         (long long)(at % columns)));
}

static ls_status check_logits(const worker *self, const ls_inputs *inputs, ls_error *error) {
  task *of = self->of;
  const int64_t rows = of->about->trace->sequence, columns = columns_of(of);
  LS_TRY(ls_inputs_fill(inputs, self->rank, LS_SESSION_EVALUATE, 0, 0, error));
  LS_TRY(ls_rank_run(self->rank, LS_SESSION_EVALUATE, error));
  ls_arena *scratch = ls_arena_create();
  double *ours = LS_NEW_ARRAY(scratch, double, rows *columns);
  const ls_status status = gather_logits(self, scratch, rows, ours, error);
  if (status == LS_OK && self->records) compare_logits(of, scratch, ours, rows);
  ls_arena_destroy(&scratch);
  return status;
}

/* A tensor as the reference stores it, made of this run's parameters or their gradients, in fp64.
 * Collective. */
static ls_status read_stored(const worker *self, ls_arena *scratch, const ls_stored_layout *layout,
                             ls_state_part part, double **stored, int64_t *count, ls_error *error) {
  const ls_program *program = ls_rank_program(self->rank, self->running);
  const ls_dtype dtype = program->layout.compute == LS_F64 ? LS_F64 : LS_F32;
  const double scale = part == LS_PART_GRADIENT ? ls_rank_cell(self->rank, LS_CELL_SCALE) : 1;
  *count = ls_stored_elements(layout);
  *stored = LS_NEW_ARRAY(scratch, double, *count);
  for (int i = 0; i < layout->pieces.count; i++) {
    const ls_weight_piece *piece = &layout->pieces.items[i];
    const int p = piece->parameter;
    const int64_t columns =
        ls_program_parameter_elements(&program->parameters[p]) / program->parameters[p].dims[0];
    const int64_t first = piece->first * columns, elements = piece->rows * columns;
    if (part == LS_PART_GRADIENT && !program->parameters[p].trainable) continue;
    void *read = LS_NEW_ARRAY(scratch, double, elements);
    double *wide = LS_NEW_ARRAY(scratch, double, elements);
    LS_TRY(
        ls_rank_read_parameter(self->rank, program, p, part, first, elements, read, dtype, error));
    ls_convert(wide, LS_F64, read, dtype, elements);
    for (int64_t e = 0; e < elements; e++) wide[e] /= scale;
    ls_stored_lay(&(ls_weight_place){layout, piece, NULL}, LS_F64, wide, *stored);
  }
  return LS_OK;
}

static ls_status check_gradient(const worker *self, ls_arena *scratch, int tensor,
                                ls_error *error) {
  task *of = self->of;
  const ls_stored_layout *layout = &ls_weights_layout(of->gradients)->tensors[tensor];
  double *ours;
  int64_t count, at;
  LS_TRY(read_stored(self, scratch, layout, LS_PART_GRADIENT, &ours, &count, error));
  if (!self->records) return LS_OK;
  double *theirs = LS_NEW_ARRAY(scratch, double, count);
  LS_TRY(ls_stored_tensor_read(ls_weights_tensor(of->gradients, tensor), 0, count, LS_F64, theirs,
                               error));
  const double worst = largest_difference(ours, theirs, count, of->tolerances.rounding, &at);
  record(of, LS_VERIFY_GRADIENTS, count, worst, of->tolerances.gradients,
         ls_arena_printf(scratch, "%s, element %lld", layout->name, (long long)at));
  return LS_OK;
}

static void record_parameter(task *of, double difference, const char *where) {
  of->squares += difference * difference;
  record(of, LS_VERIFY_PARAMETERS, 1, difference, of->tolerances.parameters, where);
}

static void compare_summary(task *of, ls_arena *scratch, const ls_trace_summary *theirs,
                            const double *ours, int64_t count) {
  const double root = sqrt((double)count);
  double squares = 0, sum = 0;
  for (int64_t i = 0; i < count; i++) {
    squares += ours[i] * ours[i];
    sum += ours[i];
  }
  record_parameter(of, fabs(sqrt(squares) - theirs->l2) / root,
                   ls_arena_printf(scratch, "%s, l2", theirs->name));
  record_parameter(of, fabs(sum - theirs->sum) / root,
                   ls_arena_printf(scratch, "%s, sum", theirs->name));
  for (int i = 0; i < theirs->edge; i++) {
    record_parameter(of, fabs(ours[i] - theirs->first[i]),
                     ls_arena_printf(scratch, "%s, element %d", theirs->name, i));
    const int64_t at = count - theirs->edge + i;
    record_parameter(of, fabs(ours[at] - theirs->last[i]),
                     ls_arena_printf(scratch, "%s, element %lld", theirs->name, (long long)at));
  }
}

/* Where each number alone may be far off, all together may not. */
static void check_mean(task *of) {
  const double compared = (double)of->about->rows[LS_VERIFY_PARAMETERS].compared;
  record(of, LS_VERIFY_PARAMETERS, 0, sqrt(of->squares / compared), of->tolerances.mean_parameters,
         "all, root mean square");
}

static ls_status check_final(const worker *self, ls_arena *scratch, int tensor, ls_error *error) {
  task *of = self->of;
  double *ours;
  int64_t count;
  LS_TRY(read_stored(self, scratch, &ls_weights_layout(of->gradients)->tensors[tensor],
                     LS_PART_MASTER, &ours, &count, error));
  if (self->records) compare_summary(of, scratch, of->summary[tensor], ours, count);
  return LS_OK;
}

typedef ls_status (*tensor_check)(const worker *self, ls_arena *scratch, int tensor,
                                  ls_error *error);

static ls_status check_tensors(const worker *self, tensor_check check, ls_error *error) {
  ls_status status = LS_OK;
  const int count = ls_weights_layout(self->of->gradients)->count;
  for (int i = 0; i < count && status == LS_OK; i++) {
    if (!ls_weights_tensor(self->of->gradients, i)) continue;
    ls_arena *scratch = ls_arena_create();
    status = check(self, scratch, i, error);
    ls_arena_destroy(&scratch);
  }
  return status;
}

/* Exact ones alone: in other types a reward, a small difference of large numbers, is mostly noise.
 */
static void check_rewards(const worker *self, int64_t s, const char *where) {
  task *of = self->of;
  const ls_trace *trace = of->about->trace;
  const int told = trace->pairs.beta > 0   ? 3
                   : trace->teacher.folder ? 2
                   : trace->texts.pairs    ? 1
                                           : 0;
  if (of->session->layout.compute != LS_F64) return;
  const double pairs = ls_rank_cell(self->rank, LS_CELL_VALID_TOKENS);
  for (int r = 0; r < told; r++) {
    const double ours = ls_rank_cell(self->rank, (ls_cell)((int)LS_CELL_REWARD_CHOSEN + r)) / pairs;
    /* At the start both answers are as likely as the reference says: nobody is preferred, but by
     * rounding. */
    if (r == 2 && s == 0) continue;
    record(of, LS_VERIFY_LOSS, 1, fabs(ours - trace->step[s].rewards[r]),
           of->tolerances.loss[s] + of->tolerances.logits, where);
  }
}

static void check_step(const worker *self, int64_t s) {
  task *of = self->of;
  const ls_trace_step *step = &of->about->trace->step[s];
  char where[32];
  snprintf(where, sizeof where, "step %lld", (long long)s);
  record(of, LS_VERIFY_LOSS, 1, fabs(ls_rank_cell(self->rank, LS_CELL_MEAN_LOSS) - step->loss),
         of->tolerances.loss[s], where);
  record(of, LS_VERIFY_NORM, 1, fabs(ls_rank_cell(self->rank, LS_CELL_NORM) - step->norm),
         of->tolerances.norm[s], where);
  check_rewards(self, s, where);
}

/* Texts that the weights before the step classify correctly, which are whole numbers. Others than
 * fp64 may round a tie away. */
static ls_status check_correct(const worker *self, const ls_inputs *inputs, int64_t s,
                               ls_error *error) {
  task *of = self->of;
  ls_predictions made =
      ls_predictions_none(self->arena, of->session->config.classes, of->session->config.several);
  if (of->session->layout.compute != LS_F64) return LS_OK;
  for (int m = 0; m < of->session->layout.microbatches; m++) {
    LS_TRY(ls_inputs_fill(inputs, self->rank, LS_SESSION_EVALUATE, m, s, error));
    LS_TRY(ls_rank_run(self->rank, LS_SESSION_EVALUATE, error));
    LS_TRY(ls_predictions_add(self->rank, LS_SESSION_EVALUATE, &made, error));
  }
  LS_TRY(ls_predictions_sum(self->rank, &made, error));
  char where[48];
  snprintf(where, sizeof where, "texts correct at step %lld", (long long)s);
  if (self->records)
    record(of, LS_VERIFY_LOSS, 1,
           fabs((double)ls_predictions_correct(&made) - of->about->trace->correct[s]),
           of->tolerances.loss[s], where);
  return LS_OK;
}

static ls_status repeat(worker *self, ls_error *error) {
  const ls_trace *trace = self->of->about->trace;
  pair_inputs pairs = {.trace = trace};
  const bool has_pairs = trace->pairs.beta > 0;
  const ls_inputs inputs = {.take = has_pairs          ? take_pairs
                                    : trace->given.ids ? take_given
                                                       : take_tokens,
                            .context = has_pairs ? (void *)&pairs : (void *)trace,
                            .weights = self->of->session->run->classes.weight};
  LS_TRY(ls_session_load_weights(self->of->session, self->rank, trace->model, NULL, error));
  if (trace->adapter_folder)
    LS_TRY(ls_session_load_adapters(self->of->session, self->rank, trace->adapter_folder, error));
  if (has_pairs) {
    pairs.reference = LS_NEW_ARRAY(self->arena, double, trace->steps * 2 * trace->rows);
    LS_TRY(find_reference(self, pairs.reference, error));
  } else if (trace->texts.pairs) {
    if (self->records) record(self->of, LS_VERIFY_LOGITS, 0, 0, 0, "none: there is no head");
  } else {
    LS_TRY(check_logits(self, &inputs, error));
  }
  ls_steps steps = ls_steps_of(self->rank, &inputs, rate_at, trace);
  steps.policy = LS_STEPS_REPEAT; /* the reference skips no step */
  steps.again = ls_session_step_again(self->of->session);
  while (steps.step < trace->steps) {
    if (trace->correct) LS_TRY(check_correct(self, &inputs, steps.step, error));
    LS_TRY(ls_steps_begin(&steps, error));
    LS_TRY(ls_steps_passes(&steps, false, error));
    LS_TRY(ls_steps_gradients(&steps, error));
    if (self->records) check_step(self, steps.step);
    self->running = steps.running;
    if (steps.step == 0) LS_TRY(check_tensors(self, check_gradient, error));
    LS_TRY(ls_steps_update(&steps, error));
  }
  LS_TRY(check_tensors(self, check_final, error));
  if (self->records && self->of->tolerances.mean_parameters > 0) check_mean(self->of);
  return LS_OK;
}

static ls_status rank_body(ls_comm *comm, void *context, ls_error *error) {
  worker self = {.of = context};
  self.records = ls_comm_rank(comm) == self.of->recorder;
  LS_TRY(ls_session_rank(self.of->session, comm, &self.rank, error));
  self.arena = ls_arena_create();
  const ls_status status = repeat(&self, error);
  ls_arena_destroy(&self.arena);
  ls_rank_destroy(&self.rank);
  return status;
}

/* Of row 0, that the reference tells logits of. */
static int64_t logits_rows(const ls_trace *trace) {
  if (trace->correct) return 1;
  if (trace->texts.pairs) return 0;
  return trace->pairs.beta > 0 ? trace->sequence / 2 : trace->sequence;
}

/* The reference's logits of row 0. */
static ls_status read_logits(task *of, ls_error *error) {
  const ls_trace *trace = of->about->trace;
  if (trace->texts.pairs) return LS_OK;
  ls_safetensors *file;
  LS_TRY(ls_safetensors_open(trace->folder, "step0", &file, error));
  const ls_stored_tensor *stored = ls_safetensors_find(file, "logits.row0");
  const int64_t rows = logits_rows(trace), columns = columns_of(of), count = rows * columns;
  ls_status status;
  if (!stored) {
    status = ls_fail(error, LS_INPUT, "%s/step0.safetensors: no tensor logits.row0", trace->folder);
  } else if (stored->count != count) {
    status = ls_fail(error, LS_INPUT, "%s: logits.row0 has %lld numbers; expected %lld x %lld",
                     stored->file, (long long)stored->count, (long long)rows, (long long)columns);
  } else {
    of->logits = LS_NEW_ARRAY(of->about->arena, double, count);
    status = ls_stored_tensor_read(stored, 0, count, LS_F64, of->logits, error);
  }
  ls_safetensors_close(&file);
  return status;
}

static const ls_trace_summary *find_summary(const ls_trace *trace, const char *name) {
  for (int i = 0; i < trace->summary_count; i++)
    if (strcmp(trace->summaries[i].name, name) == 0) return &trace->summaries[i];
  return NULL;
}

/* Every tensor of the model has its summary, and every summary its tensor. */
static ls_status match_summaries(task *of, ls_error *error) {
  const ls_trace *trace = of->about->trace;
  const ls_weight_plan *plan = ls_weights_layout(of->gradients);
  of->summary = LS_NEW_ARRAY(of->about->arena, const ls_trace_summary *, plan->count);
  int trained = 0;
  for (int i = 0; i < plan->count; i++) {
    const ls_stored_layout *layout = &plan->tensors[i];
    if (!ls_weights_tensor(of->gradients, i)) continue;
    trained++;
    const ls_trace_summary *found = find_summary(trace, layout->name);
    if (!found) found = find_summary(trace, layout->plain);
    if (!found)
      return ls_fail(error, LS_INPUT, "%s/trace.json: \"final_params_f64\" has no %s",
                     trace->folder, layout->name);
    const int64_t count = ls_stored_elements(layout);
    if (found->edge != (count < LS_TRACE_EDGE ? count : LS_TRACE_EDGE))
      return ls_fail(error, LS_INPUT,
                     "%s/trace.json: %s: found %d first numbers of %lld; expected "
                     "%d, or all of a shorter tensor",
                     trace->folder, found->name, found->edge, (long long)count, LS_TRACE_EDGE);
    of->summary[i] = found;
  }
  if (trace->summary_count == trained) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s/trace.json: \"final_params_f64\" has %d tensors; a %s model of this "
                 "config.json has %d",
                 trace->folder, trace->summary_count, plan->family, trained);
}

static double largest_magnitude(const double *values, int64_t count) {
  double largest = 0;
  for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(values[i]));
  return largest;
}

static ls_status largest_gradient(const task *of, double *largest, ls_error *error) {
  *largest = 0;
  for (int i = 0; i < ls_weights_layout(of->gradients)->count; i++) {
    const ls_stored_tensor *tensor = ls_weights_tensor(of->gradients, i);
    if (!tensor) continue;
    ls_arena *scratch = ls_arena_create();
    double *values = LS_NEW_ARRAY(scratch, double, tensor->count);
    const ls_status status = ls_stored_tensor_read(tensor, 0, tensor->count, LS_F64, values, error);
    if (status == LS_OK) *largest = fmax(*largest, largest_magnitude(values, tensor->count));
    ls_arena_destroy(&scratch);
    LS_TRY(status);
  }
  return LS_OK;
}

static ls_status run_with_gradients(task *of, ls_world *world, ls_error *error) {
  ls_verification *about = of->about;
  const int64_t logits = logits_rows(about->trace) * columns_of(of);
  double gradient;
  LS_TRY(match_summaries(of, error));
  LS_TRY(read_logits(of, error));
  LS_TRY(largest_gradient(of, &gradient, error));
  of->tolerances =
      ls_verify_tolerances_make(about->arena, about->trace, of->session->layout.compute,
                                largest_magnitude(of->logits, logits), gradient);
  LS_TRY(ls_rank_threads_run(world, rank_body, of, error));
  about->compared = true;
  for (int k = 0; k < LS_VERIFY_KINDS; k++) {
    const ls_verify_row *row = &about->rows[k];
    if (!row->ok)
      return ls_fail(error, LS_REFUTED, "%s: %s: off by %.3g in %s; at most %.3g is right",
                     about->trace->folder, kind_names[k], row->worst, row->where, row->tolerance);
  }
  return LS_OK;
}

/* The batch is the trace's, so a mesh that does not divide it cannot be. */
static ls_status check_rows(const ls_verification *about, ls_error *error) {
  const int64_t ranks = ls_run_file_data_ranks(about->run);
  const int64_t rows = about->trace->rows;
  if (rows % ranks == 0) return LS_OK;
  int64_t nearest = ranks < rows ? ranks : rows;
  while (rows % nearest) nearest--;
  return ls_fail(
      error, LS_INPUT,
      "mesh: found %lld data-parallel ranks (mesh.dp_replicate x mesh.dp_shard); expected a "
      "divisor of the %lld rows that a step of this trace has, such as %lld",
      (long long)ranks, (long long)rows, (long long)nearest);
}

static ls_status check_types(const ls_verification *about, ls_error *error) {
  const ls_trace *trace = about->trace;
  const int64_t most = about->session->config.types;
  for (int64_t i = 0; trace->given.types && i < trace->steps * trace->rows * trace->sequence; i++)
    if (trace->given.types[i] < 0 || (trace->given.types[i] && trace->given.types[i] >= most))
      return ls_fail(error, LS_INPUT,
                     "%s/batches.safetensors: found type %d; expected one below %lld",
                     trace->folder, (int)trace->given.types[i], (long long)most);
  return LS_OK;
}

static ls_status check_sets(const ls_verification *about, ls_error *error) {
  const ls_trace *trace = about->trace;
  const ls_model_config *config = &about->session->config;
  const int64_t words = config->several ? ls_set_words(config->classes) : 0;
  const int64_t given = trace->given.set_words;
  bool fit = given == words;
  for (int64_t r = 0; fit && words && r < trace->steps * trace->rows; r++)
    for (int64_t c = config->classes; c < 32 * words; c++)
      fit = fit && !ls_set_has(trace->given.sets + r * words, c);
  if (fit) return LS_OK;
  return ls_fail(
      error, LS_INPUT,
      "%s/batches.safetensors: found sets of classes in %lld words; expected %lld of the "
      "model's %lld classes",
      trace->folder, (long long)given, (long long)words, (long long)config->classes);
}

static ls_status check_tokens(const ls_verification *about, ls_error *error) {
  const int64_t vocabulary = about->session->config.vocabulary;
  const ls_trace *trace = about->trace;
  const int64_t most = trace->correct       ? about->session->config.classes
                       : trace->texts.pairs ? INT32_MAX
                                            : vocabulary;
  const int32_t *ids = trace->pairs.ids ? trace->pairs.ids : trace->given.ids;
  const int32_t *labels = trace->pairs.ids ? trace->pairs.labels : trace->given.labels;
  const int64_t given = ids ? trace->steps * trace->rows * trace->sequence : 0;
  for (int64_t i = 0; i < given; i++)
    if (ids[i] < 0 || ids[i] >= vocabulary || labels[i] >= most)
      return ls_fail(error, LS_INPUT,
                     "%s/batches.safetensors: found %d with label %d; expected both below the "
                     "vocabulary's %lld",
                     trace->folder, (int)ids[i], (int)labels[i], (long long)vocabulary);
  for (int64_t i = 0; i < about->trace->token_count; i++) {
    const int32_t token = ls_trace_token(about->trace, i);
    if (token >= vocabulary)
      return ls_fail(error, LS_INPUT,
                     "%s/tokens.u16le: found %d at place %lld; expected below the vocabulary's "
                     "%lld",
                     about->trace->folder, (int)token, (long long)i, (long long)vocabulary);
  }
  LS_TRY(check_sets(about, error));
  return check_types(about, error);
}

ls_status ls_verify_run(ls_verification *verification, ls_world *world, ls_error *error) {
  ls_run_file *run = verification->run;
  LS_TRY(ls_run_file_resolve_mesh(run, ls_world_size(world), error));
  LS_TRY(check_rows(verification, error));
  LS_TRY(ls_session_create(verification->arena, run, ls_world_size(world),
                           ls_world_count_here(world), &verification->session, error));
  LS_TRY(ls_session_keep_logits(verification->session, error));
  LS_TRY(check_tokens(verification, error));
  const ls_session *session = verification->session;
  LS_TRY(ls_session_check_offload(session, ls_world_count_on_host(world), error));
  LS_TRY(ls_session_check_fit(session, ls_world_count_on_host(world), ls_world_count_here(world),
                              error));
  ls_session_proof proof;
  if (run->check) LS_TRY(ls_session_prove(session, &proof, error));
  ls_weights *gradients;
  const ls_weights_source source = {
      .path = verification->trace->folder,
      .stem = "step0",
      .prefix = "grad.",
      .kind = verification->trace->adapter_folder ? LS_WEIGHTS_ADAPTERS : LS_WEIGHTS_ALL};
  LS_TRY(ls_weights_open(verification->arena, &session->config, session->graph, &source, &gradients,
                         error));
  task all = {.about = verification,
              .session = session,
              .gradients = gradients,
              .recorder = ls_world_first_here(world)};
  const ls_status status = run_with_gradients(&all, world, error);
  ls_weights_close(&gradients);
  return status;
}

/* What Muon has of its own: its matrices decay by a rate of their own. */
static const char *muon_text(ls_arena *arena, const ls_trace *trace) {
  const ls_trace_optimizer *muon = &trace->optimizer;
  if (strcmp(muon->name, "muon") != 0) return "";
  const char *text = ls_arena_printf(arena, "  momentum: %.17g\n  muon_lr: %.17g\n  groups:\n",
                                     muon->momentum, muon->muon_lr);
  for (int m = 0; m < muon->matrix_count; m++)
    text = ls_arena_printf(arena, "%s    - {match: \"%s\", weight_decay: %.17g}\n", text,
                           muon->matrices[m], muon->muon_weight_decay);
  return text;
}

/* The trace's hyper-parameters as a run file. */
static const char *run_text(ls_arena *arena, const ls_trace *trace) {
  return ls_arena_printf(
      arena,
      "dtype: fp32\ndropout: 0\ndata:\n  seq_len: %lld\n"
      "train:\n  batch: %lld\n  steps: %lld\n  lr: %.17g\n  clip: %.17g\n"
      "optimizer:\n  name: %s\n  betas: [%.17g, %.17g]\n  eps: %.17g\n  weight_decay: %.17g\n%s",
      (long long)trace->sequence, (long long)trace->rows, (long long)trace->steps,
      trace->learning_rate, trace->clip, trace->optimizer.name, trace->betas[0], trace->betas[1],
      trace->epsilon, trace->weight_decay, muon_text(arena, trace));
}

/* Layout and memory are the user's, and so is the precision; the mathematics is the trace's. */
static ls_status refuse_others(const ls_run_file *run, ls_error *error) {
  for (int i = 0; i < ls_run_key_count; i++) {
    const ls_run_key *key = &ls_run_keys[i];
    if (run->origins[i].source != LS_RUN_COMMAND_LINE || strcmp(key->name, "dtype") == 0) continue;
    if (key->effect == LS_RUN_LAYOUT || key->effect == LS_RUN_MEMORY) continue;
    return ls_fail(error, LS_INPUT,
                   "%s: found a value; expected none: the trace says it (keys of the layout, such "
                   "as mesh.dp_shard and zero, and dtype can be set)",
                   ls_run_file_where(run, key->name));
  }
  return LS_OK;
}

ls_status ls_verify_prepare(ls_arena *arena, const char *folder, const char *const *words,
                            int word_count, ls_verification **verification, ls_error *error) {
  ls_trace *trace;
  ls_verification *made = LS_NEW(arena, ls_verification);
  LS_TRY(ls_trace_read(arena, folder, &trace, error));
  const char *text = run_text(arena, trace);
  const char *name = ls_arena_printf(arena, "%s/trace.json as a run file", folder);
  LS_TRY(ls_run_file_parse(arena, name, text, strlen(text), words, word_count, &made->run, error));
  LS_TRY(refuse_others(made->run, error));
  if (made->run->dtype == LS_RUN_DTYPE_FP8)
    return ls_fail(error, LS_INPUT,
                   "%s: found fp8, which no trace was recorded in; expected fp32, bf16, fp16 or "
                   "fp64",
                   ls_run_file_where(made->run, "dtype"));
  made->run->model = trace->model;
  if (trace->pairs.odds) {
    made->run->task = LS_RUN_ORPO;
    made->run->orpo.lambda = trace->pairs.beta;
  } else if (trace->pairs.beta > 0) {
    made->run->task = LS_RUN_DPO;
    made->run->dpo.beta = trace->pairs.beta;
  }
  if (trace->correct) made->run->task = LS_RUN_CLASSIFY;
  if (trace->texts.pairs) {
    made->run->task = LS_RUN_EMBED;
    made->run->embed.pairs = trace->texts.pairs;
    made->run->embed.negatives = trace->texts.texts - 2;
    made->run->embed.group = trace->texts.group;
    made->run->embed.scale = trace->texts.scale;
    made->run->data.documents = LS_RUN_MASKED;
  }
  if (trace->class_weights)
    made->run->classes.weights = (ls_run_globs){trace->class_weights, trace->class_weight_count};
  if (trace->teacher.folder) {
    made->run->task = LS_RUN_DISTILL;
    made->run->teacher = trace->teacher.folder;
    made->run->distill = (ls_run_distill){trace->teacher.temperature, trace->teacher.share, ""};
  }
  if (trace->packed) made->run->data.documents = LS_RUN_MASKED;
  if (trace->masked) {
    if (!trace->correct) made->run->task = LS_RUN_MLM;
    made->run->data.documents = LS_RUN_MASKED;
  }
  if (trace->frozen_count)
    made->run->train.freeze = (ls_run_globs){trace->frozen, trace->frozen_count};
  const ls_adapters *adapters = &trace->adapters;
  if (adapters->rank)
    made->run->lora = (ls_run_lora){.rank = adapters->rank,
                                    .alpha = adapters->alpha,
                                    .targets = {adapters->targets, adapters->target_count},
                                    .rslora = adapters->rslora};
  made->arena = arena;
  made->trace = trace;
  *verification = made;
  return LS_OK;
}
