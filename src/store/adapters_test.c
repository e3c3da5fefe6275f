/* Which products have adapters, by Hugging Face's names, and which folders are of them. */
#include "store/adapters.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "store/names.h"
#include "support/test_folder.h"

enum { QUERY = 1, KEY = 2, VALUE = 4, OUTPUT = 8, GATE = 16, UP = 32, DOWN = 64 };

static ls_model_config model(const char *text) {
  ls_model_config config;
  ls_error error = {0};
  if (ls_model_config_parse(arena, "config.json", text, strlen(text), &config, &error) != LS_OK)
    fail_msg("%s", error.text);
  return config;
}

static const char llama[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 41, \"hidden_size\": 16, \"intermediate_size\": "
    "24, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"max_position_embeddings\": 16}";
static const char gpt2[] =
    "{\"model_type\": \"gpt2\", \"vocab_size\": 37, \"n_positions\": 8, \"n_embd\": 12, "
    "\"n_layer\": 2, \"n_head\": 2, \"resid_pdrop\": 0, \"embd_pdrop\": 0, \"attn_pdrop\": 0}";
static const char phi3[] =
    "{\"model_type\": \"phi3\", \"vocab_size\": 41, \"hidden_size\": 16, \"intermediate_size\": "
    "24, \"num_hidden_layers\": 1, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"max_position_embeddings\": 16, \"pad_token_id\": 0}";

static const char mixtral[] =
    "{\"model_type\": \"mixtral\", \"vocab_size\": 41, \"hidden_size\": 16, \"intermediate_size\": "
    "24, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"max_position_embeddings\": 16, \"num_local_experts\": 3, \"num_experts_per_tok\": 2}";
static const char qwen3_moe[] =
    "{\"model_type\": \"qwen3_moe\", \"vocab_size\": 41, \"hidden_size\": 16, "
    "\"moe_intermediate_size\": 24, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
    "\"max_position_embeddings\": 16, \"num_experts\": 3, \"num_experts_per_tok\": 2}";

static const struct target_case {
  const char *model, *targets[3];
  int64_t bits;
  const char *refused;
} cases[] = {
    {llama, {"all-linear"}, QUERY | KEY | VALUE | OUTPUT | GATE | UP | DOWN, NULL},
    {llama, {"q_proj", "v_proj"}, QUERY | VALUE, NULL},
    {llama, {"self_attn.o_proj", "mlp.down_proj"}, OUTPUT | DOWN, NULL},
    {gpt2, {"c_proj"}, OUTPUT | DOWN, NULL},
    {gpt2, {"attn.c_proj", "c_fc"}, OUTPUT | UP, NULL},
    {phi3, {"o_proj", "down_proj"}, OUTPUT | DOWN, NULL},
    {llama, {"q_porj"}, 0, "no product of a llama model is called q_porj; the nearest is q_proj"},
    {llama, {"proj"}, 0, "expected all-linear, or some of q_proj, k_proj, v_proj, o_proj"},
    {llama, {"lm_head"}, 0, "no product of a llama model is called lm_head"},
    {gpt2, {"c_attn"}, QUERY | KEY | VALUE, NULL},
    {gpt2, {"all-linear"}, QUERY | KEY | VALUE | OUTPUT | UP | DOWN, NULL},
    {mixtral, {"q_proj", "o_proj"}, QUERY | OUTPUT, NULL},
    {mixtral,
     {"all-linear"},
     0,
     "all-linear has the products of experts, whose adapters are not built; expected some of "
     "q_proj, k_proj, v_proj, o_proj"},
    {mixtral, {"w1"}, 0, "no product of a mixtral model outside its experts is called w1"},
    {qwen3_moe, {"k_proj"}, KEY, NULL},
    {qwen3_moe, {"all-linear"}, 0, "all-linear has the products of experts"},
    {qwen3_moe,
     {"gate_proj"},
     0,
     "no product of a qwen3_moe model outside its experts is called gate_proj; found none near: "
     "expected some of"},
    {phi3, {"gate_up_proj"}, GATE | UP, NULL},
};

static void targets_are_products(void **state) {
  (void)state;
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    ls_adapters asked = {.rank = 4, .targets = cases[c].targets};
    while (asked.target_count < 3 && cases[c].targets[asked.target_count]) asked.target_count++;
    ls_model_config config = model(cases[c].model);
    ls_error error = {0};
    const ls_status status = ls_adapters_apply(arena, &asked, &config, &error);
    assert_int_equal(status, cases[c].refused ? LS_INPUT : LS_OK);
    if (cases[c].refused && !strstr(error.text, cases[c].refused))
      fail_msg("%s: %s", cases[c].refused, error.text);
    if (cases[c].refused) continue;
    assert_int_equal(config.lora_targets, cases[c].bits);
    assert_int_equal(config.lora_rank, 4);
    assert_true(config.lora_alpha == 8);
    assert_true(ls_model_lora_scale(&config, ls_model_lora_size(&config, 1, 2)) == 2);
  }
}

/* As PEFT calls them, and in a file of their own. */
static void names_are_pefts(void **state) {
  (void)state;
  static const char *const targets[] = {"c_proj"};
  const ls_adapters asked = {
      .rank = 4, .alpha = 6, .rslora = true, .targets = targets, .target_count = 1};
  ls_model_config config = model(gpt2);
  const ls_build_options options = {.tokens = 4, .sequence = 4};
  ls_graph *graph;
  ls_weight_plan plan;
  ls_error error = {0};
  assert_int_equal(ls_adapters_apply(arena, &asked, &config, &error), LS_OK);
  assert_true(ls_model_lora_scale(&config, ls_model_lora_size(&config, 0, 6)) == 3);
  assert_int_equal(ls_model_build(arena, &config, &options, &graph, &error), LS_OK);
  assert_int_equal(ls_weights_plan(arena, &config, graph, &plan, &error), LS_OK);
  int found = 0, adapters = 0;
  for (int t = 0; t < plan.count; t++) {
    const ls_stored_layout *tensor = &plan.tensors[t];
    adapters += tensor->adapter;
    if (strcmp(tensor->name, "base_model.model.transformer.h.1.mlp.c_proj.lora_A.weight") == 0)
      found += tensor->dims[0] == 4 && tensor->dims[1] == 48;
    if (strcmp(tensor->name, "base_model.model.transformer.h.1.mlp.c_proj.lora_B.weight") == 0)
      found += tensor->dims[0] == 12 && tensor->dims[1] == 4 && !tensor->transposed;
  }
  assert_int_equal(found, 2);
  assert_int_equal(adapters, 8);
  for (int p = 0; p < graph->parameters.count; p++)
    assert_int_equal(graph->parameters.items[p].trainable,
                     graph->parameters.items[p].about.adapter);
}

static void write(const char *name, const char *text) {
  ls_error error = {0};
  assert_int_equal(ls_file_write(in_folder(name), text, strlen(text), &error), LS_OK);
}

/* Of the folder `adapters`, which is a test's. */
static ls_status read_folder(const char *text, ls_model_config *config, ls_error *error) {
  *error = (ls_error){0};
  write("adapters/adapter_config.json", text);
  return ls_adapters_read(arena, in_folder("adapters"), config, error);
}

#define LORA \
  "\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 3, \"target_modules\": [\"c_proj\"]"

static void folders_are_read(void **state) {
  (void)state;
  static const struct {
    const char *text, *refused;
  } bad[] = {
      {"{\"peft_type\": \"IA3\"}", "peft_type: found IA3; expected LORA"},
      {"{" LORA ", \"use_dora\": true}", "use_dora asks for something that is not built"},
      {"{" LORA ", \"layers_to_transform\": [1]}", "layers_to_transform asks for something"},
      {"{" LORA ", \"bias\": \"all\"}", "bias: found all"},
      {"{" LORA ", \"base_model_name_or_path\": \"\"}", "base_model_name_or_path is empty"},
      {"{" LORA ", \"base_model_name_or_path\": \"/nowhere/at/all\"}", "found no folder /nowhere"},
  };
  ls_model_config config;
  ls_error error = {0};
  assert_int_equal(ls_directory_make(in_folder("base"), &error), LS_OK);
  assert_int_equal(ls_directory_make(in_folder("adapters"), &error), LS_OK);
  write("base/config.json", gpt2);
  assert_false(ls_adapters_has(in_folder("base")));
  assert_int_equal(ls_adapters_read(arena, in_folder("base"), &config, &error), LS_OK);
  assert_int_equal(config.lora_rank, 0);
  for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
    assert_int_equal(read_folder(bad[b].text, &config, &error), LS_INPUT);
    if (!strstr(error.text, bad[b].refused)) fail_msg("%s: %s", bad[b].refused, error.text);
  }
  const char *text = ls_arena_printf(
      arena, "{" LORA ", \"base_model_name_or_path\": \"%s\", \"lora_dropout\": 0.1}",
      in_folder("base"));
  if (read_folder(text, &config, &error) != LS_OK) fail_msg("%s", error.text);
  assert_true(ls_adapters_has(in_folder("adapters")));
  const char *of_adapters = ls_arena_printf(
      arena, "{" LORA ", \"base_model_name_or_path\": \"%s\"}", in_folder("adapters"));
  assert_int_equal(ls_directory_make(in_folder("others"), &error), LS_OK);
  write("others/adapter_config.json", of_adapters);
  assert_int_equal(ls_adapters_read(arena, in_folder("others"), &config, &error), LS_INPUT);
  if (!strstr(error.text, "adapters holds adapters itself")) fail_msg("%s", error.text);
  assert_string_equal(config.family, "gpt2");
  assert_string_equal(config.base, in_folder("base"));
  assert_int_equal(config.lora_targets, OUTPUT | DOWN);
  assert_true(config.dropout.adapter == 0.1);
}

/* A text in place of a list of names is a regular expression of whole ones, as PEFT has it. */
static void targets_may_be_a_pattern(void **state) {
  (void)state;
  static const struct {
    const char *pattern, *refused;
    int64_t targets;
  } each[] = {
      {".*c_proj", NULL, OUTPUT | DOWN},
      {".*\\\\.attn\\\\.c_proj", NULL, OUTPUT},
      {"transformer\\\\.h\\\\.\\\\d+\\\\.mlp\\\\.(c_fc|c_proj)", NULL, UP | DOWN},
      {"c_proj", "target_modules: found no product of a gpt2 model with the pattern c_proj", 0},
      {".*h\\\\.0\\\\.mlp.*", "the pattern covers mlp.c_fc of some layers alone", 0},
      {"(", "target_modules: (: found no regular expression", 0},
  };
  ls_error error = {0};
  assert_int_equal(ls_directory_make(in_folder("base"), &error), LS_OK);
  assert_int_equal(ls_directory_make(in_folder("adapters"), &error), LS_OK);
  write("base/config.json", gpt2);
  for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
    ls_model_config config;
    const char *text = ls_arena_printf(
        arena,
        "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 3, \"target_modules\": \"%s\", "
        "\"base_model_name_or_path\": \"%s\"}",
        each[i].pattern, in_folder("base"));
    const ls_status status = read_folder(text, &config, &error);
    if (status != (each[i].refused ? LS_INPUT : LS_OK)) fail_msg("%s: %s", text, error.text);
    if (each[i].refused && !strstr(error.text, each[i].refused)) fail_msg("%s", error.text);
    if (!each[i].refused) assert_int_equal(config.lora_targets, each[i].targets);
  }
}

/* What is written is read as it was, a name of two products among it. */
static void what_is_written_is_read(void **state) {
  (void)state;
  ls_model_config config = model(gpt2), read;
  ls_error error = {0};
  assert_int_equal(ls_directory_make(in_folder("base"), &error), LS_OK);
  assert_int_equal(ls_directory_make(in_folder("adapters"), &error), LS_OK);
  write("base/config.json", gpt2);
  static const int64_t every[] = {OUTPUT, OUTPUT | DOWN, UP | DOWN};
  for (int i = 0; i < 3; i++) {
    const char *text;
    config.base = in_folder("base");
    config.lora_rank = 5 + i;
    config.lora_alpha = 2.5 * (i + 1);
    config.lora_rslora = i == 1;
    config.lora_targets = every[i];
    assert_int_equal(ls_adapters_text(arena, &config, &text, &error), LS_OK);
    if (read_folder(text, &read, &error) != LS_OK) fail_msg("%s", error.text);
    if (ls_model_config_compare(&read, &config, &error) != LS_OK) fail_msg("%s", error.text);
  }
}

static ls_lora_size size_of(const ls_model_config *config, int64_t layer, int bit) {
  int linear = 0;
  while (bit >> linear != 1) linear++;
  return ls_model_lora_size(config, layer, linear);
}

/* By a product's name, and by a layer's; what is written is PEFT's, and read as it was. */
static void groups_are_of_other_sizes(void **state) {
  (void)state;
  static const char *const targets[] = {"all-linear"};
  static const ls_adapter_group groups[] = {{.match = "layers.1.mlp", .rank = 2, .alpha = 3},
                                            {.match = "down_proj", .rank = 8},
                                            {.match = "self_attn.q_proj", .alpha = 7}};
  const ls_adapters asked = {
      .rank = 4, .targets = targets, .target_count = 1, .groups = groups, .group_count = 3};
  ls_model_config config = model(llama), read;
  ls_error error = {0};
  const char *text;
  if (ls_adapters_apply(arena, &asked, &config, &error) != LS_OK) fail_msg("%s", error.text);
  static const struct {
    int layer, bit, rank, alpha;
  } expected[] = {{0, DOWN, 8, 16}, {1, DOWN, 2, 3},  {0, UP, 4, 8},    {1, UP, 2, 3},
                  {0, QUERY, 4, 7}, {1, QUERY, 4, 7}, {1, VALUE, 4, 8}, {1, GATE, 2, 3}};
  for (size_t e = 0; e < sizeof expected / sizeof *expected; e++) {
    const ls_lora_size size = size_of(&config, expected[e].layer, expected[e].bit);
    assert_int_equal(size.rank, expected[e].rank);
    assert_true(size.alpha == expected[e].alpha);
  }
  assert_int_equal(ls_directory_make(in_folder("base"), &error), LS_OK);
  assert_int_equal(ls_directory_make(in_folder("adapters"), &error), LS_OK);
  write("base/config.json", llama);
  config.base = in_folder("base");
  assert_int_equal(ls_adapters_text(arena, &config, &text, &error), LS_OK);
  assert_non_null(strstr(text, "\"model.layers.0.mlp.down_proj\": 8"));
  assert_non_null(strstr(text, "\"self_attn.q_proj\": 7"));
  if (read_folder(text, &read, &error) != LS_OK) fail_msg("%s", error.text);
  if (ls_model_config_compare(&read, &config, &error) != LS_OK) fail_msg("%s", error.text);
  assert_int_equal(ls_model_parameters(&read), ls_model_parameters(&config));
  read.lora_sizes = NULL;
  assert_int_equal(ls_model_config_compare(&read, &config, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "of an adapter: found"));
}

static void groups_cover_adapters(void **state) {
  (void)state;
  static const char *const targets[] = {"q_proj", "down_proj"};
  static const struct {
    const char *match, *refused;
  } bad[] = {{"mlp.down_porj",
              "no product with adapters is called mlp.down_porj; the nearest is down_proj"},
             {"up_proj", "up_proj"},
             {"embedding", "embedding has no adapters; expected a product of lora.targets"}};
  for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
    const ls_adapter_group group = {.match = bad[b].match, .rank = 2};
    const ls_adapters asked = {
        .rank = 4, .targets = targets, .target_count = 2, .groups = &group, .group_count = 1};
    ls_model_config config = model(llama);
    ls_error error = {0};
    assert_int_equal(ls_adapters_apply(arena, &asked, &config, &error), LS_INPUT);
    if (!strstr(error.text, bad[b].refused)) fail_msg("%s: %s", bad[b].refused, error.text);
  }
}

/* Regular expressions, as PEFT matches them: behind a point, to the end. */
static void patterns_are_pefts(void **state) {
  (void)state;
  ls_model_config config;
  ls_error error = {0};
  assert_int_equal(ls_directory_make(in_folder("base"), &error), LS_OK);
  assert_int_equal(ls_directory_make(in_folder("adapters"), &error), LS_OK);
  write("base/config.json", gpt2);
  const char *form = "{" LORA ", \"base_model_name_or_path\": \"%s\", %s}",
             *base = in_folder("base");
  const char *keys =
      "\"rank_pattern\": {\"^transformer\\\\.h\\\\.1\\\\..*\": 5, \"attn.c_proj\": 6}, "
      "\"alpha_pattern\": {\"proj\": 9, \"h.0.mlp.c_proj\": 1.5}";
  if (read_folder(ls_arena_printf(arena, form, base, keys), &config, &error) != LS_OK)
    fail_msg("%s", error.text);
  assert_int_equal(size_of(&config, 0, OUTPUT).rank, 6);
  assert_int_equal(size_of(&config, 0, DOWN).rank, 2);
  assert_int_equal(size_of(&config, 1, OUTPUT).rank, 5);
  assert_int_equal(size_of(&config, 1, DOWN).rank, 5);
  assert_true(size_of(&config, 0, DOWN).alpha == 1.5);
  assert_true(size_of(&config, 1, DOWN).alpha == 3);
  static const struct {
    const char *keys, *refused;
  } bad[] = {{"\"rank_pattern\": {\"c_proj\": 0}", "rank_pattern: c_proj: expected a whole number"},
             {"\"rank_pattern\": {\"c_proj\": 2.5}", "expected a whole number from 1"},
             {"\"alpha_pattern\": {\"c_proj\": -1}", "alpha_pattern: c_proj: expected a number"},
             {"\"rank_pattern\": {\"c_(proj\": 3}", "c_(proj: found no regular expression"},
             {"\"rank_pattern\": {\"([a-z_.0-9]+)+[A-Z]\": 3}", "that takes too long"},
             {"\"rank_pattern\": [3]", "rank_pattern: expected an object of numbers by name"},
             {"\"alpha_pattern\": 3", "alpha_pattern: expected an object of numbers by name"}};
  for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
    const char *text = ls_arena_printf(arena, form, base, bad[b].keys);
    assert_int_equal(read_folder(text, &config, &error), LS_INPUT);
    if (!strstr(error.text, bad[b].refused)) fail_msg("%s: %s", bad[b].refused, error.text);
  }
}

static const char classifier[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 41, \"hidden_size\": 16, \"intermediate_size\": "
    "24, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"max_position_embeddings\": 16, "
    "\"architectures\": [\"LlamaForSequenceClassification\"], \"num_labels\": 3}";

/* The head over classes that PEFT keeps with adapters, as its modules_to_save say. */
static void heads_are_kept_as_peft_does(void **state) {
  (void)state;
  static const struct {
    const char *base, *keys, *refused;
    int64_t modules;
  } each[] = {
      {classifier, "\"modules_to_save\": [\"classifier\", \"score\"]", NULL, LS_HEAD_CLASSES},
      {classifier, "\"modules_to_save\": null", NULL, 0},
      {classifier, "\"modules_to_save\": []", NULL, 0},
      {classifier, "\"modules_to_save\": [\"score\", \"norm\"]",
       "modules_to_save: found norm; expected modules of the head over classes, score: others", 0},
      {classifier, "\"modules_to_save\": \"score\"", "modules_to_save", 0},
      {llama, "\"modules_to_save\": [\"lm_head\"]", "is not built, but for the head", 0},
      {llama, "\"task_type\": \"SEQ_CLS\", \"modules_to_save\": [\"score\"]",
       "adapter_model.safetensors", 0},
  };
  ls_error error = {0};
  assert_int_equal(ls_directory_make(in_folder("base"), &error), LS_OK);
  assert_int_equal(ls_directory_make(in_folder("adapters"), &error), LS_OK);
  for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
    ls_model_config config;
    write("base/config.json", each[i].base);
    const char *text = ls_arena_printf(
        arena,
        "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 3, \"target_modules\": "
        "[\"q_proj\"], \"base_model_name_or_path\": \"%s\", %s}",
        in_folder("base"), each[i].keys);
    const ls_status status = read_folder(text, &config, &error);
    assert_int_equal(status, each[i].refused ? LS_INPUT : LS_OK);
    if (each[i].refused && !strstr(error.text, each[i].refused)) fail_msg("%s", error.text);
    if (!each[i].refused) assert_int_equal(config.lora_modules, each[i].modules);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(targets_are_products, set_up, tear_down),
      cmocka_unit_test_setup_teardown(names_are_pefts, set_up, tear_down),
      cmocka_unit_test_setup_teardown(folders_are_read, set_up, tear_down),
      cmocka_unit_test_setup_teardown(targets_may_be_a_pattern, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_is_written_is_read, set_up, tear_down),
      cmocka_unit_test_setup_teardown(groups_are_of_other_sizes, set_up, tear_down),
      cmocka_unit_test_setup_teardown(groups_cover_adapters, set_up, tear_down),
      cmocka_unit_test_setup_teardown(patterns_are_pefts, set_up, tear_down),
      cmocka_unit_test_setup_teardown(heads_are_kept_as_peft_does, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
