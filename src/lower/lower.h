/* Inside of `lower`: from actions to instructions. */
#ifndef LS_LOWER_LOWER_H
#define LS_LOWER_LOWER_H

#include "lower/compile.h"
#include "schedule/logits_slices.h"
#include "schedule/schedule.h"

/* Storages of a unit; -1 where there is none. */
typedef struct ls_unit_memory {
  int part[LS_PART_COUNT]; /* where the part lies; of GRADIENT, until the update */
  /* The same during the update: or the host's copy; of STORED, updated weights before they go. */
  int at[LS_PART_COUNT];
  int source;  /* what is gathered: STORED, or a copy fetched to the device */
  int reduced; /* a gradient after reduction: RAW_GRADIENT, or this rank's shard */
  int temporary[LS_UPDATE_SOURCE_COUNT][LS_MOST_TEMPORARIES]; /* of the update's nodes, by kind */
  /* Where ranks add up those that are whole, of an update that the host does; -1: not yet. */
  int meeting[LS_UPDATE_SOURCE_COUNT];
  int owned;          /* what this rank is the owner of; -1: there are no owners, or not yet */
  int64_t most_owned; /* elements of that */
} ls_unit_memory;

/* What is known of a storage before it has its place. */
typedef struct ls_storage_plan {
  ls_pool pool;
  ls_category category;
  bool moves; /* out of its pool and back: shares no buffer group with what stays */
} ls_storage_plan;

/* What goes from the chunk before each boundary to the next, and gradients back: sharded values. */
typedef struct ls_stage_boundary {
  LS_LIST(int) values, gradients;
} ls_stage_boundary;

typedef struct ls_stage_boundaries {
  ls_stage_boundary *items; /* by boundary: the chunk before it */
} ls_stage_boundaries;

/* LS_INTERNAL: a value goes farther than to the next chunk and its taker is on another stage. */
LS_CHECKED ls_status ls_stage_boundaries_make(const ls_sharded *sharded, const ls_chunks *chunks,
                                              const int *producer, const bool *replicable_nodes,
                                              ls_stage_boundaries **boundaries, ls_error *error);

/* By node: whether it needs nothing but inputs of the model. Every stage that uses what it makes
 * has its own. */
const bool *ls_lower_replicable_nodes(const ls_sharded *sharded, const int *producer);

/* The sharded nodes of a segment, in the order they run in. */
typedef struct ls_segment_nodes {
  int *items;
  int count, capacity;
} ls_segment_nodes;

typedef struct ls_lowering {
  ls_program *program;
  LS_LIST(ls_storage_plan) plans; /* of each storage */
  const ls_sharded *sharded;
  const ls_units *units;
  const ls_chunks *chunks;
  const ls_stage_boundaries *boundaries;
  int stage;
  const ls_recompute *recompute;
  const ls_offload_plan *offload_plan;
  const bool *present; /* by unit: this stage has it */
  ls_unit_memory *memory;
  int number[LS_MOST_TEMPORARIES]; /* of the update's nodes: values */
  int *value_of;                   /* program value by sharded value, -1: not made yet */
  int *away;                       /* its copy outside the device; -1: none */
  const int *producer, *last_use;  /* by sharded value: nodes that make it and last read it; -1 */
  const bool *read_by_weight;      /* by sharded value: a weight node reads it */
  bool again;                      /* nodes are lowered a second time, for RECOMPUTE */
  const ls_logits_slices *slices;
  int64_t first_row, rows;       /* of the slice at hand; rows 0: nodes run for all rows */
  int *of_slice;                 /* program value of the slice, by sharded value; -1 */
  const bool *halves;            /* by segment: weight nodes run apart from the rest of backward */
  bool summed;                   /* squares of some gradient are in the norm */
  bool pays;                     /* a node lowered before adds to the loss */
  bool *loaded;                  /* by layer with experts: it is of this stage */
  bool *contributed;             /* by parameter: a node lowered before adds to its gradient */
  const bool *replicable_nodes;  /* by node */
  const ls_segment_nodes *nodes; /* by segment */
  const int64_t *padded;         /* by sharded value: as ls_lower_padded has it */
  int *bodies;                   /* body by sort and place of action; -1: none yet */
  int body_places;               /* of a sort */
} ls_lowering;

/* Where the body of actions like this one stands in `bodies`. */
int *ls_lower_body_of(const ls_lowering *lowering, const ls_action *action);

int ls_lower_storage(ls_lowering *lowering, const char *name, ls_pool pool, ls_category category,
                     int64_t bytes);
int ls_lower_value(ls_lowering *lowering, const ls_value *value);

/* Elements [offset, offset + elements) of a unit, as a 1-D value in `storage`, which holds the
 * whole buffer or this rank's shard. Under S(flat): only what lies in this rank's shard. */
int ls_lower_range(ls_lowering *lowering, const char *name, int storage, ls_dtype dtype, int unit,
                   int64_t offset, int64_t elements, const ls_placement *placement);

/* The value of one of the graph's inputs. */
int ls_lower_input(const ls_lowering *lowering, ls_tensor_id id);

ls_instruction *ls_lower_op(ls_lowering *lowering, ls_op_kind kind);
/* Whether a unit goes from one of its placements to another. */
bool ls_lower_differ(const ls_lowering *lowering, const ls_placement *from, const ls_placement *to);
ls_instruction *ls_lower_collective(ls_lowering *lowering, ls_collective collective, ls_axes axes,
                                    int source, int target, int64_t count, const char *reason);

/* Makes the storages and the values of units, cells and inputs. */
void ls_lower_units(ls_lowering *lowering);

/* Appends the instructions of one action that is neither a pass nor the end of a transfer. */
void ls_lower_action(ls_lowering *lowering, const ls_action *action);

/* The pools of a tier. */
ls_pool ls_lower_state_pool(ls_tier tier);
ls_pool ls_lower_work_pool(ls_tier tier);

/* The placement of a unit's buffer in a part of its state, and its type. */
const ls_placement *ls_lower_placement(const ls_lowering *lowering, int unit, ls_state_part part);
ls_dtype ls_lower_dtype(const ls_lowering *lowering, int unit, ls_state_part part);

/* All of a part of a unit, or this rank's shard of it, in a storage; how many elements a rank has.
 */
int ls_lower_unit_part(ls_lowering *lowering, const char *name, int storage, int unit,
                       ls_state_part part, const ls_placement *placement);
int64_t ls_lower_unit_elements(const ls_lowering *lowering, int unit, ls_state_part part,
                               const ls_placement *placement);

/* Matrices of a unit go to their owners and back: before and after the node `of`, whose first input
 * and output they are. Without owners nothing is done. */
void ls_lower_deal(ls_lowering *lowering, int unit, const ls_update_node *of);
void ls_lower_hand_back(ls_lowering *lowering, int unit, const ls_update_node *of);

/* A parameter's matrix as its owner has it. */
int ls_lower_owned(ls_lowering *lowering, int parameter);

/* Where ranks meet: on the device. */
int ls_lower_meeting(ls_lowering *lowering, int unit, ls_update_source from);

/* A temporary of the update's nodes that is whole, of a parameter, in a storage; `placement`:
 * partial, or as it is once reduced. */
int ls_lower_whole(ls_lowering *lowering, int parameter, ls_update_operand of, int storage,
                   const ls_placement *placement);

/* A parameter's elements in its unit's flat buffer, without rows of padding; `placement`: of the
 * unit. Of numbers of blocks, all of them. */
int ls_lower_parameter(ls_lowering *lowering, int parameter, ls_state_part part, const char *name,
                       int storage, const ls_placement *placement);

/* Appends a move between tiers that is done at once, in the order of kernels. */
void ls_lower_move_now(ls_lowering *lowering, int source, int target, int64_t count,
                       const char *what);

/* Appends the instructions that begin a move between tiers. */
void ls_lower_move(ls_lowering *lowering, const ls_action *action);

/* Appends the instructions of a pass over a segment. */
void ls_lower_pass(ls_lowering *lowering, ls_action_kind kind, int segment);

/* Appends the instructions that begin a message over a boundary. */
void ls_lower_message(ls_lowering *lowering, const ls_action *action);

/* The program's value for a sharded value, in memory of its own. `kept`: for the backward pass. */
int ls_lower_tensor(ls_lowering *lowering, int sharded_value, bool kept);

/* Elements this rank stores of a sharded value. */
int64_t ls_lower_elements(const ls_sharded *sharded, int sharded_value);

/* By sharded value: the elements of its memory, with what collectives pad it by. */
const int64_t *ls_lower_padded(const ls_sharded *sharded);

/* Groups storages into buffer groups by the bodies that touch them, and gives every storage its
 * place in its buffer group. */
void ls_lower_buffer_groups(ls_lowering *lowering);

/* Makes the live intervals that actions need of their bodies' buffer groups, and gives each its
 * place. */
void ls_lower_live_intervals(ls_program *program);

/* Something that needs `bytes` from time `first` to time `last`. */
typedef struct ls_life_box {
  int64_t bytes, offset;
  int first, last;
  int about; /* the caller's */
} ls_life_box;

/* Boxes that have their place, ordered by offset. */
typedef struct ls_space {
  LS_LIST(ls_life_box) boxes;
  int64_t alignment;
  int64_t limit; /* bytes there are; -1: no end */
  int64_t bytes; /* used */
} ls_space;

/* Takes note of a box that has its offset. */
void ls_space_add(ls_arena *arena, ls_space *space, const ls_life_box *box);

/* Puts the box at the lowest offset where nothing lies at the same time; false: no room. */
bool ls_space_place(ls_arena *arena, ls_space *space, ls_life_box *box);

/* Places the many boxes of a pool without an end, in the order of ls_life_boxes_sort, at times from
 * 0 to below `times`; returns the bytes it needs. Where many boxes have one of their size that is
 * alive `period` times before, it takes less time; 0: none have. */
int64_t ls_life_boxes_place(ls_life_box *boxes, int count, int times, int period,
                            int64_t alignment);

/* Largest first. (Optimal colouring is NP-hard; by size is the usual heuristic for tensors.) */
void ls_life_boxes_sort(ls_life_box *boxes, int count);

#endif
