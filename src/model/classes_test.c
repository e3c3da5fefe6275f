/* A head over classes: what config.json says of it, what it is given, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "model/model.h"

#define SHAPE                                                                                      \
  "\"model_type\": \"llama\", \"vocab_size\": 64, \"hidden_size\": 16, \"intermediate_size\": 24," \
  " \"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"max_position_embeddings\": 16"
#define HEAD SHAPE ", \"architectures\": [\"LlamaForSequenceClassification\"]"

static ls_error error;

static ls_status parse(ls_arena *arena, const char *keys, ls_model_config *config) {
  const char *text = ls_arena_printf(arena, "{%s}", keys);
  return ls_model_config_parse(arena, "c.json", text, strlen(text), config, &error);
}

static void classes_are_read(void **state) {
  (void)state;
  static const struct {
    const char *keys;
    int64_t classes;
    const char *last; /* or what is said */
  } cases[] = {
      {SHAPE, 0, NULL},
      {SHAPE ", \"id2label\": {\"0\": \"no\", \"1\": \"yes\"}", 0, NULL},
      {HEAD ", \"id2label\": {\"1\": \"yes\", \"0\": \"no\"}", 2, "yes"},
      {HEAD ", \"num_labels\": 4, \"problem_type\": null", 4, "LABEL_3"},
      {HEAD, 2, "LABEL_1"},
      {SHAPE ", \"architectures\": [\"LlamaForTokenClassification\"]", 2, "LABEL_1"},
      {SHAPE ", \"architectures\": [\"LlamaForTokenClassification\"], "
             "\"classifier_dropout\": 1",
       -1, "c.json: classifier_dropout: found 1; expected from 0 to below 1"},
      {SHAPE ", \"token_classification_bias\": false", -1, "token_classification_bias: found"},
      {HEAD ", \"id2label\": {\"0\": \"LABEL_0\"}", -1, "1 label (num_labels, id2label)"},
      {HEAD ", \"num_labels\": 1", -1, "which is a regression"},
      {HEAD ", \"num_labels\": 100000", -1, "num_labels: found 100000; expected at most 65536"},
      {HEAD ", \"id2label\": {\"0\": \"no\", \"2\": \"yes\"}", -1, "found no name for \"1\""},
      {HEAD ", \"id2label\": {\"0\": \"no\", \"1\": 7}", -1, "found no name for \"1\""},
      {HEAD ", \"id2label\": {\"0\": \"no\", \"1\": \"no\"}", -1, "found \"no\" twice"},
      {HEAD ", \"id2label\": [\"no\", \"yes\"]", -1, "expected an object of names"},
      {HEAD ", \"problem_type\": \"multi_label_classification\"", 2, "LABEL_1"},
      {HEAD ", \"num_labels\": 5000, \"problem_type\": \"multi_label_classification\"", 5000,
       "LABEL_4999"},
      {HEAD ", \"problem_type\": \"regression\"", -1,
       "c.json: problem_type: found \"regression\"; expected single_label_classification or "
       "multi_label_classification"},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    ls_arena *arena = ls_arena_create();
    ls_model_config config;
    const ls_status status = parse(arena, cases[c].keys, &config);
    if (cases[c].classes < 0) {
      if (status != LS_INPUT || !strstr(error.text, cases[c].last))
        fail_msg("case %zu: %s", c, status == LS_OK ? "accepted" : error.text);
    } else {
      if (status != LS_OK) fail_msg("case %zu: %s", c, error.text);
      assert_int_equal(config.classes, cases[c].classes);
      if (cases[c].last) assert_string_equal(config.class_names[config.classes - 1], cases[c].last);
    }
    ls_arena_destroy(&arena);
  }
}

/* What is written of them is read again; names that nobody gave are none. */
static void classes_are_given(void **state) {
  (void)state;
  static const char *const names[] = {"no", "a \"quote\"", "yes"};
  ls_arena *arena = ls_arena_create();
  ls_model_config config, again;
  int64_t count;
  assert_int_equal(
      parse(arena, SHAPE ", \"id2label\": {\"0\": \"LABEL_0\", \"1\": \"LABEL_1\"}", &config),
      LS_OK);
  assert_null(ls_model_class_names(arena, &config, &count));
  assert_int_equal(parse(arena, SHAPE ", \"id2label\": {\"0\": \"no\", \"1\": \"yes\"}", &config),
                   LS_OK);
  assert_string_equal(ls_model_class_names(arena, &config, &count)[1], "yes");
  assert_int_equal(count, 2);
  ls_model_set_classes(arena, &config, names, 3);
  assert_true(config.draws_head && config.classes == 3);
  const char *text = ls_model_config_text(arena, &config, LS_F32);
  assert_int_equal(ls_model_config_parse(arena, "d.json", text, strlen(text), &again, &error),
                   LS_OK);
  assert_false(again.draws_head);
  assert_int_equal(ls_model_config_compare(&again, &config, &error), LS_OK);
  for (int n = 0; n < 3; n++) assert_string_equal(again.class_names[n], names[n]);
  assert_false(again.several);
  ls_model_set_several(arena, &config);
  text = ls_model_config_text(arena, &config, LS_F32);
  assert_int_equal(ls_model_config_parse(arena, "d.json", text, strlen(text), &again, &error),
                   LS_OK);
  assert_true(again.several);
  assert_int_equal(ls_model_config_compare(&again, &config, &error), LS_OK);
  ls_arena_destroy(&arena);
}

/* The head has a row for each class, and none of tokens; a model that writes text has no use of it.
 */
static void a_graph_ends_with_classes(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_model_config config;
  ls_graph *graph;
  assert_int_equal(parse(arena, HEAD ", \"num_labels\": 5", &config), LS_OK);
  ls_build_options options = {.tokens = 8, .sequence = 8};
  assert_int_equal(ls_model_build(arena, &config, &options, &graph, &error), LS_OK);
  assert_int_equal(ls_graph_tensor(graph, graph->logits)->dims[1], 5);
  options = (ls_build_options){.mode = LS_MODEL_DECODE, .tokens = 1, .cache_rows = 8};
  assert_int_equal(ls_model_build(arena, &config, &options, &graph, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "has a head over 5 classes, and writes no text"));
  ls_arena_destroy(&arena);
}

/* Of an encoder's tokens there is no pooler, and DistilBERT drops them as hidden states. */
static void heads_of_tokens_are_read_and_given(void **state) {
  (void)state;
  static const char distilbert[] =
      "\"model_type\": \"distilbert\", \"vocab_size\": 64, \"dim\": 16, \"hidden_dim\": 24, "
      "\"n_layers\": 1, \"n_heads\": 2, \"max_position_embeddings\": 16, \"dropout\": 0.3, "
      "\"seq_classif_dropout\": 0.25";
  static const char *const names[] = {"O", "B-PER"};
  ls_arena *arena = ls_arena_create();
  ls_model_config read, given;
  const char *keys = ls_arena_printf(
      arena, "%s, \"architectures\": [\"DistilBertForTokenClassification\"], \"num_labels\": 2",
      distilbert);
  if (parse(arena, keys, &read) != LS_OK) fail_msg("%s", error.text);
  assert_int_equal(read.classes, 2);
  assert_int_equal(read.pooling, LS_POOLING_EACH);
  assert_true(read.dropout.head == 0.3);
  assert_int_equal(parse(arena, distilbert, &given), LS_OK);
  ls_model_set_classes(arena, &given, names, 2);
  assert_true(given.dropout.head == 0.25);
  ls_model_set_pooling(arena, &given, LS_POOLING_EACH);
  assert_true(given.dropout.head == 0.3);
  assert_non_null(strstr(given.text, "DistilBertForTokenClassification"));
  assert_null(strstr(given.text, "problem_type"));
  assert_false(ls_model_asks_first(&given));
  ls_arena_destroy(&arena);
}

/* As transformers: a decoder's head of tokens drops where its configuration does not say. */
static void a_decoders_head_of_tokens_drops(void **state) {
  (void)state;
  static const struct {
    const char *keys;
    double rate;
  } cases[] = {
      {SHAPE, 0.1},
      {SHAPE ", \"classifier_dropout\": 0.0", 0},
      {SHAPE ", \"classifier_dropout\": null", 0.1},
      {"\"model_type\": \"falcon\", \"vocab_size\": 64, \"hidden_size\": 16, "
       "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"hidden_dropout\": 0.25, "
       "\"alibi\": false",
       0.25},
  };
  static const char *const names[] = {"O", "B-PER"};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    ls_arena *arena = ls_arena_create();
    ls_model_config given, read;
    if (parse(arena, cases[c].keys, &given) != LS_OK) fail_msg("%s", error.text);
    ls_model_set_classes(arena, &given, names, 2);
    assert_true(given.dropout.head == 0);
    ls_model_set_pooling(arena, &given, LS_POOLING_EACH);
    assert_true(given.dropout.head == cases[c].rate);
    const char *text = ls_model_config_text(arena, &given, LS_F32);
    if (ls_model_config_parse(arena, "e.json", text, strlen(text), &read, &error) != LS_OK)
      fail_msg("%s", error.text);
    assert_true(read.dropout.head == cases[c].rate && read.pooling == LS_POOLING_EACH);
    ls_arena_destroy(&arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(classes_are_read), cmocka_unit_test(a_decoders_head_of_tokens_drops),
      cmocka_unit_test(heads_of_tokens_are_read_and_given), cmocka_unit_test(classes_are_given),
      cmocka_unit_test(a_graph_ends_with_classes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
