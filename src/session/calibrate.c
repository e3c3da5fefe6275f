#include "session/calibrate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cluster/machine.h"
#include "comm/engine.h"
#include "cost/performance.h"

/* Widths, depths, heads, vocabularies, sequences and batches by twos and threes, so that every size
 * that an op's time depends on is met small and large, with others small and large; as many layers
 * as keep a step's tensors from staying in a cache that training would have lost them from. */
typedef struct shape {
  const char *family;
  int width, layers, heads, kv_heads, mlp_width, vocabulary, sequence, micro_batch;
} shape;

static const shape shapes[] = {
    {"llama", 64, 4, 2, 2, 176, 256, 64, 1},     {"gpt2", 128, 4, 4, 4, 512, 1024, 128, 2},
    {"llama", 256, 6, 4, 2, 704, 512, 256, 4},   {"gpt2", 512, 3, 8, 8, 2048, 16384, 256, 2},
    {"llama", 128, 4, 2, 1, 384, 4096, 256, 1},  {"gpt2", 256, 4, 4, 4, 1024, 8192, 128, 4},
    {"llama", 512, 4, 8, 8, 1376, 8192, 128, 2}, {"gpt2", 384, 4, 6, 6, 1536, 2048, 64, 2},
    {"llama", 768, 2, 12, 4, 2048, 1024, 64, 8}, {"qwen3", 320, 3, 5, 5, 896, 1024, 128, 1},
    {"llama", 192, 4, 6, 3, 512, 2048, 512, 2},  {"gpt2", 768, 2, 6, 6, 3072, 4096, 512, 1},
    {"llama", 512, 3, 8, 4, 1408, 512, 32, 1},   {"gpt2", 128, 2, 2, 2, 512, 512, 64, 32},
    {"qwen3", 256, 3, 8, 2, 768, 4096, 256, 4},
};
enum { SHAPES = sizeof shapes / sizeof *shapes, WARM_STEPS = 1, STEPS = 1 };

/* All run twice, one round behind the other, as what disturbs a machine for seconds disturbs one;
 * those whose two shortest steps do not agree run again. */
enum { ROUNDS = 2, MOST_ROUNDS = 4, MOST_WORLDS = 3 };
static const double agreeing = 1.15;

static const char *const dtypes[] = {"fp32", "bf16"};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static const char *config_of(ls_arena *arena, const shape *of) {
  if (strcmp(of->family, "gpt2") == 0)
    return ls_arena_printf(arena,
                           "{\"model_type\": \"gpt2\", \"vocab_size\": %d, \"n_embd\": %d, "
                           "\"n_layer\": %d, \"n_head\": %d, \"n_inner\": %d, \"n_positions\": %d, "
                           "\"attn_pdrop\": 0, \"embd_pdrop\": 0, \"resid_pdrop\": 0}",
                           of->vocabulary, of->width, of->layers, of->heads, of->mlp_width,
                           of->sequence);
  return ls_arena_printf(arena,
                         "{\"model_type\": \"%s\", \"vocab_size\": %d, \"hidden_size\": %d, "
                         "\"intermediate_size\": %d, \"num_hidden_layers\": %d, "
                         "\"num_attention_heads\": %d, \"num_key_value_heads\": %d, "
                         "\"head_dim\": %d, \"max_position_embeddings\": %d}",
                         of->family, of->vocabulary, of->width, of->mlp_width, of->layers,
                         of->heads, of->kv_heads, of->width / of->heads, of->sequence);
}

/* Times of one op, by its sizes: in the step at hand the sum of its calls, of steps the least mean.
 */
typedef struct times {
  ls_op_time of;
  double sum;
  int64_t calls;
} times;

typedef LS_LIST(times) times_list;

static bool same_sizes(const ls_op_time *a, const ls_op_time *b) {
  return a->kind == b->kind && a->dtype == b->dtype && a->adds == b->adds && a->work == b->work &&
         memcmp(a->sizes, b->sizes, sizeof a->sizes) == 0;
}

static times *find_times(ls_arena *arena, times_list *list, const ls_op_time *of) {
  for (int i = 0; i < list->count; i++)
    if (same_sizes(&list->items[i].of, of)) return &list->items[i];
  times *made = LS_APPEND(arena, list);
  made->of = *of;
  return made;
}

/* From the end of the instruction before it to its own: handing it over is part of it. */
static void add_rank(ls_arena *arena, const ls_program *program, int rank, int threads,
                     const ls_recording_rank *of, times_list *list) {
  int *known = LS_NEW_ARRAY(arena, int, 2 * program->instructions.count); /* 1 + index */
  for (int64_t i = 0; i < of->count; i++) {
    const ls_record *record = &of->records[i];
    const ls_instruction *each = &program->instructions.items[record->instruction];
    if (each->collective != LS_COLLECTIVE_NONE) continue;
    const bool first = program->actions.items[record->action].first;
    int *at = &known[2 * record->instruction + first];
    if (!*at) {
      ls_work_operand in[LS_MAX_INPUTS], out[LS_MAX_OUTPUTS];
      const int inputs = ls_instruction_operands(program, rank, each, first, in, out);
      const ls_op_time made =
          ls_op_time_of(each->kind, &each->attributes, in, inputs, out, each->outputs, threads);
      *at = (int)(find_times(arena, list, &made) - list->items) + 1;
    }
    const int64_t begin = i ? of->records[i - 1].end_ns : record->begin_ns;
    list->items[*at - 1].sum += 1e-9 * (double)(record->end_ns - begin);
    list->items[*at - 1].calls++;
  }
}

/* Calls of a step differ by what lies in a cache, so their mean counts; other work on the machine
 * only adds, so of steps the shortest does. */
static void end_step(times_list *list) {
  static const double shortest = 1e-9;
  for (int i = 0; i < list->count; i++) {
    times *each = &list->items[i];
    if (!each->calls) continue;
    const double mean = each->sum / (double)each->calls;
    if (each->of.seconds <= 0 || mean < each->of.seconds) each->of.seconds = mean;
    if (each->of.seconds < shortest) each->of.seconds = shortest;
    each->sum = 0;
    each->calls = 0;
  }
}

/* Of what was found before of the same sizes the shorter. */
static void keep_time(ls_arena *arena, const ls_op_time *of, ls_rates *rates) {
  for (int i = 0; i < rates->ops.count; i++) {
    ls_op_time *each = &rates->ops.items[i];
    if (!same_sizes(each, of) || each->threads != of->threads) continue;
    each->seconds = fmin(each->seconds, of->seconds);
    return;
  }
  *LS_APPEND(arena, &rates->ops) = *of;
}

void ls_calibrate_add(ls_arena *arena, const ls_program *const *stages, int threads,
                      ls_recording *const *recordings, int count, ls_rates *rates) {
  ls_arena *scratch = ls_arena_create();
  times_list list = {0};
  for (int r = 0; r < count; r++) {
    for (int rank = 0; rank < recordings[r]->ranks; rank++)
      add_rank(scratch, stages[ls_mesh_stage(&stages[0]->mesh, rank)], rank, threads,
               &recordings[r]->by_rank[rank], &list);
    end_step(&list);
  }
  for (int i = 0; i < list.count; i++) keep_time(arena, &list.items[i].of, rates);
  ls_arena_destroy(&scratch);
}

typedef struct calibrating {
  ls_arena *arena;
  const ls_calibrate_options *options;
  ls_rates *rates;
  const char *folder; /* of a config.json */
  int done, count;
  double shortest[MOST_WORLDS][SHAPES][DTYPES][2]; /* steps; 0: not run so often */
} calibrating;

static void keep_step(double shortest[2], double seconds) {
  const bool less = !(shortest[0] > 0) || seconds < shortest[0];
  if (less || !(shortest[1] > 0) || seconds < shortest[1])
    shortest[1] = less ? shortest[0] : seconds;
  if (less) shortest[0] = seconds;
}

static ls_status run_steps(calibrating *self, ls_arena *scratch, const shape *of, int dtype,
                           int ranks, double shortest[2], ls_error *error) {
  const char *config = ls_arena_printf(scratch, "%s/config.json", self->folder);
  const char *text = config_of(scratch, of);
  LS_TRY(ls_file_write(config, text, strlen(text), error));
  const char *const words[] = {
      ls_arena_printf(scratch, "model=%s", config),
      ls_arena_printf(scratch, "data.seq_len=%d", of->sequence),
      ls_arena_printf(scratch, "train.micro_batch=%d", of->micro_batch),
      ls_arena_printf(scratch, "train.batch=%d", 2 * of->micro_batch * ranks),
      ls_arena_printf(scratch, "dtype=%s", dtypes[dtype]),
      ls_arena_printf(scratch, "mesh.dp_replicate=%d", ranks),
      "mesh.dp_shard=1",
      "zero=0",
      "init=scratch"};
  ls_run_file *run;
  LS_TRY(ls_run_file_read(scratch, NULL, words, sizeof words / sizeof *words, &run, error));
  ls_session *session;
  LS_TRY(ls_session_create(scratch, run, ranks, ranks, &session, error));
  ls_world *world;
  const ls_world_options all = {.ranks = ranks};
  LS_TRY(ls_world_start(ls_device_facts_here(), &all, &world, error));
  const ls_repeated *repeated;
  const int steps = self->options->steps > 0 ? self->options->steps : STEPS;
  const ls_status status = ls_repeat_steps(
      scratch, session, world,
      &(ls_repeat_options){.steps = steps, .warm = WARM_STEPS, .no_peak = true}, &repeated, error);
  ls_world_destroy(&world);
  LS_TRY(status);
  keep_step(shortest, repeated->seconds[repeated->median]);
  ls_calibrate_add(self->arena, session->stages[LS_SESSION_STEP], session->device.facts.threads,
                   repeated->recordings, repeated->count, self->rates);
  return LS_OK;
}

static void tell(calibrating *self, const shape *of, int dtype, int ranks) {
  if (self->options->progress) {
    ls_arena *named = ls_arena_create();
    self->options->progress(
        self->options->context, self->done, self->count,
        ls_arena_printf(named, "steps of %s %dx%d, %s, %d rank%s", of->family, of->layers,
                        of->width, dtypes[dtype], ranks, ranks == 1 ? "" : "s"));
    ls_arena_destroy(&named);
  }
  self->done++;
}

/* In rounds behind those that all run in, only of what has not settled; these are not told of. */
static ls_status calibrate_one(calibrating *self, int round, int world, int ranks, int s, int dtype,
                               ls_error *error) {
  double *shortest = self->shortest[world][s][dtype];
  if (round >= ROUNDS && shortest[1] < agreeing * shortest[0]) return LS_OK;
  if (round < ROUNDS) tell(self, &shapes[s], dtype, ranks);
  ls_arena *scratch = ls_arena_create();
  const ls_status status = run_steps(self, scratch, &shapes[s], dtype, ranks, shortest, error);
  ls_arena_destroy(&scratch);
  return status;
}

/* How many ranks after so many: one has all cores, the last a rank for each, and where cores are
 * many some have several: three worlds at most, so that it takes no longer where there are more. */
static int next_ranks(int ranks, int cores) {
  const int middle = cores < 8 ? cores : (int)exp2(round(log2(cores) / 2));
  return ranks < middle ? middle : cores;
}

/* Numbers of ranks, each once; returns how many. */
static int choose_worlds(int ranks[MOST_WORLDS]) {
  const int cores = ls_machine_cores();
  int count = 0;
  for (int each = 1, before = 0; each > before; before = each, each = next_ranks(each, cores))
    ranks[count++] = each;
  return count;
}

static ls_status calibrate_round(calibrating *self, int round, int taken, ls_error *error) {
  int ranks[MOST_WORLDS];
  const int worlds = choose_worlds(ranks);
  for (int w = 0; w < worlds; w++)
    for (int s = 0; s < taken; s++)
      for (int d = 0; d < DTYPES; d++) LS_TRY(calibrate_one(self, round, w, ranks[w], s, d, error));
  return LS_OK;
}

ls_status ls_calibrate(ls_arena *arena, const ls_calibrate_options *options, ls_rates *rates,
                       ls_error *error) {
  const int taken = options->shapes > 0 && options->shapes < SHAPES ? options->shapes : SHAPES;
  const char *base = getenv("TMPDIR");
  char *folder = ls_arena_printf(arena, "%s/lockstep-calibrate-XXXXXX", base ? base : "/tmp");
  if (!mkdtemp(folder))
    return ls_fail(error, LS_FAILED, "%s: no folder can be made there; set TMPDIR to one", folder);
  int ranks[MOST_WORLDS];
  calibrating *self = LS_NEW(arena, calibrating);
  *self = (calibrating){.arena = arena,
                        .options = options,
                        .rates = rates,
                        .folder = folder,
                        .count = ROUNDS * taken * DTYPES * choose_worlds(ranks)};
  rates->ops.count = 0;
  ls_status status = LS_OK;
  for (int round = 0; round < MOST_ROUNDS && status == LS_OK; round++)
    status = calibrate_round(self, round, taken, error);
  ls_error unremoved = {0};
  const ls_status removed = ls_directory_remove(folder, status == LS_OK ? error : &unremoved);
  if (status == LS_OK) status = removed;
  if (status == LS_OK && options->progress)
    options->progress(options->context, self->count, self->count, "done");
  return status;
}
