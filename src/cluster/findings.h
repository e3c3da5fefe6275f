/* What is here, how good that is for training, and what to do about it: lines for `lockstep
 * doctor`.
 *
 *   ls_findings all = {.arena = arena};
 *   all.about = "limits";
 *   ls_find(&all, LS_VERDICT_WARNING, "memlock", "ulimit -l unlimited", "%d KiB", 64);
 *
 * Each room says what it knows; nobody prints but the command. */
#ifndef LS_CLUSTER_FINDINGS_H
#define LS_CLUSTER_FINDINGS_H

#include "base/arena.h"

typedef enum ls_verdict {
  LS_VERDICT_OK = 0,
  LS_VERDICT_WARNING, /* training runs, but slower than it could, or not everywhere */
  LS_VERDICT_FAIL     /* training would fail */
} ls_verdict;

typedef struct ls_finding {
  const char *about;   /* "GPUs", "limits": static */
  const char *subject; /* "memlock", "GPU 0" */
  const char *found;
  const char *remedy; /* NULL: there is nothing to do */
  ls_verdict verdict;
} ls_finding;

typedef struct ls_findings {
  ls_arena *arena;
  const char *about; /* of those that follow */
  LS_LIST(ls_finding) list;
} ls_findings;

/* "ok", "warning", "fail". */
const char *ls_verdict_name(ls_verdict verdict);

/* Adds one; what it is given is copied. remedy: NULL where there is nothing to do. */
void ls_find(ls_findings *all, ls_verdict verdict, const char *subject, const char *remedy,
             const char *format, ...) LS_PRINTF(5, 6);

/* The worst verdict of all. */
ls_verdict ls_findings_worst(const ls_findings *all);

/* This host's cores, NUMA nodes, memory, pages and caches' drive; `root` as in machine.h. */
void ls_host_findings(ls_findings *all, const char *root);

/* What this process may lock, share and address. `root` as in machine.h. */
void ls_limit_findings(ls_findings *all, const char *root);

#endif
