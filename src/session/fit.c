#include "session/fit.h"

#include <stdio.h>

#include "cluster/machine.h"

static const double gib = 1073741824.0;

/* What training takes beside its devices' memory: of each process (what code and oneDNN keep for
 * themselves) and of each rank (a thread, its files and messages). Measured: 13 to 51 MiB of one
 * rank, 28 of four. */
enum { PROCESS_BYTES = 48 << 20, RANK_BYTES = 8 << 20 };

/* What a run is held against. */
typedef struct target {
  int64_t limit;
  int ranks;     /* whose sum that is of; 0: one device, and not its host */
  int processes; /* that begin with them; 0: of one that is there already */
  ls_tier tier;  /* where offloading takes it off that memory */
} target;

static int64_t bytes_beside(const target *of) {
  return of->processes ? of->processes * (int64_t)PROCESS_BYTES + of->ranks * (int64_t)RANK_BYTES
                       : 0;
}

/* Bytes of `ranks` ranks that are as many of every stage as can be; of devices with memory of their
 * own those at the host. */
static int64_t needed_by(const ls_session *session, const target *of) {
  int stage;
  const int64_t device = ls_session_bytes_needed(session, &stage);
  if (!of->ranks) return device;
  if (session->device.memory->used)
    return of->ranks * ls_session_tier_bytes(session, LS_TIER_HOST, &stage);
  int64_t all = 0;
  const int stages = session->layout.pp, each = session->devices / stages;
  if (of->ranks != session->devices) /* some hosts have more of one stage than of another */
    return of->ranks * (device + ls_session_tier_bytes(session, LS_TIER_HOST, &stage)) +
           bytes_beside(of);
  for (int s = 0; s < stages; s++) all += each * ls_session_stage_bytes(session, s);
  return all + bytes_beside(of);
}

/* "optimizer moments 1.2 GiB, parameters 0.6 GiB, gradients 0.6 GiB" of the fullest device. */
static const char *largest_parts(ls_arena *arena, const ls_session *session) {
  int stage;
  (void)ls_session_bytes_needed(session, &stage);
  int64_t parts[LS_SESSION_MEMORY_PARTS];
  ls_session_memory_parts(session, stage, parts);
  const char *text = "";
  for (int named = 0; named < 3; named++) {
    int most = 0;
    for (int p = 1; p < LS_SESSION_MEMORY_PARTS; p++)
      if (parts[p] > parts[most]) most = p;
    if (!parts[most]) break;
    text = ls_arena_printf(arena, "%s%s%s %.1f", text, *text ? ", " : "",
                           ls_session_memory_part_name(most), (double)parts[most] / 1048576);
    parts[most] = 0;
  }
  return text;
}

/* Sequences at a time that leave as many microbatches as compile in no time: beyond these what a
 * microbatch needs is little beside all else. */
static int64_t fewer_at_a_time(const ls_run_file *run) {
  const int64_t whole = run->train.micro_batch * run->train.microbatches;
  for (int64_t microbatches = 1024; microbatches > run->train.microbatches; microbatches--)
    if (whole % microbatches == 0) return whole / microbatches;
  return run->train.micro_batch;
}

/* What costs ever more time, that first which costs least. */
typedef enum remedy {
  PREFETCH,
  RECOMPUTE,
  MICROBATCHES,
  SHARDS,
  OPTIMIZER,
  ACTIVATIONS,
  PARAMETERS,
  REMEDIES
} remedy;

static const char *offload(ls_arena *arena, const char *key, ls_tier to, ls_tier *tier) {
  if (*tier) return NULL;
  *tier = to;
  return ls_arena_printf(arena, "offload.%s=%s", key, ls_tier_name(to));
}

/* The words that ask for a remedy, and the layout with it; NULL: it has that already. */
static const char *apply(ls_arena *arena, const ls_run_file *run, remedy which, ls_tier tier,
                         ls_layout *layout) {
  const int64_t fewer = fewer_at_a_time(run);
  const int data = ls_layout_data_ranks(layout), shards = ls_layout_shards(layout);
  switch (which) {
    case PREFETCH:
      if (!layout->prefetch) return NULL;
      layout->prefetch = 0;
      return "prefetch=0";
    case RECOMPUTE:
      if (layout->recompute_of_count || !ls_op_set_is_empty(&layout->recompute)) return NULL;
      layout->recompute = (ls_op_set)LS_EVERY_OP;
      return "recompute=full";
    case MICROBATCHES:
      if (fewer >= run->train.micro_batch) return NULL;
      layout->microbatches = (int)(run->train.micro_batch * run->train.microbatches / fewer);
      return ls_arena_printf(arena, "train.micro_batch=%lld", (long long)fewer);
    case SHARDS:
      if (data * layout->cp == 1 || (data == shards && layout->zero == 3)) return NULL;
      layout->zero = 3;
      if (data == shards) return "zero=3";
      ls_layout_set_data_ranks(layout, 1, data);
      return ls_arena_printf(arena, "mesh.dp_replicate=1 mesh.dp_shard=%d zero=3", data);
    case OPTIMIZER: return offload(arena, "optimizer", tier, &layout->offload.optimizer);
    case ACTIVATIONS: return offload(arena, "activations", tier, &layout->offload.activations);
    default: return offload(arena, "parameters", tier, &layout->offload.parameters);
  }
}

/* What the same run needs under another layout; -1: it cannot be. */
static int64_t needed_under(ls_arena *arena, const ls_session *session, const target *of,
                            const ls_layout *layout) {
  ls_session *made;
  if (ls_session_under(arena, session, layout, &made, NULL) != LS_OK) return -1;
  return needed_by(made, of);
}

/* "; recompute=full: 3.2 GiB, and train.micro_batch=1: 1.9 GiB, which fits". */
static const char *advice_of(ls_arena *arena, const ls_session *session, const target *of) {
  const char *text = "";
  ls_layout layout = session->layout;
  int64_t least = needed_by(session, of);
  for (int r = 0; r < REMEDIES; r++) {
    ls_layout tried = layout;
    const char *words = apply(arena, session->run, (remedy)r, of->tier, &tried);
    const int64_t needed = words ? needed_under(arena, session, of, &tried) : -1;
    if (needed < 0 || (double)needed > 0.99 * (double)least) continue; /* it would cost, no more */
    layout = tried;
    least = needed;
    const bool fits = needed <= of->limit;
    text = ls_arena_printf(arena, "%s%s%s: %.2f GiB%s", text, *text ? ", and " : "; ", words,
                           (double)needed / gib, fits ? ", which fits" : "");
    if (fits) return text;
  }
  return ls_arena_printf(arena, "%s; %s", text,
                         of->ranks ? "more machines or a smaller model would"
                                   : "more devices (mesh.dp_shard, mesh.tp, mesh.pp) or a smaller "
                                     "model would");
}

ls_status ls_session_check_device(const ls_session *session, ls_error *error) {
  const target of = {.limit = ls_session_limit(session), .tier = LS_TIER_HOST};
  const char *where = session->run->device.memory ? ls_run_file_where(session->run, "device.memory")
                                                  : session->device.facts.name;
  if (!of.limit) return LS_OK;
  if (of.limit < 4096)
    return ls_fail(error, LS_INPUT, "%s: found %lld bytes, too few for anything: is %lldGiB meant?",
                   where, (long long)of.limit, (long long)of.limit);
  const int64_t needed = needed_by(session, &of);
  if (needed <= of.limit) return LS_OK;
  ls_arena *arena = ls_arena_create();
  ls_fail(error, LS_REFUTED, "%s: a device needs %.1f MiB and may use %.1f (largest, MiB: %s)%s",
          where, (double)needed / 1048576, (double)of.limit / 1048576,
          largest_parts(arena, session), advice_of(arena, session, &of));
  ls_arena_destroy(&arena);
  return LS_REFUTED;
}

static ls_status check(const ls_session *session, int ranks, int processes, const char *whose,
                       ls_memory_there there, ls_error *error) {
  const target of = {
      .limit = there.bytes, .ranks = ranks, .processes = processes, .tier = LS_TIER_NVME};
  const int64_t needed = needed_by(session, &of);
  if (needed <= there.bytes) return LS_OK;
  ls_arena *arena = ls_arena_create();
  ls_fail(error, LS_REFUTED,
          "memory: the %d rank%s of this %s need%s %.2f GiB, %.2f of them beside devices, and %.2f "
          "are there (%s; largest of a device, MiB: %s)%s",
          ranks, ranks == 1 ? "" : "s", whose, ranks == 1 ? "s" : "", (double)needed / gib,
          (double)bytes_beside(&of) / gib, (double)there.bytes / gib, there.what,
          largest_parts(arena, session), advice_of(arena, session, &of));
  ls_arena_destroy(&arena);
  return LS_REFUTED;
}

ls_status ls_session_check_fit(const ls_session *session, int on_host, int here, ls_error *error) {
  const int processes = (on_host + here - 1) / here;
  LS_TRY(check(session, on_host, processes, "machine", ls_machine_memory_there(""), error));
  return check(session, here, 1, "process", ls_process_memory_there(), error);
}

int64_t ls_session_needs(const ls_session *session, int ranks) {
  return needed_by(session, &(target){.ranks = ranks});
}

ls_status ls_check_memory(int64_t needed, const char *advice, ls_error *error) {
  const ls_memory_there machine = ls_machine_memory_there(""), process = ls_process_memory_there();
  const ls_memory_there *least = machine.bytes < process.bytes ? &machine : &process;
  if (needed <= least->bytes) return LS_OK;
  return ls_fail(error, LS_REFUTED, "memory: %.2f GiB are needed, and %.2f are there (%s): %s",
                 (double)needed / gib, (double)least->bytes / gib, least->what, advice);
}
