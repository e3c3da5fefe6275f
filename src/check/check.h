/* Proves a compiled program for the mesh it was compiled for, or names the instruction that breaks
 * it: who waits for whom, what each byte holds, that every reduction happens exactly once.
 *
 * It reads the programs of all stages as data and interprets them, once for all ranks of a stage
 * (what differs by coordinates is a placement), all stages together. Of every byte range it knows
 * which tensor lies there, of which microbatch, in which placement, and of gradients and sums which
 * contributions they hold. It shares the table of ops and no code with what makes programs.
 *
 * Which model is meant it reads in the graph, by the rows of ops alone: each value of the forward
 * pass must be one of the graph's expressions, each gradient the sum of one contribution of each
 * use that the graph has of its tensor, of every microbatch and shard once.
 *
 *   ls_check_report report;
 *   if (ls_check(graph, &layout, stages, &report, &error) != LS_OK) puts(error.text);
 *
 * The cost grows with the instructions that a step executes, not with ranks. Thread-safe: programs
 * are only read. */
#ifndef LS_CHECK_CHECK_H
#define LS_CHECK_CHECK_H

#include "ir/program.h"
#include "ir/queues.h"
#include "ir/rounds.h"
#include "ir/saved_state.h"

/* What was looked at: instructions as executed, an action's body once for each action. */
typedef struct ls_check_report {
  int64_t actions, instructions;
  int64_t model_ops;   /* of the model's forward pass, or what makes its gradients */
  int64_t operands;    /* reads and writes whose memory was proved */
  int64_t waits;       /* pairs of instructions on two queues that an event keeps apart */
  int64_t beside;      /* queues between ranks that are busy on a device at once, at most */
  int64_t collectives; /* over axes inside a stage */
  int64_t transfers;   /* sends that found their receive */
  int64_t moves;       /* between tiers, begun and ended */
  int64_t joins;       /* collectives between stages */
  int64_t reductions;  /* partial sums brought together, each contribution once */
  int64_t gradients;   /* of parameters, as updates read them: complete */
} ls_check_report;

/* LS_OK: proved. LS_REFUTED: "stage S action A instruction I (op of tensor): what is wrong: what
 * was expected". `graph`: the model's, of one microbatch over the whole mesh, whose forward part is
 * read. `layout`: what is asked of its training: microbatches, types, optimizer, mesh. `stages`:
 * the programs of its pp stages, in their order; `report` may be NULL. */
LS_CHECKED ls_status ls_check(const ls_graph *graph, const ls_layout *layout,
                              const ls_program *const *stages, ls_check_report *report,
                              ls_error *error);

/* The same for another engine's queues; ls_check has those of ls_queues_in_process. */
LS_CHECKED ls_status ls_check_on(const ls_queues *queues, const ls_graph *graph,
                                 const ls_layout *layout, const ls_program *const *stages,
                                 ls_check_report *report, ls_error *error);

/* What holds of programs as they stand, before any of them is interpreted: that they refer to what
 * is there, that what lives at once lies apart, and waits for what it must. */
LS_CHECKED ls_status ls_check_still(const ls_graph *graph, const ls_layout *layout,
                                    const ls_program *const *stages, ls_error *error);

/* Whether the programs of all stages for many microbatches do what those for few do, period for
 * period of so many microbatches more: with few proved and many proved as they stand, many are
 * proved but for circles of waiting, which a simulation of them finds. false: it is not known. */
bool ls_check_repeats(const ls_program *const *few, const ls_program *const *many, int count,
                      int period);

/* What was looked at of saving and loading. */
typedef struct ls_saving_report {
  int64_t tensors; /* of a checkpoint */
  int64_t saved;   /* ranges that ranks write, which together are each element once */
  int64_t filled;  /* ranges that ranks fill, all that each of them keeps */
  int64_t rounds;  /* collectives outside the steps, which all ranks come to */
} ls_saving_report;

/* The lists by which a run saves and loads its state: LS_REFUTED where an element would be written
 * by nobody or twice, by a rank that does not have it or from another place, where a rank would
 * keep what is not filled, or where `tensors`, those of a checkpoint, are made of other rows, or
 * `walk` puts a parameter's elements elsewhere in them: the whole, and tiles across the end of a
 * block. `stages`: proved programs of a step, whose placements say what each rank has. The ranks of
 * a list's classes are asked: as many as have something of a parameter. `report` may be NULL. */
LS_CHECKED ls_status ls_check_saving(const ls_program *const *stages, int count,
                                     const ls_state_lists *lists, const ls_stored_layout *tensors,
                                     int tensor_count, ls_stored_walk *walk,
                                     ls_saving_report *report, ls_error *error);

/* A list of rounds, as each rank has it: LS_REFUTED where a rank would come to another collective
 * than the others, where one may fail that the others then wait for, or where a round needs what is
 * not there. `ranks` may be 1 where all run the same list. */
LS_CHECKED ls_status ls_check_rounds(const ls_rounds *const *of_rank, int ranks, ls_error *error);

/* Two proved programs of one run, by stage: LS_REFUTED where a parameter, its optimizer state, a
 * cell or a cache of the first lies at one place in the one and at another in the other. */
LS_CHECKED ls_status ls_check_shared(const ls_program *const *a, const ls_program *const *b,
                                     int count, ls_error *error);

#endif
