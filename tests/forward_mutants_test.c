/* Programs that only go forward, for evaluation and for decoding with its caches, are judged by
 * mutation as those of steps are (mutants_test.c): damaged ones are rejected, or they give the same
 * losses or logits, token after token, and leave the same state, on the reference kernels in fp64,
 * in memory that begins as NaN.
 * LS_MUTANTS=N: how many of each (400). LS_SEED=N: which. LS_MUTANTS_PRINT=1: each rejection. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "check/check.h"
#include "lower/compile.h"
#include "run/rank_parameters.h"
#include "run/rank_threads.h"
#include "support/layouts.h"
#include "support/mutate.h"
#include "support/test_seed.h"

enum { MOST_STAGES = 2, MUTANTS = 400, RUNS = 4, MOST_NUMBERS = 1 << 17 };

static const struct subject {
  int shape, pp, dp_shard, tp, zero, microbatches, decodes; /* tokens at once; 0: it evaluates */
  bool sequence_parallel;
  int sequences; /* that the caches hold; 0: one */
  int cp;        /* ranks that share their rows; 0: one */
} subjects[] = {
    {0, 1, 1, 1, 0, 1, 0, false, 0, 0}, {1, 1, 2, 1, 3, 1, 0, false, 0, 0},
    {2, 1, 1, 3, 0, 1, 0, true, 0, 0},  {2, 2, 1, 1, 1, 2, 0, false, 0, 0},
    {0, 1, 1, 1, 0, 1, 1, false, 0, 0}, {1, 1, 1, 1, 0, 1, 1, false, 0, 0},
    {1, 1, 1, 1, 0, 1, 2, false, 0, 0}, {2, 1, 1, 1, 0, 1, 2, false, 0, 0},
    {0, 1, 1, 2, 0, 1, 2, false, 2, 0}, {1, 1, 1, 1, 0, 1, 2, false, 0, 2},
    {0, 1, 1, 2, 0, 1, 2, false, 2, 2},
};
enum { EVALUATIONS = 4, SUBJECTS = sizeof subjects / sizeof *subjects };

typedef struct compiled {
  ls_graph *graph;
  ls_layout layout;
  ls_program *intact[MOST_STAGES], *stages[MOST_STAGES];
} compiled;

static ls_graph *model_of(ls_arena *arena, const struct subject *of, const ls_layout *layout) {
  const ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[of->shape]);
  const ls_build_options decoding = {.mode = LS_MODEL_DECODE,
                                     .tokens = of->decodes,
                                     .cache_rows = 2 * RUNS,
                                     .sequences = of->sequences,
                                     .turns = layout->cp};
  const ls_build_options evaluation = {
      .mode = LS_MODEL_FORWARD,
      .tokens = LS_TEST_SEQUENCES / layout->microbatches * LS_TEST_SEQUENCE,
      .sequence = LS_TEST_SEQUENCE};
  ls_graph *graph;
  ls_error error = {0};
  if (ls_model_build(arena, &config, of->decodes ? &decoding : &evaluation, &graph, &error) !=
      LS_OK)
    fail_msg("%s", error.text);
  return graph;
}

static void compile(ls_arena *arena, const struct subject *of, compiled *made) {
  made->layout = ls_layout_default();
  made->layout.pp = of->pp;
  made->layout.dp_shard = of->dp_shard;
  made->layout.tp = of->tp;
  made->layout.cp = of->cp ? of->cp : 1;
  made->layout.zero = of->zero;
  made->layout.microbatches = of->microbatches;
  made->layout.sequence_parallel = of->sequence_parallel;
  made->layout.compute = LS_F64;
  made->graph = model_of(arena, of, &made->layout);
  ls_error error = {0};
  if (ls_program_compile(made->graph, &made->layout, LS_PROGRAM_FORWARD, made->intact, &error) !=
          LS_OK ||
      ls_program_compile(made->graph, &made->layout, LS_PROGRAM_FORWARD, made->stages, &error) !=
          LS_OK)
    fail_msg("%s", error.text);
}

/* As the program of a run is proved: for itself, and beside another over the same state. */
static ls_status check(const compiled *made, ls_error *error) {
  const ls_program *intact[MOST_STAGES], *stages[MOST_STAGES];
  for (int s = 0; s < made->layout.pp; s++) {
    intact[s] = made->intact[s];
    stages[s] = made->stages[s];
  }
  LS_TRY(ls_check(made->graph, &made->layout, stages, NULL, error));
  return ls_check_shared(intact, stages, made->layout.pp, error);
}

/* Faults of what decoding keeps: of one op that has caches. */
typedef struct cached {
  ls_program *program;
  ls_body *body;
  ls_instruction *op, *other; /* the other: of another layer */
  int at, to;                 /* of the two in the program */
  uint64_t seed;
} cached;

static int own_value(cached *of, int which) {
  const ls_value copy = of->program->values.items[of->op->in[which]];
  *LS_APPEND(of->program->arena, &of->program->values) = copy;
  return of->op->in[which] = of->program->values.count - 1;
}

static ls_value *cache_of(cached *of) {
  return &of->program->values.items[own_value(of, 3 + (int)(of->seed & 1))];
}

static void wrong_row(cached *of) {
  ls_value *cache = cache_of(of);
  cache->offset += (of->seed & 2 ? 1 : -1) * cache->global[1] * (int64_t)ls_dtype_bytes(LS_F64);
}

static void fewer_rows(cached *of) {
  cache_of(of)->global[0]--;
}

static void other_layer(cached *of) {
  const int which = 3 + (int)(of->seed & 1);
  of->op->in[which] = of->other->in[which];
}

static void trade(int *a, int *b) {
  const int kept = *a;
  *a = *b;
  *b = kept;
}

static void keys_for_values(cached *of) {
  trade(&of->op->in[3], &of->op->in[4]);
}

static void new_keys_for_values(cached *of) {
  trade(&of->op->in[1], &of->op->in[2]);
}

static void one_cache(cached *of) {
  of->op->in[4] = of->op->in[3];
}

/* Positions in place of places. */
static void other_sequence(cached *of) {
  of->op->in[6] = of->program->positions;
}

/* The length is what the positions say. */
static void stale_length(cached *of) {
  of->op->in[5] = of->program->ids;
}

static void length_of_a_copy(cached *of) {
  ls_value *positions = &of->program->values.items[own_value(of, 5)];
  positions->offset += (int64_t)ls_dtype_bytes(LS_I32) * (of->seed & 2 ? 1 : -1);
}

/* Before what it reads of this token is made. */
static void read_before_written(cached *of) {
  const ls_instruction moved = *of->op;
  ls_instruction *items = of->program->instructions.items;
  const int to = of->body->first + (int)(of->seed % (uint64_t)(of->at - of->body->first));
  for (int i = of->at; i > to; i--) items[i] = items[i - 1];
  items[to] = moved;
  for (int i = 0; i < of->program->instructions.count; i++) items[i].wait = -1;
}

static void left_out(cached *of) {
  char what[160];
  ls_drop_instruction(of->program, of->at, what);
}

static void twice(cached *of) {
  *of->other = *of->op; /* in place of the other layer's */
}

static void not_kept(cached *of) {
  const ls_value *cache = cache_of(of);
  of->program->buffer_groups.items[of->program->storages.items[cache->storage].buffer_group].pool =
      LS_POOL_WORK;
}

static bool has_places(const cached *of) {
  return of->op->inputs > 6;
}

static bool is_dealt(const cached *of) {
  return of->op->attributes.turns > 1;
}

/* Rows as they would be dealt to another number of ranks: each rank keeps others' rows. */
static void rows_of_other_ranks(cached *of) {
  of->op->attributes.turns++;
}

/* The instruction behind the op that reads this value; NULL: none does. */
static ls_instruction *reader_of(const cached *of, int value) {
  for (int i = of->at + 1; i < of->body->first + of->body->count; i++)
    for (int in = 0; in < of->program->instructions.items[i].inputs; in++)
      if (of->program->instructions.items[i].in[in] == value)
        return &of->program->instructions.items[i];
  return NULL;
}

/* What one rank's rows give is taken for what all give. */
static void sum_of_own_rows(cached *of) {
  const int which = (int)(of->seed & 1), made = of->op->out[which];
  const ls_instruction *sent = reader_of(of, made);
  ls_instruction *end = sent ? reader_of(of, sent->out[0]) : NULL;
  LS_ASSERT(end);
  end->in[which] = made;
}

/* Sums that belong to what other tokens' queries gave. */
static void sums_stay(cached *of) {
  ls_instruction *sent = (ls_instruction *)reader_of(of, of->op->out[1]);
  LS_ASSERT(sent);
  sent->collective = LS_COLLECTIVE_NONE;
  sent->kind = LS_OP_COPY;
}

static const struct cache_fault {
  const char *name;
  void (*make)(cached *);
  bool (*can)(const cached *); /* NULL: always */
} cache_faults[] = {
    {"another row of a cache", wrong_row, NULL},
    {"a cache with a row less", fewer_rows, NULL},
    {"another layer's cache", other_layer, NULL},
    {"keys where values are kept", keys_for_values, NULL},
    {"new keys kept as values", new_keys_for_values, NULL},
    {"one cache for keys and values", one_cache, NULL},
    {"a stale length", stale_length, NULL},
    {"the length of another token", length_of_a_copy, NULL},
    {"rows of another sequence", other_sequence, has_places},
    {"rows of other ranks", rows_of_other_ranks, is_dealt},
    {"a sum over own rows alone", sum_of_own_rows, is_dealt},
    {"sums that are not sent", sums_stay, is_dealt},
    {"read before written", read_before_written, NULL},
    {"a layer that keeps nothing", left_out, NULL},
    {"a layer twice", twice, NULL},
    {"a cache that is not kept", not_kept, NULL},
};
enum { CACHE_FAULTS = sizeof cache_faults / sizeof *cache_faults };

static bool damage_cache(ls_program *program, int kind, uint64_t seed) {
  cached of = {.program = program, .seed = seed >> 8};
  int found = 0;
  const int wanted = (int)(seed & 1);
  for (int b = 0; b < program->bodies.count; b++)
    for (int i = 0; i < program->bodies.items[b].count; i++) {
      const int at = program->bodies.items[b].first + i;
      ls_instruction *each = &program->instructions.items[at];
      if (each->collective != LS_COLLECTIVE_NONE || !ls_op_row(each->kind)->writes) continue;
      if (found++ == wanted) {
        of.body = &program->bodies.items[b];
        of.at = at;
        of.op = each;
      } else {
        of.other = each;
        of.to = at;
      }
    }
  if (!of.op || !of.other) return false;
  if (cache_faults[kind].can && !cache_faults[kind].can(&of)) return false;
  cache_faults[kind].make(&of);
  return true;
}

static int count_kinds(const struct subject *of) {
  return ls_mutation_count + (of->decodes ? CACHE_FAULTS : 0);
}

static const char *name_of(int kind) {
  return kind < ls_mutation_count ? ls_mutation_names[kind]
                                  : cache_faults[kind - ls_mutation_count].name;
}

typedef struct numbers {
  double *items;
  int64_t count;
} numbers;

typedef struct job {
  const compiled *made;
  const struct subject *of;
  ls_device device;
  numbers *out; /* of rank 0 */
} job;

static ls_status fill_input(ls_rank *rank, const struct subject *of, int run, int microbatch,
                            int input, ls_error *error) {
  const ls_program *program = ls_rank_program(rank, 1);
  const int value[] = {program->ids, program->labels, program->positions, program->places};
  if (value[input] < 0) return LS_OK;
  const ls_view view = ls_rank_shape(rank, 1, value[input]);
  int32_t filled[LS_TEST_SEQUENCES * LS_TEST_SEQUENCE];
  for (int64_t i = 0; i < view.valid[0]; i++) {
    const int64_t place = view.start[0] + i, at = place + 11 * microbatch + 5 * run;
    const int64_t position = of->sequences ? run
                             : of->decodes ? run * of->decodes + place
                                           : place % LS_TEST_SEQUENCE;
    const int64_t drawn[] = {at * 7 % 37, at % 5 ? at * 11 % 37 : -1, position,
                             of->sequences ? place * 2 * RUNS + position : position};
    filled[i] = (int32_t)drawn[input];
  }
  return ls_rank_put(rank, 1, value[input], microbatch, filled, view.valid[0], error);
}

static ls_status fill_inputs(ls_rank *rank, const struct subject *of, int run, ls_error *error) {
  for (int m = 0; m < of->microbatches; m++)
    for (int input = 0; input < 4; input++) LS_TRY(fill_input(rank, of, run, m, input, error));
  return LS_OK;
}

static ls_status fill_parameters(ls_rank *rank, const ls_program *program, ls_error *error) {
  for (int p = 0; p < program->parameter_count; p++) {
    const int64_t count = ls_program_parameter_elements(&program->parameters[p]);
    for (int64_t i = 0; i < count; i++) {
      const double value = 0.3 * ls_random_normal(5, (uint64_t)p, (uint64_t)i);
      LS_TRY(
          ls_rank_write_parameter(rank, program, p, LS_PART_MASTER, i, 1, &value, LS_F64, error));
    }
  }
  return LS_OK;
}

/* What the run left for who reads it: the logits, or the loss. */
static ls_status take_numbers(ls_rank *rank, const job *work, ls_error *error) {
  const ls_program *program = ls_rank_program(rank, 1);
  numbers *out = work->out;
  double *to = out->items + out->count;
  int64_t count = 1;
  if (work->of->decodes) {
    const ls_view view = ls_rank_shape(rank, 1, program->logits);
    count = view.dims[0] * view.dims[1];
    LS_TRY(ls_rank_get(rank, 1, program->logits, 0, to, count, error));
  } else {
    *to = ls_rank_cell(rank, LS_CELL_MEAN_LOSS);
  }
  out->count += count;
  return LS_OK;
}

static ls_status take_parameters(ls_rank *rank, const job *work, ls_error *error) {
  const ls_program *program = ls_rank_program(rank, 0);
  numbers *out = work->out;
  for (int p = 0; p < program->parameter_count; p++) {
    const int64_t count = ls_program_parameter_elements(&program->parameters[p]);
    ls_arena *arena = ls_arena_create();
    double *values = LS_NEW_ARRAY(arena, double, count);
    const ls_status status =
        ls_rank_read_parameter(rank, program, p, LS_PART_MASTER, 0, count, values, LS_F64, error);
    if (ls_rank_number(rank) == 0) {
      memcpy(out->items + out->count, values, sizeof *values * (size_t)count);
      out->count += count;
    }
    ls_arena_destroy(&arena);
    LS_TRY(status);
  }
  return LS_OK;
}

static ls_status run_all(ls_rank *rank, const job *work, ls_error *error) {
  LS_TRY(fill_parameters(rank, ls_rank_program(rank, 0), error));
  for (int r = 0; r < RUNS; r++) {
    LS_TRY(ls_rank_poison(rank, 1, error));
    LS_TRY(fill_inputs(rank, work->of, r, error));
    LS_TRY(ls_rank_run(rank, 1, error));
    if (ls_rank_number(rank) == 0) LS_TRY(take_numbers(rank, work, error));
  }
  return take_parameters(rank, work, error);
}

static ls_status rank_body(ls_comm *comm, void *context, ls_error *error) {
  job *work = context;
  const compiled *made = work->made;
  const int stage = ls_mesh_stage(&made->intact[0]->mesh, ls_comm_rank(comm));
  const ls_program *programs[] = {made->intact[stage], made->stages[stage]};
  ls_rank *rank;
  LS_TRY(ls_rank_create(
      comm, &(ls_rank_options){.programs = programs, .program_count = 2, .device = &work->device},
      &rank, error));
  const ls_status status = run_all(rank, work, error);
  ls_rank_destroy(&rank);
  return status;
}

static ls_status run(const compiled *made, const struct subject *of, numbers *out,
                     ls_error *error) {
  ls_world *world;
  job work = {.made = made, .of = of, .out = out};
  const ls_device_options device = {.kind = "reference", .compute = LS_F64};
  assert_int_equal(ls_device_open(&device, &work.device, error), LS_OK);
  assert_int_equal(ls_world_create_threads(ls_layout_ranks(&made->layout), &world, error), LS_OK);
  ls_world_set_deadline(world, 10);
  out->count = 0;
  const ls_status status = ls_rank_threads_run(world, rank_body, &work, error);
  ls_world_destroy(&world);
  return status;
}

/* The largest difference of what they give; NaN counts. */
static double difference(const numbers *a, const numbers *b) {
  double worst = a->count == b->count ? 0 : INFINITY;
  for (int64_t i = 0; i < a->count && i < b->count; i++) {
    const double apart = fabs(a->items[i] - b->items[i]);
    if (!(apart <= worst)) worst = isnan(apart) ? INFINITY : apart;
  }
  return worst;
}

typedef struct counts {
  int made[64], rejected[64], wrong, unexpected;
} counts;

static void run_accepted(const compiled *made, const struct subject *of, int kind, const char *what,
                         numbers *intact, counts *count) {
  ls_arena *arena = ls_arena_create();
  numbers found = {LS_NEW_ARRAY(arena, double, MOST_NUMBERS), 0};
  ls_error error = {0};
  if (intact->count == 0) {
    compiled right = *made;
    memcpy(right.stages, made->intact, sizeof right.stages);
    if (run(&right, of, intact, &error) != LS_OK) fail_msg("%s", error.text);
    assert_true(intact->count > RUNS);
  }
  const bool ran = run(made, of, &found, &error) == LS_OK;
  const bool equal = ran && difference(&found, intact) < 1e-12;
  const bool may_be = kind < ls_mutation_count && ls_mutation_harmless[kind];
  count->wrong += !equal;
  count->unexpected += equal && !may_be;
  if (!equal || !may_be || getenv("LS_MUTANTS_PRINT"))
    print_message("%s: %s (subject %d, %s) %s\n",
                  equal ? "accepted, gives the same" : "ACCEPTED, GIVES ANOTHER", name_of(kind),
                  (int)(of - subjects), what, error.text);
  ls_arena_destroy(&arena);
}

/* False: the program has nothing to damage so. */
static bool try_mutant(const struct subject *of, int kind, uint64_t seed, numbers *intact,
                       counts *count) {
  ls_arena *arena = ls_arena_create();
  compiled made;
  char what[160] = "";
  ls_error error = {0};
  compile(arena, of, &made);
  ls_program *program = made.stages[seed % (uint64_t)of->pp];
  const bool altered = kind < ls_mutation_count
                           ? ls_mutate(program, kind, seed, what)
                           : damage_cache(program, kind - ls_mutation_count, seed);
  count->made[kind] += altered;
  if (altered && check(&made, &error) != LS_OK) {
    count->rejected[kind]++;
    if (getenv("LS_MUTANTS_PRINT")) print_message("%s: %s\n", name_of(kind), error.text);
  } else if (altered) {
    run_accepted(&made, of, kind, what, intact, count);
  }
  ls_arena_destroy(&arena);
  return altered;
}

static void try_mutants(const struct subject *first, int several) {
  const char *many = getenv("LS_MUTANTS");
  const int wanted = many ? (int)strtol(many, NULL, 10) : MUTANTS;
  const uint64_t seed = test_seed_untold(20261123);
  ls_arena *arena = ls_arena_create();
  numbers intact[SUBJECTS] = {{0}};
  for (int s = 0; s < several; s++) intact[s].items = LS_NEW_ARRAY(arena, double, MOST_NUMBERS);
  counts count = {0};
  int made = 0, rejected = 0, kinds = 0;
  for (uint64_t t = 0; made < wanted; t++) {
    const int s = (int)(ls_random_bits(seed, 1, t) % (uint64_t)several);
    const int kind = (int)(t % (uint64_t)count_kinds(&first[s]));
    made += try_mutant(&first[s], kind, ls_random_bits(seed, 2, t), &intact[s], &count);
  }
  for (int k = 0; k < count_kinds(first); k++) {
    print_message("%-34s %4d of %4d rejected\n", name_of(k), count.rejected[k], count.made[k]);
    rejected += count.rejected[k];
    kinds += count.made[k] > 0;
  }
  print_message("%d of %d rejected, %d accepted and equal, %d accepted and different\n", rejected,
                made, made - rejected - count.wrong, count.wrong);
  assert_int_equal(count.wrong, 0);
  assert_int_equal(count.unexpected, 0);
  assert_true(kinds >= 15 && rejected * 2 > made);
  ls_arena_destroy(&arena);
}

static void mutants_of_evaluations(void **state) {
  (void)state;
  try_mutants(subjects, EVALUATIONS);
}

static void mutants_of_decoding(void **state) {
  (void)state;
  try_mutants(subjects + EVALUATIONS, SUBJECTS - EVALUATIONS);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(mutants_of_evaluations),
      cmocka_unit_test(mutants_of_decoding),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
