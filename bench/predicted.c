/* How near the simulator comes to this machine: random layouts, run here and simulated.
 *
 *   build/bench/predicted FILE.csv --seed N [--from 0] [--to 40] [--steps 5] [--kinds]
 *   build/bench/predicted FILE.csv [--rows]
 *
 * The first form draws layouts by the seed, runs steps of each and adds a line for each to the
 * file: the median step and what the ranks have mapped. It runs in pieces, and again for a second
 * round, which says what repeats differ by; --kinds prints where its time went beside where it was
 * simulated to go. The second form simulates what the file has, by the
 * rates that `lockstep bench` has kept, and prints errors, noise, memory and the order of layouts.
 * Layouts that compiling refuses are drawn again; so are those whose step has not the flops of a
 * step of 0.05 to 1 s or so. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/random.h"
#include "comm/engine.h"
#include "cost/performance.h"
#include "run/measure.h"
#include "session/repeat.h"
#include "sim/sim.h"

enum { LAYOUTS = 40, STEPS = 5, MOST_WORDS = 24, MOST_LINES = 4096 };

/* Of steps between about 0.05 and 1 s here; the bounds are of flops, which no clock is asked for.
 */
static const double least_flops = 1.6e10, most_flops = 2e11;

typedef struct drawn {
  ls_arena *arena;
  const char *folder; /* of its config.json */
  const char *words[MOST_WORDS];
  int count, ranks;
  const char *text; /* for people */
} drawn;

/* Numbers of one layout: by seed, layout and how many were drawn before. */
typedef struct dice {
  uint64_t seed, stream, next;
} dice;

static int64_t draw(dice *from, int64_t count) {
  return (int64_t)(ls_random_bits(from->seed, from->stream, from->next++) % (uint64_t)count);
}

#define PICK(from, list) ((list)[draw((from), (int64_t)(sizeof(list) / sizeof *(list)))])

static void say(drawn *to, const char *key, const char *value) {
  LS_ASSERT(to->count < MOST_WORDS);
  to->words[to->count++] = ls_arena_printf(to->arena, "%s=%s", key, value);
  if (strcmp(key, "model") != 0 && strcmp(key, "init") != 0)
    to->text = ls_arena_printf(to->arena, "%s%s%s=%s", to->text, *to->text ? " " : "", key, value);
}

static void say_count(drawn *to, const char *key, int64_t value) {
  say(to, key, ls_arena_printf(to->arena, "%lld", (long long)value));
}

static ls_status draw_model(dice *from, drawn *to, ls_error *error) {
  static const char *const families[] = {"llama", "gpt2", "qwen3", "llama"};
  static const int heads_of[] = {2, 3, 4, 6, 8}, head_dims[] = {32, 64, 64, 96, 128};
  static const int vocabularies[] = {256, 700, 1500, 3000, 6000, 12000};
  const char *family = PICK(from, families);
  int heads = PICK(from, heads_of), head_dim = PICK(from, head_dims);
  while (heads * head_dim > 768 || heads * head_dim < 96)
    heads = PICK(from, heads_of), head_dim = PICK(from, head_dims);
  const int width = heads * head_dim, layers = 2 + (int)draw(from, 7);
  const int kv_heads = heads % 2 == 0 && draw(from, 2) ? heads / 2 : heads;
  const int mlp = width * (int)(2 + draw(from, 3)) + 32 * (int)draw(from, 4);
  const int vocabulary = PICK(from, vocabularies);
  const bool gpt2 = strcmp(family, "gpt2") == 0;
  const char *text =
      gpt2 ? ls_arena_printf(to->arena,
                             "{\"model_type\": \"gpt2\", \"vocab_size\": %d, \"n_embd\": %d, "
                             "\"n_layer\": %d, \"n_head\": %d, \"n_inner\": %d, \"n_positions\": "
                             "512, \"attn_pdrop\": 0, \"embd_pdrop\": 0, \"resid_pdrop\": 0}\n",
                             vocabulary, width, layers, heads, mlp)
           : ls_arena_printf(to->arena,
                             "{\"model_type\": \"%s\", \"vocab_size\": %d, \"hidden_size\": %d, "
                             "\"intermediate_size\": %d, \"num_hidden_layers\": %d, "
                             "\"num_attention_heads\": %d, \"num_key_value_heads\": %d, "
                             "\"head_dim\": %d, \"max_position_embeddings\": 512}\n",
                             family, vocabulary, width, mlp, layers, heads, kv_heads, head_dim);
  const char *path = ls_arena_printf(to->arena, "%s/config.json", to->folder);
  to->text = ls_arena_printf(to->arena, "%s %dx%d h%d/%d mlp%d v%d", family, layers, width, heads,
                             gpt2 ? heads : kv_heads, mlp, vocabulary);
  say(to, "model", path);
  say(to, "init", "scratch");
  return ls_file_write(path, text, strlen(text), error);
}

/* Ranks are shared out among the axes, a factor at a time. */
static void draw_mesh(dice *from, drawn *to) {
  static const int ranks_of[] = {1, 1, 2, 2, 2, 3, 4, 4, 6, 8};
  static const char *const axes[] = {"mesh.pp", "mesh.dp_replicate", "mesh.dp_shard", "mesh.tp"};
  static const char *const deep[] = {"gpipe", "1f1b", "1f1b",  "interleaved", "zbh1",
                                     "zbh2",  "zbv",  "vhalf", "vmin",        "dualpipev"};
  int sizes[4] = {1, 1, 1, 1};
  to->ranks = PICK(from, ranks_of);
  for (int left = to->ranks, factor = 2; left > 1;) {
    if (left % factor) {
      factor++;
      continue;
    }
    sizes[draw(from, 4)] *= factor;
    left /= factor;
  }
  for (int a = 0; a < 4; a++) say_count(to, axes[a], sizes[a]);
  say_count(to, "zero", draw(from, 4));
  if (sizes[0] > 1) say(to, "schedule", PICK(from, deep));
  if (sizes[3] > 1) say(to, "sequence_parallel", draw(from, 2) ? "true" : "false");
  static const int microbatches_of[] = {1, 2, 4, 8};
  static const int micro_batches[] = {1, 1, 2, 4, 8};
  const int microbatches = PICK(from, microbatches_of), micro_batch = PICK(from, micro_batches);
  say_count(to, "train.micro_batch", micro_batch);
  say_count(to, "train.batch", (int64_t)microbatches * micro_batch * sizes[1] * sizes[2]);
}

static void draw_rest(dice *from, drawn *to) {
  static const int sequences[] = {32, 64, 128, 192, 256, 384, 512};
  static const char *const recomputed[] = {"none", "none", "selective", "full"};
  say_count(to, "data.seq_len", PICK(from, sequences));
  say(to, "dtype", draw(from, 2) ? "bf16" : "fp32");
  say(to, "recompute", PICK(from, recomputed));
  if (draw(from, 4) == 0) {
    say(to, "offload.optimizer", "host");
    if (draw(from, 2)) say(to, "offload.optimizer_fraction", "0.5");
  }
}

/* Memory of the host that counts what devices have, now and as steps begin. */
static _Atomic int64_t reserved;
static int64_t reserved_in_steps;

static void *count_reserved(size_t bytes, bool exported, int *handle) {
  reserved += (int64_t)bytes;
  return ls_host_memory.reserve(bytes, exported, handle);
}

static void count_released(void *base, size_t bytes) {
  if (base) reserved -= (int64_t)bytes;
  ls_host_memory.release(base, bytes);
}

static void look_at_memory(void *context, int done, int count) {
  (void)context;
  if (done < count) reserved_in_steps = reserved;
}

/* What simulate says of it: arena, in whole pages, and workspace of every rank. */
static int64_t memory_of(const ls_session *session) {
  enum { PAGE = 4096 };
  const ls_mesh *mesh = &session->programs[LS_SESSION_STEP]->mesh;
  const int count = session->compiled.count;
  int64_t sum = 0;
  for (int s = 0; s < session->layout.pp; s++) {
    const ls_program *programs[LS_SESSION_PROGRAMS];
    for (int p = 0; p < count; p++) programs[p] = session->stages[p][s];
    const int64_t arena = ls_rank_bytes_needed(programs, count, LS_TIER_DEVICE);
    sum += ((arena + PAGE - 1) / PAGE * PAGE + session->workspace[s]) * ls_mesh_stage_ranks(mesh);
  }
  return sum;
}

/* The layout of that number: the first that is legal and of a right size. */
static ls_status make(uint64_t seed, int layout, const char *folder, ls_arena *arena, drawn *made,
                      ls_session **session, ls_error *error) {
  dice from = {seed, (uint64_t)layout, 0};
  for (int turn = 0; turn < 1000; turn++) {
    *made = (drawn){.arena = arena, .folder = folder, .text = ""};
    LS_TRY(draw_model(&from, made, error));
    draw_mesh(&from, made);
    draw_rest(&from, made);
    ls_run_file *run;
    ls_error refused = {0};
    if (ls_run_file_read(arena, NULL, made->words, made->count, &run, &refused) != LS_OK ||
        ls_session_create(arena, run, made->ranks, made->ranks, session, &refused) != LS_OK)
      continue;
    double flops = 0;
    for (int s = 0; s < (*session)->layout.pp; s++)
      flops += (*session)->stages[LS_SESSION_STEP][s]->flops;
    flops /= (*session)->layout.pp;
    if (flops >= least_flops && flops <= most_flops) return LS_OK;
  }
  return ls_fail(error, LS_FAILED, "layout %d of seed %llu: 1000 draws were refused", layout,
                 (unsigned long long)seed);
}

/* Seconds of a rank, the mean of all, in each op and collective. */
enum { KINDS = LS_OP_COUNT + LS_COLLECTIVE_COUNT };

static void sum_kinds(const ls_session *session, const ls_recording *recording,
                      double seconds[KINDS]) {
  for (int r = 0; r < recording->ranks; r++) {
    const ls_program *program =
        session
            ->stages[LS_SESSION_STEP][ls_mesh_stage(&session->programs[LS_SESSION_STEP]->mesh, r)];
    const ls_recording_rank *of = &recording->by_rank[r];
    int64_t last = 0;
    for (int64_t i = 0; i < of->count; i++) {
      const ls_record *each = &of->records[i];
      const ls_instruction *done = &program->instructions.items[each->instruction];
      const bool computes = done->collective == LS_COLLECTIVE_NONE;
      const int64_t begin = computes && i ? last : each->begin_ns;
      seconds[computes ? (int)done->kind : LS_OP_COUNT + (int)done->collective] +=
          1e-9 * (double)(each->end_ns - begin) / recording->ranks;
      last = each->end_ns;
    }
  }
}

/* A layout's median step beside its simulation, by kind. */
static ls_status print_kinds(ls_arena *arena, const ls_rates *rates, const ls_session *session,
                             const ls_repeated *repeated, int ranks, ls_error *error) {
  double measured[KINDS] = {0}, simulated[KINDS] = {0};
  ls_simulation *simulation;
  const ls_performance on =
      ls_performance_here(rates, &session->device.facts, rates->key.cores, ranks);
  LS_TRY(ls_simulate(arena, session->stages[LS_SESSION_STEP], &on,
                     &(ls_sim_options){.records = true}, &simulation, error));
  const ls_mesh *mesh = &session->programs[LS_SESSION_STEP]->mesh;
  sum_kinds(session, repeated->recordings[repeated->median], measured);
  sum_kinds(session, ls_simulation_recording(arena, simulation, mesh), simulated);
  const double step = repeated->seconds[repeated->median];
  for (int k = 0; k < KINDS; k++)
    if (fmax(measured[k], simulated[k]) > 0.01 * step)
      printf("     %-18s measured %8.2f ms  simulated %8.2f ms  %+6.1f %% of the step\n",
             k < LS_OP_COUNT ? ls_op_name((ls_op_kind)k)
                             : ls_collective_name((ls_collective)(k - LS_OP_COUNT)),
             1e3 * measured[k], 1e3 * simulated[k], 100 * (simulated[k] - measured[k]) / step);
  printf("     step %+.1f %%\n", 100 * (simulation->seconds / step - 1));
  return LS_OK;
}

static ls_status measure(uint64_t seed, int layout, int steps, const char *folder,
                         const ls_rates *rates, FILE *to, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  drawn made;
  ls_session *session;
  ls_world *world = NULL;
  const ls_repeated *repeated = NULL;
  ls_status status = make(seed, layout, folder, arena, &made, &session, error);
  const ls_world_options all = {.ranks = made.ranks};
  ls_memory_calls counting = ls_host_memory;
  counting.reserve = count_reserved;
  counting.release = count_released;
  reserved = 0;
  if (status == LS_OK) session->device.memory = &counting;
  if (status == LS_OK) status = ls_world_start(ls_device_facts_here(), &all, &world, error);
  if (status == LS_OK)
    status = ls_repeat_steps(arena, session, world,
                             &(ls_repeat_options){.steps = steps, .progress = look_at_memory},
                             &repeated, error);
  if (world) ls_world_destroy(&world);
  if (status == LS_OK) {
    fprintf(to, "%llu,%d,%.6g,%lld\n", (unsigned long long)seed, layout,
            repeated->seconds[repeated->median], (long long)reserved_in_steps);
    fflush(to);
    printf("%3d  %.4f s  %s\n", layout, repeated->seconds[repeated->median], made.text);
    fflush(stdout);
  }
  if (status == LS_OK && rates)
    status = print_kinds(arena, rates, session, repeated, made.ranks, error);
  ls_arena_destroy(&arena);
  return status;
}

/* A layout of the file: its rounds, and what is simulated. */
typedef struct row {
  uint64_t seed;
  int layout, rounds;
  double measured[16], predicted;
  int64_t reserved, memory; /* bytes of all ranks, as measured and as simulated */
  const char *text;
} row;

typedef LS_LIST(row) row_list;

static row *row_of(ls_arena *arena, row_list *rows, uint64_t seed, int layout) {
  for (int i = 0; i < rows->count; i++)
    if (rows->items[i].seed == seed && rows->items[i].layout == layout) return &rows->items[i];
  row *made = LS_APPEND(arena, rows);
  made->seed = seed;
  made->layout = layout;
  return made;
}

static ls_status read_rows(ls_arena *arena, const char *path, row_list *rows, ls_error *error) {
  char *text, *end;
  size_t bytes;
  LS_TRY(ls_file_read(arena, path, &text, &bytes, error));
  int line = 0;
  for (char *each; (each = strsep(&text, "\n"));) {
    line++;
    if (!*each) continue;
    const uint64_t seed = strtoull(each, &end, 10);
    const long layout = *end == ',' ? strtol(end + 1, &end, 10) : -1;
    const double seconds = *end == ',' ? strtod(end + 1, &end) : 0;
    const int64_t memory = *end == ',' ? strtoll(end + 1, &end, 10) : 0;
    if (*end || layout < 0 || !(seconds > 0))
      return ls_fail(error, LS_INPUT, "%s:%d: expected seed,layout,seconds,bytes", path, line);
    row *to = row_of(arena, rows, seed, (int)layout);
    to->reserved = memory;
    if (to->rounds < 16) to->measured[to->rounds++] = seconds;
  }
  return LS_OK;
}

static ls_status predict(ls_arena *arena, const ls_rates *rates, const char *folder, row *of,
                         ls_error *error) {
  drawn made;
  ls_session *session;
  LS_TRY(make(of->seed, of->layout, folder, arena, &made, &session, error));
  const ls_performance performance =
      ls_performance_here(rates, &session->device.facts, rates->key.cores, made.ranks);
  ls_simulation *simulation;
  LS_TRY(
      ls_simulate(arena, session->stages[LS_SESSION_STEP], &performance, NULL, &simulation, error));
  of->predicted = simulation->seconds;
  of->text = made.text;
  of->memory = memory_of(session);
  return LS_OK;
}

/* The shortest round: what else ran beside it only adds. */
static double measured_of(const row *of) {
  double least = INFINITY;
  for (int r = 0; r < of->rounds; r++) least = fmin(least, of->measured[r]);
  return least;
}

/* The largest round over the smallest, less 1. */
static double noise_of(const row *of) {
  double least = INFINITY, most = 0;
  for (int r = 0; r < of->rounds; r++)
    least = fmin(least, of->measured[r]), most = fmax(most, of->measured[r]);
  return most / least - 1;
}

static int by_size(const void *a, const void *b) {
  const double left = *(const double *)a, right = *(const double *)b;
  return (left > right) - (left < right);
}

static double quantile(double *values, int count, double share) {
  qsort(values, (size_t)count, sizeof *values, by_size);
  return values[(int)(share * (count - 1) + 0.5)];
}

/* Pairs in the right order less those in the wrong one, of all (Kendall 1938). */
static double tau(const row_list *rows) {
  double sum = 0, pairs = 0;
  for (int i = 0; i < rows->count; i++)
    for (int j = 0; j < i; j++, pairs++) {
      const double measured = measured_of(&rows->items[i]) - measured_of(&rows->items[j]);
      const double predicted = rows->items[i].predicted - rows->items[j].predicted;
      sum += measured * predicted > 0 ? 1 : -1;
    }
  return pairs > 0 ? sum / pairs : 1;
}

static void print_report(ls_arena *arena, const row_list *rows, bool all) {
  double *errors = LS_NEW_ARRAY(arena, double, rows->count);
  double *noises = LS_NEW_ARRAY(arena, double, rows->count);
  for (int i = 0; i < rows->count; i++) {
    const row *each = &rows->items[i];
    errors[i] = each->predicted / measured_of(each) - 1;
    noises[i] = noise_of(each);
    if (all)
      printf("%2d %9.4f s %9.4f s %+7.1f %%  noise %5.1f %%  %s\n", each->layout, measured_of(each),
             each->predicted, 100 * errors[i], 100 * noises[i], each->text);
    errors[i] = fabs(errors[i]);
  }
  printf("%d layouts, error of the step time: median %.1f %%, p90 %.1f %%, worst %.1f %%\n",
         rows->count, 100 * quantile(errors, rows->count, 0.5),
         100 * quantile(errors, rows->count, 0.9), 100 * quantile(errors, rows->count, 1));
  printf("rounds differ by: median %.1f %%, p90 %.1f %%, worst %.1f %%\n",
         100 * quantile(noises, rows->count, 0.5), 100 * quantile(noises, rows->count, 0.9),
         100 * quantile(noises, rows->count, 1));
  int exact = 0;
  double most = 0;
  for (int i = 0; i < rows->count; i++) {
    const row *each = &rows->items[i];
    exact += each->reserved == each->memory;
    most = fmax(most, fabs((double)each->memory / (double)each->reserved - 1));
  }
  printf("memory: exact in %d of %d, off by %.2f %% at most\n", exact, rows->count, 100 * most);
  printf("order of the layouts: Kendall tau %.3f\n", tau(rows));
}

static ls_status read_rates(ls_arena *arena, const ls_rates **rates, ls_error *error) {
  const ls_rates_key key = ls_measure_key(arena);
  const char *why;
  *rates = ls_rates_read(arena, &key, &why);
  if (*rates && (*rates)->ops.count) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s; run lockstep bench first", why ? why : "no ops are kept");
}

static ls_status report(ls_arena *arena, const char *path, const char *folder, bool all,
                        ls_error *error) {
  row_list rows = {0};
  const ls_rates *rates;
  LS_TRY(read_rows(arena, path, &rows, error));
  LS_TRY(read_rates(arena, &rates, error));
  for (int i = 0; i < rows.count; i++) LS_TRY(predict(arena, rates, folder, &rows.items[i], error));
  if (rows.count) print_report(arena, &rows, all);
  return LS_OK;
}

typedef struct asked {
  const char *path;
  int64_t seed;
  int layouts, from, to, steps;
  bool rows, kinds;
} asked;

static ls_status act(const asked *of, ls_arena *arena, const char *folder, ls_error *error) {
  if (of->seed < 0) return report(arena, of->path, folder, of->rows, error);
  const ls_rates *rates = NULL;
  if (of->kinds) LS_TRY(read_rates(arena, &rates, error));
  FILE *to = fopen(of->path, "ae");
  if (!to) return ls_fail(error, LS_INPUT, "%s: cannot be written", of->path);
  ls_status status = LS_OK;
  for (int layout = of->from; layout < of->to && status == LS_OK; layout++)
    status = measure((uint64_t)of->seed, layout, of->steps, folder, rates, to, error);
  fclose(to);
  return status;
}

static bool read_words(int count, char **words, asked *of) {
  for (int w = 1; w < count; w++) {
    const char *value = w + 1 < count ? words[w + 1] : "0";
    if (strcmp(words[w], "--rows") == 0)
      of->rows = true;
    else if (strcmp(words[w], "--kinds") == 0)
      of->kinds = true;
    else if (strcmp(words[w], "--seed") == 0)
      of->seed = atoll(value), w++;
    else if (strcmp(words[w], "--from") == 0)
      of->from = atoi(value), w++;
    else if (strcmp(words[w], "--to") == 0)
      of->to = atoi(value), w++;
    else if (strcmp(words[w], "--steps") == 0)
      of->steps = atoi(value), w++;
    else if (*words[w] == '-' || of->path)
      return false;
    else
      of->path = words[w];
  }
  return of->path && of->steps > 0;
}

int main(int count, char **words) {
  asked of = {.seed = -1, .to = LAYOUTS, .steps = STEPS};
  if (!read_words(count, words, &of)) {
    fprintf(stderr,
            "predicted FILE.csv [--seed N [--from A] [--to B] [--steps N] [--kinds]] [--rows]\n");
    return 2;
  }
  ls_arena *arena = ls_arena_create();
  ls_error error = {0}, unremoved = {0};
  char folder[] = "/tmp/lockstep-predicted-XXXXXX";
  ls_status status = mkdtemp(folder) ? LS_OK : ls_fail(&error, LS_FAILED, "%s: no folder", folder);
  if (status == LS_OK) status = act(&of, arena, folder, &error);
  if (ls_directory_remove(folder, &unremoved) != LS_OK) fprintf(stderr, "%s\n", unremoved.text);
  if (status != LS_OK) fprintf(stderr, "predicted: %s\n", error.text);
  ls_arena_destroy(&arena);
  return status == LS_OK ? 0 : 1;
}
