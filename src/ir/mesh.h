/* The mesh: devices arranged on named axes, and the placement of a tensor on each of them.
 *
 * A rank's coordinates are its number written in the mixed radix of the axis sizes, outermost axis
 * first. Tensor parallelism is two sub-axes: tp_kv cuts query and KV heads alike; where there are
 * more tp ranks than KV heads, tp_group cuts the query heads of one KV head, which it replicates.
 * Values only; thread-safe. */
#ifndef LS_IR_MESH_H
#define LS_IR_MESH_H

#include "base/arena.h"
#include "graph/op.h"
#include "lockstep/status.h"

typedef enum ls_axis {
  LS_AXIS_PP = 0, /* stages of a pipeline */
  LS_AXIS_DP_REPLICATE,
  LS_AXIS_DP_SHARD,
  LS_AXIS_TP_KV,
  LS_AXIS_TP_GROUP,
  LS_AXIS_COUNT
} ls_axis;

/* A set of axes: bit 1 << axis. */
typedef unsigned ls_axes;
enum {
  LS_AXES_DATA = 1 << LS_AXIS_DP_REPLICATE | 1 << LS_AXIS_DP_SHARD,
  LS_AXES_TENSOR = 1 << LS_AXIS_TP_KV | 1 << LS_AXIS_TP_GROUP,
  LS_AXES_STAGE = 1 << LS_AXIS_PP,
  LS_AXES_ALL = LS_AXES_STAGE | LS_AXES_DATA | LS_AXES_TENSOR,
};

typedef struct ls_mesh {
  int size[LS_AXIS_COUNT];
} ls_mesh;

/* What the axis shares out, and so which labels of an op it may cut. */
ls_shares ls_axis_shares(ls_axis axis);

/* "pp", "dp_replicate", "dp_shard", "tp_kv", "tp_group". */
const char *ls_axis_name(ls_axis axis);

/* How many ranks: the product over the axes of `axes`. */
int ls_mesh_size(const ls_mesh *mesh, ls_axes axes);

/* The axes of `axes` that have more than one rank. */
ls_axes ls_mesh_active(const ls_mesh *mesh, ls_axes axes);

/* The rank's coordinate on an axis, and its index on a product of axes (outermost major). */
int ls_mesh_coordinate(const ls_mesh *mesh, int rank, ls_axis axis);
int ls_mesh_index(const ls_mesh *mesh, int rank, ls_axes axes);

/* The ranks that differ from `rank` on `axes` only, in order of their index there, itself
 * included: ls_mesh_size(mesh, axes) entries. */
void ls_mesh_group(const ls_mesh *mesh, int rank, ls_axes axes, int *members);

/* "tp_kv x tp_group", in the arena. */
const char *ls_axes_print(ls_arena *arena, ls_axes axes);

/* Where a tensor lies on one axis. */
typedef enum ls_place_kind {
  LS_REPLICATED = 0, /* R */
  LS_SHARDED,        /* S(dim) */
  LS_PARTIAL,        /* P(op): still to be reduced */
  LS_SHARDED_FLAT,   /* S(flat): of the elements of the tensor's whole unit, one after the other */
} ls_place_kind;

typedef struct ls_place {
  ls_place_kind kind;
  int dim;          /* of LS_SHARDED */
  ls_reduce reduce; /* of LS_PARTIAL */
} ls_place;

typedef struct ls_placement {
  ls_place on[LS_AXIS_COUNT];
} ls_placement;

bool ls_place_equal(ls_place a, ls_place b);

/* Equal on every axis of `axes` that has more than one rank. */
bool ls_placement_equal(const ls_mesh *mesh, const ls_placement *a, const ls_placement *b,
                        ls_axes axes);

/* The axes on which the placement is of `kind` (S: on dimension `dim`, or any where dim < 0). */
ls_axes ls_placement_axes(const ls_mesh *mesh, const ls_placement *placement, ls_place_kind kind,
                          int dim);

/* A rank's part of a dimension of `global` elements: `stored` is the length of every part, the
 * first `valid` entries exist, entry 0 is element `start`. Data axes divide evenly; tensor axes
 * together cut into parts of ceil(length / ranks). */
typedef struct ls_part {
  int64_t stored, valid, start;
} ls_part;
ls_part ls_mesh_part(const ls_mesh *mesh, int rank, const ls_placement *placement, int dim,
                     int64_t global);

/* "R", "S(0)", "S(flat)", "P(sum)". */
const char *ls_place_print(ls_arena *arena, ls_place place);

/* "R", "S(0) on dp_shard, P(sum) on tp_kv" ... */
const char *ls_placement_print(ls_arena *arena, const ls_mesh *mesh, const ls_placement *placement);

#endif
