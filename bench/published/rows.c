/* Rows of published measurements, and how far predictions are from them. */
#include "published/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"

const char *published_cell(const published_table *of, const published_row *row,
                           const char *column) {
  for (int c = 0; c < of->column_count; c++)
    if (strcmp(of->columns[c], column) == 0) return row->cells[c] ? row->cells[c] : "";
  return "";
}

double published_number(const published_table *of, const published_row *row, const char *column,
                        double otherwise) {
  const char *text = published_cell(of, row, column);
  return *text ? strtod(text, NULL) : otherwise;
}

/* The next cell of a line; *at is then behind it. NULL: the line has ended. */
static const char *next_cell(ls_arena *arena, const char **at) {
  const char *from = *at;
  if (!*from || *from == '\n') return NULL;
  char *made = ls_arena_alloc(arena, strlen(from) + 1 < 4096 ? strlen(from) + 1 : 4096);
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
    if (*from != '\r' && length + 1 < 4096) made[length++] = *from;
  }
  made[length] = 0;
  *at = *from == ',' ? from + 1 : from;
  return made;
}

void published_read(ls_arena *arena, const char *text, published_table *made) {
  const char *at = text, *name;
  *made = (published_table){0};
  while ((name = next_cell(arena, &at)) && made->column_count < PUBLISHED_COLUMNS)
    made->columns[made->column_count++] = name;
  while (*at == '\n') at++;
  while (*at) {
    published_row *row = LS_APPEND(arena, &made->rows);
    *row = (published_row){.measured = NAN, .machines = -1};
    for (int c = 0; c < made->column_count && (name = next_cell(arena, &at)); c++)
      row->cells[c] = name;
    at += strcspn(at, "\n");
    while (*at == '\n') at++;
  }
}

static bool ran_out(const published_table *of, const published_row *row) {
  return strcmp(published_cell(of, row, "value"), "OOM") == 0;
}

published_kind published_kind_of(const published_table *of, const published_row *row) {
  return strcmp(published_cell(of, row, "metric"), "mem_gib") == 0 || ran_out(of, row)
             ? PUBLISHED_MEMORY
             : PUBLISHED_TIME;
}

bool published_is_fitted(const published_table *of, const published_row *row) {
  return ls_random_stream(published_cell(of, row, "row_id")) % 2 == 0;
}

double published_flops(const published_table *of, const published_row *row, bool gated,
                       bool repeated) {
  const double hidden = published_number(of, row, "hidden", 0);
  const double ffn = published_number(of, row, "ffn_hidden", 4 * hidden);
  const double heads = published_number(of, row, "heads", 1);
  const double shared = published_number(of, row, "kv_heads", heads) / heads;
  const double sequence = published_number(of, row, "seq_len", 0);
  const double layer = hidden * hidden * (2 + 2 * shared) + (gated ? 3 : 2) * hidden * ffn;
  const double tokens = sequence * published_number(of, row, "global_batch_seqs", 0);
  const double layers = published_number(of, row, "layers", 0);
  const double once = 2 * layer + 4 * hidden * sequence;
  return tokens * (layers * once * (repeated ? 4 : 3) +
                   6 * hidden * published_number(of, row, "vocab", 51200));
}

void published_take_value(const published_table *of, published_row *row) {
  const char *metric = published_cell(of, row, "metric");
  const double value = published_number(of, row, "value", NAN);
  const double devices = published_number(of, row, "n_gpus", 1);
  row->out_of_memory = ran_out(of, row);
  row->measured = row->out_of_memory ? NAN : value;
  if (strcmp(metric, "tokens_per_s_per_gpu") == 0)
    row->measured = published_number(of, row, "global_batch_seqs", 0) *
                    published_number(of, row, "seq_len", 0) / (value * devices);
  else if (strcmp(metric, "tflops_per_gpu") == 0)
    row->measured = row->flops / (value * 1e12 * devices);
  else if (strcmp(metric, "mfu") == 0)
    row->measured = row->flops / (value * row->peak * devices);
}

double published_error(const published_row *row) {
  return row->predicted / row->measured - 1;
}

bool published_fits(const published_row *row) {
  return row->predicted <= 0.9 * row->capacity;
}

published_calls published_count_calls(const published_table *of) {
  published_calls made = {0};
  for (int i = 0; i < of->rows.count; i++) {
    const published_row *row = &of->rows.items[i];
    if (published_kind_of(of, row) != PUBLISHED_MEMORY) continue;
    const bool done = !row->why, fits = done && published_fits(row);
    if (row->out_of_memory) {
      made.out_of_memory++;
      made.refused += done && !fits;
      made.called_fitting += fits;
    } else {
      made.fitted++;
      made.held += fits;
      made.called_large += done && !fits;
    }
  }
  return made;
}

static int by_size(const void *a, const void *b) {
  const double x = fabs(*(const double *)a), y = fabs(*(const double *)b);
  return (x > y) - (x < y);
}

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double tau(const published_row *const *rows, int count) {
  double concordant = 0, pairs = 0;
  for (int i = 0; i < count; i++)
    for (int j = 0; j < i; j++) {
      const double p = rows[i]->predicted - rows[j]->predicted;
      const double m = rows[i]->measured - rows[j]->measured;
      if (p == 0 || m == 0) continue;
      concordant += (p > 0) == (m > 0) ? 1 : -1;
      pairs++;
    }
  return pairs > 0 ? concordant / pairs : NAN;
}

/* The middle of sorted ones, or the mean of the two in the middle. */
static double middle(const double *sorted, int count) {
  return (fabs(sorted[(count - 1) / 2]) + fabs(sorted[count / 2])) / 2;
}

published_score published_judge(ls_arena *arena, const published_table *of, const char *source,
                                published_kind kind) {
  published_score made = {.tau = NAN};
  double *errors = LS_NEW_ARRAY(arena, double, of->rows.count + 1);
  const published_row **done = LS_NEW_ARRAY(arena, const published_row *, of->rows.count + 1);
  for (int i = 0; i < of->rows.count; i++) {
    const published_row *row = &of->rows.items[i];
    if ((source && strcmp(published_cell(of, row, "source"), source) != 0) ||
        published_kind_of(of, row) != kind)
      continue;
    made.rows++;
    if (row->why || !(row->measured > 0)) continue;
    done[made.done] = row;
    errors[made.done++] = published_error(row);
  }
  if (!made.done) return made;
  qsort(errors, (size_t)made.done, sizeof *errors, by_value);
  made.bias = (errors[(made.done - 1) / 2] + errors[made.done / 2]) / 2;
  qsort(errors, (size_t)made.done, sizeof *errors, by_size);
  made.median = middle(errors, made.done);
  made.p90 = fabs(errors[(int)ceil(0.9 * made.done) - 1]);
  made.worst = fabs(errors[made.done - 1]);
  made.tau = tau(done, made.done);
  return made;
}

/* Of sorted ones, between those that are nearest. */
static double quantile(const double *sorted, int count, double share) {
  const double at = share * (count - 1);
  const int below = (int)at, above = below + 1 < count ? below + 1 : below;
  return sorted[below] + (at - below) * (sorted[above] - sorted[below]);
}

published_spread published_spread_of(ls_arena *arena, const published_table *of, int machines) {
  published_spread made = {0};
  double *ratios = LS_NEW_ARRAY(arena, double, of->rows.count + 1);
  published_table used = {.column_count = of->column_count};
  memcpy(used.columns, of->columns, sizeof used.columns);
  for (int i = 0; i < of->rows.count; i++) {
    const published_row *row = &of->rows.items[i];
    if (row->why || row->machines != machines || !(row->measured > 0) ||
        published_kind_of(of, row) != PUBLISHED_TIME)
      continue;
    ratios[made.rows++] = row->measured / row->predicted;
    *LS_APPEND(arena, &used.rows) = *row;
  }
  if (!made.rows) return made;
  published_sources(arena, &used, &made.sources);
  qsort(ratios, (size_t)made.rows, sizeof *ratios, by_value);
  made.low = quantile(ratios, made.rows, 0.1);
  made.middle = quantile(ratios, made.rows, 0.5);
  made.high = quantile(ratios, made.rows, 0.9);
  return made;
}

const char **published_sources(ls_arena *arena, const published_table *of, int *count) {
  const char **names = LS_NEW_ARRAY(arena, const char *, of->rows.count + 1);
  *count = 0;
  for (int i = 0; i < of->rows.count; i++) {
    const char *name = published_cell(of, &of->rows.items[i], "source");
    bool seen = false;
    for (int j = 0; j < *count && !seen; j++) seen = strcmp(names[j], name) == 0;
    if (!seen) names[(*count)++] = name;
  }
  return names;
}
