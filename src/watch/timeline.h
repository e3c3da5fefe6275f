/* Timelines: who did what from when to when, planned or measured, in one form, as a picture (SVG)
 * and as a trace for Perfetto or chrome://tracing (JSON).
 *
 *   ls_timeline *timeline = ls_timeline_plan(arena, pipeline, times, NULL, "1f1b");
 *   ls_timeline_svg(timeline, stream);
 *   ls_timeline_json(timeline, stream);
 *
 * The SVG stands alone: no script, no font of its own; one track per process and queue, colours by
 * microbatch, a tooltip on every box. Thread-safe as long as no two threads share an arena. */
#ifndef LS_WATCH_TIMELINE_H
#define LS_WATCH_TIMELINE_H

#include <stdio.h>

#include "ir/program.h"
#include "pipeline/pipeline.h"
#include "run/recording.h"

/* What a span does, and so its shade. */
typedef enum ls_span_kind {
  LS_SPAN_FORWARD = LS_PASS_FORWARD,
  LS_SPAN_BACKWARD = LS_PASS_BACKWARD,
  LS_SPAN_INPUT = LS_PASS_INPUT,
  LS_SPAN_WEIGHT = LS_PASS_WEIGHT,
  LS_SPAN_RECOMPUTE,
  LS_SPAN_UPDATE,     /* and other work that is done once a step */
  LS_SPAN_COLLECTIVE, /* among ranks of a stage */
  LS_SPAN_TRANSFER,   /* between stages */
  LS_SPAN_MOVE,       /* between tiers of memory */
  LS_SPAN_KINDS
} ls_span_kind;

typedef struct ls_timeline_span {
  int process; /* a stage of a plan, a rank of a run */
  ls_queue queue;
  ls_span_kind kind;
  int microbatch, chunk; /* -1: of none */
  double start, end;     /* in the timeline's unit */
  const char *name;      /* in full: "linear of layers.0.mlp.up" */
  const char *label;     /* short, for its box: "F3" */
  double bytes;          /* that it sends */
} ls_timeline_span;

typedef struct ls_timeline {
  const char *title, *subtitle;
  const char *unit;    /* "units of time", "ms" */
  double microseconds; /* that a unit is in the trace */
  int processes;
  const char **process_names;      /* "stage 0" */
  int queues;                      /* each has a track; the first computes */
  int chunks;                      /* of each stage */
  double end;                      /* of the last span */
  LS_LIST(ls_timeline_span) spans; /* by process, then in order of time */
} ls_timeline;

/* A schedule as planned, in units of time; transfers cost nothing in it. Of `stages` (their
 * programs; NULL: none), what is begun before some pass over a segment and waited for behind it is
 * drawn beside that. In the arena; borrows `title` and names of the programs. */
ls_timeline *ls_timeline_plan(ls_arena *arena, const ls_pipeline *pipeline,
                              const ls_pipeline_times *times, const ls_program *const *stages,
                              const char *title);

/* What a recording is of. */
typedef struct ls_timeline_run {
  const ls_program *const *stages; /* [pp] that ran */
  const char *title;
  const int *ranks; /* [rank_count] that stand for all, where all are too many; NULL: the first of
                       each stage */
  int rank_count;
} ls_timeline_run;

typedef enum ls_timeline_detail {
  LS_TIMELINE_INSTRUCTIONS, /* a span for each; all ranks */
  LS_TIMELINE_ACTIONS,      /* neighbours of one action and queue are one span; LS_TIMELINE_TRACKS
                               ranks at most, else those that stand for all */
} ls_timeline_detail;

enum { LS_TIMELINE_TRACKS = 32 };

/* A step as measured, in ms. In the arena; borrows the texts of programs. */
ls_timeline *ls_timeline_measured(ls_arena *arena, const ls_timeline_run *run,
                                  const ls_recording *recording, ls_timeline_detail detail);

/* "compute", "communicate"; "tier" for those that move bytes between tiers of memory. */
const char *ls_timeline_queue_name(int queue);

/* Of very many spans, neighbours too narrow to be seen are one box. */
void ls_timeline_svg(const ls_timeline *timeline, FILE *stream);

/* Chrome trace events: pid is the process, tid the queue; complete events ("X") in order of time
 * within each, with microbatch, chunk and bytes as their arguments. */
void ls_timeline_json(const ls_timeline *timeline, FILE *stream);

#endif
