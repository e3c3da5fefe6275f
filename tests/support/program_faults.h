/* Programs and models that are made wrong on purpose: the proof must name what is wrong, and what
 * runs nevertheless must train to other numbers.
 *
 *   static bool another_share(ls_program *program) {
 *     ls_instruction *loss = ls_test_find(program, LS_OP_DISTILL_LOSS, 0);
 *     if (loss) loss->attributes.scale = 0.75;
 *     return loss;
 *   }
 *   static const ls_test_fault faults[] = {{"share", another_share, "scale"}};
 *   ls_test_refute(&experiment, &layout, faults, 1);
 *
 * One thread. */
#ifndef LS_TESTS_PROGRAM_FAULTS_H
#define LS_TESTS_PROGRAM_FAULTS_H

#include "support/equal_layouts.h"

/* Whether it is an op of this kind, and no collective. */
bool ls_test_is_op(const ls_instruction *instruction, ls_op_kind kind);

/* Instruction number `which` of a kind; NULL: the program has fewer. */
ls_instruction *ls_test_find(ls_program *program, ls_op_kind kind, int which);

/* The same. Ends the test where there are fewer. */
ls_instruction *ls_test_need(ls_program *program, ls_op_kind kind, int which);

/* Node number `which` of a kind. Ends the test where the graph has fewer. */
ls_node *ls_test_find_node(ls_graph *graph, ls_op_kind kind, int which);

/* Every later microbatch has the value's memory of the first. False: no action touches it. */
bool ls_test_of_first_microbatch(ls_program *program, int value);

typedef struct ls_test_fault {
  const char *name;
  bool (*alter)(ls_program *program); /* of a stage; false: it has nothing to alter */
  const char *said;                   /* among what `check` says; NULL: anything */
  bool runs;                          /* and is another training then; else none is tried */
} ls_test_fault;

/* Each fault is put into the stages of the step and refuted. */
void ls_test_refute(const ls_experiment *experiment, const ls_layout *layout,
                    const ls_test_fault *faults, int count);

/* Ends the test where the step is not refuted, or not with what is to be said. */
void ls_test_expect_refuted(const ls_test_step *step, const char *name, const char *said);

typedef struct ls_test_wrong_model {
  void (*change)(ls_graph *graph); /* before its backward part is there */
  const char *said;
} ls_test_wrong_model;

/* The program of each changed model is a proved one of that, and is not taken for the model's. */
void ls_test_refute_models(const ls_experiment *experiment, const ls_layout *layout,
                           const ls_test_wrong_model *wrong, int count);

#endif
