/* What parameters are when training begins: drawn, or read from files. */
#include "session/starting_weights.h"

#include <string.h>

#include "base/random.h"
#include "session/load_parameters.h"
#include "session/session.h"
#include "store/adapters.h"
#include "store/weights.h"

enum { FILL_ELEMENTS = 1 << 13 }; /* in a thread's own cache, and on its stack */
enum { MOST_SOURCES = 2 };

static ls_weights_source teacher_source(const ls_session *session) {
  return (ls_weights_source){.path = session->run->teacher};
}

/* The sets that a folder's parameters are in: one, or adapters and what they are beside. Weights
 * alone leave the adapters as they are drawn. */
static int list_sources(const ls_session *session, const char *path,
                        ls_weights_source sources[MOST_SOURCES]) {
  sources[0] = (ls_weights_source){.path = path};
  if (session->config.lora_rank == 0) return 1;
  sources[0].kind = LS_WEIGHTS_START;
  if (!ls_adapters_has(path)) return 1;
  sources[0].kind = LS_WEIGHTS_BASE;
  sources[0].path = session->config.base;
  sources[1] =
      (ls_weights_source){.path = path, .stem = LS_ADAPTERS_STEM, .kind = LS_WEIGHTS_ADAPTERS};
  return 2;
}

/* Before a text is read for hours and a run's folder made: the headers. What the tensors hold, and
 * all but a byte of a tied head, is the ranks' to read. */
static ls_status check_source(const ls_session *session, const ls_model_config *config,
                              ls_weights_source source, ls_error *error) {
  ls_arena *scratch = ls_arena_create();
  ls_weights *weights;
  source.parts = INT32_MAX;
  const ls_status status =
      ls_weights_open(scratch, config, session->graph, &source, &weights, error);
  if (status == LS_OK) ls_weights_close(&weights);
  ls_arena_destroy(&scratch);
  return status;
}

ls_status ls_session_check_weights(const ls_session *session, ls_error *error) {
  if (session->teacher)
    LS_TRY(check_source(session, session->teacher, teacher_source(session), error));
  if (!session->weights) return LS_OK;
  ls_weights_source sources[MOST_SOURCES];
  const int count = list_sources(session, session->weights, sources);
  for (int s = 0; s < count; s++)
    LS_TRY(check_source(session, &session->config, sources[s], error));
  return LS_OK;
}

static void initial_values(const ls_parameter *about, uint64_t seed, int64_t first, int64_t count,
                           double *values) {
  const double deviation = about->deviation;
  const uint64_t stream = ls_random_stream(about->name);
  if (about->init == LS_INIT_UNIFORM) {
    for (int64_t i = 0; i < count; i++)
      values[i] = deviation * (2 * ls_random_uniform(seed, stream, (uint64_t)(first + i)) - 1);
    return;
  }
  if (about->init != LS_INIT_NORMAL) {
    for (int64_t i = 0; i < count; i++) values[i] = about->init == LS_INIT_ONES ? 1 : 0;
    return;
  }
  ls_random_normals(seed, stream, (uint64_t)first, count, values);
#pragma omp simd
  for (int64_t i = 0; i < count; i++) values[i] *= deviation;
}

/* Of all parameters, one after another. */
typedef struct initialising {
  const ls_session *session;
  ls_rank *rank;
  int64_t *first_piece; /* [parameters + 1] */
} initialising;

static ls_status initialise_piece(const ls_session *session, ls_rank *rank, int p, int64_t first,
                                  int64_t count, ls_error *error) {
  const ls_program *program = ls_rank_program(rank, LS_SESSION_STEP);
  if (!ls_rank_keeps_parameter(rank, program, p, first, count)) return LS_OK;
  double values[FILL_ELEMENTS];
  const int64_t numbers = ls_precision_numbers(program->parameters[p].precision);
  initial_values(&session->graph->parameters.items[p].about, (uint64_t)session->run->train.seed,
                 first * numbers, count * numbers, values);
  return ls_rank_write_parameter(rank, program, p, LS_PART_MASTER, first, count, values, LS_F64,
                                 error);
}

/* A parameter whose numbers are drawn. */
typedef struct drawn {
  const ls_session *session;
  int parameter;
} drawn;

static void draw_numbers(void *context, int64_t first, int64_t count, double *numbers) {
  const drawn *self = context;
  initial_values(&self->session->graph->parameters.items[self->parameter].about,
                 (uint64_t)self->session->run->train.seed, first, count, numbers);
}

static ls_status initialise_scales(void *work, int thread, int64_t p, ls_error *error) {
  (void)thread;
  const initialising *self = work;
  const ls_program *program = ls_rank_program(self->rank, LS_SESSION_STEP);
  if (self->first_piece[p + 1] == self->first_piece[p] || !program->parameters[p].present ||
      !ls_precision_is_double(program->parameters[p].precision))
    return LS_OK;
  return ls_rank_write_scales(self->rank, program, (int)p, draw_numbers,
                              &(drawn){self->session, (int)p}, error);
}

static int64_t piece_elements(const ls_program_parameter *parameter) {
  return FILL_ELEMENTS / ls_precision_numbers(parameter->precision);
}

static ls_status initialise_turn(void *work, int thread, int64_t piece, ls_error *error) {
  (void)thread;
  const initialising *self = work;
  const ls_program *program = ls_rank_program(self->rank, LS_SESSION_STEP);
  int p = 0;
  while (self->first_piece[p + 1] <= piece) p++;
  const int64_t elements = ls_program_parameter_elements(&program->parameters[p]);
  const int64_t most = piece_elements(&program->parameters[p]);
  const int64_t first = (piece - self->first_piece[p]) * most;
  const int64_t count = elements - first < most ? elements - first : most;
  return initialise_piece(self->session, self->rank, p, first, count, error);
}

/* What weights that training starts from do not have. */
static bool is_new(const ls_session *session, const ls_parameter *about) {
  return about->adapter || (session->config.draws_head && about->module);
}

/* A thread writes what it makes, since most of a write's time is the system's, which clears each
 * page that is written first: pieces are handed out by a large page of fp32, so that no two threads
 * have the same one cleared. */
static ls_status initialise(const ls_session *session, ls_rank *rank, bool new_alone,
                            ls_error *error) {
  const ls_program *program = ls_rank_program(rank, LS_SESSION_STEP);
  const ls_parameter_record *records = session->graph->parameters.items;
  ls_arena *scratch = ls_arena_create();
  initialising work = {session, rank, LS_NEW_ARRAY(scratch, int64_t, program->parameter_count + 1)};
  for (int p = 0; p < program->parameter_count; p++) {
    const bool left = (new_alone && !is_new(session, &records[p].about)) ||
                      records[p].about.precision == LS_SCALES ||      /* measured */
                      (session->teacher && records[p].about.teacher); /* which is read */
    const int64_t elements = left ? 0 : ls_program_parameter_elements(&program->parameters[p]);
    const int64_t most = piece_elements(&program->parameters[p]);
    work.first_piece[p + 1] = work.first_piece[p] + (elements + most - 1) / most;
  }
  const int threads = session->device.facts.threads;
  ls_status status =
      ls_host_share(threads, 64, program->parameter_count, initialise_scales, &work, error);
  if (status == LS_OK)
    status = ls_host_share(threads, 64, work.first_piece[program->parameter_count], initialise_turn,
                           &work, error);
  ls_arena_destroy(&scratch);
  return status;
}

/* The parameters that are in one set. */
static ls_status load_source(const ls_session *session, ls_rank *rank,
                             const ls_model_config *config, ls_weights_source source,
                             int64_t *bytes_read, ls_error *error) {
  const ls_program *program = ls_rank_program(rank, LS_SESSION_STEP);
  ls_arena *scratch = ls_arena_create();
  ls_weights *weights = NULL;
  source.part = ls_rank_number(rank);
  source.parts = ls_comm_size(ls_rank_comm(rank));
  ls_status status = ls_weights_open(scratch, config, session->graph, &source, &weights, error);
  if (status == LS_OK) {
    LS_LIST(ls_load_item) items = {0};
    for (int p = 0; p < program->parameter_count; p++) {
      int count;
      const ls_weight_place *places = ls_weights_places(weights, p, &count);
      for (int i = 0; i < count; i++)
        if (places[i].tensor)
          *LS_APPEND(scratch, &items) = (ls_load_item){places[i], p, LS_PART_MASTER};
    }
    status = ls_load_parameters(rank, program, items.items, items.count, error);
    if (bytes_read) *bytes_read += ls_weights_bytes_read(weights);
  }
  ls_weights_close(&weights);
  ls_arena_destroy(&scratch);
  return status;
}

static ls_status load_teacher(const ls_session *session, ls_rank *rank, int64_t *bytes_read,
                              ls_error *error) {
  if (!session->teacher) return LS_OK;
  return load_source(session, rank, session->teacher, teacher_source(session), bytes_read, error);
}

ls_status ls_session_initialise(const ls_session *session, ls_rank *rank, ls_error *error) {
  LS_TRY(initialise(session, rank, false, error));
  return load_teacher(session, rank, NULL, error);
}

ls_status ls_session_load_adapters(const ls_session *session, ls_rank *rank, const char *path,
                                   ls_error *error) {
  const ls_weights_source source = {
      .path = path, .stem = LS_ADAPTERS_STEM, .kind = LS_WEIGHTS_ADAPTERS};
  return load_source(session, rank, &session->config, source, NULL, error);
}

ls_status ls_session_load_weights(const ls_session *session, ls_rank *rank, const char *path,
                                  int64_t *bytes_read, ls_error *error) {
  ls_weights_source sources[MOST_SOURCES];
  const int count = list_sources(session, path, sources);
  const bool adapters = session->config.lora_rank && count == 1;
  if (adapters || session->config.draws_head) LS_TRY(initialise(session, rank, true, error));
  for (int s = 0; s < count; s++)
    LS_TRY(load_source(session, rank, &session->config, sources[s], bytes_read, error));
  return load_teacher(session, rank, bytes_read, error);
}
