#include "session/fit.h"

#include <stdio.h>
#include <string.h>

#include "cluster/machine.h"

static const double gib = 1073741824.0;

/* What a run is held against. */
typedef struct target {
  int64_t limit;
  int ranks;        /* whose sum that is of; 0: one device, and not its host */
  const char *tier; /* where offloading takes it off that memory */
} target;

/* Bytes of `ranks` ranks that are as many of every stage as can be. */
static int64_t needed_by(const ls_session *session, const target *of) {
  int stage;
  const int64_t device = ls_session_bytes_needed(session, &stage);
  if (!of->ranks) return device;
  int64_t all = 0;
  const int stages = session->layout.pp, each = session->devices / stages;
  if (of->ranks != session->devices) /* some hosts have more of one stage than of another */
    return of->ranks * (device + ls_session_tier_bytes(session, LS_TIER_HOST, &stage));
  for (int s = 0; s < stages; s++) all += each * ls_session_stage_bytes(session, s);
  return all;
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

/* Words that cost ever more time, those first that cost least. */
static int remedies_of(ls_arena *arena, const ls_session *session, const char *tier,
                       const char *words[8]) {
  const ls_run_file *run = session->run;
  const ls_layout *layout = &session->layout;
  int count = 0;
  if (!layout->recompute_of_count && ls_op_set_is_empty(&layout->recompute))
    words[count++] = "recompute=full";
  const int64_t fewer = fewer_at_a_time(run);
  if (fewer < run->train.micro_batch)
    words[count++] = ls_arena_printf(arena, "train.micro_batch=%lld", (long long)fewer);
  if (layout->dp_replicate > 1)
    words[count++] = ls_arena_printf(arena, "mesh.dp_replicate=1 mesh.dp_shard=%d zero=3",
                                     layout->dp_replicate * layout->dp_shard);
  else if (layout->dp_shard > 1 && layout->zero < 3)
    words[count++] = "zero=3";
  if (tier && !layout->offload.optimizer)
    words[count++] = ls_arena_printf(arena, "offload.optimizer=%s", tier);
  if (tier && !layout->offload.activations)
    words[count++] = ls_arena_printf(arena, "offload.activations=%s", tier);
  if (tier && !layout->offload.parameters)
    words[count++] = ls_arena_printf(arena, "offload.parameters=%s", tier);
  return count;
}

/* Splits at blanks. */
static int add_words(ls_arena *arena, const char *text, const char **words, int count) {
  for (char *rest = ls_arena_strdup(arena, text), *word; (word = strsep(&rest, " "));)
    words[count++] = word;
  return count;
}

/* What the same run needs with these words, from a compile of its own; -1: it cannot be. */
static int64_t needed_with(ls_arena *arena, const ls_session *session, const target *of,
                           const char **words, int count) {
  const char *text = ls_run_file_text(arena, session->run);
  ls_run_file *run;
  ls_session *made;
  if (ls_run_file_parse(arena, "run.yaml", text, strlen(text), words, count, &run, NULL) != LS_OK)
    return -1;
  run->device.memory = run->host.memory = 0; /* what is asked is how much it is */
  ls_device_facts on = session->device.facts;
  on.memory_bytes = 0;
  if (ls_session_create_on(arena, run, session->devices, session->sharers, session->on ? &on : NULL,
                           &made, NULL) != LS_OK)
    return -1;
  return needed_by(made, of);
}

/* "; recompute=full: 3.2 GiB, and train.micro_batch=1: 1.9 GiB, which fits". */
static const char *advice_of(ls_arena *arena, const ls_session *session, const target *of) {
  const char *remedies[8], *words[32], *text = "";
  int word_count = 0;
  int64_t least = needed_by(session, of);
  const int count = remedies_of(arena, session, of->tier, remedies);
  for (int i = 0; i < count; i++) {
    const int more = add_words(arena, remedies[i], words, word_count);
    const int64_t needed = needed_with(arena, session, of, words, more);
    if (needed < 0 || (double)needed > 0.99 * (double)least) continue; /* it would cost, no more */
    word_count = more;
    least = needed;
    const bool fits = needed <= of->limit;
    text = ls_arena_printf(arena, "%s%s%s: %.2f GiB%s", text, *text ? ", and " : "; ", remedies[i],
                           (double)needed / gib, fits ? ", which fits" : "");
    if (fits) return text;
  }
  return ls_arena_printf(arena, "%s; %s", text,
                         of->ranks ? "more machines or a smaller model would"
                                   : "more devices (mesh.dp_shard, mesh.tp, mesh.pp) or a smaller "
                                     "model would");
}

ls_status ls_session_check_device(const ls_session *session, ls_error *error) {
  const target of = {.limit = ls_session_limit(session), .tier = "host"};
  const char *where = session->run->device.memory ? ls_run_file_where(session->run, "device.memory")
                                                  : session->device.facts.name;
  if (!of.limit) return LS_OK;
  if (of.limit < 4096)
    return ls_fail(error, LS_INPUT, "%s: found %lld bytes, too few for anything: is %lldGiB meant?",
                   where, (long long)of.limit, (long long)of.limit);
  const int64_t needed = needed_by(session, &of);
  if (needed <= of.limit) return LS_OK;
  ls_arena *arena = ls_arena_create();
  ls_fail(error, LS_NO, "%s: a device needs %.1f MiB and may use %.1f (largest, MiB: %s)%s", where,
          (double)needed / 1048576, (double)of.limit / 1048576, largest_parts(arena, session),
          advice_of(arena, session, &of));
  ls_arena_destroy(&arena);
  return LS_NO;
}

static ls_status check(const ls_session *session, int ranks, const char *whose,
                       ls_memory_there there, ls_error *error) {
  const target of = {.limit = there.bytes, .ranks = ranks, .tier = "nvme"};
  const int64_t needed = needed_by(session, &of);
  if (needed <= there.bytes) return LS_OK;
  ls_arena *arena = ls_arena_create();
  ls_fail(error, LS_NO,
          "memory: the %d rank%s of this %s need%s %.2f GiB, and %.2f are there (%s; largest of a "
          "device, MiB: %s)%s",
          ranks, ranks == 1 ? "" : "s", whose, ranks == 1 ? "s" : "", (double)needed / gib,
          (double)there.bytes / gib, there.what, largest_parts(arena, session),
          advice_of(arena, session, &of));
  ls_arena_destroy(&arena);
  return LS_NO;
}

ls_status ls_session_check_fit(const ls_session *session, int on_host, int here, ls_error *error) {
  LS_TRY(check(session, on_host, "machine", ls_machine_memory_there(""), error));
  return check(session, here, "process", ls_process_memory_there(), error);
}

ls_status ls_check_memory(int64_t needed, const char *advice, ls_error *error) {
  const ls_memory_there machine = ls_machine_memory_there(""), process = ls_process_memory_there();
  const ls_memory_there *least = machine.bytes < process.bytes ? &machine : &process;
  if (needed <= least->bytes) return LS_OK;
  return ls_fail(error, LS_NO, "memory: %.2f GiB are needed, and %.2f are there (%s): %s",
                 (double)needed / gib, (double)least->bytes / gib, least->what, advice);
}
