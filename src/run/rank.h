/* One rank of a run: its arena, its groups, and the execution of programs on it.
 *
 * A rank is a value: N of them may be N threads of one process. It is created with all programs it
 * will run (step, evaluation); they share the persistent region, and one work region as large as
 * the largest needs. Running a program allocates nothing.
 *
 *   ls_rank *rank;
 *   ls_rank_create(comm, &(ls_rank_options){.programs = programs, .program_count = 2, ...}, &rank,
 *                  &error);
 *   ls_rank_set_cell(rank, LS_CELL_LEARNING_RATE, 3e-4);
 *   ls_rank_run(rank, 0, &error);
 *
 * Used by one thread at a time. Collective: create, run (all ranks of the mesh). */
#ifndef LS_RUN_RANK_H
#define LS_RUN_RANK_H

#include "comm/comm.h"
#include "device/device.h"
#include "ir/program.h"
#include "ir/record.h"
#include "run/tiers.h"

typedef struct ls_rank ls_rank;

enum { LS_MAX_PROGRAMS = 24 };

/* How far a rank is with trying ways of its library's work, and at the end what that gave: how many
 * are other than the library's first guess, and seconds of one call of each, as taken and as first
 * guessed. */
typedef struct ls_rank_tuning {
  int done, count;
  double seconds, seconds_left; /* below 0: not known */
  int others;
  double took, first_took;
} ls_rank_tuning;

typedef struct ls_rank_options {
  const ls_program *const *programs; /* of the rank's stage; borrowed until it is destroyed */
  int program_count;
  const ls_device *device;  /* borrowed until the world is destroyed */
  const char *offload_path; /* folder of the file, where programs have one */
  int most_graphs;          /* that are kept to be replayed, where the device has them; 0: 4,096 */
  bool tune;                /* the fastest ways of what a library has several for are found first */
  /* Called by the first rank that has some to try, before each and at the end; NULL: nobody asks.
   */
  void (*tuning)(void *context, const ls_rank_tuning *said);
  void *context;
} ls_rank_options;

/* Owns: caller destroys the rank before the world. Errors: LS_FAILED where memory is short; those
 * of ls_tiers_create for what lies outside the device. */
LS_CHECKED ls_status ls_rank_create(ls_comm *comm, const ls_rank_options *options, ls_rank **rank,
                                    ls_error *error);
void ls_rank_destroy(ls_rank **rank);

/* The whole program. On failure of this rank all ranks are aborted; the error names rank, op and
 * tensor. */
LS_CHECKED ls_status ls_rank_run(ls_rank *rank, int program, ls_error *error);

/* A part of a step; nothing where it is empty. */
LS_CHECKED ls_status ls_rank_run_part(ls_rank *rank, int program, ls_program_part part,
                                      ls_error *error);

/* All parts up to the norm, which may be run again. */
LS_CHECKED ls_status ls_rank_run_gradients(ls_rank *rank, int program, ls_error *error);

/* Runs the part before UPDATE again and looks at every floating-point output: LS_FAILED naming the
 * first tensor and op of this rank with a NaN or an infinity, LS_REFUTED where that was received,
 * so that another rank made it, LS_OK where there is none. */
LS_CHECKED ls_status ls_rank_find_nonfinite(ls_rank *rank, int program, ls_error *error);

/* Makes room for the records of one run of a program, in nanoseconds of CLOCK_MONOTONIC: a ring,
 * which keeps the newest. Without it nothing can be recorded. LS_FAILED where memory is short. */
LS_CHECKED ls_status ls_rank_record_room(ls_rank *rank, int program, ls_error *error);

/* Whether runs are recorded from now on; on: what was recorded before is forgotten. */
void ls_rank_record(ls_rank *rank, bool on);

/* How many records there are, and one of them, the oldest first. */
int64_t ls_rank_record_count(const ls_rank *rank);
ls_record ls_rank_record_at(const ls_rank *rank, int64_t index);

/* Whether the host may run ahead of the device: parts return when their work is enqueued, and
 * inputs and cells take their place behind it. On: nothing where the device's work has ended when
 * it is put. Off: waits for what is under way and reads the cells. */
LS_CHECKED ls_status ls_rank_run_ahead(ls_rank *rank, bool on, ls_error *error);

/* Whether that changes anything. */
bool ls_rank_runs_ahead(const ls_rank *rank);

/* Between the two the cells are read as the work before the beginning leaves them, in one of
 * LS_QUEUE_READS slots; after the end ls_rank_cell has them. The end waits for no work that was
 * enqueued behind. Only of a rank that runs ahead. */
LS_CHECKED ls_status ls_rank_cells_begin(ls_rank *rank, int slot, ls_error *error);
LS_CHECKED ls_status ls_rank_cells_end(ls_rank *rank, int slot, ls_error *error);

/* A cell, shared by all programs, as the host has it: what was set, or what the last run or part of
 * one left. LS_CELL_SCALE is 1 until it is set. */
double ls_rank_cell(const ls_rank *rank, ls_cell cell);

/* The loads of experts of one layer that has them, by number among these, as the last run of the
 * program left them: `loads` takes as many numbers as there are experts. */
LS_CHECKED ls_status ls_rank_read_loads(const ls_rank *rank, int program, int layer, double *loads,
                                        ls_error *error);

/* What the next run finds in the cell. */
void ls_rank_set_cell(ls_rank *rank, ls_cell cell, double value);

/* What a value is on this rank: its dtype, and what of it lies here. It has no address. */
ls_view ls_rank_shape(const ls_rank *rank, int program, int value);

/* Between runs, the first `count` elements of a value, as they are stored, from and to the host's
 * memory; of an input, those of a microbatch. ls_rank_put is not for values in the file. Errors:
 * the device's. */
LS_CHECKED ls_status ls_rank_put(ls_rank *rank, int program, int value, int microbatch,
                                 const void *from, int64_t count, ls_error *error);
LS_CHECKED ls_status ls_rank_get(const ls_rank *rank, int program, int value, int microbatch,
                                 void *to, int64_t count, ls_error *error);

/* The host's memory for what goes to the inputs of one microbatch of any program: three numbers for
 * each token. Where tokens lie in an order of their own four, and behind them three for each token
 * of the sequences that the rank shares. Borrowed. */
int32_t *ls_rank_staging(const ls_rank *rank);

/* Likewise two numbers for each token: of pairs of answers a reference's, and which tokens they are
 * counted at; or a label's weight. */
double *ls_rank_staging_reference(const ls_rank *rank);

/* Likewise of a teacher that is told by its likeliest ids: 16 bytes for each of a token's, and
 * behind them 8 for each token of the sequences that the rank shares. Or of sets of classes: each
 * token's words, and behind them those of these sequences. */
void *ls_rank_staging_top(const ls_rank *rank);

/* Makes work regions and all cells but learning rate, step and scale NaN: what reads them before it
 * writes them is to be seen. */
LS_CHECKED ls_status ls_rank_poison(ls_rank *rank, int program, ls_error *error);

/* The program of this rank's stage. */
const ls_program *ls_rank_program(const ls_rank *rank, int program);

int ls_rank_number(const ls_rank *rank);
ls_comm *ls_rank_comm(const ls_rank *rank);

/* The group of all ranks of the mesh. */
ls_group *ls_rank_world_group(const ls_rank *rank);

/* What lies outside the device; NULL: nothing. */
ls_tiers *ls_rank_tiers(const ls_rank *rank);

/* Memory of a tier that a run with these programs needs on one rank. */
int64_t ls_rank_bytes_needed(const ls_program *const *programs, int count, ls_tier tier);

#endif
