/* What is said of a simulated step: as text, as JSON, and as rows for its page. */
#ifndef LS_CLI_SIMULATE_REPORT_H
#define LS_CLI_SIMULATE_REPORT_H

#include "cli/simulate_against.h"
#include "session/session.h"
#include "sim/interval.h"
#include "sim/sim.h"
#include "watch/timeline.h"

/* A step that was simulated, and what it is counted against. */
typedef struct ls_simulated {
  const ls_session *session;
  const ls_cluster *cluster; /* NULL: this machine */
  const ls_simulation *simulation;
  const ls_interval *interval; /* NULL: none is known */
  int per_host;
  const double *rank_speed; /* [ranks]; NULL: all 1 */
  double peak_flops;        /* of one device, by its data sheet; of this machine as measured */
  double step_tokens, tokens;
  const char *tokens_text; /* of `tokens`, as it was asked for */
  const char *slow, *link; /* what was made slower, as it was asked for; NULL: nothing */
} ls_simulated;

/* A line of what is said first: "tokens/s", "700131, 10939.5 of a device". */
typedef struct ls_simulated_fact {
  const char *name, *text;
} ls_simulated_fact;

/* Where time goes: computing of a kind, or waiting for a reason. Seconds of a rank, the mean. */
typedef struct ls_simulated_part {
  const char *name;
  bool waits, detail; /* detail: of the part before it that is none */
  double seconds;
  double under_way, bytes;   /* of transfers: how long they took, and what they sent */
  const char *axes, *reason; /* of waiting; axes NULL: of none */
} ls_simulated_part;

/* What a device of these stages needs, by part of ls_session_memory_part_name. */
typedef struct ls_simulated_memory {
  int first, last; /* stages that need the same */
  int64_t part[LS_SESSION_MEMORY_PARTS];
  int64_t bytes, host_bytes, drive_bytes;
} ls_simulated_memory;

/* All of it, in the session's arena. */
typedef struct ls_simulated_report {
  const char *headline;
  LS_LIST(ls_simulated_fact) facts;
  LS_LIST(ls_simulated_part) parts;
  LS_LIST(ls_simulated_memory) memory;
} ls_simulated_report;

const ls_simulated_report *ls_simulated_report_make(const ls_simulated *of);

void ls_simulated_print(const ls_simulated *of);
/* against NULL: beside no run. */
void ls_simulated_print_json(const ls_simulated *of, const ls_kind_comparison *against);

/* The step as a measured one is drawn, in the session's arena. Simulated with `records`. */
const ls_timeline *ls_simulated_timeline(const ls_simulated *of, ls_timeline_detail detail);

/* One offline page with all of it and the timeline (simulate_page.c). LS_FAILED: the file. */
LS_CHECKED ls_status ls_simulated_page(const ls_simulated *of, const char *path, ls_error *error);

#endif
