/* How state leaves memory and comes back, as data: the tensors of a checkpoint with the parameters'
 * rows that make them, and the ranges of a rank's memory that are written to them or filled from
 * them. Saving and loading run these lists; `check` proves them.
 *
 *   ls_state_range ranges[LS_MOST_RANGES];
 *   const int count = ls_state_saved(lists, program, rank, parameter, LS_PART_MASTER, ranges);
 *   for (int i = 0; i < count; i++) write(&ranges[i].box, ranges[i].value, ranges[i].offset);
 *
 * Thread-safe: values only. */
#ifndef LS_IR_SAVED_STATE_H
#define LS_IR_SAVED_STATE_H

#include "base/box.h"
#include "ir/program.h"

/* One of our parameters, or rows of one, inside a stored tensor. The rows of experts lie in a
 * tensor for each expert. */
typedef struct ls_weight_piece {
  int parameter;  /* index into graph->parameters */
  int64_t first;  /* of its rows, the first that lies here */
  int64_t offset; /* where these begin along `out` of the stored tensor */
  int64_t rows;   /* how many lie here */
  /* Its rows lie in blocks of so many, each so far behind the last: queries, keys and values side
   * by side, head by head. A piece in one block has block = rows. */
  int64_t block, period;
} ls_weight_piece;

typedef struct ls_stored_layout {
  const char *name;   /* as transformers saves it */
  const char *plain;  /* without the family's prefix, as base models are saved; may equal name */
  ls_state_part part; /* of its parameters: their master weights, or a moment */
  int ndim;
  int64_t dims[2]; /* in the file, or of each matrix of it */
  int64_t stack;   /* the file has so many matrices one after another, of experts; 0: one */
  bool transposed; /* [in, out] */
  bool adapter;    /* in the file of adapters: what they are beside is in that of the weights */
  int module;      /* of a head over classes that it is of; else 0 */
  LS_LIST(ls_weight_piece) pieces;
} ls_stored_layout;

/* The shape in the file: returns how many dimensions. */
int ls_stored_shape(const ls_stored_layout *layout, int64_t dims[3]);
int64_t ls_stored_elements(const ls_stored_layout *layout);

/* Elements of a tile that follow each other in the stored tensor. */
typedef struct ls_stretch {
  int64_t first, count;
  int64_t done; /* elements of the tile up to its end */
} ls_stretch;

/* The next stretch of a tile of a parameter; *stretch is {0} at first. False: there is none. */
typedef bool ls_stored_walk(const ls_stored_layout *layout, const ls_weight_piece *piece,
                            const ls_box *tile, ls_stretch *stretch);

/* A box of a whole parameter, and where a rank has it. */
typedef struct ls_state_range {
  ls_box box;
  int value;
  int64_t offset; /* bytes of the box's first element from the start of the value's buffer group */
  int64_t stride; /* elements from row to row */
} ls_state_range;

enum { LS_MOST_RANGES = 2 * LS_MOST_BOXES };

/* Which ranks are asked for their ranges of a part: all others have theirs from these. A rank whose
 * index on `flat` is not in [first, end) has none; of ranks equal on `axes` the lowest of the stage
 * is asked; and a part that lies as an earlier one does, in another storage, has the ranges of
 * that. So a list is proved for the ranks that are asked, which are few. */
typedef struct ls_state_class {
  ls_state_part part;
  ls_axes axes, flat;   /* the second in the first */
  ls_axis_order shards; /* `flat` as the part's placement nests it */
  int first, end;
} ls_state_class;

/* The class of a part that the stage has. */
typedef ls_state_class ls_state_classify(const ls_program *program, int parameter,
                                         ls_state_part part);

/* The ranges of a rank of the program, which is asked, for a part; returns how many. */
typedef int ls_state_list(const ls_program *program, int rank, int parameter, ls_state_part part,
                          ls_state_range ranges[LS_MOST_BOXES]);

typedef struct ls_state_lists {
  ls_state_classify *saves, *fills; /* the classes of the lists */
  ls_state_list *saved;             /* that it writes: over all ranks every element once */
  ls_state_list *filled;            /* that it fills: all that it keeps of the part */
} ls_state_lists;

/* What any rank writes of a part, and what it fills with what is saved as that part: of the master
 * weights the stored copy too. Of a frozen parameter the master weights are the stored ones.
 * Returns how many ranges. */
int ls_state_saved(const ls_state_lists *lists, const ls_program *program, int rank, int parameter,
                   ls_state_part part, ls_state_range ranges[LS_MOST_RANGES]);
int ls_state_filled(const ls_state_lists *lists, const ls_program *program, int rank, int parameter,
                    ls_state_part part, ls_state_range ranges[LS_MOST_RANGES]);

/* The value of a part, or of what stands for it; -1: the stage has none. */
int ls_state_value(const ls_program *program, int parameter, ls_state_part part);

/* Whether a part is kept, in memory of its own: it may be a view of the weights. */
bool ls_state_is_own(const ls_program *program, int parameter, ls_state_part part);

#endif
