#include "cli/simulate_report.h"

#include <string.h>

#include "cost/cost.h"
#include "text/number.h"

/* A report that is being made. */
typedef struct making {
  const ls_simulated *of;
  ls_arena *arena;
  ls_simulated_report *made;
} making;

static const char *duration(ls_arena *arena, double seconds) {
  char text[LS_NUMBER_BYTES];
  ls_seconds_show(text, seconds);
  return ls_arena_strdup(arena, text);
}

static void say(making *m, const char *name, const char *text) {
  *LS_APPEND(m->arena, &m->made->facts) = (ls_simulated_fact){name, text};
}

static void say_speed(making *m) {
  const ls_simulated *of = m->of;
  const ls_session *session = of->session;
  const double seconds = of->simulation->seconds;
  for (int i = 0; of->cluster && i < of->cluster->assumed.count; i++)
    say(m, i ? "" : "assumed", of->cluster->assumed.items[i]);
  if (of->slow) say(m, "changed", ls_arena_printf(m->arena, "speed of %s", of->slow));
  if (of->link)
    say(m, of->slow ? "" : "changed", ls_arena_printf(m->arena, "rate of %s", of->link));
  say(m, "step", ls_arena_printf(m->arena, "%s, simulated", duration(m->arena, seconds)));
  if (of->interval) say(m, "interval", ls_interval_print(m->arena, of->interval, seconds));
  say(m, "tokens/s",
      ls_arena_printf(m->arena, "%.0f, %.1f of a device", of->step_tokens / seconds,
                      of->step_tokens / seconds / session->devices));
  const double flops = session->programs[LS_SESSION_STEP]->flops;
  if (of->peak_flops > 0)
    say(m, "MFU",
        ls_arena_printf(m->arena, "%.1f %% of %.4g TFLOP/s a device",
                        100 * flops / (seconds * of->peak_flops * session->devices),
                        of->peak_flops / 1e12));
  if (session->layout.pp > 1)
    say(m, "bubble",
        ls_arena_printf(m->arena, "%.1f %% of the step: a rank idle because others are not as far",
                        100 * of->simulation->bubble));
}

static void say_memory(making *m) {
  const ls_session *session = m->of->session;
  int stage;
  const double gib = 1073741824, needed = (double)ls_session_bytes_needed(session, &stage);
  const double limit = (double)ls_session_limit(session);
  const char *text = ls_arena_printf(m->arena, "%.2f GiB", needed / gib);
  if (limit > 0) text = ls_arena_printf(m->arena, "%s of %.2f", text, limit / gib);
  text = session->layout.pp > 1
             ? ls_arena_printf(m->arena, "%s, on stage %d, which needs most", text, stage)
             : ls_arena_printf(m->arena, "%s a device", text);
  say(m, "memory", text);
}

static void say_money(making *m) {
  const ls_simulated *of = m->of;
  const ls_cluster *cluster = of->cluster;
  const double seconds = of->simulation->seconds, devices = of->session->devices;
  const double hour = cluster ? cluster->hour * devices : 0;
  if (hour > 0)
    say(m, "money",
        ls_arena_printf(m->arena, "%.4g %s a step, %.2f an hour (%s price)", hour * seconds / 3600,
                        cluster->currency, hour, cluster->region));
  if (cluster && cluster->accelerator->watts > 0)
    say(m, "energy",
        ls_arena_printf(m->arena, "%.4g kWh a step, the devices alone at %.0f W",
                        cluster->accelerator->watts * devices * seconds / 3.6e6,
                        cluster->accelerator->watts));
  if (!(of->tokens > 0)) return;
  const double all = of->tokens / of->step_tokens * seconds;
  const char *text = duration(m->arena, all);
  if (hour > 0)
    text = ls_arena_printf(m->arena, "%s, %.0f %s", text, hour * all / 3600, cluster->currency);
  say(m, ls_arena_printf(m->arena, "%s tokens", of->tokens_text), text);
}

static ls_simulated_part *part_named(making *m, const char *name) {
  for (int p = 0; p < m->made->parts.count; p++)
    if (strcmp(m->made->parts.items[p].name, name) == 0) return &m->made->parts.items[p];
  ls_simulated_part *made = LS_APPEND(m->arena, &m->made->parts);
  made->name = name;
  return made;
}

/* "host3", or of a class that is on several hosts the first of them. */
static const char *host_of(const making *m, const ls_sim_stage *late) {
  const ls_simulation *made = m->of->simulation;
  const int host = late->rank / m->of->per_host, class = made->of_rank[late->rank];
  bool others = false;
  for (int r = (host + 1) * m->of->per_host; r < m->of->session->devices; r++)
    others |= made->of_rank[r] == class;
  return ls_arena_printf(m->arena, "host%d%s", host, others ? " and others" : "");
}

static double speed_of(const making *m, const ls_sim_stage *at) {
  return m->of->rank_speed ? m->of->rank_speed[at->rank] : 1;
}

/* A part for time that a rank waits. Who is late: a host, where it is slower or of the same stage;
 * else other stages, by the order of passes. */
static ls_simulated_part *part_of_cause(making *m, const ls_sim_stage *at,
                                        const ls_sim_cause *cause) {
  const ls_mesh *mesh = &m->of->session->programs[LS_SESSION_STEP]->mesh;
  const char *axes =
      cause->axes ? ls_axes_print(m->arena, mesh, ls_mesh_active(mesh, cause->axes)) : NULL;
  const char *what =
      ls_collective_is_message(cause->collective) ? "messages between stages"
      : axes ? ls_arena_printf(m->arena, "%s, %s", axes, ls_collective_name(cause->collective))
             : ls_collective_name(cause->collective);
  const ls_sim_stage *late = cause->late >= 0 ? &m->of->simulation->stage[cause->late] : NULL;
  const char *name = ls_arena_printf(m->arena, "waiting: %s", what), *reason = "transfer";
  if (late && (late->stage == at->stage || speed_of(m, late) < speed_of(m, at))) {
    name = ls_arena_printf(m->arena, "waiting for %s: %s", host_of(m, late), what);
    reason = "slow host";
  } else if (late) {
    name = "waiting for other stages";
    reason = "bubble";
    axes = NULL;
  }
  ls_simulated_part *part = part_named(m, name);
  part->waits = true;
  part->axes = axes;
  part->reason = reason;
  return part;
}

static void add_computing(making *m) {
  const ls_simulation *made = m->of->simulation;
  const double devices = m->of->session->devices;
  ls_simulated_part *all = part_named(m, "computing");
  double sum = 0;
  for (int s = 0; s < made->stages; s++)
    sum += made->stage[s].compute * made->stage[s].ranks / devices;
  all->seconds = sum;
  for (int kind = 0; kind < LS_ACTION_COUNT_OF_KINDS; kind++) {
    const ls_action action = {.kind = (ls_action_kind)kind};
    double seconds = 0;
    for (int s = 0; s < made->stages; s++)
      seconds += made->stage[s].by_kind[kind] * made->stage[s].ranks / devices;
    if (!(seconds > 0)) continue;
    ls_simulated_part *part = part_named(m, ls_action_name(&action));
    part->detail = true;
    part->seconds = seconds;
  }
}

static void add_waiting(making *m) {
  const ls_simulation *made = m->of->simulation;
  double tail = 0;
  for (int s = 0; s < made->stages; s++) {
    const ls_sim_stage *at = &made->stage[s];
    const double share = (double)at->ranks / m->of->session->devices;
    tail += share * (made->seconds - at->end);
    for (int c = 0; c < at->causes.count; c++) {
      const ls_sim_cause *cause = &at->causes.items[c];
      ls_simulated_part *part = part_of_cause(m, at, cause);
      part->seconds += share * cause->exposed;
      part->under_way += share * cause->seconds;
      part->bytes += share * cause->bytes;
    }
  }
  if (!(tail > 0)) return;
  ls_simulated_part *part = part_named(m, "done before the last rank");
  part->waits = true;
  part->reason = "bubble";
  part->seconds = tail;
}

static ls_simulated_memory memory_of(const ls_session *session, int stage) {
  const ls_program *programs[LS_SESSION_PROGRAMS];
  for (int p = 0; p < session->compiled.count; p++) programs[p] = session->stages[p][stage];
  ls_simulated_memory made = {
      .first = stage,
      .last = stage,
      .bytes = ls_rank_bytes_needed(programs, session->compiled.count, LS_TIER_DEVICE) +
               session->workspace[stage] + session->overhead[stage],
      .host_bytes = ls_rank_bytes_needed(programs, session->compiled.count, LS_TIER_HOST),
      .drive_bytes = ls_rank_bytes_needed(programs, session->compiled.count, LS_TIER_NVME)};
  ls_session_memory_parts(session, stage, made.part);
  return made;
}

/* Stages that follow one another and need the same are one line. */
static void add_memory(making *m) {
  const ls_session *session = m->of->session;
  for (int s = 0; s < session->layout.pp; s++) {
    const ls_simulated_memory each = memory_of(session, s);
    ls_simulated_memory *last = s ? &m->made->memory.items[m->made->memory.count - 1] : NULL;
    if (last && last->bytes == each.bytes && last->host_bytes == each.host_bytes &&
        last->drive_bytes == each.drive_bytes &&
        memcmp(last->part, each.part, sizeof each.part) == 0)
      last->last = s;
    else
      *LS_APPEND(m->arena, &m->made->memory) = each;
  }
}

const ls_simulated_report *ls_simulated_report_make(const ls_simulated *of) {
  making m = {.of = of, .arena = of->session->arena};
  m.made = LS_NEW(m.arena, ls_simulated_report);
  const ls_session *session = of->session;
  const ls_layout *layout = &session->layout;
  m.made->headline =
      ls_arena_printf(m.arena, "%s: %.2f M parameters in %s on %d device%s (%s, %d microbatch%s)",
                      session->run->model, (double)ls_model_parameters(&session->config) / 1e6,
                      ls_session_dtype(session), session->devices, session->devices == 1 ? "" : "s",
                      ls_layout_print(m.arena, layout), layout->microbatches,
                      layout->microbatches == 1 ? "" : "es");
  say_speed(&m);
  say_memory(&m);
  say_money(&m);
  add_computing(&m);
  add_waiting(&m);
  add_memory(&m);
  return m.made;
}

const ls_timeline *ls_simulated_timeline(const ls_simulated *of, ls_timeline_detail detail) {
  ls_arena *arena = of->session->arena;
  const ls_program *const *stages = of->session->stages[LS_SESSION_STEP];
  const ls_simulation *made = of->simulation;
  int *ranks = LS_NEW_ARRAY(arena, int, made->stages);
  for (int s = 0; s < made->stages; s++) ranks[s] = made->stage[s].rank;
  const ls_timeline_run run = {
      .stages = stages,
      .title = ls_arena_printf(
          arena, "%s on %d x %s%s%s%s%s", of->session->run->model, of->session->devices,
          of->cluster ? of->cluster->accelerator->id : "this machine", of->slow ? ", " : "",
          of->slow ? of->slow : "", of->link ? ", " : "", of->link ? of->link : ""),
      .ranks = ranks,
      .rank_count = made->stages};
  return ls_timeline_measured(arena, &run, ls_simulation_recording(arena, made, &stages[0]->mesh),
                              detail);
}
