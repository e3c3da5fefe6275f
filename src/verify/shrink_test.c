/* Shrinking keeps what is in play: over random models and layouts (LS_SEED for others), and in
 * named cases. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ir/program.h"
#include "lower/compile.h"
#include "store/freeze.h"
#include "support/random_run.h"
#include "support/test_seed.h"
#include "verify/shrink_parts.h"

enum { RUNS = 400, LEAST_LEGAL = 300 };

static uint64_t chosen_seed(void) {
  return test_seed_untold(20261121);
}

static int64_t ranks_of(const ls_form *form) {
  return form->pp * form->replicas * form->shards * form->tp;
}

static bool is_given_up(const ls_shrunk *small, const char *edge) {
  for (int i = 0; i < small->given_up.count; i++)
    if (strcmp(small->given_up.items[i], edge) == 0) return true;
  return false;
}

/* The form of what was made, not what the search says it made. */
static ls_form form_of(const ls_shrunk *small) {
  ls_form form;
  ls_error error = {0};
  if (ls_form_make(&small->config, &small->layout, small->batch, small->form.sequence, &form,
                   &error) != LS_OK)
    fail_msg("%s", error.text);
  return form;
}

static void check_edges(const ls_shrunk *small, const ls_form *before, const char *name) {
  const ls_form form = form_of(small);
  for (int e = 0; e < ls_form_edge_count; e++) {
    const ls_form_edge *edge = &ls_form_edges[e];
    if (edge->side(&form) == edge->side(before) || is_given_up(small, edge->name)) continue;
    fail_msg("%s: %s: %lld became %lld", name, edge->name, (long long)edge->side(before),
             (long long)edge->side(&form));
  }
}

/* Said apart from the table of edges, which could itself be wrong. */
static void check_by_hand(const ls_shrunk *small, const ls_test_run *run, const char *name) {
  const ls_layout *a = &run->layout, *b = &small->layout;
  const ls_model_config *before = &run->config, *after = &small->config;
  bool right = (a->pp > 1) == (b->pp > 1) && (a->dp_replicate > 1) == (b->dp_replicate > 1) &&
               (a->dp_shard > 1) == (b->dp_shard > 1) && (a->tp > 1) == (b->tp > 1);
  right = right && strcmp(a->schedule, b->schedule) == 0 && a->zero == b->zero &&
          a->sequence_parallel == b->sequence_parallel && a->gather == b->gather &&
          a->reduce == b->reduce && ls_op_set_equal(&a->recompute, &b->recompute) &&
          a->compute == b->compute && (a->chunks > 1) == (b->chunks > 1) &&
          !a->stages == !b->stages &&
          memcmp(&a->optimizer, &b->optimizer, sizeof a->optimizer) == 0;
  right = right && before->tied == after->tied && before->family == after->family &&
          before->attention_bias == after->attention_bias && before->mlp_bias == after->mlp_bias;
  right = right && (before->vocabulary % a->tp == 0) == (after->vocabulary % b->tp == 0) &&
          (before->mlp_width % a->tp == 0) == (after->mlp_width % b->tp == 0) &&
          (before->kv_heads < a->tp) == (after->kv_heads < b->tp) &&
          (a->microbatches > 1) == (b->microbatches > 1);
  if (!right) fail_msg("%s: a strategy or an edge is lost", name);
  const bool cuts = before->window > 0 && before->window < run->sequence;
  const bool cuts_still = after->window > 0 && after->window < small->form.sequence;
  right = (cuts == cuts_still || small->form.sequence == 1) && before->softcap == after->softcap &&
          before->parallel == after->parallel && !before->layer_kinds == !after->layer_kinds &&
          (before->rotary_dim > 0) == (after->rotary_dim > 0) &&
          after->rotary_dim <= after->head_dim && after->rotary_dim % 2 == 0;
  if (!right) fail_msg("%s: a window, or what the family has, is lost", name);
}

static void check_sizes(const ls_shrunk *small, const char *name) {
  const ls_form *form = &small->form, *before = &small->before;
  const bool right = ranks_of(form) <= LS_SHRINK_MOST_RANKS && form->layers <= before->layers &&
                     form->width <= before->width && form->heads <= before->heads &&
                     form->sequence <= before->sequence && form->sequence <= form->positions &&
                     form->microbatches <= before->microbatches && form->vocabulary <= 120 &&
                     form->mlp_width <= 120 && form->width <= 320;
  if (!right) fail_msg("%s: not small", name);
}

/* Of its compiled programs: what units cut over shards are like. */
static unsigned pieces_of(const ls_model_config *config, const ls_layout *layout, int64_t batch,
                          int64_t sequence) {
  ls_arena *arena = ls_arena_create();
  ls_graph *graph;
  ls_error error = {0};
  const ls_build_options options = {.tokens = batch / layout->microbatches * sequence,
                                    .sequence = sequence};
  ls_program **stages = LS_NEW_ARRAY(arena, ls_program *, layout->pp);
  ls_status status = ls_model_build(arena, config, &options, &graph, &error);
  if (status == LS_OK) {
    ls_graph_backward(graph);
    status = ls_program_compile(graph, layout, LS_PROGRAM_STEP, stages, &error);
  }
  if (status != LS_OK) fail_msg("%s: %s", ls_layout_print(arena, layout), error.text);
  const unsigned pieces = ls_shrink_pieces(stages, layout->pp);
  ls_arena_destroy(&arena);
  return pieces;
}

static void check_pieces(const ls_shrunk *small, const ls_test_run *run, const char *name) {
  const unsigned before = pieces_of(&run->config, &run->layout, run->batch, run->sequence);
  const unsigned after =
      pieces_of(&small->config, &small->layout, small->batch, small->form.sequence);
  if ((before & ~after) && !is_given_up(small, LS_SHRINK_PIECES))
    fail_msg("%s: units are %u; expected %u", name, after, before);
}

enum { MOST_EDGES = 64 };

typedef struct tally {
  int legal, refused, smaller, given_up;
  int by_edge[MOST_EDGES]; /* how often each was given up */
} tally;

static void check_run(uint64_t number, tally *count) {
  ls_arena *arena = ls_arena_create();
  const ls_test_run run = ls_test_random_run(arena, chosen_seed(), number);
  const char *name = ls_test_run_print(arena, &run);
  ls_shrunk *small;
  ls_error error = {0};
  const ls_status status =
      ls_shrink(arena, &run.config, &run.layout, run.batch, run.sequence, NULL, &small, &error);
  if (status == LS_OK) {
    check_sizes(small, name);
    check_edges(small, &small->before, name);
    check_by_hand(small, &run, name);
    check_pieces(small, &run, name);
    /* On the same mesh all can be kept, but for how units divide: small ones may not all do. */
    for (int g = 0; g < small->given_up.count; g++)
      if (ranks_of(&small->before) <= LS_SHRINK_MOST_RANKS &&
          strcmp(small->given_up.items[g], LS_SHRINK_PIECES) != 0)
        fail_msg("%s: %s given up without need", name, small->given_up.items[g]);
    count->smaller += ranks_of(&small->form) < ranks_of(&small->before);
    count->given_up += small->given_up.count > 0;
    for (int e = 0; e < ls_form_edge_count; e++)
      count->by_edge[e] += is_given_up(small, ls_form_edges[e].name);
  } else if (status != LS_INPUT) {
    fail_msg("%s: %s", name, error.text);
  }
  count->legal += status == LS_OK;
  count->refused += status != LS_OK;
  ls_arena_destroy(&arena);
}

static void test_random_runs_keep_every_edge(void **state) {
  (void)state;
  tally count = {0};
  print_message("seed %llu (set LS_SEED for another)\n", (unsigned long long)chosen_seed());
  for (uint64_t number = 0; number < RUNS; number++) check_run(number, &count);
  print_message("%d legal runs (%d refused), %d to fewer ranks, %d without some edge\n",
                count.legal, count.refused, count.smaller, count.given_up);
  for (int e = 0; e < ls_form_edge_count; e++)
    if (count.by_edge[e])
      print_message("%4d without: %s\n", count.by_edge[e], ls_form_edges[e].name);
  assert_true(count.legal >= LEAST_LEGAL);
  assert_true(count.smaller >= LEAST_LEGAL / 4);
}

static ls_shrunk *shrink_preset(ls_arena *arena, const char *preset, const ls_layout *layout,
                                int64_t batch, int64_t sequence) {
  ls_model_config config;
  ls_error error = {0};
  ls_shrunk *small;
  assert_int_equal(ls_model_find(arena, preset, &config, &error), LS_OK);
  if (ls_shrink(arena, &config, layout, batch, sequence, NULL, &small, &error) != LS_OK)
    fail_msg("%s", error.text);
  return small;
}

static void test_kv_heads_fewer_than_tp_stay_cut_and_shared(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_layout layout = ls_layout_default();
  layout.tp = 16; /* of 8 KV heads, 64 heads */
  layout.dp_shard = 4;
  const ls_shrunk *small = shrink_preset(arena, "llama3-70b", &layout, 8, 512);
  assert_int_equal(small->layout.tp, 4);
  assert_int_equal(small->config.kv_heads, 2);
  assert_int_equal(small->config.heads, 8);
  assert_int_equal(small->given_up.count, 0);
  ls_arena_destroy(&arena);
}

/* 2 x 2 x 2 x 4 would be 32: one KV head that all tp ranks share is the most there can be; and one
 * axis alone has room for a third. */
static void test_what_24_ranks_cannot_keep_is_said(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_layout layout = ls_layout_default();
  layout.pp = layout.dp_replicate = layout.dp_shard = 4;
  layout.tp = 16;
  layout.microbatches = 8;
  const ls_shrunk *small = shrink_preset(arena, "llama3-70b", &layout, 128, 512);
  assert_int_equal(small->layout.tp, 2);
  assert_int_equal(small->config.kv_heads, 1);
  assert_int_equal(small->layout.dp_shard, 3);
  assert_int_equal(small->given_up.count, 4);
  assert_string_equal(small->given_up.items[0], "more than one KV head");
  assert_true(is_given_up(small, "more than two stages"));
  ls_arena_destroy(&arena);
}

/* Of five axes above 1 two ranks each are 32. */
static void test_all_axes_stay(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_layout layout = ls_layout_default();
  layout.pp = layout.dp_replicate = layout.dp_shard = layout.cp = layout.tp = 4;
  layout.microbatches = 8;
  const ls_shrunk *small = shrink_preset(arena, "llama3-70b", &layout, 128, 512);
  for (int a = 0; a < LS_LAYOUT_AXES; a++) assert_int_equal(ls_layout_size(&small->layout, a), 2);
  ls_arena_destroy(&arena);
}

/* Of two, the next is the one before: what goes wrong between three stays to be seen. */
static void test_a_third_member_stays(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_layout layout = ls_layout_default();
  layout.dp_replicate = 4;
  layout.dp_shard = 128;
  const ls_shrunk *small = shrink_preset(arena, "gpt2-124m", &layout, 512, 64);
  assert_int_equal(small->layout.dp_replicate, 3);
  assert_int_equal(small->layout.dp_shard, 3);
  assert_int_equal(small->given_up.count, 0);
  layout.tp = layout.pp = 4; /* 3 x 3 x 2 x 2 would be 36 */
  small = shrink_preset(arena, "gpt2-124m", &layout, 512, 64);
  assert_int_equal(small->layout.dp_replicate, 2);
  assert_int_equal(small->layout.dp_shard, 3);
  assert_true(is_given_up(small, "more than two replicas"));
  layout.dp_replicate = 1;
  small = shrink_preset(arena, "gpt2-124m", &layout, 512, 64);
  assert_int_equal(small->layout.dp_shard, 3);
  assert_int_equal(small->layout.pp + small->layout.tp, 5);
  ls_arena_destroy(&arena);
}

/* GPT-2 in width 768: all but its tables are multiples of 768, so they divide over 2 shards; over 5
 * not even a norm does; over 40 a norm leaves some with nothing. */
static void test_pieces_stay_padded_or_empty(void **state) {
  (void)state;
  static const struct {
    int shards;
    unsigned has;
  } cases[] = {{2, LS_PIECES_FULL}, {5, LS_PIECES_PADDED}, {40, LS_PIECES_EMPTY}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    ls_arena *arena = ls_arena_create();
    ls_layout layout = ls_layout_default();
    layout.dp_shard = cases[c].shards;
    layout.zero = 2;
    const ls_shrunk *small = shrink_preset(arena, "gpt2-124m", &layout, 120, 64);
    const unsigned made =
        pieces_of(&small->config, &small->layout, small->batch, small->form.sequence);
    if ((made & cases[c].has) != cases[c].has)
      fail_msg("%d shards: units are %u; expected %u", cases[c].shards, made, cases[c].has);
    assert_int_equal(small->given_up.count, 0);
    ls_arena_destroy(&arena);
  }
}

static unsigned frozen_pieces(ls_graph *of, const ls_layout *layout) {
  ls_program *stages[1];
  ls_error error = {0};
  ls_graph_backward(of);
  if (ls_program_compile(of, layout, LS_PROGRAM_STEP, stages, &error) != LS_OK)
    fail_msg("%s", error.text);
  return ls_shrink_pieces(stages, 1);
}

/* Where a part of a layer alone is trained, its unit lies over shards otherwise than a whole layer
 * does: what it is like stays in play, or that it does not is said. */
static void check_frozen_pieces(int shards, bool found) {
  static const char *const names[] = {"embedding", "*.attention", "*.norm", "*.down"};
  ls_arena *arena = ls_arena_create();
  ls_model_config config;
  ls_shrunk *small;
  ls_graph *large, *made;
  ls_error error = {0};
  ls_layout layout = ls_layout_default();
  layout.dp_shard = shards;
  layout.zero = 2;
  assert_int_equal(ls_model_find(arena, "gpt2-124m", &config, &error), LS_OK);
  const ls_build_options options = {.tokens = shards * 64, .sequence = 64};
  assert_int_equal(ls_model_build(arena, &config, &options, &large, &error), LS_OK);
  assert_int_equal(ls_freeze(&config, large, names, 4, &error), LS_OK);
  if (ls_shrink(arena, &config, &layout, shards, 64, large, &small, &error) != LS_OK)
    fail_msg("%s", error.text);
  const ls_build_options few = {.tokens = small->batch * small->form.sequence,
                                .sequence = small->form.sequence};
  assert_int_equal(ls_model_build(arena, &small->config, &few, &made, &error), LS_OK);
  const ls_status status =
      ls_freeze(&small->config, made, small->freeze.items, small->freeze.count, &error);
  assert_int_equal(status, LS_OK);
  const unsigned wanted = frozen_pieces(large, &layout), has = frozen_pieces(made, &small->layout);
  if (((has & wanted) == wanted) != found)
    fail_msg("%d shards: units are %u; expected %u", shards, has, wanted);
  assert_int_equal(is_given_up(small, LS_SHRINK_PIECES), !found);
  ls_arena_destroy(&arena);
}

static void test_pieces_are_those_of_what_is_trained(void **state) {
  (void)state;
  check_frozen_pieces(26, true);
  check_frozen_pieces(7, false);
}

/* Of each layer of the large model's first, middle and last, as the small one's stand for them. */
static void test_groups_are_those_of_the_layers_it_stands_for(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_model_config config;
  ls_shrunk *small;
  ls_graph *large, *made;
  ls_error error = {0};
  ls_layout layout = ls_layout_default();
  layout.dp_shard = 2;
  assert_int_equal(ls_model_find(arena, "gpt2-124m", &config, &error), LS_OK);
  const ls_build_options options = {.tokens = 128, .sequence = 64};
  assert_int_equal(ls_model_build(arena, &config, &options, &large, &error), LS_OK);
  if (ls_shrink(arena, &config, &layout, 2, 64, large, &small, &error) != LS_OK)
    fail_msg("%s", error.text);
  assert_null(small->settings);
  for (int p = 0; p < large->parameters.count; p++) {
    ls_parameter_settings *settings = &large->parameters.items[p].settings;
    if (strncmp(large->parameters.items[p].about.name, "layers.11.", 10) == 0) settings->rate = 0.5;
    if (strcmp(large->parameters.items[p].about.name, "head.norm.weight") == 0)
      settings->weight_decay = 0.25;
  }
  if (ls_shrink(arena, &config, &layout, 2, 64, large, &small, &error) != LS_OK)
    fail_msg("%s", error.text);
  assert_non_null(small->settings);
  const ls_build_options few = {.tokens = small->form.sequence, .sequence = small->form.sequence};
  assert_int_equal(ls_model_build(arena, &small->config, &few, &made, &error), LS_OK);
  char last[32];
  int found = 0;
  snprintf(last, sizeof last, "layers.%lld.", (long long)small->config.layers - 1);
  for (int p = 0; p < made->parameters.count; p++) {
    const char *name = made->parameters.items[p].about.name;
    assert_true(small->settings[p].rate == (strncmp(name, last, strlen(last)) == 0 ? 0.5 : 1));
    const bool norm = strcmp(name, "head.norm.weight") == 0;
    found += norm;
    assert_true(small->settings[p].weight_decay == (norm ? 0.25 : -1));
  }
  assert_int_equal(found, 1);
  ls_arena_destroy(&arena);
}

static void test_uneven_numbers_stay_uneven(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_layout layout = ls_layout_default();
  layout.pp = 8;
  layout.tp = 4;
  layout.microbatches = 11;
  const ls_shrunk *small = shrink_preset(arena, "gpt2-124m", &layout, 22, 100);
  assert_int_equal(small->config.vocabulary % small->layout.tp, 1);
  assert_int_equal(small->config.layers % small->layout.pp, 1);
  assert_int_equal(small->layout.microbatches % small->layout.pp, 1);
  assert_true(small->layout.microbatches > small->layout.pp);
  ls_arena_destroy(&arena);
}

static void test_stages_by_hand_keep_their_pattern(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_layout layout = ls_layout_default();
  layout.pp = 6;
  layout.tp = 6;
  layout.stages = "none, 0-2, 3-5, 6-8, 9-10, 11";
  layout.microbatches = 6;
  const ls_shrunk *small = shrink_preset(arena, "gpt2-124m", &layout, 12, 100);
  assert_int_equal(small->layout.pp, 3);
  assert_string_equal(small->layout.stages, "none, 0-1, 2");
  layout.tp = 1; /* 6 ranks stay */
  small = shrink_preset(arena, "gpt2-124m", &layout, 12, 100);
  assert_string_equal(small->layout.stages, "none, 0-1, 2-3, 4-5, 6-7, 8");
  ls_arena_destroy(&arena);
}

static void test_slices_of_logits_stay(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_layout layout = ls_layout_default();
  const ls_shrunk *small = shrink_preset(arena, "gpt2-124m", &layout, 1, 512);
  assert_int_equal(small->layout.logits_rows, 0);
  small = shrink_preset(arena, "gpt2-124m", &layout, 4, 512); /* 4 x 512 */
  const int64_t even = small->form.sequences * small->form.sequence;
  assert_int_equal(even % small->layout.logits_rows, 0);
  assert_true(small->layout.logits_rows < even);
  small = shrink_preset(arena, "gpt2-124m", &layout, 5, 500);
  const int64_t uneven = small->form.sequences * small->form.sequence;
  assert_true(uneven % small->layout.logits_rows > 0);
  ls_arena_destroy(&arena);
}

static void test_illegal_layouts_are_refused_as_they_are(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_model_config config;
  ls_shrunk *small;
  ls_error error = {0};
  ls_layout layout = ls_layout_default();
  assert_int_equal(ls_model_find(arena, "llama3-8b", &config, &error), LS_OK);
  layout.tp = 3;
  assert_int_equal(ls_shrink(arena, &config, &layout, 8, 64, NULL, &small, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "tp=3 and 32 heads"));
  layout.tp = 1;
  layout.pp = 64;
  assert_int_equal(ls_shrink(arena, &config, &layout, 8, 64, NULL, &small, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "stages"));
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_random_runs_keep_every_edge),
      cmocka_unit_test(test_kv_heads_fewer_than_tp_stay_cut_and_shared),
      cmocka_unit_test(test_all_axes_stay),
      cmocka_unit_test(test_what_24_ranks_cannot_keep_is_said),
      cmocka_unit_test(test_a_third_member_stays),
      cmocka_unit_test(test_pieces_stay_padded_or_empty),
      cmocka_unit_test(test_pieces_are_those_of_what_is_trained),
      cmocka_unit_test(test_groups_are_those_of_the_layers_it_stands_for),
      cmocka_unit_test(test_uneven_numbers_stay_uneven),
      cmocka_unit_test(test_stages_by_hand_keep_their_pattern),
      cmocka_unit_test(test_slices_of_logits_stay),
      cmocka_unit_test(test_illegal_layouts_are_refused_as_they_are),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
