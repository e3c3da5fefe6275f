/* `check` proves the lists by which state is saved and loaded, in every layout, and rejects them
 * where they are damaged: an element saved twice or by nobody, from another place or another
 * rank's; something kept and not filled; a tensor of other rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "check/check.h"
#include "lower/compile.h"
#include "run/state_ranges.h"
#include "session/rounds.h"
#include "session/saved_tensors.h"
#include "store/stored_box.h"
#include "support/layouts.h"

enum { MOST_STAGES = 3, SEEDS = 40 };

static const struct subject {
  const char *name;
  int shape, pp, dp_replicate, dp_shard, tp, zero;
  ls_dtype compute;
  ls_optimizer_kind optimizer;
  ls_offload offload;
  bool freezes, reverses;
} subjects[] = {
    {"one device", 0, 1, 1, 1, 1, 0, LS_F64, LS_OPTIMIZER_ADAMW, {0}, false, false},
    {"replicas", 1, 1, 3, 1, 1, 0, LS_F32, LS_OPTIMIZER_ADAMW, {0}, false, false},
    {"ZeRO-1 in fp32", 0, 1, 1, 3, 1, 1, LS_F32, LS_OPTIMIZER_ADAMW, {0}, false, false},
    {"ZeRO-1 in bf16", 1, 1, 1, 4, 2, 1, LS_BF16, LS_OPTIMIZER_SGD, {0}, false, false},
    {"ZeRO-2 and uneven tp", 0, 1, 1, 2, 3, 2, LS_BF16, LS_OPTIMIZER_ADAMW, {0}, false, false},
    {"ZeRO-3 inside, replicas across",
     2,
     1,
     2,
     3,
     1,
     3,
     LS_BF16,
     LS_OPTIMIZER_ADAMW,
     {0},
     false,
     false},
    {"tp beyond KV heads", 1, 1, 1, 2, 8, 3, LS_F32, LS_OPTIMIZER_ADAMW, {0}, false, false},
    {"a tied embedding on two stages",
     2,
     2,
     1,
     2,
     1,
     3,
     LS_F32,
     LS_OPTIMIZER_ADAMW,
     {0},
     false,
     false},
    {"three stages of tp", 2, 3, 1, 1, 3, 0, LS_BF16, LS_OPTIMIZER_SGD, {0}, false, false},
    {"offloaded",
     0,
     1,
     1,
     2,
     1,
     3,
     LS_BF16,
     LS_OPTIMIZER_ADAMW,
     {LS_TIER_HOST, 0.5, LS_TIER_NVME, LS_TIER_DEVICE},
     false,
     false},
    {"frozen in part", 2, 2, 1, 2, 1, 1, LS_BF16, LS_OPTIMIZER_ADAMW, {0}, true, false},
    {"shards along two axes, the inner one outside",
     0,
     1,
     1,
     6,
     1,
     3,
     LS_BF16,
     LS_OPTIMIZER_ADAMW,
     {0},
     false,
     true},
};
enum { SUBJECTS = sizeof subjects / sizeof *subjects };

typedef struct compiled {
  ls_program *stages[MOST_STAGES];
  int count, ranks; /* stages; ranks of each */
  ls_saved_tensors tensors;
  ls_stored_walk *walk; /* NULL: the one that runs */
} compiled;

/* Shards of each unit in the other order than ranks. */
static ls_mesh reversed_mesh(int near) {
  ls_mesh mesh = {0};
  const ls_mesh usual = ls_mesh_make((int[LS_MESH_ROWS]){1, 1, 1, 1, 1, 1});
  ls_axis shard = usual.axes[LS_AXIS_DP_SHARD];
  ls_mesh_add(&mesh, &usual.axes[LS_AXIS_PP]);
  for (int a = 0; a < 2; a++) {
    shard.name = a ? "near" : "far";
    shard.size = a ? near : 2;
    shard.order[LS_CUT_FLAT] = 2 - a;
    ls_mesh_add(&mesh, &shard);
  }
  ls_mesh_add(&mesh, &usual.axes[LS_AXIS_TP_KV]);
  ls_mesh_add(&mesh, &usual.axes[LS_AXIS_TP_GROUP]);
  return mesh;
}

static void compile(ls_arena *arena, const struct subject *of, compiled *made) {
  ls_layout layout = ls_layout_default();
  layout.pp = of->pp;
  layout.dp_replicate = of->dp_replicate;
  layout.dp_shard = of->dp_shard;
  layout.tp = of->tp;
  layout.zero = of->zero;
  layout.compute = of->compute;
  layout.microbatches = of->pp > 1 ? 4 : 2;
  layout.optimizer.kind = of->optimizer;
  layout.offload = of->offload;
  const ls_mesh mesh = reversed_mesh(of->dp_shard / 2);
  if (of->reverses) layout.mesh = &mesh;
  const ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[of->shape]);
  ls_graph *graph = ls_test_model(arena, &config, &layout, LS_TEST_SEQUENCES, LS_TEST_SEQUENCE);
  for (int p = 0; p < graph->parameters.count && of->freezes; p += 3)
    graph->parameters.items[p].trainable = false;
  ls_graph_backward(graph);
  ls_error error = {0};
  made->count = of->pp;
  made->walk = NULL;
  made->ranks = of->dp_replicate * of->dp_shard * of->tp;
  if (ls_program_compile(graph, &layout, LS_PROGRAM_STEP, made->stages, &error) != LS_OK ||
      ls_saved_tensors_list(arena, &config, graph, made->stages[0], &made->tensors, &error) !=
          LS_OK)
    fail_msg("%s: %s", of->name, error.text);
}

static ls_status check(const compiled *made, const ls_state_lists *lists, ls_saving_report *report,
                       ls_error *error) {
  const ls_program *programs[MOST_STAGES];
  for (int s = 0; s < made->count; s++) programs[s] = made->stages[s];
  return ls_check_saving(programs, made->count, lists, made->tensors.items, made->tensors.count,
                         made->walk ? made->walk : ls_stored_stretch, report, error);
}

static void lists_of_every_layout_are_proved(void **state) {
  (void)state;
  for (int s = 0; s < SUBJECTS; s++) {
    ls_arena *arena = ls_arena_create();
    compiled made;
    compile(arena, &subjects[s], &made);
    ls_saving_report report;
    ls_error error = {0};
    if (check(&made, &ls_state_ranges, &report, &error) != LS_OK)
      fail_msg("%s: %s", subjects[s].name, error.text);
    assert_true(report.saved >= report.tensors && report.filled > 0);
    assert_int_equal(report.tensors, made.tensors.count);
    ls_arena_destroy(&arena);
  }
}

/* All layouts of the equality matrix, with masters of their own and as views of the weights. */
static void lists_of_the_matrix_are_proved(void **state) {
  (void)state;
  ls_arena *all = ls_arena_create();
  const ls_test_layouts layouts = ls_test_layouts_all(all);
  int proved = 0;
  for (int i = 0; i < layouts.count * LS_TEST_SHAPES; i++) {
    ls_arena *arena = ls_arena_create();
    ls_layout layout = layouts.items[i / LS_TEST_SHAPES];
    layout.compute = i % 2 ? LS_BF16 : LS_F32;
    const ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[i % LS_TEST_SHAPES]);
    ls_graph *graph = ls_test_model(arena, &config, &layout, LS_TEST_SEQUENCES, LS_TEST_SEQUENCE);
    ls_graph_backward(graph);
    compiled made = {.count = 1};
    ls_error error = {0};
    if (ls_program_compile(graph, &layout, LS_PROGRAM_STEP, made.stages, &error) == LS_OK) {
      if (ls_saved_tensors_list(arena, &config, graph, made.stages[0], &made.tensors, &error) !=
              LS_OK ||
          check(&made, &ls_state_ranges, NULL, &error) != LS_OK)
        fail_msg("%s: %s",
                 ls_test_layout_print(arena, &layout, ls_test_shapes[i % LS_TEST_SHAPES].name),
                 error.text);
      proved++;
    }
    ls_arena_destroy(&arena);
  }
  print_message("%d layouts proved\n", proved);
  assert_true(proved > 200);
  ls_arena_destroy(&all);
}

typedef enum fault {
  NOBODY = 0, /* saves it */
  AGAIN,      /* saved by another rank too, from where that has it */
  OF_ANOTHER, /* the ranges of another rank */
  OFFSET,     /* elsewhere in memory */
  STRIDE,
  ROW,       /* other rows of the whole */
  SHORT,     /* a row or a column less */
  PART,      /* from another part */
  DOUBLED,   /* one range twice */
  PLACEMENT, /* as if the axis had another rank's coordinate there */
  FAULTS
} fault;

static const char *const fault_names[FAULTS] = {"saved or filled by nobody",
                                                "saved by another rank too",
                                                "the ranges of another rank",
                                                "another place in memory",
                                                "rows of another width",
                                                "other rows of the whole",
                                                "a row or column less",
                                                "another part",
                                                "a range twice",
                                                "another placement"};

/* The damage at hand: of one rank's list, for one part of one parameter. */
static struct {
  fault kind;
  bool loading;
  int rank, other, parameter;
  ls_state_part part;
  bool changed; /* the list */
} now;

static bool same_range(const ls_state_range *a, const ls_state_range *b) {
  return memcmp(&a->box, &b->box, sizeof a->box) == 0 && a->offset == b->offset &&
         a->value == b->value && (a->stride == b->stride || a->box.rows == 1);
}

/* The list of its class is what a rank would say of itself. */
static void compare_lists(const char *name, const ls_program *program, int rank, int parameter) {
  const ls_program_parameter *about = &program->parameters[parameter];
  for (int i = 0; i < 2 * LS_PART_COUNT; i++) {
    const ls_state_part part = (ls_state_part)(i / 2);
    const bool loading = i % 2;
    if (!ls_state_is_own(program, parameter, part) || (loading && part == LS_PART_MASTER)) continue;
    ls_state_range own[LS_MOST_RANGES], of_class[LS_MOST_RANGES];
    const int count = (loading ? ls_state_ranges.filled : ls_state_ranges.saved)(
        program, rank, parameter, part, own);
    const int found = (loading ? ls_state_filled : ls_state_saved)(&ls_state_ranges, program, rank,
                                                                   parameter, part, of_class);
    bool same = found == count;
    for (int r = 0; r < count && same; r++) same = same_range(&own[r], &of_class[r]);
    if (!same)
      fail_msg("%s: %s of %s, rank %d: its class has another list", name,
               ls_state_row_of(part)->name, about->name, rank);
  }
}

static void every_rank_has_the_list_of_its_class(void **state) {
  (void)state;
  for (int s = 0; s < SUBJECTS; s++) {
    ls_arena *arena = ls_arena_create();
    compiled made;
    compile(arena, &subjects[s], &made);
    for (int rank = 0; rank < made.count * made.ranks; rank++) {
      const ls_program *program = made.stages[rank / made.ranks];
      for (int p = 0; p < program->parameter_count; p++)
        compare_lists(subjects[s].name, program, rank, p);
    }
    ls_arena_destroy(&arena);
  }
}

static void change_range(const ls_program *program, ls_state_range *range) {
  const ls_program_parameter *about = &program->parameters[now.parameter];
  const int64_t bytes = (int64_t)ls_dtype_bytes(program->values.items[range->value].dtype);
  ls_state_range same[LS_MOST_RANGES];
  switch (now.kind) {
    case OFFSET: range->offset += now.other % 2 ? bytes : -bytes; break;
    case STRIDE: range->stride++; break;
    case ROW: range->box.row += now.other % 2 ? 1 : -1; break;
    case SHORT:
      if (range->box.rows > 1)
        range->box.rows--;
      else if (range->box.columns > 1)
        range->box.columns--;
      break;
    case PART:
      if (about->trainable && ls_state_saved(&ls_state_ranges, program, now.rank, now.parameter,
                                             LS_PART_MOMENT1, same) > 0)
        range->value = now.part == LS_PART_MOMENT1 ? about->part[LS_PART_MASTER]
                                                   : about->part[LS_PART_MOMENT1];
      break;
    default: break;
  }
}

/* A program whose part is cut over the axes in another order, as a maker might have it. */
static int placed_otherwise(ls_state_list *list, const ls_program *program,
                            ls_state_range *ranges) {
  ls_program other = *program;
  ls_arena *arena = ls_arena_create();
  other.values.items = LS_NEW_ARRAY(arena, ls_value, program->values.count);
  memcpy(other.values.items, program->values.items,
         sizeof *other.values.items * (size_t)program->values.count);
  const ls_program_parameter *about = &program->parameters[now.parameter];
  for (int part = 0; part < LS_PART_COUNT; part++) {
    if (about->part[part] < 0) continue;
    for (int axis = 0; axis < program->mesh.count; axis++) {
      ls_place *place = &other.values.items[about->part[part]].placement.on[axis];
      if (program->mesh.axes[axis].size < 2) continue;
      if (place->kind == LS_SHARDED)
        place->dim = (short)(about->ndim - 1 - place->dim);
      else if (place->kind == LS_SHARDED_FLAT)
        place->kind = LS_REPLICATED;
    }
  }
  const int count = list(&other, now.rank, now.parameter, now.part, ranges);
  ls_arena_destroy(&arena);
  return count;
}

static int damaged(ls_state_list *list, const ls_program *program, int rank, int parameter,
                   ls_state_part part, ls_state_range *ranges) {
  const int count = list(program, rank, parameter, part, ranges);
  ls_state_range before[LS_MOST_RANGES];
  memcpy(before, ranges, sizeof *ranges * (size_t)count);
  if (parameter != now.parameter || part != now.part || rank != now.rank) return count;
  int made = count;
  if (now.kind == NOBODY) {
    made = 0;
  } else if (now.kind == AGAIN || now.kind == OF_ANOTHER) {
    ls_state_range other[LS_MOST_RANGES];
    const int more = list(program, now.other, parameter, part, other);
    const int kept = now.kind == AGAIN ? count : 0;
    made = kept + more <= LS_MOST_RANGES ? kept + more : count;
    if (made == kept + more) memcpy(ranges + kept, other, sizeof *other * (size_t)more);
  } else if (now.kind == DOUBLED && count && count < LS_MOST_RANGES) {
    ranges[made++] = ranges[0];
  } else if (now.kind == PLACEMENT) {
    made = placed_otherwise(list, program, ranges);
  } else if (count) {
    change_range(program, &ranges[now.other % count]);
  }
  bool same = made == count;
  for (int i = 0; i < made && same; i++) same = same_range(&ranges[i], &before[i]);
  now.changed |= !same;
  return made;
}

static int damaged_saved(const ls_program *program, int rank, int parameter, ls_state_part part,
                         ls_state_range *ranges) {
  return damaged(ls_state_ranges.saved, program, rank, parameter, part, ranges);
}

static int damaged_filled(const ls_program *program, int rank, int parameter, ls_state_part part,
                          ls_state_range *ranges) {
  return damaged(ls_state_ranges.filled, program, rank, parameter, part, ranges);
}

/* The rank and the part whose list the rank at hand has. */
static void find_asked(const ls_program *program, int first_rank, bool loading, uint64_t seed) {
  const ls_mesh *mesh = &program->mesh;
  const ls_state_class of =
      (loading ? ls_state_ranges.fills : ls_state_ranges.saves)(program, now.parameter, now.part);
  const int shard = of.first + (int)(ls_random_bits(seed, 6, 0) % (uint64_t)(of.end - of.first));
  const ls_axes others = of.axes & ~of.flat;
  now.part = of.part;
  now.rank = first_rank + ls_mesh_member(mesh, 0, of.shards, shard) +
             ls_mesh_member(mesh, 0, ls_mesh_order(others),
                            ls_mesh_index(mesh, now.rank, ls_mesh_order(others)));
}

/* Of the parameter and the part that the seed says. False: that has nothing to damage. */
static bool try_fault(const compiled *made, fault kind, bool loading, uint64_t seed,
                      ls_error *error) {
  const int stage = (int)(ls_random_bits(seed, 1, 0) % (uint64_t)made->count);
  const ls_program *program = made->stages[stage];
  now.kind = kind;
  now.loading = loading;
  now.parameter = (int)(ls_random_bits(seed, 2, 0) % (uint64_t)program->parameter_count);
  now.rank = stage * made->ranks + (int)(ls_random_bits(seed, 3, 0) % (uint64_t)made->ranks);
  now.other = stage * made->ranks + (int)(ls_random_bits(seed, 4, 0) % (uint64_t)made->ranks);
  static const ls_state_part parts[] = {LS_PART_MASTER, LS_PART_MOMENT1, LS_PART_MOMENT2,
                                        LS_PART_STORED};
  now.part = parts[ls_random_bits(seed, 5, 0) % (loading ? 4 : 3)];
  now.changed = false;
  const ls_program_parameter *about = &program->parameters[now.parameter];
  if (now.part == LS_PART_MASTER && !about->trainable) now.part = LS_PART_STORED;
  if (about->part[now.part] < 0) return false;
  find_asked(program, stage * made->ranks, loading, seed);
  const ls_state_lists lists = {.saves = ls_state_ranges.saves,
                                .fills = ls_state_ranges.fills,
                                .saved = loading ? ls_state_ranges.saved : damaged_saved,
                                .filled = loading ? damaged_filled : ls_state_ranges.filled};
  const ls_status status = check(made, &lists, NULL, error);
  if (!now.changed) return false;
  if (status == LS_REFUTED) return true;
  fail_msg("%s, %s of rank %d, %s of %s: accepted", fault_names[kind],
           loading ? "loading" : "saving", now.rank, ls_state_row_of(now.part)->name, about->name);
  return false;
}

static void damaged_lists_are_rejected(void **state) {
  (void)state;
  int rejected = 0;
  for (int kind = 0; kind < FAULTS; kind++) {
    int of_kind = 0;
    for (int s = 0; s < SUBJECTS; s++) {
      ls_arena *arena = ls_arena_create();
      compiled made;
      compile(arena, &subjects[s], &made);
      for (int i = 0; i < 2 * SEEDS; i++) {
        ls_error error = {0};
        of_kind += try_fault(&made, (fault)kind, i % 2, (uint64_t)(s * 1000 + i), &error);
      }
      ls_arena_destroy(&arena);
    }
    print_message("%-28s %4d rejected\n", fault_names[kind], of_kind);
    assert_true(of_kind > 20);
    rejected += of_kind;
  }
  print_message("%d damaged lists: all rejected\n", rejected);
}

/* The damage of a class: of which ranks have a list, or by which. */
typedef enum class_fault {
  AXIS_LESS = 0,
  LATER,
  EARLIER,
  OTHER_FLAT,
  OF_WEIGHTS, /* as if the part lay as the stored weights do */
  CLASS_FAULTS
} class_fault;

static struct {
  class_fault kind;
  int axis, parameter;
  ls_state_part part;
  bool changed;
} of_class;

static ls_state_class damaged_class(ls_state_classify *classify, const ls_program *program,
                                    int parameter, ls_state_part part) {
  ls_state_class made = classify(program, parameter, part);
  if (parameter != of_class.parameter || part != of_class.part) return made;
  const ls_state_class before = made;
  const ls_axes axis = ls_mesh_active(&program->mesh, 1u << of_class.axis);
  switch (of_class.kind) {
    case AXIS_LESS: made.axes &= ~axis; break;
    case LATER: made.first++; break;
    case EARLIER: made.end--; break;
    case OTHER_FLAT: made.flat ^= axis; break;
    default: made.part = part == LS_PART_STORED ? LS_PART_MASTER : LS_PART_STORED; break;
  }
  of_class.changed |= memcmp(&made, &before, sizeof made) != 0;
  return made;
}

static ls_state_class damaged_saves(const ls_program *program, int parameter, ls_state_part part) {
  return damaged_class(ls_state_ranges.saves, program, parameter, part);
}

static ls_state_class damaged_fills(const ls_program *program, int parameter, ls_state_part part) {
  return damaged_class(ls_state_ranges.fills, program, parameter, part);
}

/* In layouts whose weights lie otherwise than their masters and moments. */
static void damaged_classes_are_rejected(void **state) {
  (void)state;
  static const ls_state_part parts[] = {LS_PART_STORED, LS_PART_MASTER, LS_PART_MOMENT1};
  int rejected = 0;
  for (int s = 3; s < 6; s++) {
    ls_arena *arena = ls_arena_create();
    compiled made;
    compile(arena, &subjects[s], &made);
    for (int i = 0; i < 2 * CLASS_FAULTS * LS_MAX_AXES * 3 * 4; i++) {
      const bool loading = i % 2;
      of_class.kind = (class_fault)(i / 2 % CLASS_FAULTS);
      of_class.axis = i / 2 / CLASS_FAULTS % LS_MAX_AXES;
      of_class.part = parts[i / 2 / CLASS_FAULTS / LS_MAX_AXES % 3];
      of_class.parameter =
          i / 2 / CLASS_FAULTS / LS_MAX_AXES / 3 * made.stages[0]->parameter_count / 4;
      of_class.changed = false;
      ls_state_lists lists = ls_state_ranges;
      if (of_class.axis > made.stages[0]->mesh.count) continue;
      if (loading)
        lists.fills = damaged_fills;
      else
        lists.saves = damaged_saves;
      ls_error error = {0};
      const ls_status status = check(&made, &lists, NULL, &error);
      if (of_class.changed && status != LS_REFUTED)
        fail_msg("%s, class fault %d, axis %d, part %d of parameter %d: accepted", subjects[s].name,
                 (int)of_class.kind, of_class.axis, (int)of_class.part, of_class.parameter);
      rejected += of_class.changed;
    }
    ls_arena_destroy(&arena);
  }
  print_message("%d damaged classes: all rejected\n", rejected);
  assert_true(rejected > 200);
}

static void without_the_last(ls_saved_tensors *all) {
  all->count--;
}

static void one_twice(ls_saved_tensors *all) {
  all->items[all->count - 1] = all->items[all->count - 2];
}

static void moments_for_weights(ls_saved_tensors *all) {
  all->items[1].part = LS_PART_MOMENT1;
}

static ls_stored_layout *of_several(ls_saved_tensors *all) {
  for (int t = 0; t < all->count; t++)
    if (all->items[t].pieces.count > 1) return &all->items[t];
  fail_msg("no fused tensor");
  return NULL;
}

static void rows_over_others(ls_saved_tensors *all) {
  of_several(all)->pieces.items[1].offset--;
}

static void queries_for_keys(ls_saved_tensors *all) {
  ls_weight_piece *pieces = of_several(all)->pieces.items;
  pieces[1].parameter = pieces[0].parameter;
}

static void one_piece_less(ls_saved_tensors *all) {
  of_several(all)->pieces.count--;
}

static void not_transposed(ls_saved_tensors *all) {
  for (int t = 0; t < all->count; t++)
    if (all->items[t].transposed && all->items[t].dims[0] != all->items[t].dims[1]) {
      all->items[t].transposed = false;
      return;
    }
  fail_msg("no transposed tensor");
}

static void a_longer_tensor(ls_saved_tensors *all) {
  all->items[0].dims[0]++;
}

static void blocks_too_far_apart(ls_saved_tensors *all) {
  ls_weight_piece *piece = of_several(all)->pieces.items;
  piece->block = 1;
  piece->period = 2;
}

/* One change of what a checkpoint is made of. */
static const struct tensor_fault {
  const char *name;
  void (*make)(ls_saved_tensors *);
  const char *reason;
} tensor_faults[] = {
    {"a moment left out", without_the_last, "in 0 tensors of a checkpoint: expected 1"},
    {"a moment twice", one_twice, "tensors of a checkpoint: expected 1"},
    {"a moment in place of weights", moments_for_weights, "of a checkpoint: expected 1"},
    {"rows over another's", rows_over_others, "not made of its parameters' rows"},
    {"queries saved as keys", queries_for_keys, "tensors of a checkpoint: expected 1"},
    {"a fused tensor without its values", one_piece_less, "not made of its parameters' rows"},
    {"a tensor saved as it is that is stored transposed", not_transposed,
     "not made of its parameters' rows"},
    {"rows that nobody saves", a_longer_tensor, "not made of its parameters' rows"},
    {"rows interleaved as they are not", blocks_too_far_apart, "not made of its parameters' rows"},
};

static void other_tensors_are_rejected(void **state) {
  (void)state;
  for (size_t f = 0; f < sizeof tensor_faults / sizeof *tensor_faults; f++) {
    ls_arena *arena = ls_arena_create();
    compiled made;
    compile(arena, &subjects[0], &made);
    tensor_faults[f].make(&made.tensors);
    ls_error error = {0};
    if (check(&made, &ls_state_ranges, NULL, &error) != LS_REFUTED)
      fail_msg("%s: accepted", tensor_faults[f].name);
    if (!strstr(error.text, tensor_faults[f].reason))
      fail_msg("%s: \"%s\" lacks \"%s\"", tensor_faults[f].name, error.text,
               tensor_faults[f].reason);
    ls_arena_destroy(&arena);
  }
}

static bool one_further(const ls_stored_layout *layout, const ls_weight_piece *piece,
                        const ls_box *tile, ls_stretch *stretch) {
  const bool more = ls_stored_stretch(layout, piece, tile, stretch);
  stretch->first++;
  return more;
}

static bool one_less(const ls_stored_layout *layout, const ls_weight_piece *piece,
                     const ls_box *tile, ls_stretch *stretch) {
  const bool more = ls_stored_stretch(layout, piece, tile, stretch);
  stretch->count--;
  return more;
}

static bool without_a_column(const ls_stored_layout *layout, const ls_weight_piece *piece,
                             const ls_box *tile, ls_stretch *stretch) {
  ls_box less = *tile;
  if (less.columns > 1) less.columns--;
  return ls_stored_stretch(layout, piece, &less, stretch);
}

static bool as_if_not_transposed(const ls_stored_layout *layout, const ls_weight_piece *piece,
                                 const ls_box *tile, ls_stretch *stretch) {
  ls_stored_layout other = *layout;
  other.transposed = false;
  return ls_stored_stretch(&other, piece, tile, stretch);
}

static bool in_one_block(const ls_stored_layout *layout, const ls_weight_piece *piece,
                         const ls_box *tile, ls_stretch *stretch) {
  ls_weight_piece other = *piece;
  other.block = other.period = piece->rows;
  return ls_stored_stretch(layout, &other, tile, stretch);
}

static bool to_the_end_of_the_tensor(const ls_stored_layout *layout, const ls_weight_piece *piece,
                                     const ls_box *tile, ls_stretch *stretch) {
  const ls_stretch before = *stretch;
  const bool more = ls_stored_stretch(layout, piece, tile, stretch);
  if (!more) return false;
  stretch->count = ls_box_elements(tile) - before.done;
  stretch->done = ls_box_elements(tile);
  return true;
}

/* As GPT-NeoX has its queries, keys and values: head by head. */
static void interleave(ls_stored_layout *fused) {
  const int64_t in = fused->dims[0];
  fused->dims[0] = fused->dims[1];
  fused->dims[1] = in;
  fused->transposed = false;
  for (int i = 0; i < fused->pieces.count; i++) {
    ls_weight_piece *piece = &fused->pieces.items[i];
    piece->block = piece->rows / 2;
    piece->period = piece->block * fused->pieces.count;
    piece->offset = i * piece->block;
  }
}

/* Other ways along a file. */
static void other_walks_are_rejected(void **state) {
  (void)state;
  static ls_stored_walk *const walks[] = {one_further,      one_less,
                                          without_a_column, as_if_not_transposed,
                                          in_one_block,     to_the_end_of_the_tensor};
  enum { WALKS = sizeof walks / sizeof *walks };
  int rejected[WALKS] = {0};
  for (int shape = 0; shape < LS_TEST_SHAPES; shape++) {
    ls_arena *arena = ls_arena_create();
    const struct subject of = {"one device",       shape, 1,     1,    1, 1, 0, LS_F32,
                               LS_OPTIMIZER_ADAMW, {0},   false, false};
    compiled made;
    compile(arena, &of, &made);
    ls_error unread = {0};
    if (shape == 0) interleave(of_several(&made.tensors));
    assert_int_equal(check(&made, &ls_state_ranges, NULL, &unread), LS_OK);
    for (int w = 0; w < WALKS; w++) {
      ls_error error = {0};
      made.walk = walks[w];
      rejected[w] += check(&made, &ls_state_ranges, NULL, &error) == LS_REFUTED;
    }
    ls_arena_destroy(&arena);
  }
  for (int w = 0; w < WALKS; w++) {
    print_message("walk %d: rejected for %d of %d shapes\n", w, rejected[w], LS_TEST_SHAPES);
    assert_true(rejected[w] > 0);
  }
}

typedef enum round_fault {
  DROPPED = 0,
  SWAPPED,
  REPEATED,
  OTHER_MEETING,
  FAILS,
  ROUND_FAULTS
} round_fault;

static const char *const round_fault_names[ROUND_FAULTS] = {
    "a round left out", "two rounds swapped", "a round twice", "another collective",
    "work that fails on one rank unheard"};

enum { MOST_ROUNDS = 16 };

/* False: there is no such fault there. */
static bool damage_rounds(ls_rounds *rounds, ls_round *items, int at, round_fault kind) {
  memcpy(items, rounds->items, sizeof *items * (size_t)rounds->count);
  rounds->items = items;
  const int behind = rounds->count - at - 1;
  switch (kind) {
    case DROPPED: memmove(items + at, items + at + 1, sizeof *items * (size_t)behind); break;
    case SWAPPED:
      if (behind == 0) return false;
      items[MOST_ROUNDS - 1] = items[at];
      items[at] = items[at + 1];
      items[at + 1] = items[MOST_ROUNDS - 1];
      return true;
    case REPEATED: memmove(items + at + 1, items + at, sizeof *items * (size_t)(behind + 1)); break;
    case OTHER_MEETING:
      items[at].meeting = (ls_meeting)(((int)items[at].meeting + 1) % (int)LS_MEETING_COUNT);
      return true;
    default:
      if (items[at].may_fail) return false;
      items[at].may_fail = true;
      return true;
  }
  rounds->count += kind == REPEATED ? 1 : -1;
  return true;
}

/* Every round of every list, damaged on all ranks or on one. */
static void damaged_rounds_are_rejected(void **state) {
  (void)state;
  int rejected = 0;
  for (int l = 0; l < LS_ROUND_LISTS; l++)
    for (int at = 0; at < ls_round_lists[l]->count; at++)
      for (int i = 0; i < 2 * ROUND_FAULTS; i++) {
        ls_round items[MOST_ROUNDS];
        ls_rounds damaged_list = *ls_round_lists[l];
        const round_fault kind = (round_fault)(i / 2);
        if (!damage_rounds(&damaged_list, items, at, kind)) continue;
        if (i % 2 && kind == FAILS) continue; /* the data of one rank is that of all */
        const ls_rounds *of_rank[] = {i % 2 ? ls_round_lists[l] : &damaged_list, ls_round_lists[l],
                                      &damaged_list};
        ls_error error = {0};
        if (ls_check_rounds(of_rank, i % 2 ? 3 : 1, &error) != LS_REFUTED)
          fail_msg("%s, round %d: %s: accepted", ls_round_lists[l]->name, at,
                   round_fault_names[kind]);
        rejected++;
      }
  print_message("%d damaged lists of rounds: all rejected\n", rejected);
  assert_int_equal(rejected, 146);
}

static void rounds_are_proved(void **state) {
  (void)state;
  for (int l = 0; l < LS_ROUND_LISTS; l++) {
    const ls_rounds *of_rank[] = {ls_round_lists[l], ls_round_lists[l]};
    ls_error error = {0};
    if (ls_check_rounds(of_rank, 2, &error) != LS_OK) fail_msg("%s", error.text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lists_of_every_layout_are_proved),
      cmocka_unit_test(lists_of_the_matrix_are_proved),
      cmocka_unit_test(every_rank_has_the_list_of_its_class),
      cmocka_unit_test(damaged_lists_are_rejected),
      cmocka_unit_test(damaged_classes_are_rejected),
      cmocka_unit_test(other_tensors_are_rejected),
      cmocka_unit_test(other_walks_are_rejected),
      cmocka_unit_test(rounds_are_proved),
      cmocka_unit_test(damaged_rounds_are_rejected),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
