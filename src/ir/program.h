/* The compiled program of a step: a static list of instructions, every operand with its address.
 *
 * One program serves all ranks: what differs by coordinates follows from an operand's placement
 * (ls_program_local). Memory is buffer groups, whose places are worked out at compile time: an
 * operand's address is pool base + place of the buffer group's live interval + offset in it, + what
 * its coordinates add. Step, evaluation and decoding are programs over one persistent region: the
 * same layout of the same model gives the same STATE and CELL offsets.
 *
 * Instructions compute in the tier that their outputs lie in (cells aside). MOVE copies in[0], the
 * bytes of a value, to out[0] in another tier. A move or gather that begins to fill a work buffer
 * group begins a new life of it, so a buffer group may have several in a step, with holes between
 * them.
 *
 *   ls_program_print(program, stdout_like_stream);
 */
#ifndef LS_IR_PROGRAM_H
#define LS_IR_PROGRAM_H

#include <stdio.h>

#include "graph/graph.h"
#include "ir/action.h"
#include "ir/collective.h"
#include "ir/layout.h"
#include "ir/mesh.h"
#include "ir/state.h"

typedef enum ls_pool {
  LS_POOL_STATE = 0,  /* parameters, master weights, moments, caches: kept between programs */
  LS_POOL_CELL,       /* fp64 numbers that change between steps */
  LS_POOL_INPUT,      /* tokens, labels, positions: filled before the program runs */
  LS_POOL_WORK,       /* everything else, coloured by lifetime */
  LS_POOL_HOST_STATE, /* as STATE and WORK, in the machine's memory */
  LS_POOL_HOST_WORK,
  LS_POOL_FILE_STATE, /* in a file, which MOVE alone reads and writes */
  LS_POOL_FILE_WORK,
  LS_POOL_COUNT
} ls_pool;

const char *ls_pool_name(ls_pool pool);
ls_tier ls_pool_tier(ls_pool pool);
bool ls_pool_is_work(ls_pool pool); /* WORK of its tier */

typedef enum ls_cell {
  LS_CELL_LEARNING_RATE = 0,
  LS_CELL_STEP, /* 1 for the first update */
  LS_CELL_VALID_TOKENS,
  LS_CELL_LOSS_SCALE, /* scale / valid tokens: what gradients begin with */
  LS_CELL_LOSS_SUM,
  LS_CELL_SQUARED_NORM,
  LS_CELL_NORM,
  LS_CELL_CLIP_FACTOR,
  LS_CELL_MEAN_LOSS,
  LS_CELL_SCALE, /* what gradients are multiplied by until the update: 1, more in fp16 */
  LS_CELL_STOP,  /* ranks that wish to stop: of this one, then of all */
  /* Of a loss over pairs, summed as the loss is: what LS_OP_PAIR_REWARDS makes. Else none. */
  LS_CELL_REWARD_CHOSEN,
  LS_CELL_REWARD_REJECTED,
  LS_CELL_PREFERRED,
  LS_CELL_COUNT
} ls_cell;

enum { LS_CELL_BYTES = 64 }; /* a cache line each */

/* Memory that lives and dies as one: what a segment's forward pass keeps for its backward pass, a
 * unit's gathered weights, the temporaries of a body, ... */
typedef struct ls_buffer_group {
  const char *name;
  ls_pool pool;
  ls_category category;
  int64_t bytes;
  int live_interval; /* its first; those of inputs follow one another, one a microbatch */
} ls_buffer_group;

/* One life of a buffer group: actions [first, last], at `offset` of its pool. */
typedef struct ls_live_interval {
  int buffer_group, microbatch; /* -1: not of one microbatch */
  int first, last;
  int64_t offset;
} ls_live_interval;

/* A place in a buffer group, for one tensor or several one after the other. */
typedef struct ls_storage {
  const char *name;
  int buffer_group;
  int64_t offset, bytes;
} ls_storage;

/* A tensor as instructions see it. */
typedef struct ls_value {
  const char *name;
  ls_dtype dtype;
  int ndim;
  int64_t global[LS_MAX_DIMS];
  ls_placement placement;
  int storage;
  int64_t offset; /* bytes from the storage's start */
  /* A 1-D range of a unit's flat buffer: elements [flat_offset, flat_offset + global[0]) of the
   * `flat_elements` there are (0: no such range). Of these the rank has what lies in its shard, on
   * the axes where the placement is S(flat). The storage holds the shard, or the whole buffer where
   * it has room for that. */
  int64_t flat_elements, flat_offset;
  /* Of one parameter's range: its rows in the whole (cut as `placement` says) and the stored
   * elements of a row. Rows of padding, last in an uneven cut, do not count. 0: no rows. */
  int64_t flat_rows, flat_row_elements;
  /* Of the rows (dimension 0) that a rank stores, `rows` from first_row on; 0: all. The storage may
   * hold all rows or these alone: `offset` is that of the first of these. */
  int64_t first_row, rows;
  /* Of a matrix: stored elements from row to row, of which the last are padding; 0: as many as the
   * rank's columns. */
  int64_t row_elements;
} ls_value;

typedef enum ls_write_mode {
  LS_WRITE = 0,
  LS_ADD,             /* to what is there */
  LS_ADD_AFTER_FIRST, /* the first action of this body writes, later ones add */
} ls_write_mode;

typedef enum ls_queue {
  LS_QUEUE_COMPUTE = 0,
  LS_QUEUE_COMMUNICATE,
  LS_QUEUE_MOVE, /* between tiers */
  LS_QUEUE_COUNT
} ls_queue;

typedef struct ls_instruction {
  ls_collective collective; /* NONE: the op `kind` */
  ls_phase phase;           /* of a collective */
  ls_op_kind kind;
  ls_attributes attributes;
  ls_axes axes; /* group of a collective */
  ls_reduce reduce;
  int peer;      /* the other stage of a message, or of a collective of two stages; -1: none */
  int64_t count; /* elements of the whole that a collective moves */
  int unit;      /* of LS_DEAL and LS_HAND_BACK: whose matrices */
  ls_queue queue;
  int wait;           /* event: the latest instruction on another queue, in the same body, that
                         this one needs; it waits for those before that one, too; -1: none */
  ls_axes first_only; /* only ranks at index 0 of these axes; others write zero */
  int inputs, outputs;
  int in[LS_MAX_INPUTS], out[LS_MAX_OUTPUTS]; /* values */
  ls_write_mode write[LS_MAX_OUTPUTS];
  const char *reason; /* why a collective is here; else NULL */
} ls_instruction;

/* An action's instructions: [first, first + count). Stored once for all microbatches. */
typedef struct ls_body {
  int first, count;
  LS_LIST(int) buffer_groups; /* that they touch */
} ls_body;

typedef struct ls_program_action {
  ls_action action;
  int body;
  bool first;          /* of its body: LS_ADD_AFTER_FIRST writes */
  int *live_intervals; /* of each of the body's buffer groups */
} ls_program_action;

/* Where a parameter's parts are: values, -1 where there is none. */
typedef struct ls_program_parameter {
  const char *name;
  bool present;   /* this stage has it; if not, its values are -1 */
  bool owner;     /* of the stages that have it this one counts, saves and exports it */
  bool trainable; /* if not, it has no gradient, master weights or moments */
  ls_tp_sharding sharding;
  ls_precision precision; /* LS_COMPUTE, or that of the blocks that it is stored as */
  int ndim;
  int64_t dims[LS_MAX_DIMS]; /* of the whole tensor, in elements: of blocks, how many */
  int unit;
  int update;    /* which of the optimizer's it has */
  int64_t owned; /* where its owner has it, among what all owners have (ir/owners.h); -1 */
  int part[LS_PART_COUNT]; /* values, by ls_state_part; -1: none */
} ls_program_parameter;

/* A segment of the model: a layer, what comes before all layers, what comes after. */
typedef struct ls_program_segment {
  const char *name;
  int chunk; /* of the pipeline, which runs it */
  int unit;  /* that its own parameters are in; -1: it has none */
} ls_program_segment;

typedef enum ls_program_kind {
  LS_PROGRAM_STEP = 0, /* forward, backward, update */
  LS_PROGRAM_FORWARD,  /* evaluation, or decoding where the graph has no loss */
} ls_program_kind;

typedef struct ls_program {
  ls_arena *arena;
  ls_program_kind kind;
  ls_mesh mesh;
  int stage; /* of the pipeline */
  ls_layout layout;
  int64_t alignment;        /* of every buffer group and storage, bytes */
  int64_t tokens, sequence; /* of a microbatch over the whole mesh */
  LS_LIST(ls_buffer_group) buffer_groups;
  LS_LIST(ls_live_interval) live_intervals;
  LS_LIST(ls_storage) storages;
  LS_LIST(ls_value) values;
  LS_LIST(ls_instruction) instructions;
  LS_LIST(ls_body) bodies;
  LS_LIST(ls_program_action) actions;
  LS_LIST(ls_program_segment) segments; /* of the whole model, as actions name them */
  LS_LIST(const char *) units;          /* likewise: their names */
  int chunks;                           /* of each stage of the pipeline */
  int replay_boundary; /* post-validation: actions before it may run before the step before is
                          settled; -1 */
  ls_program_parameter *parameters;
  int parameter_count;
  int64_t pool_bytes[LS_POOL_COUNT];
  int ids, labels, positions, places, draws; /* values; -1: none */
  int remaining, types;                      /* likewise, of encoders */
  int reference;          /* likewise, of pairs: the reference's log-probabilities */
  int weights;            /* likewise: how often a token's label counts, or of sets a class */
  int sets;               /* likewise: of several labels, the classes of each token as bits */
  int top_ids, top_below; /* likewise, of a teacher that is told by its likeliest ids */
  /* Of the last stage; -1 where they are made in slices. Of pairs in their place: by token the
   * log-probability of its document beyond the reference's. */
  int logits;
  int cell[LS_CELL_COUNT]; /* values; -1: none */
  LS_LIST(int) loads;      /* values, by layer with experts: choices of each, of the whole step */
  double flops;            /* of one step over the whole mesh: matrix products and attention */
  double recomputed_flops; /* that are done a second time besides */
} ls_program;

/* A rank's part of a value: its sizes, and its place in bytes from the start of its buffer group.
 * Of a parameter's range, which has one dimension, behind it: dims[1], stored elements of a row;
 * start[1] and start[2], row and column of the whole that the rank's cut of it begins with. */
typedef struct ls_local {
  int64_t offset;
  int64_t dims[LS_MAX_DIMS], valid[LS_MAX_DIMS], start[LS_MAX_DIMS];
} ls_local;
ls_local ls_program_local(const ls_program *program, int rank, int value);

/* The same of a value that need not be one of the program's. */
ls_local ls_value_local(const ls_program *program, int rank, const ls_value *value);

/* Of a range of a unit's buffer: the axes that cut the buffer, and the elements of one shard, which
 * are all where no axis does. */
ls_axes ls_value_flat_axes(const ls_mesh *mesh, const ls_value *value);
int64_t ls_value_shard(const ls_mesh *mesh, const ls_value *value);

/* The axes of a collective's group as its shards nest them: so its members are numbered. */
ls_axis_order ls_instruction_group(const ls_program *program, const ls_instruction *instruction);

/* Of an all-to-all or a permute, whose axes all change alike: where its input and its output lie.
 */
void ls_instruction_places(const ls_program *program, const ls_instruction *instruction,
                           ls_place *from, ls_place *to);

/* The axes of one stage along which ranks hold the same elements of a value. */
ls_axes ls_value_replicas(const ls_mesh *mesh, const ls_value *value);

/* The segment an action is of, as a person says it: of a message the last one before its boundary;
 * -1: none. */
int ls_program_segment_of(const ls_program *program, const ls_action *action);

/* The buffer group a value lies in. */
const ls_buffer_group *ls_program_buffer_group(const ls_program *program, int value);

/* Of storages; of those that a file is read into and written from, as O_DIRECT wants it. */
enum { LS_STORAGE_ALIGNMENT = 256, LS_FILE_ALIGNMENT = 4096 };
int64_t ls_storage_aligned(int64_t bytes, int64_t alignment);

/* Bytes of all pools of a tier: what a rank's arena there holds. */
int64_t ls_program_tier_bytes(const ls_program *program, ls_tier tier);

/* What is alive during one action. */
typedef struct ls_alive {
  int64_t by_category[LS_CATEGORY_COUNT], sum; /* bytes */
} ls_alive;

/* Bytes of a tier alive during each action of the program. In `arena`. */
ls_alive *ls_program_alive(ls_arena *arena, const ls_program *program, ls_tier tier);

/* The same during the action where most are, the first of these; returns their sum. */
int64_t ls_program_tier_peak(const ls_program *program, ls_tier tier,
                             int64_t by_category[LS_CATEGORY_COUNT]);

/* The same of the device. */
int64_t ls_program_bytes(const ls_program *program);
int64_t ls_program_peak(const ls_program *program, int64_t by_category[LS_CATEGORY_COUNT]);

/* The parts of a step's program, in the order of its actions. Run one after the other, without
 * SPECULATE, they are the step. With post-validation SPECULATE and the next step's PROLOGUE may
 * come before VALIDATE and UPDATE; where the speculation was wrong PROLOGUE runs again after these.
 */
typedef enum ls_program_part {
  LS_PROGRAM_PROLOGUE = 0, /* up to the replay boundary; empty without */
  LS_PROGRAM_PASSES,       /* all others, and this stage's part of the norm */
  LS_PROGRAM_SPECULATE,    /* weights as they are if the norm clips nothing */
  LS_PROGRAM_VALIDATE,     /* the norm over all stages; empty where PASSES end with it */
  LS_PROGRAM_UPDATE,
  LS_PROGRAM_PARTS
} ls_program_part;

/* The first action of a part; of LS_PROGRAM_PARTS: the number of actions. */
int ls_program_first_of(const ls_program *program, ls_program_part part);

/* The printed form: stable, for people and golden tests. */
void ls_program_print(const ls_program *program, FILE *stream);

#endif
