/* Plans for programs. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/plan_report.h"
#include "sim/interval.h"

/* As a run file has them. */
static const char *const when_names[] = {
    [LS_WHEN_AUTO] = "auto", [LS_WHEN_MICROBATCH] = "microbatch", [LS_WHEN_STEP] = "step"};

static json_t *row_json(const ls_plan_report *report, const ls_planned *of,
                        const ls_plan_row *row) {
  json_t *made = json_object(), *terms = json_object();
  const ls_layout *layout = &row->layout;
  const ls_interval *interval = ls_interval_of(of->cluster, of->problem.devices);
  for (int a = 0; a < LS_LAYOUT_AXES; a++)
    json_object_set_new(made, ls_layout_axis(a), json_integer(ls_layout_size(layout, a)));
  json_object_set_new(made, "ep", json_integer(layout->ep));
  if (layout->ep > 1 && layout->tp > 1)
    json_object_set_new(made, "experts_tensor_parallel", json_boolean(!layout->whole_experts));
  if (layout->cp > 1)
    json_object_set_new(made, "context", json_string(ls_context_name(layout->context)));
  if (layout->cp > 1 && layout->context == LS_CONTEXT_HYBRID)
    json_object_set_new(made, "ulysses_degree", json_integer(layout->ulysses));
  json_object_set_new(made, "zero", json_integer(layout->zero));
  json_object_set_new(made, "schedule", json_string(layout->schedule));
  json_object_set_new(made, "chunks", json_integer(layout->chunks));
  json_object_set_new(made, "micro_batch", json_integer(row->micro_batch));
  json_object_set_new(made, "recompute", json_string(ls_plan_recompute_name(layout)));
  json_object_set_new(made, "offload_optimizer",
                      json_string(ls_tier_name(layout->offload.optimizer)));
  json_object_set_new(made, "offload_parameters",
                      json_string(ls_tier_name(layout->offload.parameters)));
  json_object_set_new(made, "gather", json_string(when_names[layout->gather]));
  json_object_set_new(made, "reduce", json_string(when_names[layout->reduce]));
  json_object_set_new(made, "sequence_parallel", json_boolean(layout->sequence_parallel));
  json_object_set_new(made, "prefetch", json_integer(layout->prefetch));
  json_object_set_new(made, "step_seconds", json_real(row->seconds));
  if (interval)
    json_object_set_new(made, "step_seconds_between",
                        json_pack("[f, f]", ls_interval_low(interval, row->seconds),
                                  ls_interval_high(interval, row->seconds)));
  json_object_set_new(made, "tokens_per_second",
                      json_real(ls_planned_step_tokens(of) / row->seconds));
  if (of->peak_flops > 0)
    json_object_set_new(
        made, "mfu", json_real(row->flops / (row->seconds * of->peak_flops * of->problem.devices)));
  json_object_set_new(made, "memory_bytes", json_integer(row->bytes));
  json_object_set_new(made, "fits", json_boolean(row->fits));
  json_object_set_new(made, "proved", json_boolean(row->proved));
  json_object_set_new(made, "on_front", json_boolean(ls_plan_report_on_front(report, of, row)));
  if (ls_planned_money(of, row->seconds) > 0)
    json_object_set_new(made, "step_cost", json_real(ls_planned_money(of, row->seconds)));
  const double tokens = report->question->tokens;
  const double seconds = tokens > 0 ? ls_planned_seconds(of, row, tokens) : 0;
  if (seconds > 0) json_object_set_new(made, "tokens_seconds", json_real(seconds));
  if (ls_planned_money(of, seconds) > 0)
    json_object_set_new(made, "tokens_cost", json_real(ls_planned_money(of, seconds)));
  for (int t = 0; t < LS_PLAN_TERM_COUNT; t++)
    json_object_set_new(terms, ls_plan_term_name((ls_plan_term)t), json_real(row->terms[t]));
  json_object_set_new(made, "seconds_of", terms);
  return made;
}

static json_t *count_json(const ls_plan_report *report, const ls_plan_count *count) {
  json_t *made = json_object();
  json_object_set_new(made, "devices", json_integer(count->devices));
  if (count->planned && ls_planned_best(count->planned)) {
    const ls_planned *of = count->planned;
    json_object_set_new(made, "tokens_per_second", json_real(ls_planned_rate(of)));
    json_object_set_new(made, "layout", row_json(report, of, ls_planned_best(of)));
  }
  return made;
}

/* What its error bars are made of. */
static json_t *validation_json(const ls_planned *of) {
  const ls_interval *interval = ls_interval_of(of->cluster, of->problem.devices);
  return json_pack("{s:s, s:i, s:i, s:f, s:f, s:f}", "runs_on", interval->machines, "runs",
                   interval->runs, "sources", interval->sources, "low", interval->low, "high",
                   interval->high, "share_within", 0.8);
}

static json_t *machine_json(const ls_plan_report *report, const ls_plan_answer *answer) {
  const ls_planned *of = &answer->planned;
  const ls_plan *plan = of->plan;
  json_t *machine = json_object(), *rows = json_array();
  json_object_set_new(machine, "on", json_string(of->text));
  json_object_set_new(machine, "devices", json_integer(of->problem.devices));
  json_object_set_new(machine, "best", json_boolean(of == ls_plan_report_best(report)));
  json_object_set_new(machine, "batch", json_integer(of->training.batch));
  json_object_set_new(machine, "sequence", json_integer(of->training.sequence));
  if (of->conventions) json_object_set_new(machine, "task", json_string(of->conventions));
  json_t *assumed = json_array();
  for (int i = 0; of->cluster && i < of->cluster->assumed.count; i++)
    json_array_append_new(assumed, json_string(of->cluster->assumed.items[i]));
  json_object_set_new(machine, "assumed", assumed);
  json_object_set_new(machine, "memory_limit", json_integer(of->problem.limit));
  if (of->cluster && of->cluster->hour > 0)
    json_object_set_new(machine, "currency", json_string(of->cluster->currency));
  json_object_set_new(machine, "candidates", json_integer(plan->candidates));
  json_object_set_new(machine, "estimated", json_integer(plan->estimated));
  json_object_set_new(machine, "compiled", json_integer(plan->compiled));
  json_object_set_new(machine, "instructions", json_integer(plan->work));
  for (int r = 0; r < plan->rows.count; r++)
    if (plan->rows.items[r].proved)
      json_array_append_new(rows, row_json(report, of, &plan->rows.items[r]));
  json_object_set_new(machine, "layouts", rows);
  const ls_plan_row *least = ls_plan_least(plan);
  if (!plan->rows.count && least)
    json_object_set_new(machine, "closest", row_json(report, of, least));
  if (ls_interval_of(of->cluster, of->problem.devices))
    json_object_set_new(machine, "validation", validation_json(of));
  if (answer->more.devices) json_object_set_new(machine, "more", count_json(report, &answer->more));
  if (answer->fewer.devices)
    json_object_set_new(machine, "fewer", count_json(report, &answer->fewer));
  return machine;
}

void ls_plan_report_json(const ls_plan_report *report) {
  json_t *root = json_array();
  for (int m = 0; m < report->count; m++)
    json_array_append_new(root, machine_json(report, &report->answers[m]));
  char *text = json_dumps(root, JSON_INDENT(2));
  printf("%s\n", text ? text : "[]");
  free(text);
  json_decref(root);
}
