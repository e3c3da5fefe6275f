/* Pieces of matrices that go to their owners and back (ir/owners.h): in every cut each element
 * comes to its place at its owner once, and from there to all that hold it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ir/owners.h"

enum { MATRICES = 3, MOST_RANKS = 36, UNIT = 192, OWNED = 512, PADDING = -3 };

/* Rows and columns that axes do not divide; how tensor parallelism cuts each. */
static const int64_t dims[MATRICES][2] = {{7, 13}, {10, 5}, {1, 9}};

typedef struct cut {
  int sizes[LS_MESH_ROWS];
  bool flat;         /* shards of the unit over dp_shard and cp */
  int dim[MATRICES]; /* that tp_kv and tp_group cut; -1: none */
  bool one;          /* tp_group cuts none */
} cut;

typedef struct world {
  ls_program program;
  ls_instruction deal, back;
  ls_program_parameter parameters[MATRICES];
  ls_value values[MATRICES + 2];
  ls_storage storages[2];
  ls_buffer_group group;
  ls_axis_order order;
  int ranks;
  int64_t unit; /* elements of its buffer: shards end inside of matrices and rows */
  double shards[MOST_RANKS][UNIT], owned[MOST_RANKS][OWNED], backs[MOST_RANKS][UNIT];
  int came[MOST_RANKS][OWNED];
} world;

enum { SHARDS = MATRICES, OWNERS };

static int64_t stored_of(const world *w, const ls_value *value, int64_t rows) {
  return ls_mesh_part(&w->program.mesh, 0, &value->placement, 0, rows).stored *
         value->flat_row_elements;
}

static void describe(world *w, const cut *of) {
  const ls_mesh *mesh = &w->program.mesh;
  int64_t at = 0, owner = 1;
  for (int p = 0; p < MATRICES; p++) {
    ls_value *value = &w->values[p];
    *value = (ls_value){.dtype = LS_F64, .ndim = 1, .flat_rows = dims[p][0]};
    for (int a = 0; a < mesh->count; a++) {
      const bool kv = a == LS_AXIS_TP_KV, tensor = kv || a == LS_AXIS_TP_GROUP;
      if (of->flat && (a == LS_AXIS_DP_SHARD || a == LS_AXIS_CP))
        value->placement.on[a] = ls_place_flat(&mesh->axes[a]);
      if (tensor && of->dim[p] >= 0 && (kv || !of->one))
        value->placement.on[a] = ls_place_sharded(&mesh->axes[a], LS_CUT_FEATURES, of->dim[p]);
    }
    value->flat_row_elements = ls_mesh_part(mesh, 0, &value->placement, 1, dims[p][1]).stored;
    value->flat_offset = at;
    value->global[0] = stored_of(w, value, dims[p][0]);
    at += value->global[0] + 3;
    owner = (owner + 1) % w->ranks;
    w->parameters[p] = (ls_program_parameter){.present = true,
                                              .ndim = 2,
                                              .dims = {dims[p][0], dims[p][1]},
                                              .owned = owner * OWNED + 100 * p,
                                              .part = {[LS_PART_MASTER] = p}};
  }
  const int ranks = of->flat ? of->sizes[LS_AXIS_DP_SHARD] * of->sizes[LS_AXIS_CP] : 1;
  w->unit = (at + ranks - 1) / ranks * ranks;
  assert_true(w->unit <= UNIT);
  for (int p = 0; p < MATRICES; p++) w->values[p].flat_elements = w->unit;
}

static world *make_world(const cut *of) {
  world *w = calloc(1, sizeof *w);
  assert_non_null(w);
  ls_program *program = &w->program;
  program->mesh = ls_mesh_make(of->sizes);
  w->ranks = ls_mesh_ranks(&program->mesh);
  assert_true(w->ranks <= MOST_RANKS);
  describe(w, of);
  w->values[SHARDS] =
      (ls_value){.dtype = LS_F64, .ndim = 1, .global = {w->unit}, .flat_elements = w->unit};
  if (of->flat)
    for (int a = LS_AXIS_DP_SHARD; a <= LS_AXIS_CP; a++)
      w->values[SHARDS].placement.on[a] = ls_place_flat(&program->mesh.axes[a]);
  w->values[OWNERS] = (ls_value){.dtype = LS_F64,
                                 .ndim = 1,
                                 .global = {(int64_t)OWNED * w->ranks},
                                 .flat_elements = (int64_t)OWNED * w->ranks,
                                 .placement = ls_owner_placement(&program->mesh),
                                 .storage = 1};
  w->storages[0].bytes = 8 * ls_value_shard(&program->mesh, &w->values[SHARDS]);
  w->storages[1].bytes = 8 * OWNED;
  program->parameters = w->parameters;
  program->parameter_count = MATRICES;
  program->values.items = w->values;
  program->values.count = MATRICES + 2;
  program->storages.items = w->storages;
  program->storages.count = 2;
  w->deal = (ls_instruction){.collective = LS_DEAL,
                             .axes = ls_owner_axes(&program->mesh),
                             .inputs = 1,
                             .outputs = 1,
                             .in = {SHARDS},
                             .out = {OWNERS}};
  w->back = w->deal;
  w->back.collective = LS_HAND_BACK;
  w->back.in[0] = OWNERS, w->back.out[0] = SHARDS;
  w->order = ls_instruction_group(program, &w->deal);
  return w;
}

/* Calls `each` with the number of every element that a rank holds, and where it holds it. */
static void each_held(world *w, int member, void (*each)(world *, int, int64_t, double)) {
  const int rank = ls_mesh_member(&w->program.mesh, 0, w->order, member);
  for (int p = 0; p < MATRICES; p++) {
    const ls_local local = ls_value_local(&w->program, rank, &w->values[p]);
    for (int64_t i = 0; i < local.valid[0]; i++) {
      const int64_t at = local.start[0] + i, row = local.start[1] + at / local.dims[1];
      const int64_t column = local.start[2] + at % local.dims[1];
      const bool there = row < dims[p][0] && column < dims[p][1];
      const double number = 1000 * (p + 1) + (double)(row * dims[p][1] + column);
      each(w, member, local.offset / 8 + i, there ? number : PADDING);
    }
  }
}

static void fill(world *w, int member, int64_t at, double number) {
  w->shards[member][at] = number;
}

static void expect(world *w, int member, int64_t at, double number) {
  assert_true(w->backs[member][at] == (number == PADDING ? 0 : number));
}

static void deal(void *context, const ls_deal_piece *piece) {
  world *w = context;
  for (int64_t row = 0; row < piece->rows; row++)
    for (int64_t i = 0; i < piece->width; i++) {
      const int64_t to = piece->target + row * piece->target_stride + i;
      w->owned[piece->to][to] =
          w->shards[piece->from][piece->source + row * piece->source_stride + i];
      w->came[piece->to][to]++;
    }
}

static void hand_back(void *context, const ls_deal_piece *piece) {
  world *w = context;
  for (int64_t row = 0; row < piece->rows; row++)
    memcpy(&w->backs[piece->to][piece->target + row * piece->target_stride],
           &w->owned[piece->from][piece->source + row * piece->source_stride],
           (size_t)piece->width * sizeof(double));
}

static void run(const cut *of) {
  world *w = make_world(of);
  for (int m = 0; m < w->ranks; m++) each_held(w, m, fill);
  ls_deal_pieces(&w->program, &w->deal, deal, w);
  int64_t elements = 0, came = 0;
  for (int p = 0; p < MATRICES; p++) {
    const int owner = ls_deal_owner(&w->program, &w->deal, p);
    const int64_t first = w->parameters[p].owned % OWNED, count = dims[p][0] * dims[p][1];
    assert_int_equal(owner, w->parameters[p].owned / OWNED);
    for (int64_t i = 0; i < count; i++) {
      assert_true(w->owned[owner][first + i] == 1000 * (p + 1) + (double)i);
      assert_int_equal(w->came[owner][first + i], 1);
    }
    elements += count;
  }
  for (int m = 0; m < w->ranks; m++)
    for (int i = 0; i < OWNED; i++) came += w->came[m][i];
  assert_int_equal(came, elements); /* and nothing else */
  ls_deal_pieces(&w->program, &w->back, hand_back, w);
  for (int m = 0; m < w->ranks; m++) each_held(w, m, expect);
  assert_true(ls_deal_most(&w->program, &w->deal) <= elements);
  free(w);
}

static void every_element_comes_once(void **state) {
  (void)state;
  static const cut cuts[] = {
      {{1, 1, 2, 1, 1, 1}, true, {-1, -1, -1}, false},
      {{1, 1, 8, 1, 1, 1}, true, {-1, -1, -1}, false},
      {{1, 1, 2, 2, 1, 1}, true, {-1, -1, -1}, false},
      {{1, 3, 1, 1, 1, 1}, false, {-1, -1, -1}, false},
      {{1, 1, 3, 1, 1, 1}, false, {-1, -1, -1}, false},
      {{1, 2, 2, 1, 1, 1}, true, {-1, -1, -1}, false},
      {{1, 1, 1, 1, 2, 1}, false, {0, 1, -1}, false},
      {{1, 1, 1, 1, 5, 1}, false, {1, 0, 1}, false},
      {{1, 1, 2, 1, 3, 1}, true, {0, 1, -1}, false},
      {{1, 1, 4, 1, 3, 1}, true, {1, 1, 1}, false},
      {{1, 1, 2, 1, 2, 2}, true, {0, 1, 0}, true},
      {{1, 3, 2, 2, 3, 1}, true, {1, 0, 0}, false},
  };
  for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) run(&cuts[c]);
}

/* Ranks that hold the same send nothing to an owner that has it, which sends it to each of them. */
static void what_is_whole_everywhere_comes_from_its_owner(void **state) {
  (void)state;
  const cut of = {{1, 4, 1, 1, 1, 1}, false, {-1, -1, -1}, false};
  world *w = make_world(&of);
  assert_int_equal(ls_deal_most(&w->program, &w->deal), 0);
  assert_int_equal(ls_deal_most(&w->program, &w->back), 3 * 7 * 13);
  free(w);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_element_comes_once),
      cmocka_unit_test(what_is_whole_everywhere_comes_from_its_owner),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
