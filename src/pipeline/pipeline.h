/* Pipeline schedules as data: what each stage does with which microbatch, in order.
 *
 *   const ls_pipeline_kind *kind;
 *   ls_pipeline *pipeline;
 *   LS_TRY(ls_pipeline_kind_find("zbv", &kind, error));
 *   LS_TRY(ls_pipeline_make(arena, kind, 4, 0, 16, &pipeline, error));
 *   LS_TRY(ls_pipeline_times_make(arena, pipeline, &ls_pipeline_unit_costs, &times, error));
 *   ls_pipeline_print(pipeline, times, 100, stderr);
 *
 * A model is cut into a chain of stages * chunks chunks; each stage holds `chunks` of them. Sends,
 * receives and their waits follow from the lists and are not in them. Nothing here knows of
 * tensors, programs or devices. Thread-safe as long as no two threads share an arena. */
#ifndef LS_PIPELINE_PIPELINE_H
#define LS_PIPELINE_PIPELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/arena.h"
#include "lockstep/status.h"

typedef enum ls_pass_kind {
  LS_PASS_FORWARD,
  LS_PASS_BACKWARD, /* the whole of it: INPUT and WEIGHT */
  LS_PASS_INPUT,    /* the gradient of what came in; frees what only it needs */
  LS_PASS_WEIGHT,   /* the gradient of the chunk's parameters; some time after INPUT */
  LS_PASS_KINDS
} ls_pass_kind;

/* F, B, I or W. */
char ls_pass_letter(ls_pass_kind kind);

typedef struct ls_pipeline_pass {
  ls_pass_kind kind;
  int microbatch;
  int chunk; /* place in the chain of all chunks, 0 .. stages * chunks - 1 */
} ls_pipeline_pass;

typedef LS_LIST(ls_pipeline_pass) ls_pipeline_list;

typedef struct ls_pipeline {
  const char *name; /* of the kind, or the file of a user's own */
  int stages, chunks /* per stage */, microbatches;
  int *stage_of;           /* [stages * chunks], by chunk of the chain */
  ls_pipeline_list *lists; /* [stages], in the order of execution */
  bool splits;             /* whether any backward pass is split into INPUT and WEIGHT */
} ls_pipeline;

/* Above this many passes in all a schedule is refused. */
enum { LS_PIPELINE_MOST_PASSES = 1 << 24 };

typedef enum ls_backward_form {
  LS_BACKWARD_WHOLE, /* B, which includes W */
  LS_BACKWARD_SPLIT, /* I and W */
  LS_BACKWARD_MIXED  /* some of each */
} ls_backward_form;

/* One row of the table of schedules. Formulas hold where F = I = W = 1, B = 2 (a B that is drawn
 * without its W is an I here) and transfers cost nothing; each answers -1 for a shape of which its
 * source says nothing. They are of times.steady_bubble and of the largest of peaks.until_weight. */
typedef struct ls_pipeline_kind {
  const char *name;
  int least_chunks, most_chunks /* per stage; 0: any */, usual_chunks;
  bool folded; /* V: a stage holds chunks s and 2d - 1 - s; else s, s + d, s + 2d, ... */
  ls_backward_form backward;
  int (*fewest_microbatches)(int stages);
  double (*bubble)(int stages, int chunks, int microbatches);
  bool bubble_is_bound; /* the schedule's own is at most this */
  int (*activations)(int stages, int chunks, int microbatches); /* at most, of chunks */
  void (*make)(ls_arena *arena, ls_pipeline *pipeline);         /* ls_pipeline_make calls it */
  const char *source;
} ls_pipeline_kind;

extern const ls_pipeline_kind ls_pipeline_kinds[];
extern const int ls_pipeline_kind_count;

/* The row of a name of the run file; LS_INPUT with the nearest and all names for an unknown one. */
LS_CHECKED ls_status ls_pipeline_kind_find(const char *name, const ls_pipeline_kind **kind,
                                           ls_error *error);

/* Makes the lists; the pipeline is the arena's. `chunks` of 0 is the kind's usual count. LS_INPUT
 * where the kind cannot take so many chunks or so few microbatches, with the nearest it can. */
LS_CHECKED ls_status ls_pipeline_make(ls_arena *arena, const ls_pipeline_kind *kind, int stages,
                                      int chunks, int microbatches, ls_pipeline **pipeline,
                                      ls_error *error);

/* A user's own schedule, as PyTorch and torchtitan write them: a line per stage, cells apart by
 * commas, a cell empty (idle) or CHUNK LETTER MICROBATCH, as in 0F0,0F1,,1B0. `chunks` or
 * `microbatches` of 0 is taken from it. All that ls_pipeline_check asks is checked, with
 * "NAME:LINE:COLUMN: found; expected"; columns count characters from 1. */
LS_CHECKED ls_status ls_pipeline_parse_csv(ls_arena *arena, const char *name, const char *text,
                                           size_t bytes, int stages, int chunks, int microbatches,
                                           ls_pipeline **pipeline, ls_error *error);

/* Writes that form, without idle cells. */
void ls_pipeline_write_csv(const ls_pipeline *pipeline, FILE *stream);

/* Whether every chunk has of every microbatch one F and one B, or one F, one I and one W, on the
 * stage that holds the chunk, in an order that can be executed: LS_INPUT names the pass that is
 * repeated, omitted or too early, or the circle of stages that wait for each other. */
LS_CHECKED ls_status ls_pipeline_check(const ls_pipeline *pipeline, ls_error *error);

/* What passes cost, in any one unit of time. A B costs input + weight. The arrays are by chunk of
 * the chain and stand in for the number beside them; NULL: every chunk costs the same. */
typedef struct ls_pipeline_costs {
  double forward, input, weight;
  double transfer; /* between chunks that lie on different stages */
  const double *forward_of, *input_of, *weight_of;
} ls_pipeline_costs;

extern const ls_pipeline_costs ls_pipeline_unit_costs; /* F = I = W = 1, transfers free */

typedef struct ls_pipeline_span {
  double start, end;
} ls_pipeline_span;

typedef struct ls_pipeline_times {
  ls_pipeline_span **spans; /* [stage][place in its list] */
  double makespan;          /* from 0 to the end of the last pass */
  double *idle;             /* [stage], of the makespan */
  double bubble;            /* idle / makespan, the mean of the stages */
  /* The longest of the stages' own times, from first start to last end, and the mean idle part of
   * that. It is what the zero-bubble papers count: where no barrier ends a step, a stage that
   * finishes early begins the next, so steps follow each other at this distance. */
  double steady;
  double steady_bubble;
} ls_pipeline_times;

/* When each pass runs, if each stage keeps its order and starts a pass as soon as it is free and
 * the passes needed are done: F(c, m) needs F(c - 1, m); B or I(c, m) needs F(c, m) and B or
 * I(c + 1, m); W(c, m) needs I(c, m). In the arena; linear in the passes. LS_INPUT names the pass
 * at which the first stage is stuck, and the circle of waits, where the order cannot be executed.
 * The pipeline's passes must lie within its sizes, as ls_pipeline_check asks. */
LS_CHECKED ls_status ls_pipeline_times_make(ls_arena *arena, const ls_pipeline *pipeline,
                                            const ls_pipeline_costs *costs,
                                            ls_pipeline_times **times, ls_error *error);

/* Most (chunk, microbatch) pairs a stage has alive at once, in its list's order: from the start of
 * their F to the end of their B; where split, to the end of their I (what I alone needs) or of
 * their W (what W needs too). A pair is one chunk's activations: d * v of them are the whole
 * model's for one microbatch, and 1F1B's first stage holds d * v at most. */
typedef struct ls_pipeline_peaks {
  int *until_input, *until_weight; /* [stage] */
  int most_until_input, most_until_weight;
  double of_model; /* most_until_weight / (stages * chunks): 1 is 1F1B's with enough microbatches */
} ls_pipeline_peaks;

void ls_pipeline_peak_activations(ls_arena *arena, const ls_pipeline *pipeline,
                                  ls_pipeline_peaks *peaks);

/* Draws a row for each stage, F3 for the forward pass of microbatch 3 (F3b in the stage's second
 * chunk), blanks where it idles, then the bubble. Wider than `columns` (0: never), it goes on in a
 * further block of rows. `times` are of this pipeline. */
void ls_pipeline_print(const ls_pipeline *pipeline, const ls_pipeline_times *times, int columns,
                       FILE *stream);

#endif
