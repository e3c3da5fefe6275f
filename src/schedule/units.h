/* Units: parameters that are gathered, reduced and updated together, as one flat buffer.
 *
 * A unit is an ordered list of parameters, already cut over tp; S(flat) cuts the whole buffer into
 * shards, not tensor by tensor. What is done with it follows from its placements: gathered are
 * weights that are stored otherwise than they are used, a gradient is reduced for each microbatch
 * where it is added up otherwise than it is made, and so on. Order: as the model has them (query,
 * key, value adjacent), those replicated on tp axes last and together by axes: their gradients may
 * be partial there, and one all-reduce of a range resolves them. The order is that of every program
 * of the layout, with gradients or without. Each starts on a multiple of the unit's
 * granule; the buffer is padded so that every shard has the same length. A unit is all trainable
 * or all frozen: where a layer has both, its frozen parameters are a unit of their own; and so are
 * those that are stored as blocks, of which an element is one, those that the optimizer updates
 * otherwise, which have other state, those that are gathered as codes, and the experts of a layer
 * where they are sharded over data axes: S(flat) is over other axes then. */
#ifndef LS_SCHEDULE_UNITS_H
#define LS_SCHEDULE_UNITS_H

#include "schedule/chunks.h"
#include "schedule/unit_uses.h"

/* Kernels read widest vectors of 64 bytes, and the narrowest format of a unit's buffers, which all
 * have one order, is of 2: parameters and shards begin on multiples of 32 elements; where that is
 * of codes, of twice as many. */
enum { LS_UNIT_ALIGNMENT = 32 };

typedef struct ls_unit_entry {
  int parameter;      /* of the graph */
  int64_t offset;     /* elements from the unit's start */
  int64_t elements;   /* stored by this rank (padding of an uneven cut included) */
  ls_axes partial;    /* tp axes on which its gradient is still to be summed */
  ls_axes replicated; /* tp axes on which the parameter is the same: counted once in norms */
} ls_unit_entry;

typedef struct ls_unit {
  const char *name;
  int64_t elements;      /* of the whole buffer, padded */
  int64_t granule;       /* elements: parameters and shards begin on multiples of it */
  ls_axes held;          /* data axes over which its parameters are S(dim): experts */
  ls_axes flat;          /* axes that S(flat) cuts it over: of others that shard */
  ls_placement stored;   /* parameters between steps */
  ls_placement used;     /* by kernels: whole */
  ls_placement raw;      /* gradient as backward makes it: partial on the data axes, and on pp where
                            two stages have the unit */
  ls_placement gradient; /* the same as it is added up over microbatches */
  ls_placement state;    /* master weights and moments, and so the reduced gradient */
  bool gather_per_step;  /* from `stored` to `used` for the step, else for each microbatch */
  bool codes;    /* it is gathered, and used, as fp8's codes, which POINT makes; it is stored
                    in shards where others may be whole, and then gathered for the step */
  int stages[2]; /* that both have it (a tied parameter); else -1 */
  bool frozen;   /* it has no gradient, no master weights and no moments */
  ls_precision precision; /* of its parameters, all of one */
  int update;             /* likewise: which of the optimizer's */
  LS_LIST(ls_unit_entry) entries;
} ls_unit;

typedef struct ls_units {
  ls_unit *items;
  int count;
  int *of_parameter; /* unit by parameter */
  int *parameters;   /* by unit, of each in the model's order: */
  int *first;        /* unit u has parameters[first[u]] up to parameters[first[u + 1]] */
  const ls_unit_uses *uses;
  int *entry_of; /* entry within it, by parameter */
  /* By sharded node: it finds the largest magnitude of a weight that is gathered as codes. */
  const bool *left_out;
} ls_units;

/* The parameter that a sharded value is, where it is gathered as codes; -1. */
int ls_units_coded(const ls_units *units, const ls_sharded *sharded, int value);

/* Elements of a unit's buffer that a rank has in a placement. */
int64_t ls_unit_elements(const ls_mesh *mesh, const ls_unit *unit, const ls_placement *placement);

/* A unit for "embedding", for each group of layers_per_unit layers and for "head" (segments named
 * "layers.N" are layers), for each parameter that two stages of the pipeline use, and for what is
 * frozen of the others, or sharded over data axes. Some may be empty. In the sharded graph's arena.
 */
ls_units *ls_units_make(const ls_sharded *sharded, const ls_chunks *chunks);

#endif
