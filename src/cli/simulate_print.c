/* A simulated step on a terminal, and for programs. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/simulate_report.h"
#include "text/number.h"

static double gib(int64_t bytes) {
  return (double)bytes / 1073741824;
}

static void print_part(const ls_simulated_part *part, int width, double step) {
  if (!(part->seconds > 0) && !(part->under_way > 0)) return;
  char seconds[LS_NUMBER_BYTES], all[LS_NUMBER_BYTES];
  ls_seconds_show(seconds, part->seconds);
  printf("  %s%-*s %12s %6.1f %%", part->detail ? "  " : "", part->detail ? width - 2 : width,
         part->name, seconds, 100 * part->seconds / step);
  if (part->under_way > 0) {
    ls_seconds_show(all, part->under_way);
    printf("   of %s under way", all);
  }
  printf("\n");
}

/* Stages that a terminal has columns for: all, or the first, the last and who needs most. */
enum { COLUMNS = 8 };

static int choose_stages(const ls_simulated_report *report, int chosen[COLUMNS]) {
  const int count = report->memory.count;
  int most = 0, made = 0;
  for (int r = 1; r < count; r++)
    if (report->memory.items[r].bytes > report->memory.items[most].bytes) most = r;
  for (int r = 0; r < count; r++) {
    const bool end = count <= COLUMNS || r < 3 || r >= count - 3;
    if (end || r == most) chosen[made++] = r;
  }
  return made;
}

/* Rows of the table: parts, then sums of the device and of the tiers beside it. */
enum { NEEDED = LS_SESSION_MEMORY_PARTS, ON_HOST, ON_DRIVES, MEMORY_ROWS };

static int64_t bytes_of(const ls_simulated_memory *stage, int row) {
  return row < LS_SESSION_MEMORY_PARTS ? stage->part[row]
         : row == NEEDED               ? stage->bytes
         : row == ON_HOST              ? stage->host_bytes
                                       : stage->drive_bytes;
}

static void print_memory_row(const ls_simulated_report *report, const int *chosen, int count,
                             int row) {
  static const char *const names[] = {"needed", "on the host besides", "on drives besides"};
  bool any = false;
  for (int r = 0; r < report->memory.count; r++) any |= bytes_of(&report->memory.items[r], row) > 0;
  if (!any) return;
  printf("  %-24s", row < NEEDED ? ls_session_memory_part_name(row) : names[row - NEEDED]);
  for (int c = 0; c < count; c++)
    printf(" %12.2f", gib(bytes_of(&report->memory.items[chosen[c]], row)));
  printf("\n");
}

static void print_memory(const ls_simulated_report *report, bool stages) {
  int chosen[COLUMNS];
  const int count = choose_stages(report, chosen);
  const ls_simulated_memory *rows = report->memory.items;
  printf("\nmemory of a device at its peak, GiB%s\n",
         count < report->memory.count ? " (all stages: --html, --json)" : "");
  if (stages) printf("  %-24s", "");
  for (int c = 0; stages && c < count; c++) {
    const ls_simulated_memory *row = &rows[chosen[c]];
    char name[32];
    if (row->first == row->last)
      snprintf(name, sizeof name, "stage %d", row->first);
    else
      snprintf(name, sizeof name, "%d to %d", row->first, row->last);
    printf(" %12s", name);
  }
  if (stages) printf("\n");
  for (int row = 0; row < MEMORY_ROWS; row++) print_memory_row(report, chosen, count, row);
}

void ls_simulated_print(const ls_simulated *of) {
  const ls_simulated_report *report = ls_simulated_report_make(of);
  printf("%s\n", report->headline);
  for (int f = 0; f < report->facts.count; f++)
    printf("%-22s %s\n", report->facts.items[f].name, report->facts.items[f].text);
  printf("\nwhere the time goes%s\n", of->simulation->stages > 1 ? " (mean of the ranks)" : "");
  int width = 36;
  for (int p = 0; p < report->parts.count; p++)
    width = (int)strlen(report->parts.items[p].name) > width
                ? (int)strlen(report->parts.items[p].name)
                : width;
  for (int p = 0; p < report->parts.count; p++)
    print_part(&report->parts.items[p], width, of->simulation->seconds);
  print_memory(report, of->session->layout.pp > 1);
}

static json_t *memory_json(const ls_simulated_report *report) {
  json_t *rows = json_array();
  for (int r = 0; r < report->memory.count; r++) {
    const ls_simulated_memory *row = &report->memory.items[r];
    json_t *parts = json_object();
    for (int p = 0; p < LS_SESSION_MEMORY_PARTS; p++)
      if (row->part[p])
        json_object_set_new(parts, ls_session_memory_part_name(p), json_integer(row->part[p]));
    json_array_append_new(
        rows, json_pack("{s:i, s:i, s:I, s:I, s:I, s:o}", "first_stage", row->first, "last_stage",
                        row->last, "bytes", (json_int_t)row->bytes, "host_bytes",
                        (json_int_t)row->host_bytes, "drive_bytes", (json_int_t)row->drive_bytes,
                        "parts", parts));
  }
  return rows;
}

static json_t *waits_json(const ls_simulated_report *report) {
  json_t *rows = json_array();
  for (int p = 0; p < report->parts.count; p++) {
    const ls_simulated_part *part = &report->parts.items[p];
    if (!part->waits) continue;
    json_t *row = json_pack("{s:s, s:s, s:f}", "name", part->name, "reason", part->reason,
                            "exposed_s", part->seconds);
    if (part->axes) json_object_set_new(row, "axes", json_string(part->axes));
    if (strcmp(part->reason, "transfer") == 0) {
      json_object_set_new(row, "under_way_s", json_real(part->under_way));
      json_object_set_new(row, "bytes", json_real(part->bytes));
    }
    json_array_append_new(rows, row);
  }
  return rows;
}

static void add_money(const ls_simulated *of, json_t *root) {
  const ls_cluster *cluster = of->cluster;
  const double device_hours = of->session->devices * of->simulation->seconds / 3600;
  if (cluster && cluster->hour > 0) {
    json_object_set_new(root, "currency", json_string(cluster->currency));
    json_object_set_new(root, "step_cost", json_real(cluster->hour * device_hours));
  }
  if (cluster && cluster->accelerator->watts > 0)
    json_object_set_new(root, "step_kwh",
                        json_real(cluster->accelerator->watts * device_hours / 1000));
}

/* What --slow and --link changed. */
static void add_changes(const ls_simulated *of, json_t *root) {
  if (of->slow) json_object_set_new(root, "slow", json_string(of->slow));
  if (of->link) json_object_set_new(root, "link", json_string(of->link));
}

/* What --tokens take. */
static void add_tokens(const ls_simulated *of, json_t *root) {
  if (!(of->tokens > 0)) return;
  const double seconds = of->tokens / of->step_tokens * of->simulation->seconds;
  json_object_set_new(root, "tokens", json_real(of->tokens));
  json_object_set_new(root, "tokens_seconds", json_real(seconds));
  if (of->cluster && of->cluster->hour > 0)
    json_object_set_new(root, "tokens_cost",
                        json_real(of->cluster->hour * of->session->devices * seconds / 3600));
}

void ls_simulated_print_json(const ls_simulated *of, const ls_kind_comparison *against) {
  const ls_simulated_report *report = ls_simulated_report_make(of);
  const ls_session *session = of->session;
  const double seconds = of->simulation->seconds;
  const double flops = session->programs[LS_SESSION_STEP]->flops;
  int stage;
  json_t *root = json_object(), *compute = json_object();
  json_object_set_new(root, "step_seconds", json_real(seconds));
  if (of->interval)
    json_object_set_new(
        root, "interval",
        json_pack("{s:f, s:f, s:s, s:i}", "low_s", ls_interval_low(of->interval, seconds), "high_s",
                  ls_interval_high(of->interval, seconds), "machines", of->interval->machines,
                  "runs", of->interval->runs));
  json_object_set_new(root, "tokens_per_second", json_real(of->step_tokens / seconds));
  if (of->peak_flops > 0)
    json_object_set_new(root, "mfu",
                        json_real(flops / (seconds * of->peak_flops * session->devices)));
  json_object_set_new(root, "bubble", json_real(of->simulation->bubble));
  json_object_set_new(root, "memory_bytes", json_integer(ls_session_bytes_needed(session, &stage)));
  add_money(of, root);
  add_tokens(of, root);
  add_changes(of, root);
  for (int p = 0; p < report->parts.count; p++)
    if (report->parts.items[p].detail)
      json_object_set_new(compute, report->parts.items[p].name,
                          json_real(report->parts.items[p].seconds));
  json_object_set_new(root, "compute_s", compute);
  json_object_set_new(root, "waits", waits_json(report));
  json_object_set_new(root, "memory", memory_json(report));
  if (against) json_object_set_new(root, "against", ls_compared_json(against));
  char *text = json_dumps(root, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
  printf("%s\n", text ? text : "{}");
  free(text);
  json_decref(root);
}
