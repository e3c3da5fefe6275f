/* Runs over each other: their metrics as a picture, a table and a CSV. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/written_file.h"
#include "cli/command.h"
#include "cli/plot.h"
#include "text/number.h"
#include "watch/curves.h"

static const char help[] =
    "usage: lockstep plot RUN [RUN...] [-o FILE.svg] [--csv FILE] [--x step|tokens|hours]\n\n"
    "Draws loss (with validation losses, dashed), gradient norm, learning rate and tokens a second "
    "of\n"
    "runs over each other, and prints where each stands. RUN is the folder of a run or a\n"
    "metrics.jsonl; a run may still be going on.\n\n"
    "  -o FILE.svg    the picture; default: plot.svg. It is light or dark as its reader is\n"
    "  --csv FILE     all steps of all runs as comma-separated values, with accuracies, rewards "
    "and\n"
    "                 a teacher's part\n"
    "  --x WHAT       over step (default), tokens, or hours of steps\n"
    "  --smooth W     moving average, from 0 (none) to 0.999; default: 0.9. The values themselves "
    "are\n"
    "                 drawn faint behind it; learning rates and validation losses are not "
    "averaged\n"
    "  --help         this text\n\n"
    "examples:\n"
    "  lockstep plot runs/quickstart\n"
    "  lockstep plot runs/lr-1e-4 runs/lr-3e-4 -o lr.svg --x tokens\n";

/* Of the moving average. */
static const double usual_weight = 0.9;

typedef struct request {
  const char *picture, *csv, *over, *smooth;
  double weight;
} request;

typedef struct plotted_run {
  const char *name;
  ls_metrics_rows rows;
  double *x; /* of each row */
} plotted_run;

typedef LS_LIST(plotted_run) plotted_runs;

static ls_status open_run(ls_arena *arena, const char *word, plotted_run *run, ls_error *error) {
  const char *path = word;
  if (ls_directory_exists(word)) {
    path = ls_arena_printf(arena, "%s/metrics.jsonl", word);
    if (!ls_file_exists(path))
      return ls_fail(error, LS_INPUT, "%s: no metrics.jsonl there; expected the folder of a run",
                     word);
  }
  run->name = word;
  return ls_metrics_read(arena, path, &run->rows, error);
}

static void set_x(ls_arena *arena, const char *over, plotted_run *run) {
  double seconds = 0;
  run->x = LS_NEW_ARRAY(arena, double, run->rows.count);
  for (int r = 0; r < run->rows.count; r++) {
    const ls_metrics_step *row = &run->rows.items[r];
    if (isfinite(row->step_seconds)) seconds += row->step_seconds;
    run->x[r] = strcmp(over, "step") == 0     ? (double)row->step
                : strcmp(over, "tokens") == 0 ? (double)row->tokens
                                              : seconds / 3600;
  }
}

typedef double (*taken)(const ls_metrics_step *row);
static double loss_of(const ls_metrics_step *row) {
  return row->loss;
}
static double norm_of(const ls_metrics_step *row) {
  return row->grad_norm;
}
static double rate_of(const ls_metrics_step *row) {
  return row->learning_rate;
}
static double speed_of(const ls_metrics_step *row) {
  return row->tokens_per_second;
}

static void add_curve(ls_arena *arena, ls_curves_panel *panel, const plotted_run *run, int number,
                      ls_curve_kind kind, const double *y) {
  *LS_APPEND(arena, &panel->curves) =
      (ls_curve){.run = number, .kind = kind, .x = run->x, .y = y, .count = run->rows.count};
}

static void add_panel(ls_curves *curves, const plotted_runs *runs, const char *title, taken value,
                      double weight) {
  ls_curves_panel *panel = LS_APPEND(curves->arena, &curves->panels);
  *panel = (ls_curves_panel){.title = title};
  for (int r = 0; r < runs->count; r++) {
    const plotted_run *run = &runs->items[r];
    double *y = LS_NEW_ARRAY(curves->arena, double, run->rows.count);
    for (int i = 0; i < run->rows.count; i++) y[i] = value(&run->rows.items[i]);
    if (weight > 0) add_curve(curves->arena, panel, run, r, LS_CURVE_FAINT, y);
    add_curve(curves->arena, panel, run, r, LS_CURVE_LINE,
              weight > 0 ? ls_curve_smooth(curves->arena, y, run->rows.count, weight) : y);
  }
}

/* A run has few of them: a curve of its own points, so that a line joins them. */
static void add_validation(ls_curves *curves, ls_curves_panel *panel, const plotted_run *run,
                           int number) {
  double *x = LS_NEW_ARRAY(curves->arena, double, run->rows.count);
  double *y = LS_NEW_ARRAY(curves->arena, double, run->rows.count);
  int count = 0;
  for (int i = 0; i < run->rows.count; i++) {
    if (!isfinite(run->rows.items[i].validation_loss)) continue;
    x[count] = run->x[i];
    y[count++] = run->rows.items[i].validation_loss;
  }
  if (count)
    *LS_APPEND(curves->arena, &panel->curves) =
        (ls_curve){.run = number, .kind = LS_CURVE_MARKED, .x = x, .y = y, .count = count};
}

static ls_status draw(ls_arena *arena, const request *asked, const plotted_runs *runs,
                      ls_error *error) {
  const char **names = LS_NEW_ARRAY(arena, const char *, runs->count);
  for (int r = 0; r < runs->count; r++) names[r] = runs->items[r].name;
  ls_curves curves = {.arena = arena, .runs = names, .run_count = runs->count};
  curves.title = runs->count == 1 ? names[0] : ls_arena_printf(arena, "%d runs", runs->count);
  curves.x_name = asked->over;
  add_panel(&curves, runs, "loss; dashed: of the validation text", loss_of, asked->weight);
  for (int r = 0; r < runs->count; r++)
    add_validation(&curves, &curves.panels.items[0], &runs->items[r], r);
  add_panel(&curves, runs, "gradient norm, before clipping", norm_of, asked->weight);
  add_panel(&curves, runs, "learning rate", rate_of, 0);
  add_panel(&curves, runs, "tokens a second, of all devices", speed_of, asked->weight);
  ls_written_file file;
  LS_TRY(ls_written_file_begin(&file, error));
  ls_curves_svg(&curves, file.to);
  LS_TRY(ls_written_file_end(&file, asked->picture, error));
  fprintf(stderr, "written: %s\n", asked->picture);
  return LS_OK;
}

static void print_csv_number(FILE *stream, double value) {
  char text[LS_NUMBER_BYTES];
  ls_number_write(text, value);
  fprintf(stream, ",%s", isfinite(value) ? text : "");
}

/* A name with a comma, a quote or a line's end in quotes, as spreadsheets have it. */
static void print_csv_name(FILE *stream, const char *name) {
  const bool quoted = strpbrk(name, ",\"\n\r") != NULL;
  if (quoted) fputc('"', stream);
  for (; *name; name++) {
    if (*name == '"') fputc('"', stream);
    fputc(*name, stream);
  }
  if (quoted) fputc('"', stream);
}

static void print_csv(FILE *stream, const plotted_runs *runs) {
  fputs(
      "run,step,tokens,epoch,loss,validation_loss,grad_norm,learning_rate,tokens_per_second,mfu,"
      "step_seconds,memory_bytes,validation_accuracy,reward_chosen,reward_rejected,preferred,"
      "cross_entropy,kl\n",
      stream);
  for (int r = 0; r < runs->count; r++)
    for (int i = 0; i < runs->items[r].rows.count; i++) {
      const ls_metrics_step *row = &runs->items[r].rows.items[i];
      print_csv_name(stream, runs->items[r].name);
      fprintf(stream, ",%lld,%lld", (long long)row->step, (long long)row->tokens);
      const double numbers[] = {row->epoch,     row->loss,          row->validation_loss,
                                row->grad_norm, row->learning_rate, row->tokens_per_second,
                                row->mfu,       row->step_seconds};
      for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
        print_csv_number(stream, numbers[n]);
      fprintf(stream, ",%lld", (long long)row->memory_bytes);
      const double of_tasks[] = {row->validation_accuracy, row->reward_chosen, row->reward_rejected,
                                 row->preferred,           row->cross_entropy, row->divergence};
      for (size_t n = 0; n < sizeof of_tasks / sizeof *of_tasks; n++)
        print_csv_number(stream, of_tasks[n]);
      fputc('\n', stream);
    }
}

static ls_status write_csv(const plotted_runs *runs, const char *path, ls_error *error) {
  ls_written_file file;
  LS_TRY(ls_written_file_begin(&file, error));
  print_csv(file.to, runs);
  LS_TRY(ls_written_file_end(&file, path, error));
  fprintf(stderr, "written: %s\n", path);
  return LS_OK;
}

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double ls_plot_median_speed(ls_arena *arena, const ls_metrics_rows *rows) {
  double *speeds = LS_NEW_ARRAY(arena, double, rows->count);
  int count = 0;
  for (int i = 0; i < rows->count; i++)
    if (isfinite(rows->items[i].tokens_per_second))
      speeds[count++] = rows->items[i].tokens_per_second;
  qsort(speeds, (size_t)count, sizeof *speeds, by_value);
  return count ? speeds[count / 2] : NAN;
}

static void print_standing(ls_arena *arena, const plotted_run *run, int width) {
  const ls_metrics_rows *rows = &run->rows;
  const ls_metrics_step *last = &rows->items[rows->count - 1], *best = NULL;
  double seconds = 0;
  for (int i = 0; i < rows->count; i++) {
    const ls_metrics_step *row = &rows->items[i];
    if (isfinite(row->step_seconds)) seconds += row->step_seconds;
    if (isfinite(row->validation_loss) && (!best || row->validation_loss < best->validation_loss))
      best = row;
  }
  const char *validation = best ? ls_arena_printf(arena, "%.4f at step %lld", best->validation_loss,
                                                  (long long)best->step)
                                : "-";
  printf("%-*s  %8lld  %12lld  %9.4f  %-22s  %10.1f  %7.2f\n", width, run->name,
         (long long)last->step, (long long)last->tokens, last->loss, validation,
         ls_plot_median_speed(arena, rows), seconds / 3600);
}

ls_status ls_plot_runs(ls_arena *arena, const char *const *folders, int count, const char *picture,
                       ls_error *error) {
  const request asked = {.picture = picture, .over = "step", .weight = usual_weight};
  plotted_runs runs = {0};
  for (int f = 0; f < count; f++) {
    plotted_run *run = LS_APPEND(arena, &runs);
    LS_TRY(open_run(arena, folders[f], run, error));
    set_x(arena, asked.over, run);
  }
  return draw(arena, &asked, &runs, error);
}

static ls_status take_flags(const ls_words *words, request *asked, ls_error *error) {
  if (words->key_count)
    return ls_fail(error, LS_INPUT, "%s: plot takes no keys of a run file", words->keys[0]);
  if (!words->positional_count)
    return ls_fail(error, LS_INPUT, "expected the folder of a run (see lockstep plot --help)");
  if (!asked->picture) asked->picture = "plot.svg";
  if (!asked->over) asked->over = "step";
  if (strcmp(asked->over, "step") != 0 && strcmp(asked->over, "tokens") != 0 &&
      strcmp(asked->over, "hours") != 0)
    return ls_fail(error, LS_INPUT, "--x: found \"%s\"; expected step, tokens or hours",
                   asked->over);
  asked->weight = usual_weight;
  if (asked->smooth) {
    char *end;
    asked->weight = strtod(asked->smooth, &end);
    if (end == asked->smooth || *end || !(asked->weight >= 0 && asked->weight <= 0.999))
      return ls_fail(error, LS_INPUT, "--smooth: found \"%s\"; expected a number from 0 to 0.999",
                     asked->smooth);
  }
  LS_TRY(ls_command_check_file("-o", asked->picture, error));
  return asked->csv ? ls_command_check_file("--csv", asked->csv, error) : LS_OK;
}

static ls_status plot(ls_arena *arena, const ls_words *words, void *flags, ls_error *error) {
  request *asked = flags;
  LS_TRY(take_flags(words, asked, error));
  plotted_runs runs = {0};
  int width = (int)strlen("run");
  for (int p = 0; p < words->positional_count; p++) {
    plotted_run *run = LS_APPEND(arena, &runs);
    LS_TRY(open_run(arena, words->positional[p], run, error));
    set_x(arena, asked->over, run);
    if ((int)strlen(run->name) > width) width = (int)strlen(run->name);
  }
  printf("%-*s  %8s  %12s  %9s  %-22s  %10s  %7s\n", width, "run", "step", "tokens", "loss",
         "best validation loss", "tokens/s", "hours");
  for (int r = 0; r < runs.count; r++) print_standing(arena, &runs.items[r], width);
  LS_TRY(draw(arena, asked, &runs, error));
  return asked->csv ? write_csv(&runs, asked->csv, error) : LS_OK;
}

int ls_command_plot(int count, char **words) {
  request asked = {0};
  const ls_command_flag flags[] = {{"-o", &asked.picture, NULL},
                                   {"--csv", &asked.csv, NULL},
                                   {"--x", &asked.over, NULL},
                                   {"--smooth", &asked.smooth, NULL}};
  return ls_command_run(
      &(ls_command){"plot", help, false, flags, sizeof flags / sizeof *flags, plot, &asked}, count,
      words);
}
