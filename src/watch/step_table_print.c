#include <string.h>

#include "watch/line.h"
#include "watch/step_table.h"

static const char *const parts[LS_STEP_PARTS] = {"op",   "again", "collective",
                                                 "wait", "rest",  "beside"};

/* Counts that are whole are written so; means over ranks that differ have a digit. */
static void append_calls(char line[LS_SHOWN_BYTES], double calls) {
  const bool whole = calls == (double)(int64_t)calls;
  if (calls > 0)
    ls_line_append(line, " %7.*f", whole ? 0 : 1, calls);
  else
    ls_line_append(line, " %7s", "");
}

static void append_work(char line[LS_SHOWN_BYTES], double value, double unit) {
  if (value > 0)
    ls_line_append(line, " %9.1f", value * unit);
  else
    ls_line_append(line, " %9s", "");
}

static void append_time(char line[LS_SHOWN_BYTES], const ls_step_table *table,
                        const ls_step_row *row) {
  ls_line_append(line, " %10.3f", 1e3 * row->seconds);
  if (row->part == LS_STEP_BESIDE)
    ls_line_append(line, " %7s", "");
  else
    ls_line_append(line, " %7.1f", 100 * row->seconds / table->seconds);
}

/* Name, calls, then what is known of: ms, share, GFLOP, MB, floor, share of the floor. */
static void print_row(const ls_step_table *table, const ls_step_row *row, FILE *stream) {
  const char *suffix = row->part == LS_STEP_AGAIN    ? ", again"
                       : row->part == LS_STEP_BESIDE ? ", beside"
                                                     : "";
  char name[64], line[LS_SHOWN_BYTES] = "";
  snprintf(name, sizeof name, "%.50s%s", row->name, suffix);
  ls_line_append(line, "%-28s", name);
  append_calls(line, row->calls);
  if (table->measured) append_time(line, table, row);
  append_work(line, row->flops, 1e-9);
  append_work(line, row->bytes, 1e-6);
  if (row->floor_s > 0) {
    ls_line_append(line, " %10.3f", 1e3 * row->floor_s);
    if (table->measured && row->seconds > 0)
      ls_line_append(line, " %7.1f", 100 * row->floor_s / row->seconds);
  }
  size_t length = strlen(line);
  while (length && line[length - 1] == ' ') line[--length] = 0;
  fprintf(stream, "%s\n", line);
}

static void print_limits(const ls_step_limits *limits, FILE *stream) {
  if (limits->bytes_per_s <= 0) return;
  fputs("floors by ", stream);
  if (limits->flops_per_s > 0)
    fprintf(stream, "%.1f GFLOP/s%s and ", 1e-9 * limits->flops_per_s,
            limits->measured_now ? ", as measured now," : "");
  fprintf(stream, "%.1f GB/s of a rank, as lockstep bench found\n", 1e-9 * limits->bytes_per_s);
}

void ls_step_table_print(const ls_step_table *table, FILE *stream) {
  print_limits(&table->limits, stream);
  fprintf(stream, "%-28s %7s", table->ranks > 1 ? "of one rank, the mean" : "op", "calls");
  if (table->measured) fprintf(stream, " %10s %7s", "ms", "% step");
  fprintf(stream, " %9s %9s %10s", "GFLOP", "MB", "floor ms");
  fprintf(stream, "%s\n", table->measured ? " % floor" : "");
  ls_step_row all = {.name = "step", .floor_s = table->floor_s, .seconds = table->seconds};
  bool told = false;
  for (int i = 0; i < table->rows.count; i++) {
    const ls_step_row *row = &table->rows.items[i];
    const bool beside = row->part == LS_STEP_BESIDE;
    if (beside && !told) print_row(table, &all, stream); /* they are not in this sum */
    told = told || beside;
    print_row(table, row, stream);
    all.flops += row->flops;
    all.bytes += row->bytes;
  }
  if (!told) print_row(table, &all, stream);
}

static json_t *row_json(const ls_step_table *table, const ls_step_row *row) {
  json_t *made = json_pack("{s:s, s:s, s:f, s:f, s:f}", "name", row->name, "part", parts[row->part],
                           "calls", row->calls, "flops", row->flops, "bytes", row->bytes);
  if (row->floor_s > 0) json_object_set_new(made, "floor_ms", json_real(1e3 * row->floor_s));
  if (!table->measured) return made;
  json_object_set_new(made, "ms", json_real(1e3 * row->seconds));
  if (row->part != LS_STEP_BESIDE)
    json_object_set_new(made, "of_step", json_real(row->seconds / table->seconds));
  if (row->floor_s > 0 && row->seconds > 0)
    json_object_set_new(made, "of_floor", json_real(row->floor_s / row->seconds));
  return made;
}

json_t *ls_step_table_json(const ls_step_table *table) {
  json_t *rows = json_array();
  for (int i = 0; i < table->rows.count; i++)
    json_array_append_new(rows, row_json(table, &table->rows.items[i]));
  json_t *root = json_pack("{s:i, s:f, s:f, s:f}", "ranks", table->ranks, "flops_per_s",
                           table->limits.flops_per_s, "bytes_per_s", table->limits.bytes_per_s,
                           "floor_ms", 1e3 * table->floor_s);
  if (table->measured) json_object_set_new(root, "step_ms", json_real(1e3 * table->seconds));
  if (table->limits.measured_now) json_object_set_new(root, "flops_measured_now", json_true());
  json_object_set_new(root, "rows", rows);
  return root;
}
