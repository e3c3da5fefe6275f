/* Which nodes run in slices, and how many rows these have. */
#include "schedule/logits_slices.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "model/model.h"

enum { SEQUENCE = 4, VOCABULARY = 40 };

/* A soft cap stands between the product and the loss. */
static const char gemma2[] =
    "{\"model_type\": \"gemma2\", \"vocab_size\": 40, \"hidden_size\": 16, \"intermediate_size\": "
    "20, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"head_dim\": 4, \"query_pre_attn_scalar\": 4, \"final_logit_softcapping\": 30.0, "
    "\"attn_logit_softcapping\": 50.0, \"sliding_window\": 3, \"max_position_embeddings\": 16}";

/* A bias does. */
static const char phi[] =
    "{\"model_type\": \"phi\", \"vocab_size\": 40, \"hidden_size\": 16, \"intermediate_size\": 20, "
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"max_position_embeddings\": 16, "
    "\"resid_pdrop\": 0, \"embd_pdrop\": 0, \"attention_dropout\": 0}";

typedef struct made {
  ls_sharded *sharded;
  ls_logits_slices *slices;
} made;

static made slice(ls_arena *arena, const char *text, ls_model_mode mode, int64_t sequences,
                  const ls_layout *layout) {
  ls_model_config config;
  ls_graph *graph;
  ls_error error = {0};
  const ls_build_options options = {.mode = mode,
                                    .tokens = sequences * SEQUENCE,
                                    .sequence = SEQUENCE,
                                    .cache_rows = sequences * SEQUENCE};
  made all;
  if (ls_model_config_parse(arena, "model", text, strlen(text), &config, &error) != LS_OK ||
      ls_model_build(arena, &config, &options, &graph, &error) != LS_OK)
    fail_msg("%s", error.text);
  if (mode == LS_MODEL_TRAIN) ls_graph_backward(graph);
  if (ls_shard(graph, layout, &all.sharded, &error) != LS_OK) fail_msg("%s", error.text);
  all.slices = ls_logits_slices_make(all.sharded);
  return all;
}

/* The ops in slices, "linear softcap xent_max ..."; an all-reduce is "+". */
static const char *ops_of(ls_arena *arena, const made *all) {
  const char *text = "";
  for (int n = 0; n < all->sharded->nodes.count; n++) {
    const ls_shard_node *node = &all->sharded->nodes.items[n];
    if (!all->slices->nodes[n]) continue;
    const bool op = node->collective == LS_COLLECTIVE_NONE;
    text =
        ls_arena_printf(arena, "%s%s%s", text, *text ? " " : "", op ? ls_op_name(node->kind) : "+");
  }
  return text;
}

static void test_the_nodes_between_product_and_gradients(void **state) {
  (void)state;
  static const struct {
    const char *model;
    ls_model_mode mode;
    int tp;
    const char *ops;
  } cases[] = {
      {gemma2, LS_MODEL_TRAIN, 1,
       "linear softcap xent_max xent_sum xent_grad softcap_bwd linear_dx linear_dw"},
      {phi, LS_MODEL_TRAIN, 1,
       "linear bias xent_max xent_sum xent_grad bias_db linear_dx linear_dw"},
      {phi, LS_MODEL_TRAIN, 2,
       "linear bias xent_max + xent_sum + xent_grad bias_db linear_dx linear_dw"},
      {gemma2, LS_MODEL_FORWARD, 2, "linear softcap xent_max + xent_sum"},
      {gemma2, LS_MODEL_DECODE, 1, ""},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    ls_arena *arena = ls_arena_create();
    ls_layout layout = ls_layout_default();
    layout.tp = cases[c].tp;
    layout.sequence_parallel = layout.tp > 1;
    layout.logits_rows = 5;
    const int64_t sequences = cases[c].mode == LS_MODEL_DECODE ? 1 : 4;
    const made all = slice(arena, cases[c].model, cases[c].mode, sequences, &layout);
    assert_string_equal(ops_of(arena, &all), cases[c].ops);
    assert_int_equal(all.slices->rows, *cases[c].ops ? 5 : 0);
    ls_arena_destroy(&arena);
  }
}

/* Only there in slices: what has the shape of logits, and what is reduced of it. Not what the loss
 * reads, nor the gradient of the head's input. */
static void test_what_is_wide_is_only_there_in_slices(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_layout layout = ls_layout_default();
  layout.logits_rows = 5;
  const made all = slice(arena, phi, LS_MODEL_TRAIN, 4, &layout);
  int wide = 0;
  for (int v = 0; v < all.sharded->values.count; v++) {
    const ls_tensor *tensor =
        ls_graph_tensor(all.sharded->graph, all.sharded->values.items[v].tensor);
    const bool is_wide =
        tensor->ndim == 2 && tensor->dims[0] == 4 * SEQUENCE && tensor->dims[1] == VOCABULARY;
    assert_int_equal(all.slices->inside[v], is_wide);
    wide += is_wide;
  }
  assert_int_equal(wide, 3); /* the product, with its bias, the gradient */
  ls_arena_destroy(&arena);
}

/* As many rows as the layout asks for; none where they are all. By size, a few MiB are one. */
static void test_rows_of_a_slice(void **state) {
  (void)state;
  static const int64_t asked[] = {1, 7, 15, 16, 17, INT64_MAX, 0};
  static const int64_t rows[] = {1, 7, 15, 0, 0, 0, 0};
  for (int i = 0; i < 7; i++) {
    ls_arena *arena = ls_arena_create();
    ls_layout layout = ls_layout_default();
    layout.dp_shard = 2;
    layout.logits_rows = asked[i];
    const made all = slice(arena, gemma2, LS_MODEL_TRAIN, 8, &layout);
    assert_int_equal(all.slices->rows, rows[i]);
    assert_int_equal(all.slices->all, rows[i] ? 16 : 0);
    ls_arena_destroy(&arena);
  }
}

static void test_rows_by_size(void **state) {
  (void)state;
  const ls_layout automatic = {0}, gpu = {.logits_bytes = 512 << 20, .logits_multiple = 64};
  assert_int_equal(ls_logits_slices_rows(2048, 50257 * 4, &automatic), 512); /* GPT-2 in fp32 */
  assert_int_equal(ls_logits_slices_rows(512, 50257 * 4, &automatic), 0);    /* all at once */
  assert_int_equal(ls_logits_slices_rows(4096, 32000 * 2, &automatic),
                   1024); /* as many as 64 MiB have */
  assert_int_equal(ls_logits_slices_rows(8192, 128256 * 4, &automatic), 512); /* no fewer */
  assert_int_equal(ls_logits_slices_rows(1 << 20, 128256 * 2, &automatic),
                   1 << 14); /* 64 slices at most */
  assert_int_equal(ls_logits_slices_rows(1 << 20, 1, &automatic), 0);
  assert_int_equal(ls_logits_slices_rows(16384, 50304 * 2, &gpu), 4096);
  assert_int_equal(ls_logits_row_elements(50257, &gpu), 50304);
  assert_int_equal(ls_logits_row_elements(50257, &automatic), 50257);
  assert_int_equal(ls_logits_slices_rows(100, 1, &(ls_layout){.logits_rows = 30}), 30);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_nodes_between_product_and_gradients),
      cmocka_unit_test(test_what_is_wide_is_only_there_in_slices),
      cmocka_unit_test(test_rows_of_a_slice),
      cmocka_unit_test(test_rows_by_size),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
