/* A rank and its loaded programs, private to this room. */
#ifndef LS_RUN_RANK_LOADED_H
#define LS_RUN_RANK_LOADED_H

#include "comm/engine.h"
#include "cost/cost.h"
#include "ir/owners.h"
#include "run/rank.h"

/* An instruction with its operands' places worked out for this rank. */
typedef struct ls_loaded {
  const ls_instruction *instruction;
  ls_kernel_args args; /* data: offsets in buffer groups, until an action says where these are */
  int64_t in_offset[LS_MAX_INPUTS], out_offset[LS_MAX_OUTPUTS];
  int in_buffer_group[LS_MAX_INPUTS],
      out_buffer_group[LS_MAX_OUTPUTS]; /* among those of the body */
  ls_group *group;
  ls_place from, to; /* of an all-to-all or a permute */
  ls_tier tier;      /* whose kernels compute it */
  ls_kernel kernel;
  unsigned in_cells, out_cells; /* bit i: operand i is a cell; of what the host computes */
  bool skipped;                 /* another rank of first_only does it */
  bool joined;                  /* a bias that the product before it adds */
  ls_deal_piece *pieces;        /* that this rank takes part in, of LS_DEAL and LS_HAND_BACK */
  int piece_count;
} ls_loaded;

/* Kernels that follow each other in a body, with the operands that an action gives them. */
typedef struct ls_kept_graph {
  void *graph; /* the device's; NULL: there is none */
  int64_t replayed;
  bool seen, refused; /* run before; the device took no graph of it */
} ls_kept_graph;

typedef struct ls_loaded_program {
  const ls_program *program;
  ls_loaded *instructions;
  char *pool_base[LS_POOL_COUNT];
  char **buffer_groups; /* where the buffer groups of the action that runs lie */
  int *first_graph;     /* of each action: actions that give a body the same operands share them */
  ls_kept_graph *graphs;
  int graph_count;
} ls_loaded_program;

struct ls_rank {
  ls_comm *comm;
  int number;
  char *base;
  int64_t bytes;
  ls_tiers *tiers;     /* NULL: all is on the device */
  ls_tiers_span moved; /* of the move that ended last */
  const ls_engine *engine;
  ls_carrier *carrier; /* what the engine has of this rank */
  const ls_device *device;
  ls_device_queue queues[LS_DEVICE_QUEUES]; /* by tier */
  bool entered;
  ls_loaded_program programs[LS_MAX_PROGRAMS];
  int program_count;
  ls_axis_order axes[LS_MAX_GROUPS]; /* of each group; made before any program is loaded */
  ls_group *groups[LS_MAX_GROUPS];
  ls_group **pairs; /* by the other stage: the two that differ in nothing else */
  int stages;
  ls_group *world;
  void *workspace;
  size_t workspace_bytes;
  bool recording;
  bool ahead;                  /* nobody waits for the device at the end of a part */
  double cells[LS_CELL_COUNT]; /* the host's copies */
  bool set[LS_CELL_COUNT];     /* since the last run */
  int32_t *staging;
  double *staging_reference; /* of pairs, or weights */
  void *staging_top;         /* of a teacher */
  int graphs_held, most_graphs;
  int64_t replays;
  ls_record *records; /* a ring */
  int64_t record_room, recorded;
};

/* The view of a value, and its place in its buffer group. */
ls_view ls_loaded_view(int rank, const ls_program *program, int value, int64_t *offset);

/* Of the value that an instruction is about. */
const char *ls_loaded_name(const ls_program *program, const ls_instruction *instruction);

/* The group of these axes, made before. */
ls_group *ls_rank_group_of(const ls_rank *rank, ls_axis_order axes);

/* By which an address of this rank is reached, which is not in the file. */
const ls_memory_calls *ls_rank_memory_of(const ls_rank *rank, const void *address);

/* After a wait for the device: LS_FAILED where transfers were given up, so that what was waited for
 * is not what the program says. */
LS_CHECKED ls_status ls_rank_check_transfers(const ls_rank *rank, ls_error *error);

/* Runs an instruction that is a collective, a message or a move, whose operands are bound. */
LS_CHECKED ls_status ls_rank_transfer(ls_rank *rank, const ls_loaded *each, ls_error *error);

/* Gives an instruction the places where an action has its operands. */
void ls_loaded_bind(ls_loaded *each, char *const *buffer_groups, bool first);

/* Runs an instruction whose operands are bound. */
LS_CHECKED ls_status ls_rank_run_instruction(ls_rank *rank, const ls_loaded *each, ls_error *error);

/* Says of which instruction an error is, and ends all ranks. LS_FAILED. */
LS_CHECKED ls_status ls_rank_fail_instruction(ls_rank *rank, const ls_program *program,
                                              const ls_instruction *instruction, ls_error *error);

/* Makes room for the graphs of program `p`, which is loaded. LS_FAILED: out of memory. */
LS_CHECKED ls_status ls_rank_load_graphs(ls_rank *rank, int p, ls_error *error);
void ls_rank_drop_graphs(ls_rank *rank);

/* The first instruction from `first` on that is not run together with it; `first` + 1 where it is
 * run alone. */
int ls_rank_together(const ls_loaded_program *from, const ls_body *body, int first);

/* Runs instructions [first, last) of an action, which are its graph'th together: by a graph where
 * they were run before, else one by one. */
LS_CHECKED ls_status ls_rank_run_together(ls_rank *rank, int p, int action, int graph, int first,
                                          int last, ls_error *error);

/* Chooses the engine of the loaded programs' transfers, and opens it for their groups. Errors: the
 * engine's. Collective: all ranks. */
LS_CHECKED ls_status ls_rank_open_carrier(ls_rank *rank, ls_error *error);

/* Works out where each instruction of program `p` finds its operands. LS_FAILED: out of memory. */
LS_CHECKED ls_status ls_rank_load(ls_rank *rank, int p, ls_error *error);
void ls_rank_unload(ls_loaded_program *from);

/* One block for all kernels of the loaded programs. LS_FAILED: memory is short, or a library wants
 * more than the recipe says. */
LS_CHECKED ls_status ls_rank_give_workspace(ls_rank *rank, ls_error *error);

/* Finds the fastest ways of what the device's library was asked to prepare, where it has several
 * and the options ask for it; all ranks take the same. LS_FAILED: none runs, the device fails, or
 * memory is short. Collective: all ranks. */
LS_CHECKED ls_status ls_rank_tune(ls_rank *rank, const ls_rank_options *options, ls_error *error);

#endif
