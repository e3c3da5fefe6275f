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
 * under fp64), or that of gradients (the same, or bf16). */
typedef enum ls_state_type { LS_TYPE_COMPUTE = 0, LS_TYPE_UPDATE, LS_TYPE_GRADIENT } ls_state_type;

/* Enum suffix, name, type, shape, category; who has it; how a checkpoint calls it.
 *
 * USED is what kernels read, gathered or stored; STORED what stays between steps, in the compute
 * type. MASTER is the same value as kernels update it, and lies where STORED does if their types
 * and tiers are one. RAW_GRADIENT is that of one microbatch, before reduction; GRADIENT the reduced
 * one, which the update reads. */
#define LS_STATE_PARTS(X)                                                                 \
  X(USED, "used form", COMPUTE, TENSOR, GATHERED, ALL, NULL)                              \
  X(STORED, "weights", COMPUTE, RANGE, PARAMETERS, ALL | LS_KEPT, NULL)                   \
  X(MASTER, "master weights", UPDATE, RANGE, MASTER, TRAINED | LS_KEPT, "")               \
  X(MOMENT1, "first moments", UPDATE, RANGE, MOMENTS, TRAINED | LS_KEPT, "moment1.")      \
  X(MOMENT2, "second moments", UPDATE, RANGE, MOMENTS, TRAINED | LS_KEPT, "moment2.")     \
  X(RAW_GRADIENT, "gradient of a microbatch", GRADIENT, TENSOR, GRADIENTS, TRAINED, NULL) \
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
  ls_category category;
  bool trained; /* frozen parameters have none */
  bool kept;    /* between programs */
  /* What stands before the parameter's name in a checkpoint's optimizer file; "": it is saved as
   * the weights are; NULL: not saved. */
  const char *saved;
} ls_state_row;

const ls_state_row *ls_state_row_of(ls_state_part part);
ls_dtype ls_state_dtype(const ls_layout *layout, ls_state_part part);

/* An optimizer: its op, what it keeps of each parameter beside the master weights, in the order of
 * the op's operands, and which settings its op takes. A new one is a row in state.c. */
enum { LS_MOST_MOMENTS = 2, LS_MOST_SETTINGS = 4 };

typedef struct ls_optimizer_row {
  const char *name;               /* as optimizer.name has it */
  ls_op_kind update, speculative; /* in place; and the weights it would make, for post-validation */
  int moments;
  ls_state_part moment[LS_MOST_MOMENTS];
  int settings;
  struct {
    size_t from, to; /* a double of ls_optimizer, and of ls_attributes */
    const char *key; /* of the run file */
  } setting[LS_MOST_SETTINGS];
} ls_optimizer_row;

const ls_optimizer_row *ls_optimizer_row_of(ls_optimizer_kind kind);

/* The row whose update, or speculation at it, an op is; NULL: none. */
const ls_optimizer_row *ls_optimizer_of_op(ls_op_kind op);

/* Whether a part is one of what the optimizer keeps: master weights, or a moment that it has. */
bool ls_optimizer_keeps(ls_optimizer_kind kind, ls_state_part part);

/* The attributes of its op on a parameter of so many dimensions: vectors do not decay. */
ls_attributes ls_optimizer_attributes(const ls_optimizer *optimizer, int ndim);

/* Whether its op takes the setting of that key ("optimizer.eps"). */
bool ls_optimizer_takes(ls_optimizer_kind kind, const char *key);

#endif
