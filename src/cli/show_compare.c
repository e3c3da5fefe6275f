#include "cli/show_compare.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/show_candidates.h"
#include "cost/cost.h"

/* One column. */
typedef struct column {
  const char *name;
  const char *refusal; /* NULL: compiled */
  int stages, stage;   /* the one that needs most memory, which memory's numbers are of */
  int sender;          /* the one that sends most */
  const ls_program *program;
  int64_t by_category[LS_CATEGORY_COUNT];
  int64_t peak, workspace;
  double bytes_sent;
  int collectives;
} column;

static double mib(double bytes) {
  return bytes / (1024 * 1024);
}

/* The run as it is (as NULL), or under a candidate's layout. */
static column measure(ls_arena *arena, const ls_run_file *run, int devices,
                      const ls_candidate *as) {
  column made = {.name = as ? as->name : "this run"};
  ls_error error = {0};
  ls_session *session;
  const ls_status status = ls_candidate_open(arena, run, devices, as, &session, &error);
  if (status != LS_OK) {
    made.refusal = ls_arena_strdup(arena, error.text);
    return made;
  }
  ls_session_bytes_needed(session, &made.stage);
  made.stages = session->layout.pp;
  made.program = session->stages[LS_SESSION_STEP][made.stage];
  made.peak = ls_program_peak(made.program, made.by_category);
  made.workspace = session->workspace[made.stage];
  made.bytes_sent =
      ls_session_bytes_sent(session, LS_SESSION_STEP, &made.sender, &made.collectives);
  return made;
}

static void print_row(const char *name, const column *columns, int count,
                      double (*value)(const column *of, int argument), int argument,
                      const char *format) {
  bool any = false;
  for (int c = 0; c < count; c++) any |= !columns[c].refusal && value(&columns[c], argument) != 0;
  if (!any) return;
  printf("%-22s", name);
  for (int c = 0; c < count; c++) {
    char text[32] = "-";
    if (!columns[c].refusal) snprintf(text, sizeof text, format, value(&columns[c], argument));
    printf(" %10s", text);
  }
  printf("\n");
}

static double category_mib(const column *of, int category) {
  return mib((double)of->by_category[category]);
}
static double peak_mib(const column *of, int argument) {
  (void)argument;
  return mib((double)of->peak);
}
static double workspace_mib(const column *of, int argument) {
  (void)argument;
  return mib((double)of->workspace);
}
static double tier_mib(const column *of, int tier) {
  return mib((double)ls_program_tier_bytes(of->program, (ls_tier)tier));
}
static double sent_mib(const column *of, int argument) {
  (void)argument;
  return mib(of->bytes_sent);
}
static double collectives(const column *of, int argument) {
  (void)argument;
  return of->collectives;
}

static void print_table(const column *columns, int count, int devices) {
  printf("%d device%s; memory of one device at the peak of a step, MiB\n", devices,
         devices == 1 ? "" : "s");
  printf("%-22s", "");
  for (int c = 0; c < count; c++) printf(" %10s", columns[c].name);
  printf("\n");
  for (int category = 0; category < LS_CATEGORY_COUNT; category++)
    print_row(ls_category_name((ls_category)category), columns, count, category_mib, category,
              "%.1f");
  print_row("sum", columns, count, peak_mib, 0, "%.1f");
  print_row("workspace besides", columns, count, workspace_mib, 0, "%.1f");
  print_row("on the host besides", columns, count, tier_mib, LS_TIER_HOST, "%.1f");
  print_row("on nvme besides", columns, count, tier_mib, LS_TIER_NVME, "%.1f");
  print_row("MiB sent a step", columns, count, sent_mib, 0, "%.1f");
  print_row("collectives a step", columns, count, collectives, 0, "%.0f");
  for (int c = 0; c < count; c++) {
    if (columns[c].refusal)
      printf("%s: not possible: %s\n", columns[c].name, columns[c].refusal);
    else if (columns[c].stages > 1)
      printf("%s: memory of stage %d, which needs most; sent by stage %d, which sends most\n",
             columns[c].name, columns[c].stage, columns[c].sender);
  }
}

json_t *ls_show_cost_json(const ls_program *program, int64_t workspace) {
  static const char *const names[LS_TIER_COUNT] = {"arena_bytes", "host_bytes", "nvme_bytes"};
  int64_t by_category[LS_CATEGORY_COUNT] = {0};
  const int64_t peak = ls_program_peak(program, by_category);
  int calls;
  const double bytes = ls_program_bytes_sent(program, &calls);
  json_t *memory = json_object(), *root = json_object();
  for (int c = 0; c < LS_CATEGORY_COUNT; c++)
    json_object_set_new(memory, ls_category_name((ls_category)c), json_integer(by_category[c]));
  json_object_set_new(memory, "sum", json_integer(peak));
  json_object_set_new(root, "memory_bytes", memory);
  for (int t = 0; t < LS_TIER_COUNT; t++) {
    const int64_t there = ls_program_tier_bytes(program, (ls_tier)t);
    if (t == LS_TIER_DEVICE || there) json_object_set_new(root, names[t], json_integer(there));
  }
  if (workspace) json_object_set_new(root, "workspace_bytes", json_integer(workspace));
  json_object_set_new(root, "bytes_sent", json_real(bytes));
  json_object_set_new(root, "collectives", json_integer(calls));
  return root;
}

void ls_show_print_json(json_t *root) {
  char *text = json_dumps(root, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
  if (text) puts(text);
  free(text);
  json_decref(root);
}

static void print_all_json(const column *columns, int count) {
  json_t *root = json_object();
  for (int c = 0; c < count; c++) {
    const column *of = &columns[c];
    json_t *made = of->refusal ? json_object() : ls_show_cost_json(of->program, of->workspace);
    if (of->refusal) json_object_set_new(made, "refused", json_string(of->refusal));
    if (!of->refusal) {
      json_object_set_new(made, "bytes_sent", json_real(of->bytes_sent));
      json_object_set_new(made, "collectives", json_integer(of->collectives));
    }
    if (of->stages > 1) {
      json_object_set_new(made, "stage", json_integer(of->stage));
      json_object_set_new(made, "sending_stage", json_integer(of->sender));
    }
    json_object_set_new(root, of->name, made);
  }
  ls_show_print_json(root);
}

ls_status ls_show_compare(ls_arena *arena, const ls_run_file *run, int devices, bool as_json,
                          ls_error *error) {
  int count, possible = 0;
  const ls_candidate *candidates = ls_candidates_make(arena, devices, &count);
  column *columns = LS_NEW_ARRAY(arena, column, ++count);
  for (int c = 0; c < count; c++) {
    columns[c] = measure(arena, run, devices, c ? &candidates[c - 1] : NULL);
    possible += !columns[c].refusal;
  }
  if (!possible) return ls_fail(error, LS_INPUT, "%s", columns[0].refusal);
  if (as_json)
    print_all_json(columns, count);
  else
    print_table(columns, count, devices);
  return LS_OK;
}
