/* Predicts published measurements and says how far off it is, by source.
 *
 *   build/bench/published ROWS.csv [--rows] [--half fitted|shown]
 *
 * ROWS.csv: one measurement a row, with a header (source, layers, hidden, heads, ..., metric,
 * value). Each is compiled as it is laid out there and simulated on the catalog's machine. `value`
 * and `notes` are read after everything is predicted. --rows prints every row. --half: only the
 * rows whose hash is even (on which the families' constants were fitted), or odd. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/random.h"
#include "cluster/cluster.h"
#include "lower/training.h"
#include "sim/sim.h"

enum { MOST_COLUMNS = 64, MOST_WHY = 200 };

typedef struct row {
  const char *cells[MOST_COLUMNS];
  double predicted, measured; /* step time in s, memory in GiB */
  bool memory, fits;
  const char *why; /* it cannot be done; NULL: it was */
} row;

typedef struct table {
  const char *columns[MOST_COLUMNS];
  int column_count;
  LS_LIST(row) rows;
} table;

static const char *cell(const table *of, const row *r, const char *column) {
  for (int c = 0; c < of->column_count; c++)
    if (strcmp(of->columns[c], column) == 0) return r->cells[c] ? r->cells[c] : "";
  return "";
}

static double number(const table *of, const row *r, const char *column, double otherwise) {
  const char *text = cell(of, r, column);
  return *text ? strtod(text, NULL) : otherwise;
}

/* The next cell of a line of CSV (RFC 4180); *at is then behind it. NULL: the line has ended. */
static const char *next_cell(ls_arena *arena, const char **at) {
  const char *from = *at;
  if (!*from || *from == '\n') return NULL;
  char *made = ls_arena_alloc(arena, strcspn(from, "\n") + 2);
  size_t length = 0;
  bool quoted = *from == '"';
  from += quoted;
  for (; *from && (quoted || (*from != ',' && *from != '\n')); from++) {
    if (quoted && *from == '"') {
      if (from[1] != '"') {
        quoted = false;
        continue;
      }
      from++;
    }
    if (*from != '\r') made[length++] = *from;
  }
  made[length] = 0;
  *at = *from == ',' ? from + 1 : from;
  return made;
}

static void read_table(ls_arena *arena, const char *text, table *made) {
  const char *at = text, *name;
  while ((name = next_cell(arena, &at)) && made->column_count < MOST_COLUMNS)
    made->columns[made->column_count++] = name;
  while (*at == '\n') at++;
  while (*at) {
    row *r = LS_APPEND(arena, &made->rows);
    *r = (row){0};
    for (int c = 0; c < made->column_count && (name = next_cell(arena, &at)); c++)
      r->cells[c] = name;
    at += strcspn(at, "\n");
    while (*at == '\n') at++;
  }
}

/* The catalog's id of a row's GPU. */
static const char *accelerator_of(const table *of, const row *r) {
  static const struct {
    const char *gpu, *id;
  } known[] = {{"H100-80GB", "h100-sxm-80"},
               {"H100-96GB", "h100-sxm-80"},
               {"A100-80GB", "a100-sxm-80"},
               {"A100-40GB", "a100-sxm-40"},
               {"A100", "a100-sxm-80"},
               {"GB200", "gb200-186"},
               {"GB300", "gb300-288"},
               {"B200", "b200-sxm-180"},
               {"B300", "b300-sxm-288"},
               {"H200-141GB", "h200-sxm-141"},
               {"H800-80GB", "h800-sxm-80"},
               {"RTX 4090", "rtx4090"},
               {"RTX 5090", "rtx5090"},
               {"RTX 5060 Ti", "rtx5060ti-16"},
               {"RTX PRO 6000", "rtxpro6000-bw"},
               {"L40S", "l40s"},
               {"A6000", "rtx-a6000"}};
  const char *gpu = cell(of, r, "gpu");
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcasecmp(known[i].gpu, gpu) == 0) return known[i].id;
  return NULL;
}

/* Gated MLPs are known by their width: 4 times the model's is a plain one. */
static ls_model_config model_of(const table *of, const row *r) {
  const double hidden = number(of, r, "hidden", 0), ffn = number(of, r, "ffn_hidden", 4 * hidden);
  ls_model_config made;
  const bool plain = ffn == 4 * hidden;
  ls_model_preset(plain ? "gpt2-124m" : "llama3-8b", &made);
  made.width = (int64_t)hidden;
  made.layers = (int64_t)number(of, r, "layers", 0);
  made.heads = (int64_t)number(of, r, "heads", 0);
  made.kv_heads = (int64_t)number(of, r, "kv_heads", (double)made.heads);
  made.head_dim = made.heads ? made.width / made.heads : 0;
  made.mlp_width = (int64_t)ffn;
  made.vocabulary = (int64_t)number(of, r, "vocab", 51200);
  made.positions = (int64_t)number(of, r, "seq_len", 0);
  made.layer_kinds = NULL;
  return made;
}

static ls_status layout_of(const table *of, const row *r, ls_layout *layout, int64_t *batch,
                           ls_error *error) {
  const double devices = number(of, r, "n_gpus", 0);
  *layout = ls_layout_default();
  layout->tp = (int)number(of, r, "tp", 1);
  layout->pp = (int)number(of, r, "pp", 1);
  const int data = (int)number(of, r, "dp", devices / layout->tp / layout->pp);
  layout->zero = (int)number(of, r, "zero_stage", 1);
  ls_layout_set_data_ranks(layout, layout->zero ? 1 : data, layout->zero ? data : 1);
  *batch = (int64_t)number(of, r, "global_batch_seqs", 0);
  const double micro = number(of, r, "micro_batch", 1);
  layout->microbatches = (int)((double)*batch / data / micro);
  layout->sequence_parallel = layout->tp > 1;
  layout->chunks = (int)number(of, r, "vpp", 1);
  layout->schedule = layout->chunks > 1 ? "interleaved" : "1f1b";
  const char *precision = cell(of, r, "precision"), *recompute = cell(of, r, "recompute");
  layout->compute =
      strcasestr(precision, "fp16") && !strcasestr(precision, "bf16") ? LS_F16 : LS_BF16;
  if (strcmp(recompute, "full") == 0) layout->recompute = (ls_op_set)LS_EVERY_OP;
  if (strcmp(recompute, "selective") == 0) layout->recompute = ls_op_set_cheap();
  layout->prefetch = 1;
  if (layout->microbatches < 1 || *batch < 1 || layout->tp * layout->pp * data != (int)devices)
    return ls_fail(error, LS_INPUT, "batch or mesh is not told");
  return LS_OK;
}

static const char *unsupported(const table *of, const row *r) {
  if (number(of, r, "cp", 1) > 1) return "context parallelism";
  if (number(of, r, "ep", 1) > 1) return "expert parallelism";
  const char *precision = cell(of, r, "precision");
  if (strcasestr(precision, "fp8") || strcasestr(precision, "fp4")) return "fp8 or fp4";
  if (!accelerator_of(of, r)) return "its GPU is not known or older than sm_80";
  const char *metric = cell(of, r, "metric");
  if (strcmp(metric, "step_time_s") != 0 && strcmp(metric, "tokens_per_s_per_gpu") != 0 &&
      strcmp(metric, "mem_gib") != 0)
    return "metric depends on how flops are counted";
  return NULL;
}

static ls_status predict(ls_arena *arena, ls_catalog *catalog, const table *of, row *r,
                         ls_error *error) {
  char text[128];
  const int devices = (int)number(of, r, "n_gpus", 0);
  int per_host = (int)number(of, r, "gpus_per_node", 8);
  if (per_host > devices) per_host = devices;
  snprintf(text, sizeof text, "%dx%s:%d", devices, accelerator_of(of, r), per_host);
  ls_cluster *cluster;
  LS_TRY(ls_cluster_read(catalog, text, &cluster, error));
  ls_device_facts facts;
  if (!ls_device_facts_of(cluster->accelerator, &facts))
    return ls_fail(error, LS_INPUT, "no recipe for the device");
  ls_performance performance;
  LS_TRY(ls_performance_of(&facts, cluster, &performance, error));
  const ls_model_config model = model_of(of, r);
  ls_layout layout;
  int64_t batch;
  LS_TRY(layout_of(of, r, &layout, &batch, error));
  const ls_training training = {.model = &model, .batch = batch, .sequence = model.positions};
  ls_compiled compiled;
  LS_TRY(ls_compile(arena, &training, &layout, &facts, &compiled, error));
  r->memory = strcmp(cell(of, r, "metric"), "mem_gib") == 0;
  if (r->memory) {
    int64_t most = 0;
    for (int s = 0; s < layout.pp; s++) {
      const int64_t bytes =
          ls_program_bytes(compiled.stages[LS_COMPILED_STEP][s]) + compiled.workspace[s];
      if (bytes > most) most = bytes;
    }
    r->predicted = (double)most / 1073741824;
    return LS_OK;
  }
  ls_simulation *simulation;
  LS_TRY(ls_simulate(arena, compiled.stages[LS_COMPILED_STEP], &performance, NULL, &simulation,
                     error));
  r->predicted = simulation->seconds;
  return LS_OK;
}

/* What was measured, as a step time or GiB. */
static void read_value(const table *of, row *r) {
  r->measured = number(of, r, "value", NAN);
  if (strcmp(cell(of, r, "metric"), "tokens_per_s_per_gpu") == 0)
    r->measured = number(of, r, "global_batch_seqs", 0) * number(of, r, "seq_len", 0) /
                  (r->measured * number(of, r, "n_gpus", 1));
}

static double error_of(const row *r) {
  return r->predicted / r->measured - 1;
}

static int by_size(const void *a, const void *b) {
  const double x = fabs(*(const double *)a), y = fabs(*(const double *)b);
  return (x > y) - (x < y);
}

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Kendall's tau of predicted and measured over rows of one source. */
static double tau(const row *const *rows, int count) {
  double concordant = 0, pairs = 0;
  for (int i = 0; i < count; i++)
    for (int j = 0; j < i; j++) {
      const double p = rows[i]->predicted - rows[j]->predicted,
                   m = rows[i]->measured - rows[j]->measured;
      if (p == 0 || m == 0) continue;
      concordant += (p > 0) == (m > 0) ? 1 : -1;
      pairs++;
    }
  return pairs > 0 ? concordant / pairs : NAN;
}

typedef struct source {
  const char *name;
  int rows, done;
  double median, bias;
} source;

static source judge(ls_arena *arena, const table *of, const char *name, bool memory) {
  source made = {.name = name};
  double *errors = LS_NEW_ARRAY(arena, double, of->rows.count);
  const row **done = LS_NEW_ARRAY(arena, const row *, of->rows.count);
  for (int i = 0; i < of->rows.count; i++) {
    const row *r = &of->rows.items[i];
    if (strcmp(cell(of, r, "source"), name) != 0 ||
        (strcmp(cell(of, r, "metric"), "mem_gib") == 0) != memory)
      continue;
    made.rows++;
    if (r->why || !(r->measured > 0)) continue;
    done[made.done] = r;
    errors[made.done++] = error_of(r);
  }
  if (!made.done) return made;
  double *sorted = LS_NEW_ARRAY(arena, double, made.done);
  memcpy(sorted, errors, sizeof(double) * (size_t)made.done);
  qsort(sorted, (size_t)made.done, sizeof *sorted, by_value);
  made.bias = sorted[made.done / 2];
  qsort(errors, (size_t)made.done, sizeof *errors, by_size);
  made.median = fabs(errors[made.done / 2]);
  printf("%-24s %5d %5d  %8.1f %8.1f %8.1f %+8.1f %7.2f\n", name, made.rows, made.done,
         100 * made.median, 100 * fabs(errors[(int)(0.9 * (made.done - 1) + 0.5)]),
         100 * fabs(errors[made.done - 1]), 100 * made.bias, tau(done, made.done));
  return made;
}

static void judge_all(ls_arena *arena, const table *of, bool memory) {
  printf("\n%s, %%\n%-24s %5s %5s  %8s %8s %8s %8s %7s\n", memory ? "memory" : "step time",
         "source", "rows", "done", "median", "p90", "worst", "bias", "tau");
  double sum = 0;
  int sources = 0, rows = 0, done = 0;
  for (int i = 0; i < of->rows.count; i++) {
    const char *name = cell(of, &of->rows.items[i], "source");
    bool seen = false;
    for (int j = 0; j < i && !seen; j++)
      seen = strcmp(cell(of, &of->rows.items[j], "source"), name) == 0;
    if (seen) continue;
    const source made = judge(arena, of, name, memory);
    rows += made.rows;
    done += made.done;
    if (!made.done) continue;
    sum += made.median;
    sources++;
  }
  if (sources)
    printf("%-24s %5d %5d  %8.1f  mean of the sources' medians\n", "all", rows, done,
           100 * sum / sources);
}

static void tell_why(const table *of) {
  printf("\nnot done\n");
  for (int i = 0; i < of->rows.count; i++) {
    const char *why = of->rows.items[i].why;
    int count = 0;
    bool seen = false;
    for (int j = 0; why && j < of->rows.count; j++) {
      const bool same = of->rows.items[j].why && strcmp(of->rows.items[j].why, why) == 0;
      count += same;
      seen = seen || (same && j < i);
    }
    if (why && !seen) printf("%5d  %s\n", count, why);
  }
}

static void print_row(const table *of, const row *r) {
  if (r->why)
    printf("%-22s %-18s %s\n", cell(of, r, "source"), cell(of, r, "model"), r->why);
  else
    printf(
        "%-22s %-18s %5s x %-12s tp %-2s pp %-2s vpp %-2s zero %-2s mb %-3s re %-9s %10.4g %10.4g "
        "%s"
        " %+6.1f %%\n",
        cell(of, r, "source"), cell(of, r, "model"), cell(of, r, "n_gpus"), cell(of, r, "gpu"),
        cell(of, r, "tp"), cell(of, r, "pp"), cell(of, r, "vpp"), cell(of, r, "zero_stage"),
        cell(of, r, "micro_batch"), cell(of, r, "recompute"), r->predicted, r->measured,
        r->memory ? "GiB" : "s", 100 * error_of(r));
}

static bool is_asked(const table *of, const row *r, const char *half) {
  if (strcmp(cell(of, r, "completeness"), "full") != 0) return false;
  if (!half) return true;
  const bool even = ls_random_stream(cell(of, r, "row_id")) % 2 == 0;
  return even == (strcmp(half, "fitted") == 0);
}

int main(int count, char **words) {
  const char *path = NULL, *half = NULL;
  bool rows = false;
  for (int i = 1; i < count; i++) {
    if (strcmp(words[i], "--rows") == 0)
      rows = true;
    else if (strcmp(words[i], "--half") == 0 && i + 1 < count)
      half = words[++i];
    else
      path = words[i];
  }
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  char *text;
  size_t bytes;
  ls_catalog *catalog;
  if (!path || ls_file_read(arena, path, &text, &bytes, &error) != LS_OK ||
      ls_catalog_read(arena, NULL, &catalog, &error) != LS_OK) {
    fprintf(stderr, "published: %s\n", path ? error.text : "expected a file of rows");
    return 2;
  }
  table all = {0}, of = {0};
  read_table(arena, text, &all);
  of = all;
  of.rows.items = NULL;
  of.rows.count = of.rows.capacity = 0;
  for (int i = 0; i < all.rows.count; i++)
    if (is_asked(&all, &all.rows.items[i], half)) *LS_APPEND(arena, &of.rows) = all.rows.items[i];
  for (int i = 0; i < of.rows.count; i++) {
    row *r = &of.rows.items[i];
    ls_arena *scratch = ls_arena_create();
    ls_error why = {0};
    r->why = unsupported(&of, r);
    if (!r->why && predict(scratch, catalog, &of, r, &why) != LS_OK)
      r->why = ls_arena_printf(arena, "%.150s", why.text);
    ls_arena_destroy(&scratch);
  }
  for (int i = 0; i < of.rows.count; i++) read_value(&of, &of.rows.items[i]);
  for (int i = 0; rows && i < of.rows.count; i++) print_row(&of, &of.rows.items[i]);
  judge_all(arena, &of, false);
  judge_all(arena, &of, true);
  tell_why(&of);
  ls_arena_destroy(&arena);
  return 0;
}
