#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "cli/hardware.h"
#include "cli/show_timeline.h"
#include "cli/simulate_against.h"
#include "cli/simulate_report.h"
#include "text/number.h"

static const char help[] =
    "usage: lockstep simulate RUN.yaml|RUN [key=value ...] [--on HARDWARE] [-n DEVICES]\n\n"
    "How long a step takes on devices that need not be here. The compiled program, the same list\n"
    "that runs and that check proves, is gone through event by event: what each stage computes, "
    "when\n"
    "each transfer begins, which link it shares with others, what waits for what. Needs the "
    "model's\n"
    "shape only. Rates are the catalog's (lockstep machines); without --on this machine's, as\n"
    "lockstep bench measured them.\n\n"
    "  --on 64xH100-SXM[:8] | cluster.yaml | here | here.yaml\n"
    "                  the devices, and how many a host has (lockstep machines --help); here: "
    "this\n"
    "                  machine; here.yaml: one that lockstep bench -o here.yaml measured\n"
    "  -n DEVICES      devices of the whole mesh (default: as many as --on says)\n"
    "  --timeline FILE the step as a picture (.svg) or for Perfetto (.json)\n"
    "  --html FILE     the step, its parts, memory by stage and the timeline on one offline page\n"
    "  --against RUN   beside the step that RUN recorded (trace: true), by kind of instruction\n"
    "  --slow host3=0.9[,...]\n"
    "                  devices of a host compute at this part of their speed\n"
    "  --link network=0.5[,...]\n"
    "                  links reach this part of their rate: peer (or nvlink), network (or ib), "
    "host, "
    "drive\n"
    "  --tokens COUNT  what so many tokens take and cost: 1B, 300M\n"
    "  --json          for programs\n"
    "  --help          this text and all keys\n\n"
    "examples:\n"
    "  lockstep simulate run.yaml --on 64xH100-SXM\n"
    "  lockstep simulate run.yaml model=llama3-8b zero=3 --on 2xRTX4090 --tokens 1B\n"
    "  lockstep simulate run.yaml --on 64xH100-SXM --slow host3=0.9 --timeline step.svg\n\n";

typedef struct request {
  const char *devices, *on, *timeline, *page, *slow, *link, *tokens, *against;
  bool json;
} request;

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
    return ls_fail(error, LS_INPUT, "%s %s: expected %s%s=FACTOR, a number above 0, as in %s%s=0.5",
                   flag, *at, word,
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
      return hosts == 1
                 ? ls_fail(error, LS_INPUT, "--slow %s: expected host0, the only one", text)
                 : ls_fail(error, LS_INPUT, "--slow %s: expected host0 to host%d", text, hosts - 1);
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
  } links[] = {
      {"peer", LS_LINK_PEER, LS_LINK_PEER},          {"nvlink", LS_LINK_PEER, LS_LINK_PEER},
      {"network", LS_LINK_NETWORK, LS_LINK_NETWORK}, {"ib", LS_LINK_NETWORK, LS_LINK_NETWORK},
      {"host", LS_LINK_TO_HOST, LS_LINK_FROM_HOST},  {"drive", LS_LINK_DRIVE, LS_LINK_DRIVE}};
  for (const char *at = text ? text : ""; *at;) {
    size_t l = 0, count = sizeof links / sizeof *links;
    const size_t length = strcspn(at, "=,");
    while (l < count &&
           (strlen(links[l].word) != length || strncmp(at, links[l].word, length) != 0))
      l++;
    if (l == count)
      return ls_fail(error, LS_INPUT,
                     "--link %s: expected peer (nvlink), network (ib), host or drive, as in "
                     "network=0.5",
                     at);
    int number;
    double factor = 0;
    LS_TRY(next_factor(&at, "--link", links[l].word, &number, &factor, error));
    for (int k = links[l].first; k <= links[l].last; k++) options->link_of[k] = factor;
  }
  return LS_OK;
}

static ls_status draw(const ls_simulated *of, const char *path, ls_error *error) {
  LS_TRY(ls_timeline_write(ls_simulated_timeline(of, LS_TIMELINE_ACTIONS), path, error));
  fprintf(stderr, "written: %s\n", path);
  return LS_OK;
}

/* A catalog has no drives: whose rate is not known cannot be waited for. */
static ls_status check_tiers(const ls_session *session, const ls_performance *performance,
                             const char *on, ls_error *error) {
  int stage;
  return ls_hardware_check_tiers(on, performance,
                                 ls_session_tier_bytes(session, LS_TIER_HOST, &stage) > 0,
                                 ls_session_tier_bytes(session, LS_TIER_NVME, &stage) > 0, error);
}

static ls_status answer(const ls_simulated *made, const request *asked, ls_error *error) {
  ls_kind_comparison kinds;
  if (asked->against &&
      ls_compare_kinds(made->session->arena, ls_simulated_timeline(made, LS_TIMELINE_INSTRUCTIONS),
                       asked->against, &kinds, error) != LS_OK)
    return ls_error_prefix(error, "--against");
  const ls_kind_comparison *against = asked->against ? &kinds : NULL;
  if (asked->json)
    ls_simulated_print_json(made, against);
  else
    ls_simulated_print(made);
  if (against && !asked->json) ls_compared_print(against);
  if (asked->timeline) LS_TRY(draw(made, asked->timeline, error));
  if (!asked->page) return LS_OK;
  LS_TRY(ls_simulated_page(made, asked->page, error));
  fprintf(stderr, "written: %s\n", asked->page);
  return LS_OK;
}

static ls_status simulate(ls_arena *arena, const ls_words *words, void *given, ls_error *error) {
  request *asked = given;
  if (asked->timeline) {
    LS_TRY(ls_timeline_check_name(asked->timeline, "", error));
    LS_TRY(ls_command_check_file("--timeline", asked->timeline, error));
  }
  if (asked->page) LS_TRY(ls_command_check_file("--html", asked->page, error));
  ls_simulated made = {0};
  made.tokens_text = asked->tokens;
  if (asked->tokens && !ls_count_read(asked->tokens, &made.tokens))
    return ls_fail(error, LS_INPUT, "--tokens %s: expected a count, as 1B or 300M", asked->tokens);
  ls_run_file *run;
  LS_TRY(ls_command_run_file(arena, words, &run, error));
  int devices;
  const ls_device_facts *facts;
  ls_cluster *cluster;
  const ls_rates *rates;
  LS_TRY(ls_hardware_find_cluster(arena, asked->on, run, &facts, &asked->devices, &cluster, &rates,
                                  error));
  LS_TRY(ls_command_devices(asked->devices, run, &devices, error));
  if (cluster) LS_TRY(ls_cluster_resize(cluster, devices, error));
  if (rates && !run->device.threads) run->device.threads = ls_hardware_threads(rates, devices);
  ls_session *session;
  LS_TRY(ls_session_create_on(arena, run, devices, devices, facts, &session, error));
  ls_performance performance;
  LS_TRY(ls_hardware_performance(arena, &session->device.facts, cluster, rates,
                                 session->layout.compute, devices, &performance, &made.peak_flops,
                                 error));
  LS_TRY(check_tiers(session, &performance, asked->on, error));
  ls_sim_options options = {.records = asked->timeline || asked->page || asked->against};
  LS_TRY(read_slow(arena, asked->slow, session, performance.per_host, &options, error));
  LS_TRY(read_links(asked->link, &options, error));
  ls_simulation *simulation;
  LS_TRY(ls_simulate(arena, session->stages[LS_SESSION_STEP], &performance, &options, &simulation,
                     error));
  made.session = session;
  made.cluster = cluster;
  made.simulation = simulation;
  made.interval = ls_interval_of(cluster, devices);
  made.per_host = performance.per_host;
  made.rank_speed = options.rank_speed;
  made.slow = asked->slow;
  made.link = asked->link;
  made.step_tokens = (double)session->batch * (double)session->sequence;
  return answer(&made, asked, error);
}

int ls_command_simulate(int count, char **words) {
  if (!ls_command_is_first()) return ls_exit_status(LS_OK);
  request asked = {0};
  const ls_command_flag flags[] = {
      {"-n", &asked.devices, NULL},          {"--on", &asked.on, NULL},
      {"--timeline", &asked.timeline, NULL}, {"--html", &asked.page, NULL},
      {"--slow", &asked.slow, NULL},         {"--link", &asked.link, NULL},
      {"--tokens", &asked.tokens, NULL},     {"--against", &asked.against, NULL},
      {"--json", NULL, &asked.json}};
  return ls_command_run(
      &(ls_command){"simulate", help, true, flags, sizeof flags / sizeof *flags, simulate, &asked},
      count, words);
}
