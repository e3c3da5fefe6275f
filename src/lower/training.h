/* A whole training compiled: from a model, a layout and what is known of a device to the programs
 * of all stages, of its step and of its evaluation.
 *
 *   const ls_training training = {.model = &config, .batch = 512, .sequence = 4096};
 *   ls_compiled compiled;
 *   LS_TRY(ls_compile(arena, &training, &layout, facts, &compiled, error));
 *   int64_t bytes = ls_program_bytes(compiled.stages[LS_COMPILED_STEP][0]);
 *
 * Reads no file, runs no kernel and asks nothing of the machine it is called on. Thread-safe as
 * long as no two threads share an arena. */
#ifndef LS_LOWER_TRAINING_H
#define LS_LOWER_TRAINING_H

#include "device/facts.h"
#include "lower/compile.h"
#include "model/model.h"

/* What is trained. */
typedef struct ls_training {
  const ls_model_config *model;
  int64_t batch, sequence; /* sequences of a step over the whole mesh; tokens of each */
  bool documents;          /* attention stays inside of each */
  ls_model_pairs pairs;    /* a loss over pairs of answers, in documents */
  ls_text_pairs texts;     /* or over pairs of texts */
  bool weighted;           /* labels count as often as an input says */
  ls_model_teacher teacher;
  bool evaluates; /* there is no step: both programs are the evaluation, of frozen parameters */
  /* What else there is to say of a graph that has no backward part yet; NULL: nothing. */
  ls_status (*prepare)(const void *context, ls_graph *graph, ls_error *error);
  const void *context;
  int64_t budget; /* bytes of a device that recomputation is chosen to fit; 0: as the layout says */
} ls_training;

/* Programs of a training, by number. Where rows for experts may find no slot, there are two more:
 * what such a step, or a microbatch of an evaluation, is made again by. */
enum {
  LS_COMPILED_STEP = 0,
  LS_COMPILED_EVALUATE,
  LS_COMPILED_STEP_AGAIN,
  LS_COMPILED_EVALUATE_AGAIN,
  LS_COMPILED_PROGRAMS
};

typedef struct ls_compiled {
  ls_layout layout;                                /* with the recomputation that was chosen */
  ls_graph *graph;                                 /* of the step, with its backward part */
  ls_graph *forward;                               /* of the evaluation, which drops nothing */
  ls_graph *graph_again, *forward_again;           /* likewise, with more slots; NULL: none */
  int count;                                       /* programs there are: two, or all */
  const ls_program **stages[LS_COMPILED_PROGRAMS]; /* [pp] programs of each stage */
  int64_t *workspace; /* [pp] bytes that kernels of a device need beside its arena */
  int64_t *overhead;  /* [pp] and those that it has taken before */
  int *groups;        /* [pp] that a rank communicates in */
} ls_compiled;

/* The model that a program is of. */
const ls_graph *ls_compiled_graph(const ls_compiled *compiled, int program);

/* Sets what a layout asks of a graph: places and turns of cp, and ranks that rows of tokens are
 * sent between. */
void ls_build_options_lay(ls_build_options *options, const ls_layout *layout);

/* LS_INPUT: the model or the layout cannot be, with the nearest that can. LS_REFUTED: nothing fits
 * the budget. */
LS_CHECKED ls_status ls_compile(ls_arena *arena, const ls_training *training,
                                const ls_layout *layout, const ls_device_facts *facts,
                                ls_compiled *compiled, ls_error *error);

/* Its two parts: graph and layout; and the programs. */
LS_CHECKED ls_status ls_compile_graph(ls_arena *arena, const ls_training *training,
                                      const ls_layout *layout, const ls_device_facts *facts,
                                      ls_compiled *compiled, ls_error *error);
LS_CHECKED ls_status ls_compile_programs(ls_arena *arena, const ls_training *training,
                                         const ls_device_facts *facts, ls_compiled *compiled,
                                         ls_error *error);

/* The step alone, without what is beside it: for who compares layouts. workspace and overhead are
 * the step's; where rows for experts may find no slot, all programs are compiled. Errors as
 * ls_compile's. */
LS_CHECKED ls_status ls_compile_step(ls_arena *arena, const ls_training *training,
                                     const ls_layout *layout, const ls_device_facts *facts,
                                     ls_compiled *compiled, ls_error *error);

/* A step's program once more, of another number of microbatches that are as large. In the arena of
 * their graph. */
LS_CHECKED ls_status ls_compile_microbatches(const ls_compiled *compiled, int program,
                                             int microbatches, const ls_program ***stages,
                                             ls_error *error);

/* Compiles the evaluation again, so that it leaves all logits, which it else may make in slices. */
LS_CHECKED ls_status ls_compile_logits(ls_arena *arena, const ls_training *training,
                                       const ls_device_facts *facts, ls_compiled *compiled,
                                       ls_error *error);

#endif
