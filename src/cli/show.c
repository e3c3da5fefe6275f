#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include "cli/command.h"
#include "cli/show_html.h"
#include "cli/show_memory_map.h"
#include "cli/show_timeline.h"
#include "program/budget.h"
#include "train/session.h"

static const char help[] =
    "usage: lockstep show RUN.yaml [key=value ...] [-n DEVICES] [flags]\n\n"
    "Compiles the training step and prints it in words: actions, instructions, addresses, the\n"
    "collectives and why they are there. Needs the model's shape only: no data, no weights.\n\n"
    "  --memory        memory of one device by category, at the peak\n"
    "  --collectives   bytes one device sends in a step, and why\n"
    "  --rank R        coordinates of a rank and its part of every parameter\n"
    "  --evaluate      the evaluation's program in place of the step's\n"
    "  --compare       DDP, ZeRO-1, 2, 3 and tensor parallelism side by side, each compiled\n"
    "  --timeline FILE the pipeline's schedule, in the terminal and as a picture, FILE.svg, or as "
    "a\n"
    "                  trace for ui.perfetto.dev, FILE.json; -: in the terminal alone\n"
    "  --memory-map FILE.svg\n"
    "                  what lies where in a device's memory, when, through the step; of the stage\n"
    "                  that needs most, or of --rank R\n"
    "  --html FILE     an offline page: steps through forward, backward and every collective,\n"
    "                  each device's shards coloured; this run beside DDP, ZeRO-3, TP and PP\n"
    "  --json          the numbers of --memory, --collectives and --compare for programs\n"
    "  -n DEVICES      devices of the whole mesh\n\n"
    "examples:\n"
    "  lockstep show examples/quickstart.yaml -n 2 --memory --collectives\n"
    "  lockstep show examples/quickstart.yaml model=gpt2-124m train.batch=8 --compare -n 8\n"
    "  lockstep show examples/quickstart.yaml mesh.pp=2 train.microbatches=4 -n 2 --timeline "
    "pipeline.svg\n"
    "  lockstep show examples/quickstart.yaml zero=3 -n 2 --memory-map memory.svg\n"
    "  lockstep show examples/quickstart.yaml -n 4 --html step.html\n\n";

typedef struct show_flags {
  const char *devices, *rank, *timeline, *memory_map, *html;
  bool memory, collectives, evaluate, compare, json, help;
} show_flags;

static double mib(double bytes) {
  return bytes / (1024 * 1024);
}

/* One column of --compare. */
typedef struct candidate {
  const char *name;
  int dp_shard, dp_replicate, tp, zero;
  bool sequence_parallel;
} candidate;

typedef struct measured {
  const char *refusal; /* NULL: compiled */
  int64_t by_category[LS_CATEGORY_COUNT];
  int64_t peak;
  double bytes_sent;
  int collectives;
} measured;

static void read_command_line(const candidate *as, ls_arena *arena, const ls_words *words,
                              const char **keys, int *count) {
  *count = 0;
  for (int k = 0; k < words->key_count; k++) keys[(*count)++] = words->keys[k];
  keys[(*count)++] = ls_arena_printf(arena, "mesh.dp_replicate=%d", as->dp_replicate);
  keys[(*count)++] = ls_arena_printf(arena, "mesh.dp_shard=%d", as->dp_shard);
  keys[(*count)++] = ls_arena_printf(arena, "mesh.tp=%d", as->tp);
  keys[(*count)++] = ls_arena_printf(arena, "zero=%d", as->zero);
  keys[(*count)++] =
      ls_arena_printf(arena, "sequence_parallel=%s", as->sequence_parallel ? "true" : "false");
}

/* The same run under another layout: the candidate's keys come last and so win. */
static measured measure(ls_arena *arena, const char *path, const ls_words *words, int devices,
                        const candidate *as) {
  measured found = {0};
  const char **keys = LS_NEW_ARRAY(arena, const char *, words->key_count + 5);
  int count;
  read_command_line(as, arena, words, keys, &count);
  ls_error error = {0};
  ls_run_file *run;
  ls_session *session;
  if (ls_run_file_read(arena, path, keys, count, &run, &error) != LS_OK ||
      ls_session_create(arena, run, devices, devices, &session, &error) != LS_OK) {
    found.refusal = ls_arena_strdup(arena, error.text);
    return found;
  }
  int stage;
  ls_session_bytes_needed(session, &stage);
  const ls_program *program = session->stages[LS_SESSION_STEP][stage];
  found.peak = ls_program_peak(program, found.by_category);
  found.bytes_sent = ls_program_bytes_sent(program, &found.collectives);
  return found;
}

static void print_row(const char *name, const measured *columns, int count,
                      double (*value)(const measured *column, int argument), int argument,
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

static double category_mib(const measured *column, int category) {
  return mib((double)column->by_category[category]);
}
static double peak_mib(const measured *column, int argument) {
  (void)argument;
  return mib((double)column->peak);
}
static double sent_mib(const measured *column, int argument) {
  (void)argument;
  return mib(column->bytes_sent);
}
static double collectives(const measured *column, int argument) {
  (void)argument;
  return column->collectives;
}

static void print_comparison(const candidate *candidates, const measured *columns, int count,
                             int devices) {
  printf("%d device%s; memory of one device at the peak of a step, MiB\n", devices,
         devices == 1 ? "" : "s");
  printf("%-22s", "");
  for (int c = 0; c < count; c++) printf(" %10s", candidates[c].name);
  printf("\n");
  for (int category = 0; category < LS_CATEGORY_COUNT; category++)
    print_row(ls_category_name((ls_category)category), columns, count, category_mib, category,
              "%.1f");
  print_row("sum", columns, count, peak_mib, 0, "%.1f");
  print_row("MiB sent a step", columns, count, sent_mib, 0, "%.1f");
  print_row("collectives a step", columns, count, collectives, 0, "%.0f");
  for (int c = 0; c < count; c++)
    if (columns[c].refusal)
      printf("%s: not possible: %s\n", candidates[c].name, columns[c].refusal);
}

static json_t *memory_json(const int64_t by_category[LS_CATEGORY_COUNT], int64_t peak) {
  json_t *object = json_object();
  for (int c = 0; c < LS_CATEGORY_COUNT; c++)
    json_object_set_new(object, ls_category_name((ls_category)c), json_integer(by_category[c]));
  json_object_set_new(object, "sum", json_integer(peak));
  return object;
}

static void print_json(json_t *root) {
  char *text = json_dumps(root, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
  if (text) puts(text);
  free(text);
  json_decref(root);
}

static void print_comparison_json(const candidate *candidates, const measured *columns, int count) {
  json_t *root = json_object();
  for (int c = 0; c < count; c++) {
    json_t *column = json_object();
    if (columns[c].refusal) {
      json_object_set_new(column, "refused", json_string(columns[c].refusal));
    } else {
      json_object_set_new(column, "memory_bytes",
                          memory_json(columns[c].by_category, columns[c].peak));
      json_object_set_new(column, "bytes_sent", json_real(columns[c].bytes_sent));
      json_object_set_new(column, "collectives", json_integer(columns[c].collectives));
    }
    json_object_set_new(root, candidates[c].name, column);
  }
  print_json(root);
}

static ls_status compare(ls_arena *arena, const char *path, const ls_words *words, int devices,
                         bool as_json, ls_error *error) {
  const candidate candidates[] = {
      {"DDP", 1, devices, 1, 0, false},    {"ZeRO-1", devices, 1, 1, 1, false},
      {"ZeRO-2", devices, 1, 1, 2, false}, {"ZeRO-3", devices, 1, 1, 3, false},
      {"TP", 1, 1, devices, 0, false},     {"TP+SP", 1, 1, devices, 0, true},
  };
  enum { COUNT = sizeof candidates / sizeof *candidates };
  measured columns[COUNT];
  int possible = 0;
  for (int c = 0; c < COUNT; c++) {
    columns[c] = measure(arena, path, words, devices, &candidates[c]);
    possible += !columns[c].refusal;
  }
  if (!possible) return ls_fail(error, LS_INPUT, "%s", columns[0].refusal);
  if (as_json)
    print_comparison_json(candidates, columns, COUNT);
  else
    print_comparison(candidates, columns, COUNT, devices);
  return LS_OK;
}

static ls_status read_rank(const ls_program *const *stages, const char *text, int *rank,
                           ls_error *error) {
  const int ranks = ls_mesh_size(&stages[0]->mesh, LS_AXES_ALL);
  char rest;
  if (sscanf(text, "%d%c", rank, &rest) == 1 && *rank >= 0 && *rank < ranks) return LS_OK;
  return ls_fail(error, LS_INPUT, "--rank %s: expected a rank from 0 to %d", text, ranks - 1);
}

static ls_status print_rank(const ls_program *const *stages, const char *text, ls_error *error) {
  int rank;
  LS_TRY(read_rank(stages, text, &rank, error));
  const ls_program *program = stages[ls_mesh_coordinate(&stages[0]->mesh, rank, LS_AXIS_PP)];
  printf("rank %d:", rank);
  for (int a = 0; a < LS_AXIS_COUNT; a++)
    printf(" %s %d of %d", ls_axis_name((ls_axis)a),
           ls_mesh_coordinate(&program->mesh, rank, (ls_axis)a), program->mesh.size[a]);
  printf("\n%-40s %16s %22s %22s\n", "parameter", "whole", "used: rows, columns",
         "stored: elements");
  for (int p = 0; p < program->parameter_count; p++) {
    const ls_program_parameter *about = &program->parameters[p];
    if (!about->here) continue;
    const ls_local used = ls_program_local(program, rank, about->used);
    const ls_local stored = ls_program_local(program, rank, about->stored);
    char whole[32], part[64], piece[48];
    snprintf(whole, sizeof whole, "%lld", (long long)about->dims[0]);
    snprintf(part, sizeof part, "%lld+%lld", (long long)used.start[0], (long long)used.valid[0]);
    if (about->ndim > 1) {
      snprintf(whole, sizeof whole, "%lldx%lld", (long long)about->dims[0],
               (long long)about->dims[1]);
      snprintf(part, sizeof part, "%lld+%lld, %lld+%lld", (long long)used.start[0],
               (long long)used.valid[0], (long long)used.start[1], (long long)used.valid[1]);
    }
    snprintf(piece, sizeof piece, "%lld+%lld", (long long)stored.start[0],
             (long long)stored.valid[0]);
    printf("%-40s %16s %22s %22s\n", about->name, whole, part, piece);
  }
  return LS_OK;
}

static void print_program_json(const ls_program *program) {
  int64_t by_category[LS_CATEGORY_COUNT] = {0};
  const int64_t peak = ls_program_peak(program, by_category);
  int calls;
  const double bytes = ls_program_bytes_sent(program, &calls);
  json_t *root = json_object();
  json_object_set_new(root, "memory_bytes", memory_json(by_category, peak));
  json_object_set_new(root, "arena_bytes", json_integer(ls_program_bytes(program)));
  for (int t = LS_TIER_HOST; t < LS_TIER_COUNT; t++) {
    const int64_t elsewhere = ls_program_tier_bytes(program, (ls_tier)t);
    if (elsewhere)
      json_object_set_new(root, t == LS_TIER_HOST ? "host_bytes" : "nvme_bytes",
                          json_integer(elsewhere));
  }
  json_object_set_new(root, "bytes_sent", json_real(bytes));
  json_object_set_new(root, "collectives", json_integer(calls));
  json_object_set_new(root, "instructions", json_integer(program->instructions.count));
  json_object_set_new(root, "flops", json_real(program->flops));
  print_json(root);
}

/* Programs of all stages; numbers of the one that needs most memory. */
static ls_status show_program(const ls_session *session, const show_flags *flags, ls_error *error) {
  const ls_program *const *stages =
      session->stages[flags->evaluate ? LS_SESSION_EVALUATE : LS_SESSION_STEP];
  int stage;
  ls_session_bytes_needed(session, &stage);
  if (flags->memory_map) {
    int rank;
    if (flags->rank) {
      LS_TRY(read_rank(stages, flags->rank, &rank, error));
      stage = ls_mesh_coordinate(&stages[0]->mesh, rank, LS_AXIS_PP);
    }
    return ls_show_memory_map(session, stages[stage], flags->memory_map, error);
  }
  if (flags->json) {
    print_program_json(stages[stage]);
    return LS_OK;
  }
  if (flags->rank) LS_TRY(print_rank(stages, flags->rank, error));
  if (session->layout.pp > 1 && (flags->memory || flags->collectives))
    printf("stage %d, which needs most memory\n", stage);
  if (flags->memory) ls_program_print_memory(stages[stage], stdout);
  if (flags->memory && session->layout.recompute_of_count)
    printf("  runs again           %s\n",
           ls_budget_print(session->arena, session->graph, &session->layout));
  if (flags->collectives) ls_program_print_collectives(stages[stage], stdout);
  if (flags->rank || flags->memory || flags->collectives) return LS_OK;
  for (int s = 0; s < session->layout.pp; s++) ls_program_print(stages[s], stdout);
  return LS_OK;
}

static ls_status show(ls_arena *arena, const ls_words *words, const show_flags *flags,
                      ls_error *error) {
  if (words->positional_count > 1)
    return ls_fail(error, LS_INPUT, "%s: one run file is expected", words->positional[1]);
  const char *path = words->positional_count ? words->positional[0] : NULL;
  ls_run_file *run;
  LS_TRY(ls_run_file_read(arena, path, words->keys, words->key_count, &run, error));
  int devices;
  LS_TRY(ls_command_devices(flags->devices, run, &devices, error));
  if (flags->compare) return compare(arena, path, words, devices, flags->json, error);
  if (flags->html) return ls_show_html(arena, path, words, devices, flags->html, error);
  ls_session *session;
  LS_TRY(ls_session_create(arena, run, devices, devices, &session, error));
  if (flags->timeline) return ls_show_timeline(arena, &session->layout, flags->timeline, error);
  return show_program(session, flags, error);
}

int ls_command_show(int count, char **given) {
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  show_flags flags = {0};
  const ls_flag known[] = {{"-n", &flags.devices, NULL},
                           {"--rank", &flags.rank, NULL},
                           {"--timeline", &flags.timeline, NULL},
                           {"--html", &flags.html, NULL},
                           {"--memory-map", &flags.memory_map, NULL},
                           {"--memory", NULL, &flags.memory},
                           {"--collectives", NULL, &flags.collectives},
                           {"--evaluate", NULL, &flags.evaluate},
                           {"--compare", NULL, &flags.compare},
                           {"--json", NULL, &flags.json},
                           {"--help", NULL, &flags.help},
                           {"-h", NULL, &flags.help}};
  ls_words words;
  ls_status status =
      ls_words_parse(arena, count, given, known, sizeof known / sizeof *known, &words, &error);
  if (status == LS_OK && flags.help)
    printf("%s%s", help, ls_run_file_help(arena));
  else if (status == LS_OK)
    status = show(arena, &words, &flags, &error);
  const int exit_status = ls_command_fail("show", status, &error);
  ls_arena_destroy(&arena);
  return exit_status;
}
