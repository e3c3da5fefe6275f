/* Several machines' plans beside each other: what they are worth, and the front of all. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/plan_report.h"

static double score(const ls_plan_report *report, const ls_planned *of, const ls_plan_row *row) {
  switch (report->question->objective) {
    case LS_PLAN_MONEY: return ls_planned_money(of, row->seconds) / ls_planned_step_tokens(of);
    case LS_PLAN_MEMORY: return (double)row->bytes;
    default: return row->seconds / ls_planned_step_tokens(of);
  }
}

const ls_planned *ls_plan_report_best(const ls_plan_report *report) {
  const ls_planned *best = NULL;
  for (int m = 0; m < report->count; m++) {
    const ls_planned *each = &report->answers[m].planned;
    const ls_plan_row *row = ls_planned_best(each);
    if (row && (!best || score(report, each, row) < score(report, best, ls_planned_best(best))))
      best = each;
  }
  return best;
}

/* At least as good in all three, and better in one; of equals the earlier. */
static bool beats(const ls_planned *a, const ls_plan_row *row_a, const ls_planned *b,
                  const ls_plan_row *row_b) {
  const double x[] = {row_a->seconds, ls_planned_money(a, row_a->seconds), (double)row_a->bytes};
  const double y[] = {row_b->seconds, ls_planned_money(b, row_b->seconds), (double)row_b->bytes};
  bool better = false;
  for (int i = 0; i < 3; i++) {
    if (x[i] > y[i]) return false;
    better = better || x[i] < y[i];
  }
  return better || (a == b ? row_a < row_b : a < b);
}

bool ls_plan_report_on_front(const ls_plan_report *report, const ls_planned *of,
                             const ls_plan_row *row) {
  if (!row->fits) return false;
  for (int m = 0; m < report->count; m++) {
    const ls_planned *each = &report->answers[m].planned;
    for (int r = 0; r < each->plan->rows.count; r++)
      if (&each->plan->rows.items[r] != row && beats(each, &each->plan->rows.items[r], of, row))
        return false;
  }
  return true;
}

static int by_seconds(const void *a, const void *b) {
  const ls_plan_row *x = ((const ls_plan_front_row *)a)->row;
  const ls_plan_row *y = ((const ls_plan_front_row *)b)->row;
  return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

ls_plan_front_row *ls_plan_report_front(ls_arena *arena, const ls_plan_report *report, int *count) {
  int all = 0;
  for (int m = 0; m < report->count; m++) all += report->answers[m].planned.plan->rows.count;
  ls_plan_front_row *made = LS_NEW_ARRAY(arena, ls_plan_front_row, all + 1);
  *count = 0;
  for (int m = 0; m < report->count; m++) {
    const ls_planned *of = &report->answers[m].planned;
    for (int r = 0; r < of->plan->rows.count; r++)
      if (ls_plan_report_on_front(report, of, &of->plan->rows.items[r]))
        made[(*count)++] = (ls_plan_front_row){of, &of->plan->rows.items[r]};
  }
  qsort(made, (size_t)*count, sizeof *made, by_seconds);
  return made;
}

/* "RTX4090" of "2xRTX4090"; of a cluster's file the catalog's name. */
static const char *device_of(const ls_planned *of) {
  const size_t digits = strspn(of->text, "0123456789");
  if (digits && of->text[digits] == 'x') return of->text + digits + 1;
  return of->cluster ? of->cluster->accelerator->id : "device";
}

/* "one" of one device, else the machine as it was asked for. */
static const char *name_of(const ls_planned *of) {
  return of->problem.devices == 1 ? "one" : of->text;
}

const char *ls_plan_verdict(ls_arena *arena, const ls_planned *few, const ls_planned *many) {
  const double gain = ls_planned_rate(many) / ls_planned_rate(few) - 1;
  const double ideal = (double)many->problem.devices / few->problem.devices - 1;
  const ls_plan_row *row = ls_planned_best(many);
  const ls_plan_term wait = ls_plan_largest_wait(row);
  const char *what = few->problem.devices == 1 && many->problem.devices == 2
                         ? ls_arena_printf(arena, "the second %s", device_of(many))
                         : ls_arena_printf(arena, "%s over %s", many->text, name_of(few));
  const char *text = ls_arena_printf(arena, "%s gains %.0f %% tokens/s for %.0f %% more devices",
                                     what, 100 * gain, 100 * ideal);
  if (gain < 0)
    text = ls_arena_printf(arena, "do not: %s loses %.0f %% tokens/s", what, -100 * gain);
  else if (gain < 0.1 * ideal)
    text = ls_arena_printf(arena, "%s is enough: %s gains %.0f %% tokens/s", name_of(few), what,
                           100 * gain);
  if (row->terms[wait] > 0.02 * row->seconds)
    text = ls_arena_printf(arena, "%s; %.0f %% of its step is %s", text,
                           100 * row->terms[wait] / row->seconds, ls_plan_term_name(wait));
  return text;
}

static void print_fitting(ls_arena *arena, const ls_planned *of, double tokens) {
  const ls_plan_row *row = ls_planned_best(of);
  const double seconds = ls_planned_seconds(of, row, tokens);
  printf("%-20s %11s %10.0f %8.2f %11s", of->text, ls_plan_duration(arena, row->seconds),
         ls_planned_rate(of), (double)row->bytes / 1073741824, ls_plan_duration(arena, seconds));
  if (ls_planned_money(of, seconds) > 0)
    printf(" %8.*f %s", ls_planned_money(of, seconds) < 100 ? 2 : 0, ls_planned_money(of, seconds),
           of->cluster->currency);
  else
    printf(" %12s", "");
  printf("  %s\n", ls_plan_print(arena, row));
}

/* The fastest and the cheapest by name. */
static void print_firsts(const ls_plan_report *report) {
  const ls_planned *fastest = NULL, *cheapest = NULL;
  double least = INFINITY;
  int fitting = 0;
  for (int m = 0; m < report->count; m++) {
    const ls_planned *each = &report->answers[m].planned;
    const ls_plan_row *row = ls_planned_best(each);
    if (!row) continue;
    fitting++;
    if (!fastest || ls_planned_rate(each) > ls_planned_rate(fastest)) fastest = each;
    const double money = ls_planned_money(each, row->seconds) / ls_planned_step_tokens(each);
    if (!(money > 0) || money >= least) continue;
    least = money;
    cheapest = each;
  }
  if (fitting == 1) printf("only %s holds the model and its training\n", fastest->text);
  if (fitting == 1) return;
  if (fastest && fastest == cheapest) printf("%s is the fastest and the cheapest\n", fastest->text);
  if (!fastest || fastest == cheapest) return;
  printf("%s is the fastest", fastest->text);
  if (cheapest) printf("; %s is the cheapest", cheapest->text);
  printf("\n");
}

static void print_verdicts(ls_arena *arena, const ls_plan_report *report) {
  for (int a = 0; a < report->count; a++)
    for (int b = 0; b < report->count; b++) {
      const ls_planned *few = &report->answers[a].planned, *many = &report->answers[b].planned;
      if (few->cluster && many->cluster &&
          strcmp(few->cluster->accelerator->id, many->cluster->accelerator->id) == 0 &&
          few->problem.devices < many->problem.devices && ls_planned_best(few) &&
          ls_planned_best(many))
        printf("%s\n", ls_plan_verdict(arena, few, many));
    }
}

void ls_plan_print_comparison(ls_arena *arena, const ls_plan_report *report) {
  const double tokens = report->question->tokens > 0 ? report->question->tokens : 1e9;
  printf("%-20s %11s %10s %8s %11s %12s  layout\n", "machines", "step", "tokens/s", "GiB",
         report->question->tokens > 0 ? report->question->tokens_text : "1B", "money");
  for (int m = 0; m < report->count; m++) {
    const ls_planned *of = &report->answers[m].planned;
    const ls_plan_row *least = ls_plan_least(of->plan);
    if (ls_planned_best(of))
      print_fitting(arena, of, tokens);
    else if (least)
      printf("%-20s does not fit: the closest needs %s\n", of->text,
             ls_planned_needs(arena, of, least));
    else
      printf("%-20s the compiler refuses every layout\n", of->text);
  }
  printf("\n");
  print_firsts(report);
  print_verdicts(arena, report);
  int count, fitting = 0;
  for (int m = 0; m < report->count; m++)
    fitting += ls_planned_best(&report->answers[m].planned) != NULL;
  const ls_plan_front_row *front = ls_plan_report_front(arena, report, &count);
  if (fitting < 2) return; /* the machine's own table has it */
  if (count > 1) printf("\nno other is better in step time, money and memory\n");
  for (int f = 0; f < count && count > 1 && f < LS_PLAN_FRONT_SHOWN; f++) {
    const ls_planned *of = front[f].of;
    printf("  %-18s %11s %8.2f GiB", of->text, ls_plan_duration(arena, front[f].row->seconds),
           (double)front[f].row->bytes / 1073741824);
    if (ls_planned_money(of, front[f].row->seconds) > 0)
      printf(" %9.4g %s a step", ls_planned_money(of, front[f].row->seconds),
             of->cluster->currency);
    printf("  %s\n", ls_plan_print(arena, front[f].row));
  }
  if (count > LS_PLAN_FRONT_SHOWN)
    printf("  and %d more; --svg draws all\n", count - LS_PLAN_FRONT_SHOWN);
}
