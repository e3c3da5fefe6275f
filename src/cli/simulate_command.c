#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "cli/hardware.h"
#include "cli/show_timeline.h"
#include "cli/simulate_against.h"
#include "sim/sim.h"
#include "text/number.h"
#include "watch/timeline.h"

static const char help[] =
    "usage: lockstep simulate RUN.yaml|RUN [key=value ...] [--on HARDWARE] [-n DEVICES]\n\n"
    "How long a step takes on devices that need not be here. The compiled program, the same list\n"
    "that runs and that check proves, is gone through event by event: what each stage computes, "
    "when\n"
    "each transfer begins, which link it shares with others, what waits for what. Needs the "
    "model's\n"
    "shape only. Rates are the catalog's (lockstep machines); without --on this machine's, as\n"
    "lockstep bench measured them.\n\n"
    "  --on 64xH100-SXM[:8] | cluster.yaml\n"
    "                  the devices, and how many a host has (lockstep machines --help)\n"
    "  -n DEVICES      devices of the whole mesh (default: as many as --on says)\n"
    "  --timeline FILE the step as a picture (.svg) or for Perfetto (.json)\n"
    "  --against RUN   beside the step that RUN recorded (trace: true), by kind of instruction\n"
    "  --slow host3=0.9[,...]\n"
    "                  devices of a host compute at this part of their speed\n"
    "  --link network=0.5[,...]\n"
    "                  links reach this part of their rate: peer, network, host, drive\n"
    "  --tokens COUNT  what so many tokens take and cost: 1B, 300M\n"
    "  --json          for programs\n"
    "  --help          this text and all keys\n\n"
    "examples:\n"
    "  lockstep simulate run.yaml --on 64xH100-SXM\n"
    "  lockstep simulate run.yaml model=llama3-8b zero=3 --on 2xRTX4090 --tokens 1B\n"
    "  lockstep simulate run.yaml --on 64xH100-SXM --slow host3=0.9 --timeline step.svg\n\n";

typedef struct request {
  const char *devices, *on, *timeline, *slow, *link, *tokens, *against;
  bool json;
} request;

/* What was simulated. */
typedef struct answer {
  const ls_session *session;
  const ls_cluster *cluster; /* NULL: this machine */
  const ls_simulation *simulation;
  double peak_flops; /* of one device, by its data sheet; of this machine as measured */
  double step_tokens, tokens;
  const char *tokens_text;
} answer;

/* "host3=0.9,host4=0.5": for each, the number behind `word` and the factor. */
static ls_status next_factor(const char **at, const char *flag, const char *word, int *number,
                             double *factor, ls_error *error) {
  const size_t length = strlen(word);
  char *end = NULL;
  bool right = strncmp(*at, word, length) == 0;
  *number = -1;
  if (right && (*at)[length] >= '0' && (*at)[length] <= '9')
    *number = (int)strtol(*at + length, &end, 10);
  else
    end = (char *)*at + length;
  right = right && *end == '=';
  if (right) *factor = strtod(end + 1, &end);
  if (!right || (*end && *end != ',') || !(*factor > 0) || !(*factor <= 1e6))
    return ls_fail(error, LS_INPUT, "%s %s: expected %s%s=FACTOR, as in %s%s=0.5", flag, *at, word,
                   strcmp(word, "host") == 0 && strcmp(flag, "--slow") == 0 ? "N" : "", word,
                   strcmp(flag, "--slow") == 0 ? "3" : "");
  *at = *end ? end + 1 : end;
  return LS_OK;
}

static ls_status read_slow(ls_arena *arena, const char *text, const ls_session *session,
                           int per_host, ls_sim_options *options, ls_error *error) {
  if (!text) return LS_OK;
  const int hosts = (session->devices + per_host - 1) / per_host;
  double *speed = LS_NEW_ARRAY(arena, double, session->devices);
  for (int r = 0; r < session->devices; r++) speed[r] = 1;
  for (const char *at = text; *at;) {
    int host;
    double factor = 0;
    LS_TRY(next_factor(&at, "--slow", "host", &host, &factor, error));
    if (host < 0 || host >= hosts)
      return ls_fail(error, LS_INPUT, "--slow %s: expected host0 to host%d", text, hosts - 1);
    for (int r = host * per_host; r < (host + 1) * per_host && r < session->devices; r++)
      speed[r] = factor;
  }
  options->rank_speed = speed;
  return LS_OK;
}

static ls_status read_links(const char *text, ls_sim_options *options, ls_error *error) {
  static const struct {
    const char *word;
    int first, last;
  } links[] = {{"peer", LS_LINK_PEER, LS_LINK_PEER},
               {"network", LS_LINK_NETWORK, LS_LINK_NETWORK},
               {"host", LS_LINK_TO_HOST, LS_LINK_FROM_HOST},
               {"drive", LS_LINK_DRIVE, LS_LINK_DRIVE}};
  for (const char *at = text ? text : ""; *at;) {
    size_t l = 0, count = sizeof links / sizeof *links;
    while (l < count && strncmp(at, links[l].word, strlen(links[l].word)) != 0) l++;
    if (l == count)
      return ls_fail(error, LS_INPUT,
                     "--link %s: expected peer, network, host or drive, as in "
                     "network=0.5",
                     at);
    int number;
    double factor = 0;
    LS_TRY(next_factor(&at, "--link", links[l].word, &number, &factor, error));
    for (int k = links[l].first; k <= links[l].last; k++) options->link_of[k] = factor;
  }
  return LS_OK;
}

static const char *duration(ls_arena *arena, double seconds) {
  char text[LS_NUMBER_BYTES];
  ls_seconds_show(text, seconds);
  return ls_arena_strdup(arena, text);
}

static double mfu(const answer *of) {
  const double flops = of->session->programs[LS_SESSION_STEP]->flops;
  return flops / (of->simulation->seconds * of->peak_flops * of->session->devices);
}

static void print_money(const answer *of) {
  ls_arena *arena = of->session->arena;
  const double seconds = of->simulation->seconds;
  const int devices = of->session->devices;
  if (of->cluster && of->cluster->hour > 0)
    printf("%-22s %.4g %s a step, %.2f an hour (%s price)\n", "money",
           of->cluster->hour * devices * seconds / 3600, of->cluster->currency,
           of->cluster->hour * devices, of->cluster->region);
  if (of->cluster && of->cluster->accelerator->watts > 0)
    printf("%-22s %.4g kWh a step, the devices alone at %.0f W\n", "energy",
           of->cluster->accelerator->watts * devices * seconds / 3.6e6,
           of->cluster->accelerator->watts);
  if (!(of->tokens > 0)) return;
  const double all = of->tokens / of->step_tokens * seconds;
  printf("%-22s %s", ls_arena_printf(arena, "%s tokens", of->tokens_text), duration(arena, all));
  if (of->cluster && of->cluster->hour > 0)
    printf(", %.0f %s", of->cluster->hour * devices * all / 3600, of->cluster->currency);
  printf("\n");
}

/* What kept a stage from computing, in words. */
static const char *cause_name(const answer *of, const ls_sim_cause *cause) {
  ls_arena *arena = of->session->arena;
  const ls_mesh *mesh = &of->session->programs[LS_SESSION_STEP]->mesh;
  if (ls_collective_is_message(cause->collective)) return "messages between stages";
  if (!cause->axes) return ls_collective_name(cause->collective);
  return ls_arena_printf(arena, "%s, %s",
                         ls_axes_print(arena, mesh, ls_mesh_active(mesh, cause->axes)),
                         ls_collective_name(cause->collective));
}

/* Mean seconds of the stages for causes of one name: what waited, and what was under way. */
static void add_causes(const answer *of, json_t *rows) {
  const ls_simulation *made = of->simulation;
  for (int s = 0; s < made->stages; s++)
    for (int c = 0; c < made->stage[s].causes.count; c++) {
      const ls_sim_cause *cause = &made->stage[s].causes.items[c];
      const char *name = cause_name(of, cause);
      json_t *row = json_object_get(rows, name);
      if (!row) json_object_set_new(rows, name, row = json_object());
      const struct {
        const char *key;
        double value;
      } sums[] = {
          {"exposed_s", cause->exposed}, {"seconds", cause->seconds}, {"bytes", cause->bytes}};
      for (int i = 0; i < 3; i++)
        json_object_set_new(row, sums[i].key,
                            json_real(json_real_value(json_object_get(row, sums[i].key)) +
                                      sums[i].value / made->stages));
    }
}

static double compute_of(const answer *of, int kind) {
  double sum = 0;
  for (int s = 0; s < of->simulation->stages; s++)
    sum += kind < 0 ? of->simulation->stage[s].compute : of->simulation->stage[s].by_kind[kind];
  return sum / of->simulation->stages;
}

static void print_part(const answer *of, const char *name, double seconds, double in_all) {
  if (!(seconds > 0) && !(in_all > 0)) return;
  ls_arena *arena = of->session->arena;
  printf("  %-36s %12s %6.1f %%", name, duration(arena, seconds),
         100 * seconds / of->simulation->seconds);
  if (in_all > 0) printf("   of %s under way", duration(arena, in_all));
  printf("\n");
}

static void print_parts(const answer *of) {
  printf("\nwhere the time goes%s\n", of->simulation->stages > 1 ? " (mean of the stages)" : "");
  print_part(of, "computing", compute_of(of, -1), 0);
  for (int kind = 0; kind < LS_ACTION_COUNT_OF_KINDS; kind++) {
    const ls_action action = {.kind = (ls_action_kind)kind};
    print_part(of, ls_arena_printf(of->session->arena, "  %s", ls_action_name(&action)),
               compute_of(of, kind), 0);
  }
  json_t *rows = json_object();
  add_causes(of, rows);
  double waited = 0;
  const char *name;
  json_t *row;
  json_object_foreach(rows, name, row) {
    const double exposed = json_real_value(json_object_get(row, "exposed_s"));
    waited += exposed;
    print_part(of, ls_arena_printf(of->session->arena, "waiting: %s", name), exposed,
               json_real_value(json_object_get(row, "seconds")));
  }
  print_part(of, "done before the last stage",
             of->simulation->seconds - compute_of(of, -1) - waited, 0);
  json_decref(rows);
}

static void print_answer(const answer *of) {
  const ls_session *session = of->session;
  ls_arena *arena = session->arena;
  const ls_layout *layout = &session->layout;
  const double seconds = of->simulation->seconds;
  printf("%s: %.2f M parameters in %s on %d device%s (%s, %d microbatch%s)\n", session->run->model,
         (double)ls_model_parameters(&session->config) / 1e6, ls_dtype_name(layout->compute),
         session->devices, session->devices == 1 ? "" : "s", ls_layout_print(arena, layout),
         layout->microbatches, layout->microbatches == 1 ? "" : "es");
  for (int i = 0; of->cluster && i < of->cluster->assumed.count; i++)
    printf("%-22s %s\n", i ? "" : "assumed", of->cluster->assumed.items[i]);
  printf("%-22s %s, simulated\n", "step", duration(arena, seconds));
  printf("%-22s %.0f, %.1f of a device\n", "tokens/s", of->step_tokens / seconds,
         of->step_tokens / seconds / session->devices);
  if (of->peak_flops > 0)
    printf("%-22s %.1f %% of %.4g TFLOP/s a device\n", "MFU", 100 * mfu(of), of->peak_flops / 1e12);
  int stage;
  const double needed = (double)ls_session_bytes_needed(session, &stage);
  const double limit = (double)ls_session_limit(session);
  printf("%-22s %.2f GiB", "memory", needed / 1073741824);
  if (limit > 0) printf(" of %.2f", limit / 1073741824);
  printf(layout->pp > 1 ? ", on stage %d, which needs most\n" : " a device\n", stage);
  print_money(of);
  print_parts(of);
}

static void print_json(const answer *of) {
  json_t *root = json_object(), *rows = json_object(), *compute = json_object();
  const double seconds = of->simulation->seconds;
  int stage;
  json_object_set_new(root, "step_seconds", json_real(seconds));
  json_object_set_new(root, "tokens_per_second", json_real(of->step_tokens / seconds));
  json_object_set_new(root, "mfu", json_real(mfu(of)));
  json_object_set_new(root, "memory_bytes",
                      json_integer(ls_session_bytes_needed(of->session, &stage)));
  if (of->cluster && of->cluster->hour > 0) {
    json_object_set_new(root, "currency", json_string(of->cluster->currency));
    json_object_set_new(root, "step_cost",
                        json_real(of->cluster->hour * of->session->devices * seconds / 3600));
  }
  for (int kind = 0; kind < LS_ACTION_COUNT_OF_KINDS; kind++) {
    const ls_action action = {.kind = (ls_action_kind)kind};
    if (compute_of(of, kind) > 0)
      json_object_set_new(compute, ls_action_name(&action), json_real(compute_of(of, kind)));
  }
  json_object_set_new(root, "compute_s", compute);
  add_causes(of, rows);
  json_object_set_new(root, "transfers", rows);
  char *text = json_dumps(root, JSON_INDENT(2));
  printf("%s\n", text ? text : "{}");
  free(text);
  json_decref(root);
}

/* The simulated step as a measured one is drawn. */
static const ls_timeline *timeline_of(const answer *of, ls_timeline_detail detail) {
  ls_arena *arena = of->session->arena;
  const ls_program *const *stages = of->session->stages[LS_SESSION_STEP];
  const ls_timeline_run run = {
      .stages = stages,
      .title =
          ls_arena_printf(arena, "%s on %d x %s", of->session->run->model, of->session->devices,
                          of->cluster ? of->cluster->accelerator->id : "this machine")};
  return ls_timeline_measured(
      arena, &run, ls_simulation_recording(arena, of->simulation, &stages[0]->mesh), detail);
}

static ls_status draw(const answer *of, const char *path, ls_error *error) {
  LS_TRY(ls_timeline_write(timeline_of(of, LS_TIMELINE_ACTIONS), path, error));
  fprintf(stderr, "written: %s\n", path);
  return LS_OK;
}

static ls_status simulate(ls_arena *arena, const ls_words *words, void *given, ls_error *error) {
  request *asked = given;
  if (asked->timeline) LS_TRY(ls_command_check_file("--timeline", asked->timeline, error));
  answer made = {0};
  made.tokens_text = asked->tokens;
  if (asked->tokens && !ls_count_read(asked->tokens, &made.tokens))
    return ls_fail(error, LS_INPUT, "--tokens %s: expected a count, as 1B or 300M", asked->tokens);
  ls_run_file *run;
  LS_TRY(ls_command_run_file(arena, words, &run, error));
  int devices;
  const ls_device_facts *facts;
  ls_cluster *cluster;
  LS_TRY(ls_hardware_find_cluster(arena, asked->on, &facts, &asked->devices, &cluster, error));
  LS_TRY(ls_command_devices(asked->devices, run, &devices, error));
  if (cluster) LS_TRY(ls_cluster_resize(cluster, devices, error));
  ls_session *session;
  LS_TRY(ls_session_create_on(arena, run, devices, devices, facts, &session, error));
  ls_performance performance;
  LS_TRY(ls_hardware_performance(arena, &session->device.facts, cluster, session->layout.compute,
                                 devices, &performance, &made.peak_flops, error));
  ls_sim_options options = {.records = asked->timeline || asked->against};
  LS_TRY(read_slow(arena, asked->slow, session, performance.per_host, &options, error));
  LS_TRY(read_links(asked->link, &options, error));
  ls_simulation *simulation;
  LS_TRY(ls_simulate(arena, session->stages[LS_SESSION_STEP], &performance, &options, &simulation,
                     error));
  made.session = session;
  made.cluster = cluster;
  made.simulation = simulation;
  made.step_tokens = (double)session->batch * (double)session->sequence;
  if (asked->json)
    print_json(&made);
  else
    print_answer(&made);
  if (asked->against)
    LS_TRY(ls_simulate_against(arena, timeline_of(&made, LS_TIMELINE_INSTRUCTIONS), asked->against,
                               error));
  return asked->timeline ? draw(&made, asked->timeline, error) : LS_OK;
}

int ls_command_simulate(int count, char **words) {
  if (!ls_command_is_first()) return ls_exit_status(LS_OK);
  request asked = {0};
  const ls_command_flag flags[] = {
      {"-n", &asked.devices, NULL},          {"--on", &asked.on, NULL},
      {"--timeline", &asked.timeline, NULL}, {"--slow", &asked.slow, NULL},
      {"--link", &asked.link, NULL},         {"--tokens", &asked.tokens, NULL},
      {"--against", &asked.against, NULL},   {"--json", NULL, &asked.json}};
  return ls_command_run(
      &(ls_command){"simulate", help, true, flags, sizeof flags / sizeof *flags, simulate, &asked},
      count, words);
}
