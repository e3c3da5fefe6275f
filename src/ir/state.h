/* State: what a parameter consists of, part by part, as a table, and what an optimizer is, as a
 * row.
 *
 *   for (int part = 0; part < LS_PART_COUNT; part++)
 *     if (ls_state_row_of((ls_state_part)part)->kept) ...
 *
 * Filling, checkpoints, `check`, the saved form and memory go through these. Thread-safe: constant.
 */
#ifndef LS_IR_STATE_H
#define LS_IR_STATE_H

#include "graph/graph.h"
#include "graph/op.h"
#include "ir/layout.h"

/* What memory is for, as a person counts it. */
#define LS_CATEGORIES(X)             \
  X(PARAMETERS, "parameters")        \
  X(MASTER, "master weights")        \
  X(MOMENTS, "optimizer moments")    \
  X(GRADIENTS, "gradients")          \
  X(GATHERED, "gathered parameters") \
  X(ACTIVATIONS, "activations kept") \
  X(TEMPORARIES, "temporaries")      \
  X(CACHES, "key/value caches")      \
  X(INPUTS, "inputs and cells")

typedef enum ls_category {
#define LS_CATEGORY_ENUM(suffix, name) LS_CATEGORY_##suffix,
  LS_CATEGORIES(LS_CATEGORY_ENUM)
#undef LS_CATEGORY_ENUM
      LS_CATEGORY_COUNT
} ls_category;

const char *ls_category_name(ls_category category);

/* What a part is typed as: the layout's compute type, the type of sums and updates (fp32, or fp64
 * under fp64), that of gradients (the same, or bf16), or codes of 8 bits. */
typedef enum ls_state_type {
  LS_TYPE_COMPUTE = 0,
  LS_TYPE_UPDATE,
  LS_TYPE_GRADIENT,
  LS_TYPE_CODE
} ls_state_type;

/* Enum suffix, name, type, shape, category; who has it; how a checkpoint calls it.
 *
 * USED is what kernels read, gathered or stored; STORED what stays between steps, in the compute
 * type. MASTER is the same value as kernels update it, and lies where STORED does if their types
 * and tiers are one. RAW_GRADIENT is that of one microbatch, before reduction; GRADIENT the reduced
 * one, which the update reads. CODES1 and CODES2 are moments of 8 bits, in blocks of LS_STATE_BLOCK
 * elements of the whole parameter, however it is cut; LARGEST the largest magnitude of each block,
 * of the first moments and then of the second, LINES the mean squares of each row and then of each
 * column, both the same on all ranks. */
#define LS_STATE_PARTS(X)                                                                       \
  X(USED, "used form", COMPUTE, TENSOR, GATHERED, ALL, NULL)                                    \
  X(STORED, "weights", COMPUTE, RANGE, PARAMETERS, ALL | LS_KEPT, NULL)                         \
  X(MASTER, "master weights", UPDATE, RANGE, MASTER, TRAINED | LS_KEPT, "")                     \
  X(MOMENT1, "first moments", UPDATE, RANGE, MOMENTS, TRAINED | LS_KEPT, "moment1.")            \
  X(MOMENT2, "second moments", UPDATE, RANGE, MOMENTS, TRAINED | LS_KEPT, "moment2.")           \
  X(CODES1, "codes of first moments", CODE, RANGE, MOMENTS, TRAINED | LS_KEPT, "codes1.")       \
  X(CODES2, "codes of second moments", CODE, RANGE, MOMENTS, TRAINED | LS_KEPT, "codes2.")      \
  X(LARGEST, "largest of blocks", UPDATE, BLOCKWISE, MOMENTS, TRAINED | LS_KEPT, "absmax.")     \
  X(LINES, "means of rows and columns", UPDATE, LINEWISE, MOMENTS, TRAINED | LS_KEPT, "lines.") \
  X(RAW_GRADIENT, "gradient of a microbatch", GRADIENT, TENSOR, GRADIENTS, TRAINED, NULL)       \
  X(GRADIENT, "gradient", GRADIENT, RANGE, GRADIENTS, TRAINED, NULL)

typedef enum ls_state_part {
#define LS_PART_ENUM(suffix, ...) LS_PART_##suffix,
  LS_STATE_PARTS(LS_PART_ENUM)
#undef LS_PART_ENUM
      LS_PART_COUNT
} ls_state_part;

typedef struct ls_state_row {
  const char *name;
  ls_state_type type;
  bool range; /* 1-D, of the unit's flat buffer; else the tensor as kernels see it */
  bool whole; /* 1-D, numbers of the parameter's blocks or lines, which every rank has all */
  ls_category category;
  bool trained; /* frozen parameters have none */
  bool kept;    /* between programs */
  /* What stands before the parameter's name in a checkpoint's optimizer file; "": it is saved as
   * the weights are; NULL: not saved. */
  const char *saved;
} ls_state_row;

const ls_state_row *ls_state_row_of(ls_state_part part);

/* Elements of a block of moments of 8 bits, and of the least parameter that has such moments; as
 * bitsandbytes has both. */
enum { LS_STATE_BLOCK = 256, LS_LEAST_BLOCKWISE = 4096 };

/* How many rows of a part a checkpoint has, and how wide they are: those of a parameter with these
 * dimensions; of what is whole as many rows as there are numbers. */
typedef struct ls_state_size {
  int64_t rows, columns;
} ls_state_size;
ls_state_size ls_state_size_of(ls_state_part part, int ndim, const int64_t *dims);

/* A part's type, of parameters of this precision: LS_COMPUTE, or that of blocks. */
ls_dtype ls_state_dtype(const ls_layout *layout, ls_state_part part, ls_precision precision);

/* An optimizer's update is a small graph over the state of one parameter: nodes, each an op over
 * parts, cells and what earlier nodes made. A new optimizer is a row in state.c.
 *
 * A part that an op updates in place is an output, never an input of it. Each part is updated by
 * one node at most, which leaves it alone where the clip factor is 0: so steps are left out, and
 * speculations taken back. Each node reads the gradient or what an earlier node made of it. */
enum { LS_MOST_SETTINGS = 5, LS_MOST_UPDATE_NODES = 6, LS_MOST_TEMPORARIES = 4 };

/* Those from LS_FROM_BLOCKS on are whole on every rank: where a node makes them of shards, each
 * rank fills in what it has, zero elsewhere, and they are added up, of blocks the largest taken.
 * MATRIX and SQUARES are memory for one node to work in. */

typedef enum ls_update_source {
  LS_FROM_PART = 0, /* ls_state_part: the rank's elements, as state is placed */
  LS_FROM_CELL,     /* ls_cell */
  LS_FROM_ELEMENTS, /* a temporary, placed and typed as master weights are */
  LS_FROM_NUMBER,   /* a temporary of one number, summed over the ranks that hold shards */
  LS_FROM_MATRIX,   /* as large as the whole parameter, typed as master weights are */
  LS_FROM_SQUARES,  /* likewise two squares, one above the other, of its smaller dimension */
  LS_FROM_BLOCKS,   /* a temporary, typed likewise, as LARGEST is */
  LS_FROM_LINES,    /* likewise as LINES is */
  LS_UPDATE_SOURCE_COUNT
} ls_update_source;

/* The dimensions of a temporary that is whole, of a parameter with these; returns how many. */
int ls_update_dims(ls_update_source from, int ndim, const int64_t *dims, int64_t made[LS_MAX_DIMS]);

typedef struct ls_update_operand {
  ls_update_source from;
  int index; /* of the part, the cell, or among temporaries of the kind */
} ls_update_operand;

typedef struct ls_update_node {
  ls_op_kind op;
  int inputs, outputs;
  ls_update_operand in[LS_MAX_INPUTS], out[LS_MAX_OUTPUTS];
  ls_attributes attributes; /* but for the settings */
  bool columns;             /* it is told how many the whole parameter has */
  bool means;               /* its numbers are means over the whole parameter */
  bool shaped;              /* it is told what of the rate a matrix of this shape has */
  /* It needs whole matrices: each is made by one rank (ir/owners.h), of elements in their place,
   * which are its first input and its first output. What is not cut stays where it is. */
  bool owners;
  int settings;
  struct {
    size_t from, to; /* a double of ls_optimizer, and of ls_attributes */
    const char *key; /* of the run file */
  } setting[LS_MOST_SETTINGS];
} ls_update_node;

/* Which parameters a row's nodes update; the others are updated by the row `rest`. */
typedef enum ls_update_rule {
  LS_UPDATES_ALL = 0,
  LS_UPDATES_LARGE,    /* of LS_LEAST_BLOCKWISE elements or more */
  LS_UPDATES_MATRICES, /* of layers: neither embedding nor head, nor stacked experts */
  LS_UPDATES_FACTORED  /* matrices, but for stacked experts */
} ls_update_rule;

typedef struct ls_optimizer_row {
  const char *name; /* as optimizer.name has it */
  ls_update_rule rule;
  ls_optimizer_kind rest;
  bool signs; /* steps are as large for small gradients, for those that are rounding alone too */
  int nodes;
  ls_update_node node[LS_MOST_UPDATE_NODES];
  /* Where gradients are taken elsewhere than at the master weights, which are what is evaluated and
   * kept: a node that makes stored weights of parts, as a step's program begins. No outputs: none;
   * as the update ends, stored weights are made of the master weights. */
  ls_update_node point;
  /* For post-validation, of a row with one node: an op that reads what this one reads and updates,
   * and makes the weights that it would make; 0: none. */
  ls_op_kind speculative;
} ls_optimizer_row;

const ls_optimizer_row *ls_optimizer_row_of(const ls_optimizer *optimizer);

/* Which of a row's updates a parameter has: 0 by its own nodes, 1 by those of `rest`. */
enum { LS_UPDATE_COUNT = 2 };
int ls_optimizer_update_of(const ls_optimizer *optimizer, const ls_graph *graph, int parameter);

/* The row whose nodes are the update. */
const ls_optimizer_row *ls_optimizer_update(const ls_optimizer *optimizer, int update);

/* The node that speculates: the weights that the row's one node would make. */
ls_update_node ls_optimizer_speculation(const ls_optimizer *optimizer);

/* Whether a part is one of what an update keeps: master weights, or what its nodes update. */
bool ls_optimizer_keeps(const ls_optimizer *optimizer, int update, ls_state_part part);

/* How many temporaries of a kind its nodes make. */
int ls_optimizer_temporaries(const ls_optimizer *optimizer, int update, ls_update_source kind);

/* The weight decay of a parameter: its own, or the optimizer's, which vectors (biases, norms) are
 * spared. */
double ls_optimizer_weight_decay(const ls_optimizer *optimizer,
                                 const ls_parameter_record *parameter);

/* The attributes of a node on a parameter. */
ls_attributes ls_optimizer_attributes(const ls_optimizer *optimizer, const ls_update_node *node,
                                      const ls_parameter_record *parameter);

/* Whether a node takes the setting of that key ("optimizer.eps"). */
bool ls_optimizer_takes(const ls_optimizer *optimizer, const char *key);

#endif
