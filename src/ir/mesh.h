/* The mesh: devices arranged on named axes, and the placement of a tensor on each of them.
 *
 *   ls_mesh mesh = {0};
 *   ls_mesh_add(&mesh, &(ls_axis){.name = "dp_shard", .role = LS_MESH_SHARD, .size = 4});
 *
 * A rank's coordinates are its number written in the mixed radix of the axis sizes, outermost axis
 * first. An axis is a row: what it is for is its role, and who needs a set of axes asks the mesh
 * for those of a role. A user's axis may be several rows: tensor parallelism is two, of which tp_kv
 * cuts query and KV heads alike; where there are more tp ranks than KV heads, tp_group cuts the
 * query heads of one KV head, which it replicates. Values only; thread-safe. */
#ifndef LS_IR_MESH_H
#define LS_IR_MESH_H

#include "base/arena.h"
#include "graph/op.h"
#include "lockstep/status.h"

/* A set of axes: bit 1 << axis, which is its number in the mesh. */
typedef unsigned ls_axes;
enum { LS_MAX_AXES = 8 };

typedef enum ls_axis_role {
  LS_MESH_STAGE = 0, /* each rank has other layers */
  LS_MESH_REPLICATE, /* divides the batch; each rank has all that a tensor is in other ways */
  LS_MESH_SHARD,     /* divides the batch; the strategy's row says what is sharded besides */
  LS_MESH_TENSOR,    /* divides tensors by their dimensions */
  LS_MESH_ROLES
} ls_axis_role;

/* What an axis cuts. */
typedef enum ls_cut {
  LS_CUT_TOKENS = 0, /* tokens, which are dimension 0 of what has some */
  LS_CUT_FEATURES,   /* any other dimension */
  LS_CUT_FLAT,       /* the elements of a unit */
  LS_CUTS
} ls_cut;

typedef struct ls_axis {
  const char *name; /* "tp_kv" */
  const char *part; /* of the user's axis: "tp" */
  ls_axis_role role;
  ls_shares shares; /* what it shares out, and so which labels of an op it may cut */
  int size;
  int order[LS_CUTS]; /* among the axes that cut the same: ls_place.order */
  int shift;          /* of the residual stream's tokens: ls_place.shift */
} ls_axis;

typedef struct ls_mesh {
  int count;
  ls_axis axes[LS_MAX_AXES];      /* the stages outermost */
  ls_axes of_role[LS_MESH_ROLES]; /* kept by ls_mesh_add */
} ls_mesh;

/* Adds an axis inside of those there are, of which there must be fewer than LS_MAX_AXES. */
void ls_mesh_add(ls_mesh *mesh, const ls_axis *axis);

/* Splits an axis in two: the inner one is of `ranks`, which divide the axis's, and in all else as
 * the outer one, which keeps its name. Axes behind it have other numbers then. */
void ls_mesh_split(ls_mesh *mesh, int axis, const char *name, int ranks);

/* The mesh of a layout has these rows, of these sizes. Nothing but what makes it (and tests) knows
 * an axis by its number or name. */
enum {
  LS_AXIS_PP = 0,
  LS_AXIS_DP_REPLICATE,
  LS_AXIS_DP_SHARD,
  LS_AXIS_CP,
  LS_AXIS_TP_KV,
  LS_AXIS_TP_GROUP,
  LS_MESH_ROWS
};
ls_mesh ls_mesh_make(const int sizes[LS_MESH_ROWS]);

/* The axes of a role; those that divide the batch; of these the ones that divide its sequences,
 * over which activations may move; those that share out experts, over which they may move too; all;
 * all inside a stage. */
ls_axes ls_mesh_axes(const ls_mesh *mesh, ls_axis_role role);
ls_axes ls_mesh_data(const ls_mesh *mesh);
ls_axes ls_mesh_context(const ls_mesh *mesh);
ls_axes ls_mesh_experts(const ls_mesh *mesh);
ls_axes ls_mesh_all(const ls_mesh *mesh);
ls_axes ls_mesh_inside(const ls_mesh *mesh);

/* How many ranks: the product over the axes of `axes`; over all; stages; ranks of a stage. */
int ls_mesh_size(const ls_mesh *mesh, ls_axes axes);
int ls_mesh_ranks(const ls_mesh *mesh);
int ls_mesh_stages(const ls_mesh *mesh);
int ls_mesh_stage_ranks(const ls_mesh *mesh);

/* The axes of `axes` that have more than one rank. */
ls_axes ls_mesh_active(const ls_mesh *mesh, ls_axes axes);

/* Axes one inside the other: 1 + the number of each in 4 bits, the outermost lowest. */
typedef struct ls_axis_order {
  uint32_t axes;
} ls_axis_order;

/* The axes as the mesh nests them. */
ls_axis_order ls_mesh_order(ls_axes axes);

/* The axis in front, which is taken out; -1 where none is left. */
int ls_axis_order_next(ls_axis_order *order);

/* The rank's coordinate on an axis, its stage, and its index on a product of axes. */
int ls_mesh_coordinate(const ls_mesh *mesh, int rank, int axis);
int ls_mesh_stage(const ls_mesh *mesh, int rank);
int ls_mesh_index(const ls_mesh *mesh, int rank, ls_axis_order axes);

/* The rank that differs from `rank` on these axes only, and has this index there. */
int ls_mesh_member(const ls_mesh *mesh, int rank, ls_axis_order axes, int index);

/* All of these by their index, `rank` itself included; returns how many. */
int ls_mesh_group(const ls_mesh *mesh, int rank, ls_axis_order axes, int *members);

/* "tp_kv x tp_group", in the arena. */
const char *ls_axes_print(ls_arena *arena, const ls_mesh *mesh, ls_axes axes);

/* Where a tensor lies on one axis. */
typedef enum __attribute__((packed)) ls_place_kind {
  LS_REPLICATED = 0, /* R */
  LS_SHARDED,        /* S(dim) */
  LS_PARTIAL,        /* P(op): still to be reduced */
  LS_SHARDED_FLAT,   /* S(flat): of the elements of the tensor's whole unit, one after the other */
} ls_place_kind;

/* A program has many: 8 bytes, without holes. */
typedef struct ls_place {
  ls_place_kind kind;
  ls_reduce reduce; /* of LS_PARTIAL */
  short dim;        /* of LS_SHARDED */
  short order; /* of shards: where several axes cut one dimension, the smaller is outside; of equals
                  the outer one of the mesh */
  short shift; /* of LS_SHARDED: the rank at coordinate c has shard c + shift, around the axis */
} ls_place;
_Static_assert(sizeof(ls_place) == 8, "it has no holes");

typedef struct ls_placement {
  ls_place on[LS_MAX_AXES];
} ls_placement;

/* S(dim) on the axis as it cuts tokens or features; S(flat). */
ls_place ls_place_sharded(const ls_axis *axis, ls_cut cut, int dim);
ls_place ls_place_flat(const ls_axis *axis);

bool ls_place_equal(ls_place a, ls_place b);

/* Equal on every axis of `axes` that has more than one rank. */
bool ls_placement_equal(const ls_mesh *mesh, const ls_placement *a, const ls_placement *b,
                        ls_axes axes);

/* The axes on which the placement is of `kind` (S: on dimension `dim`, or any where dim < 0). */
ls_axes ls_placement_axes(const ls_mesh *mesh, const ls_placement *placement, ls_place_kind kind,
                          int dim);

/* Those axes as the placement nests them. */
ls_axis_order ls_placement_order(const ls_placement *placement, ls_axes axes);

/* A rank's part of a dimension of `global` elements: `stored` is the length of every part, the
 * first `valid` entries exist, entry 0 is element `start`. Data axes divide evenly; tensor axes
 * that follow one another together cut into parts of ceil(length / ranks). */
typedef struct ls_part {
  int64_t stored, valid, start;
} ls_part;
ls_part ls_mesh_part(const ls_mesh *mesh, int rank, const ls_placement *placement, int dim,
                     int64_t global);

/* "R", "S(0)", "S(flat)", "P(sum)", "P(mask)"; with an order or a shift "S(0)#1", "S(0)+1". */
const char *ls_place_print(ls_arena *arena, ls_place place);

/* "R", "S(0) on dp_shard, P(sum) on tp_kv" ... */
const char *ls_placement_print(ls_arena *arena, const ls_mesh *mesh, const ls_placement *placement);

#endif
