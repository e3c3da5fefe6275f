#include "cli/plan_report.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/number.h"

enum { ROWS_SHOWN = 5, NEIGHBOURS_SHOWN = 12 };

static const double gib = 1073741824.0;

const char *ls_plan_duration(ls_arena *arena, double seconds) {
  char text[LS_NUMBER_BYTES];
  ls_seconds_show(text, seconds);
  return ls_arena_strdup(arena, text);
}

static double step_tokens(const ls_planned *of) {
  return (double)of->training.batch * (double)of->training.sequence;
}

double ls_planned_seconds(const ls_planned *of, const ls_plan_row *row, double tokens) {
  return tokens / step_tokens(of) * row->seconds;
}

double ls_planned_money(const ls_planned *of, double seconds) {
  return of->cluster ? of->cluster->hour * of->problem.devices * seconds / 3600 : 0;
}

static double mfu(const ls_planned *of, const ls_plan_row *row) {
  return row->flops / (row->seconds * of->peak_flops * of->problem.devices);
}

static void print_row(ls_arena *arena, const ls_planned *of, const ls_plan_row *row,
                      const ls_plan_report *report) {
  printf("%11s %10.0f", ls_plan_duration(arena, row->seconds), step_tokens(of) / row->seconds);
  if (of->peak_flops > 0)
    printf(" %5.1f%%", 100 * mfu(of, row));
  else
    printf(" %6s", "");
  printf(" %8.2f", (double)row->bytes / gib);
  if (of->cluster && of->cluster->hour > 0) {
    printf(" %9.4g", ls_planned_money(of, row->seconds));
    if (report->tokens > 0)
      printf(" %9.0f", ls_planned_money(of, ls_planned_seconds(of, row, report->tokens)));
  }
  printf("  %s\n", ls_plan_print(arena, row));
}

static void print_heads(const ls_planned *of, const ls_plan_report *report) {
  printf("%11s %10s %6s %8s", "step", "tokens/s", "MFU", "GiB");
  if (of->cluster && of->cluster->hour > 0) {
    printf(" %9s", of->cluster->currency);
    if (report->tokens > 0) printf(" %9s", report->tokens_text);
  }
  printf("  layout\n");
}

static void print_machine(const ls_planned *of) {
  const ls_plan *plan = of->plan;
  printf("%s: %.2f M parameters in %s on %d x %s, %lld sequences of %lld tokens a step\n",
         of->session->run->model, (double)ls_model_parameters(of->training.model) / 1e6,
         ls_dtype_name(of->problem.base.compute), of->problem.devices,
         of->cluster ? of->cluster->accelerator->name : "this machine's CPU",
         (long long)of->training.batch, (long long)of->training.sequence);
  for (int i = 0; of->cluster && i < of->cluster->assumed.count; i++)
    printf("%-10s %s\n", i ? "" : "assumed", of->cluster->assumed.items[i]);
  printf("%lld layouts in %d classes, %d of them compiled and simulated: %d fit",
         (long long)plan->candidates, plan->classes, plan->compiled, plan->rows.count);
  if (of->problem.limit) printf(" %.2f GiB", (double)of->problem.limit / gib);
  printf(of->proved ? "; the first is proved by check\n\n" : "\n\n");
}

/* What the winner has less of, and more. */
static void print_terms(ls_arena *arena, const ls_planned *of) {
  const ls_plan_row *best = &of->plan->rows.items[0];
  const ls_plan_row *second = of->plan->rows.count > 1 ? &of->plan->rows.items[1] : NULL;
  printf("\nwhere the time goes%28s%s\n", "first", second ? "      second" : "");
  for (int t = 0; t < LS_PLAN_TERM_COUNT; t++) {
    if (!(best->terms[t] > 0) && !(second && second->terms[t] > 0)) continue;
    printf("  %-32s %12s", ls_plan_term_name((ls_plan_term)t),
           ls_plan_duration(arena, best->terms[t]));
    if (second) printf(" %12s", ls_plan_duration(arena, second->terms[t]));
    printf("\n");
  }
}

static double computing(const ls_plan_row *row) {
  return row->terms[LS_PLAN_FORWARD] + row->terms[LS_PLAN_BACKWARD] +
         row->terms[LS_PLAN_RECOMPUTE] + row->terms[LS_PLAN_UPDATE];
}

/* The term that most of what is not computing goes to. */
static ls_plan_term largest_wait(const ls_plan_row *row) {
  ls_plan_term most = LS_PLAN_TENSOR;
  for (int t = LS_PLAN_TENSOR; t < LS_PLAN_TERM_COUNT; t++)
    if (row->terms[t] > row->terms[most]) most = (ls_plan_term)t;
  return most;
}

static void print_limits(const ls_planned *of) {
  const ls_plan_row *row = &of->plan->rows.items[0];
  const ls_plan_term wait = largest_wait(row);
  printf("\nit computes %.0f %% of the step", 100 * computing(row) / row->seconds);
  if (row->terms[wait] > 0.005 * row->seconds)
    printf("; most of the rest, %.0f %%, is %s", 100 * row->terms[wait] / row->seconds,
           ls_plan_term_name(wait));
  printf("\n");
}

static void print_gain(const char *what, double before, double after) {
  const double gain = before / after - 1;
  if (fabs(gain) < 0.002)
    printf("  %-34s nothing\n", what);
  else
    printf("  %-34s %+.1f %% tokens/s\n", what, 100 * gain);
}

/* The winner's own programs on other hardware. */
static void print_faster(const ls_planned *of) {
  const ls_plan_row *best = &of->plan->rows.items[0];
  double speed[1024];
  ls_plan_row row;
  ls_sim_options options = {0};
  for (int s = 0; s < best->layout.pp && s < 1024; s++) speed[s] = 1.1;
  if (best->layout.pp <= 1024) options.speed_of = speed;
  if (ls_plan_measure(&of->problem, &best->layout, &options, &row, NULL) == LS_OK)
    print_gain("devices 10 % faster", best->seconds, row.seconds);
  static const struct {
    const char *what;
    ls_link_kind link;
  } links[] = {{"links within a host twice as fast", LS_LINK_PEER},
               {"network twice as fast", LS_LINK_NETWORK}};
  for (int l = 0; l < 2; l++) {
    if (links[l].link == LS_LINK_NETWORK && of->problem.devices <= of->performance.per_host)
      continue;
    options = (ls_sim_options){0};
    options.link_of[links[l].link] = 2;
    if (of->problem.devices > 1 &&
        ls_plan_measure(&of->problem, &best->layout, &options, &row, NULL) == LS_OK)
      print_gain(links[l].what, best->seconds, row.seconds);
  }
}

/* The winner's layout with more of something. */
static void print_more(ls_arena *arena, const ls_planned *of) {
  const ls_plan_row *best = &of->plan->rows.items[0];
  ls_training twice = of->training;
  ls_plan_problem larger = of->problem;
  ls_plan_row row;
  ls_layout layout = best->layout;
  twice.batch *= 2;
  layout.microbatches *= 2;
  larger.training = &twice;
  if (ls_plan_measure(&larger, &layout, NULL, &row, NULL) == LS_OK)
    print_gain("a batch twice as large", 2 * best->seconds, row.seconds);
  const ls_plan_row *wide = NULL;
  for (int r = 0; r < of->plan->too_large.count; r++) {
    const ls_plan_row *each = &of->plan->too_large.items[r];
    if (each->seconds < 0.998 * best->seconds && (!wide || each->seconds < wide->seconds))
      wide = each;
  }
  if (wide)
    print_gain(ls_arena_printf(arena, "devices with %.1f GiB", (double)wide->bytes / gib),
               best->seconds, wide->seconds);
}

static const ls_plan_row *find_row(const ls_plan *plan, const ls_layout *layout) {
  for (int r = 0; r < plan->rows.count; r++)
    if (ls_plan_same(&plan->rows.items[r].layout, layout)) return &plan->rows.items[r];
  for (int r = 0; r < plan->too_large.count; r++)
    if (ls_plan_same(&plan->too_large.items[r].layout, layout)) return &plan->too_large.items[r];
  return NULL;
}

static void print_neighbours(ls_arena *arena, const ls_planned *of) {
  const ls_plan_row *best = &of->plan->rows.items[0];
  ls_plan_candidates near = {.arena = arena};
  ls_plan_neighbours(&of->problem, best, &near);
  int shown = 0;
  for (int c = 0; c < near.list.count && shown < NEIGHBOURS_SHOWN; c++) {
    const ls_plan_row *row = find_row(of->plan, &near.list.items[c].layout);
    if (!row) continue;
    if (!shown++) printf("\nwhat it costs to change one choice\n");
    printf("  %+7.1f %% step  %+8.2f GiB%s  %s\n", 100 * (row->seconds / best->seconds - 1),
           (double)(row->bytes - best->bytes) / gib, row->fits ? "" : ", too large",
           ls_plan_print(arena, row));
  }
}

/* Layouts that no other beats in both time and memory. */
static void print_front(ls_arena *arena, const ls_planned *of, const ls_plan_report *report) {
  const ls_plan *plan = of->plan;
  int shown = 0;
  int64_t least = INT64_MAX;
  double slowest = 0;
  for (;;) { /* rows by time, each with less memory than all that are faster */
    const ls_plan_row *next = NULL;
    for (int r = 0; r < plan->rows.count; r++) {
      const ls_plan_row *each = &plan->rows.items[r];
      if (each->bytes >= least || each->seconds < slowest) continue;
      if (!next || each->seconds < next->seconds ||
          (each->seconds == next->seconds && each->bytes < next->bytes))
        next = each;
    }
    if (!next || shown == 2 * ROWS_SHOWN) return;
    if (!shown++) printf("\nfaster ones need more memory\n");
    print_row(arena, of, next, report);
    least = next->bytes;
    slowest = next->seconds;
  }
}

static void print_none(ls_arena *arena, const ls_planned *of) {
  if (!of->plan->too_large.count) {
    printf("the compiler refuses all of them\n");
    return;
  }
  const ls_plan_row *row = &of->plan->too_large.items[0];
  printf("none fits; the closest needs %.2f GiB: %s\n", (double)row->bytes / gib,
         ls_plan_print(arena, row));
}

static void print_one(ls_arena *arena, const ls_planned *of, const ls_plan_report *report) {
  print_machine(of);
  if (!of->plan->rows.count) {
    print_none(arena, of);
    return;
  }
  print_heads(of, report);
  for (int r = 0; r < of->plan->rows.count && r < ROWS_SHOWN; r++)
    print_row(arena, of, &of->plan->rows.items[r], report);
  print_terms(arena, of);
  print_limits(of);
  printf("\nwhat would buy more\n");
  print_faster(of);
  print_more(arena, of);
  print_neighbours(arena, of);
  print_front(arena, of, report);
}

static double rate_of(const ls_planned *of) {
  return of->plan->rows.count ? step_tokens(of) / of->plan->rows.items[0].seconds : 0;
}

/* What more devices of a kind bring, against fewer of the same. */
static void print_gain_of(const ls_planned *few, const ls_planned *many) {
  const double gain = rate_of(many) / rate_of(few) - 1;
  const double ideal = (double)many->problem.devices / few->problem.devices - 1;
  const ls_plan_row *row = &many->plan->rows.items[0];
  const ls_plan_term wait = largest_wait(row);
  printf("%s against %s: %+.0f %% tokens/s for %+.0f %% devices", many->text, few->text, 100 * gain,
         100 * ideal);
  if (gain < 0.05)
    printf(": do not, %s is enough", few->text);
  else if (gain < 0.5 * ideal)
    printf(": little");
  if (row->terms[wait] > 0.02 * row->seconds)
    printf("; %.0f %% of its step is %s", 100 * row->terms[wait] / row->seconds,
           ls_plan_term_name(wait));
  printf("\n");
}

static void print_comparison(ls_arena *arena, const ls_plan_report *report) {
  const double tokens = report->tokens > 0 ? report->tokens : 1e9;
  printf("\n%-20s %11s %10s %8s %10s %10s  layout\n", "machines", "step", "tokens/s", "GiB",
         report->tokens > 0 ? report->tokens_text : "1B", "money");
  for (int m = 0; m < report->count; m++) {
    const ls_planned *of = &report->machines[m];
    if (!of->plan->rows.count) {
      printf("%-20s does not fit\n", of->text);
      continue;
    }
    const ls_plan_row *row = &of->plan->rows.items[0];
    const double seconds = ls_planned_seconds(of, row, tokens);
    printf("%-20s %11s %10.0f %8.2f %10s", of->text, ls_plan_duration(arena, row->seconds),
           rate_of(of), (double)row->bytes / gib, ls_plan_duration(arena, seconds));
    if (ls_planned_money(of, seconds) > 0)
      printf(" %6.0f %s", ls_planned_money(of, seconds), of->cluster->currency);
    else
      printf(" %10s", "");
    printf("  %s\n", ls_plan_print(arena, row));
  }
  printf("\n");
  for (int a = 0; a < report->count; a++)
    for (int b = 0; b < report->count; b++) {
      const ls_planned *few = &report->machines[a], *many = &report->machines[b];
      if (few->cluster && many->cluster &&
          strcmp(few->cluster->accelerator->id, many->cluster->accelerator->id) == 0 &&
          few->problem.devices < many->problem.devices && rate_of(few) > 0 && rate_of(many) > 0)
        print_gain_of(few, many);
    }
}

void ls_plan_report_print(ls_arena *arena, const ls_plan_report *report) {
  if (report->task)
    printf("task: %s, whose batch and sequence are conventions where the run says none\n",
           report->task);
  for (int m = 0; m < report->count; m++) {
    if (m) printf("\n");
    print_one(arena, &report->machines[m], report);
  }
  if (report->count > 1) print_comparison(arena, report);
}

static json_t *row_json(const ls_planned *of, const ls_plan_row *row) {
  json_t *made = json_object(), *terms = json_object();
  const ls_layout *layout = &row->layout;
  for (int a = 0; a < LS_LAYOUT_AXES; a++)
    json_object_set_new(made, ls_layout_axis(a), json_integer(ls_layout_size(layout, a)));
  json_object_set_new(made, "zero", json_integer(layout->zero));
  json_object_set_new(made, "schedule", json_string(layout->schedule));
  json_object_set_new(made, "chunks", json_integer(layout->chunks));
  json_object_set_new(made, "micro_batch", json_integer(row->micro_batch));
  json_object_set_new(made, "recompute", json_string(ls_plan_recompute_name(layout)));
  json_object_set_new(made, "offload_optimizer",
                      json_string(ls_tier_name(layout->offload.optimizer)));
  json_object_set_new(made, "step_seconds", json_real(row->seconds));
  json_object_set_new(made, "tokens_per_second", json_real(step_tokens(of) / row->seconds));
  if (of->peak_flops > 0) json_object_set_new(made, "mfu", json_real(mfu(of, row)));
  json_object_set_new(made, "memory_bytes", json_integer(row->bytes));
  json_object_set_new(made, "fits", json_boolean(row->fits));
  if (ls_planned_money(of, row->seconds) > 0)
    json_object_set_new(made, "step_cost", json_real(ls_planned_money(of, row->seconds)));
  for (int t = 0; t < LS_PLAN_TERM_COUNT; t++)
    json_object_set_new(terms, ls_plan_term_name((ls_plan_term)t), json_real(row->terms[t]));
  json_object_set_new(made, "seconds_of", terms);
  return made;
}

void ls_plan_report_json(const ls_plan_report *report) {
  json_t *root = json_array();
  for (int m = 0; m < report->count; m++) {
    const ls_planned *of = &report->machines[m];
    json_t *machine = json_object(), *rows = json_array();
    json_object_set_new(machine, "on", json_string(of->text));
    json_object_set_new(machine, "devices", json_integer(of->problem.devices));
    json_object_set_new(machine, "batch", json_integer(of->training.batch));
    json_object_set_new(machine, "sequence", json_integer(of->training.sequence));
    json_object_set_new(machine, "candidates", json_integer(of->plan->candidates));
    json_object_set_new(machine, "compiled", json_integer(of->plan->compiled));
    for (int r = 0; r < of->plan->rows.count; r++)
      json_array_append_new(rows, row_json(of, &of->plan->rows.items[r]));
    json_object_set_new(machine, "layouts", rows);
    json_array_append_new(root, machine);
  }
  char *text = json_dumps(root, JSON_INDENT(2));
  printf("%s\n", text ? text : "[]");
  free(text);
  json_decref(root);
}
