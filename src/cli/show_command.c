#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "cli/hardware.h"
#include "cli/show_compare.h"
#include "cli/show_floor.h"
#include "cli/show_groups.h"
#include "cli/show_html.h"
#include "cli/show_memory_map.h"
#include "cli/show_timeline.h"
#include "cost/cost.h"
#include "lower/budget.h"
#include "session/session.h"

static const char help[] =
    "usage: lockstep show RUN.yaml|RUN [key=value ...] [-n DEVICES] [flags]\n\n"
    "Compiles the training step and prints it in words: actions, instructions, addresses, the\n"
    "collectives and why they are there. Needs the model's shape only: no data, no weights.\n\n"
    "  --memory        memory of one device by category, at the peak, and what kernels of this\n"
    "                  machine need beside it\n"
    "  --collectives   bytes one device sends in a step, and why\n"
    "  --rank R        coordinates of a rank and its part of every parameter; with --memory,\n"
    "                  --collectives, --json and --memory-map those of its stage\n"
    "  --evaluate      the evaluation's program in place of the step's\n"
    "  --compare       this run, DDP, ZeRO-1, 2, 3, TP and PP side by side, each compiled; memory\n"
    "                  of the stage that needs most, bytes of the one that sends most\n"
    "  --floor         work by kind of op, and how long this machine needs at least, by what\n"
    "                  lockstep bench has kept of it\n"
    "  --groups        how the optimizer treats parameters: learning rate and weight decay, by "
    "group\n"
    "  --timeline FILE the pipeline's schedule, in the terminal and as a picture, FILE.svg, or as "
    "a\n"
    "                  trace for ui.perfetto.dev, FILE.json; -: in the terminal alone\n"
    "  --memory-map FILE.svg\n"
    "                  what lies where in a device's memory, when, through the step; of the stage\n"
    "                  that needs most, or of --rank R\n"
    "  --html FILE     an offline page: steps through forward, backward and every collective,\n"
    "                  each device's shards coloured; this run beside DDP, ZeRO-3, TP and PP\n"
    "  --json          the numbers of --memory, --collectives, --compare, --floor and --groups\n"
    "  -n DEVICES      devices of the whole mesh (default: the mesh's, or as many as --on says)\n"
    "  --on 64xH100-SXM\n"
    "                  compiled for these devices, which need not be here: --timeline shows what\n"
    "                  runs beside what on them; --memory and --json say what one needs and has,\n"
    "                  each with its source\n\n"
    "examples:\n"
    "  lockstep show examples/quickstart.yaml -n 2 --memory --collectives\n"
    "  lockstep show examples/quickstart.yaml model=gpt2-124m train.batch=8 --compare -n 8\n"
    "  lockstep show examples/quickstart.yaml mesh.pp=2 train.microbatches=4 -n 2 --timeline "
    "pipeline.svg\n"
    "  lockstep show examples/quickstart.yaml zero=3 -n 2 --memory-map memory.svg\n"
    "  lockstep show examples/quickstart.yaml -n 4 --html step.html\n"
    "  lockstep show run.yaml --memory --on 8xA100-SXM-80\n\n";

typedef struct show_flags {
  const char *devices, *on, *rank, *timeline, *memory_map, *html;
  bool memory, collectives, evaluate, compare, floor, groups, json;
} show_flags;

static ls_status read_rank(const ls_program *const *stages, const char *text, int *rank,
                           ls_error *error) {
  const int ranks = ls_mesh_ranks(&stages[0]->mesh);
  char *end;
  const long long value = strtoll(text, &end, 10);
  if (end == text || *end || value < 0 || value >= ranks)
    return ls_fail(error, LS_INPUT, "--rank %s: expected a rank from 0 to %d", text, ranks - 1);
  *rank = (int)value;
  return LS_OK;
}

static ls_status print_rank(const ls_program *const *stages, const char *text, ls_error *error) {
  int rank;
  LS_TRY(read_rank(stages, text, &rank, error));
  const ls_program *program = stages[ls_mesh_stage(&stages[0]->mesh, rank)];
  printf("rank %d:", rank);
  for (int a = 0; a < program->mesh.count; a++)
    printf(" %s %d of %d", program->mesh.axes[a].name, ls_mesh_coordinate(&program->mesh, rank, a),
           program->mesh.axes[a].size);
  printf("\n%-40s %16s %22s %22s\n", "parameter", "whole", "used: rows, columns",
         "stored: elements");
  for (int p = 0; p < program->parameter_count; p++) {
    const ls_program_parameter *about = &program->parameters[p];
    if (!about->present) continue;
    const ls_local used = ls_program_local(program, rank, about->part[LS_PART_USED]);
    const ls_local stored = ls_program_local(program, rank, about->part[LS_PART_STORED]);
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

static void print_program_json(const ls_session *session, const ls_program *program) {
  json_t *root = ls_show_cost_json(program, session->workspace[program->stage]);
  if (session->on) json_object_set_new(root, "device", ls_hardware_json(session, program->stage));
  json_object_set_new(root, "instructions", json_integer(program->instructions.count));
  json_object_set_new(root, "flops", json_real(program->flops));
  ls_show_print_json(root);
}

/* The stage that numbers are of: that of --rank, or the one that needs most memory. */
static ls_status choose_stage(const ls_session *session, const ls_program *const *stages,
                              const char *rank_text, int *stage, ls_error *error) {
  ls_session_bytes_needed(session, stage);
  if (!rank_text) return LS_OK;
  int rank;
  LS_TRY(read_rank(stages, rank_text, &rank, error));
  *stage = ls_mesh_stage(&stages[0]->mesh, rank);
  return LS_OK;
}

/* What it costs that transfers begin early and end late. */
static ls_status print_prefetch(const ls_session *session, int stage, ls_error *error) {
  ls_layout layout = session->layout;
  if (!layout.prefetch) return LS_OK;
  layout.prefetch = 0;
  ls_session *without;
  LS_TRY(ls_session_under(session->arena, session, &layout, &without, error));
  const int64_t more =
      ls_session_stage_bytes(session, stage) - ls_session_stage_bytes(without, stage);
  printf("  %-20s %10.2f  more than prefetch=0 needs, for transfers beside compute\n",
         ls_arena_printf(session->arena, "prefetch %d", session->layout.prefetch),
         (double)more / 1048576);
  return LS_OK;
}

/* What it saves that parameters are frozen, all else being the same. */
static ls_status print_frozen(const ls_session *session, int stage, ls_error *error) {
  const int64_t frozen = ls_graph_frozen(session->graph);
  if (!frozen) return LS_OK;
  ls_session *thawed;
  LS_TRY(ls_session_thawed(session->arena, session, &thawed, error));
  const int64_t more =
      ls_session_stage_bytes(thawed, stage) - ls_session_stage_bytes(session, stage);
  printf("  %-20s %10.2f  more would be needed to train the %.2f M parameters that are frozen\n",
         "frozen", (double)more / 1048576, (double)frozen / 1e6);
  return LS_OK;
}

static ls_status print_teacher(const ls_session *session, int stage, ls_error *error) {
  if (!session->teacher) return LS_OK;
  ls_session *alone;
  LS_TRY(ls_session_untaught(session->arena, session, &alone, error));
  const int64_t more =
      ls_session_stage_bytes(session, stage) - ls_session_stage_bytes(alone, stage);
  printf("  %-20s %10.2f  more than without the teacher, of %.2f M parameters\n", "teacher",
         (double)more / 1048576, (double)ls_model_parameters(session->teacher) / 1e6);
  return LS_OK;
}

/* Programs of all stages, or numbers of one. */
static ls_status show_program(const ls_session *session, const show_flags *flags, ls_error *error) {
  const ls_program *const *stages =
      session->stages[flags->evaluate ? LS_SESSION_EVALUATE : LS_SESSION_STEP];
  const bool numbers = flags->memory || flags->collectives;
  int stage;
  LS_TRY(choose_stage(session, stages, flags->rank, &stage, error));
  if (flags->memory_map)
    return ls_show_memory_map(session, stages[stage], flags->memory_map, error);
  if (flags->json) {
    print_program_json(session, stages[stage]);
    return LS_OK;
  }
  if (flags->rank && !numbers) return print_rank(stages, flags->rank, error);
  if (session->layout.pp > 1 && numbers)
    printf("stage %d, %s%s\n", stage, flags->rank ? "of rank " : "which needs most memory",
           flags->rank ? flags->rank : "");
  if (flags->memory) ls_program_print_memory(stages[stage], session->workspace[stage], stdout);
  if (flags->memory) LS_TRY(print_prefetch(session, stage, error));
  if (flags->memory && !flags->evaluate) LS_TRY(print_frozen(session, stage, error));
  if (flags->memory && !flags->evaluate) LS_TRY(print_teacher(session, stage, error));
  if (flags->memory) ls_hardware_print(session, stage);
  if (flags->memory && session->layout.recompute_of_count)
    printf("  runs again           %s\n",
           ls_budget_print(session->arena, session->graph, &session->layout));
  if (flags->collectives) ls_program_print_collectives(stages[stage], stdout);
  const char *fp8 = ls_session_fp8(session->arena, session);
  if (!numbers) {
    if (ls_show_has_groups(session)) ls_show_groups(session, false);
    for (int s = 0; s < session->layout.pp; s++) ls_program_print(stages[s], stdout);
  }
  if (fp8) printf("%s\n", fp8);
  return LS_OK;
}

/* What is answered in a form of its own: one at a time, and of these those that write no file as
 * JSON too. */
static ls_status check_flags(const show_flags *flags, ls_error *error) {
  const struct {
    const char *name, *file;
    bool given;
  } forms[] = {{"--timeline", flags->timeline, flags->timeline != NULL},
               {"--memory-map", flags->memory_map, flags->memory_map != NULL},
               {"--html", flags->html, flags->html != NULL},
               {"--compare", NULL, flags->compare},
               {"--floor", NULL, flags->floor},
               {"--groups", NULL, flags->groups}};
  const char *first = NULL;
  for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
    if (!forms[f].given) continue;
    if (first)
      return ls_fail(error, LS_INPUT, "%s beside %s: expected one of them at a time", forms[f].name,
                     first);
    first = forms[f].name;
    if (flags->on && !flags->memory_map && !flags->timeline)
      return ls_fail(error, LS_INPUT,
                     "--on beside %s: expected it with --memory, --collectives, --json, --timeline "
                     "or --memory-map",
                     first);
    if (flags->rank && !flags->memory_map)
      return ls_fail(error, LS_INPUT,
                     "--rank beside %s: expected it alone, or with --memory, --collectives, --json "
                     "or --memory-map",
                     first);
    if (!forms[f].file) continue;
    if (flags->json)
      return ls_fail(error, LS_INPUT,
                     "--json beside %s: expected it with the numbers of --memory, --collectives, "
                     "--compare, --floor or --groups",
                     first);
    if (strcmp(forms[f].file, "-") != 0) LS_TRY(ls_command_check_file(first, forms[f].file, error));
  }
  return LS_OK;
}

static ls_status show(ls_arena *arena, const ls_words *words, void *given, ls_error *error) {
  show_flags *flags = given;
  LS_TRY(check_flags(flags, error));
  ls_run_file *run;
  LS_TRY(ls_command_run_file(arena, words, &run, error));
  int devices;
  const ls_device_facts *facts;
  LS_TRY(ls_hardware_find(arena, flags->on, &facts, &flags->devices, error));
  LS_TRY(ls_command_devices(flags->devices, run, &devices, error));
  if (flags->compare) return ls_show_compare(arena, run, devices, flags->json, error);
  const ls_run_file *as_read = ls_run_file_copy(arena, run);
  ls_session *session;
  LS_TRY(ls_session_create_on(arena, run, devices, devices, facts, &session, error));
  if (flags->floor) {
    ls_show_floor(session, flags->json);
    return LS_OK;
  }
  if (flags->groups) {
    ls_show_groups(session, flags->json);
    return LS_OK;
  }
  if (flags->html) return ls_show_html(session, as_read, flags->html, error);
  if (flags->timeline) return ls_show_timeline(arena, session, flags->timeline, error);
  return show_program(session, flags, error);
}

int ls_command_show(int count, char **words) {
  if (!ls_command_is_first()) return ls_exit_status(LS_OK);
  show_flags asked = {0};
  const ls_command_flag flags[] = {
      {"-n", &asked.devices, NULL},          {"--on", &asked.on, NULL},
      {"--rank", &asked.rank, NULL},         {"--timeline", &asked.timeline, NULL},
      {"--html", &asked.html, NULL},         {"--memory-map", &asked.memory_map, NULL},
      {"--memory", NULL, &asked.memory},     {"--collectives", NULL, &asked.collectives},
      {"--evaluate", NULL, &asked.evaluate}, {"--compare", NULL, &asked.compare},
      {"--floor", NULL, &asked.floor},       {"--groups", NULL, &asked.groups},
      {"--json", NULL, &asked.json}};
  return ls_command_run(
      &(ls_command){"show", help, true, flags, sizeof flags / sizeof *flags, show, &asked}, count,
      words);
}
