/* Names of train.freeze: which parameters each covers, and what is refused. */
#include "store/freeze.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static ls_graph *build(ls_arena *arena, const char *preset, ls_model_config *config) {
  const ls_build_options options = {.tokens = 4, .sequence = 4};
  ls_graph *graph;
  ls_error error = {0};
  if (ls_model_find(arena, preset, config, &error) != LS_OK ||
      ls_model_build(arena, config, &options, &graph, &error) != LS_OK)
    fail_msg("%s", error.text);
  return graph;
}

static int frozen_by(const char *preset, const char *pattern) {
  ls_arena *arena = ls_arena_create();
  ls_model_config config;
  ls_error error = {0};
  ls_graph *graph = build(arena, preset, &config);
  if (ls_freeze(&config, graph, &pattern, 1, &error) != LS_OK) fail_msg("%s", error.text);
  int count = 0;
  for (int p = 0; p < graph->parameters.count; p++) count += !graph->parameters.items[p].trainable;
  ls_arena_destroy(&arena);
  return count;
}

/* A llama of 4 layers with tied embeddings: 9 parameters each, one before them and one behind. */
static void names_cover_parameters(void **state) {
  (void)state;
  static const struct {
    const char *preset, *pattern;
    int count;
  } cases[] = {
      {"llama-3m", "embedding", 1},
      {"llama-3m", "embedding.token", 1},
      {"llama-3m", "model.embed_tokens.weight", 1},
      {"llama-3m", "head", 1},
      {"llama-3m", "layers.0", 9},
      {"llama-3m", "layers.1-2", 18},
      {"llama-3m", "model.layers.1-2.mlp", 6},
      {"llama-3m", "layers.0-3.norm1", 4},
      {"llama-3m", "*.norm", 9},
      {"llama-3m", "*.norm1", 4},
      {"llama-3m", "*layernorm", 8},
      {"llama-3m", "layers.*.attention.query", 4},
      {"llama-3m", "layers.[13]", 18},
      {"llama-3m", "*.q_proj", 4},
      /* one of theirs is three of ours, weight and bias */
      {"gpt2-10m", "transformer.h.0.attn.c_attn", 6},
      {"gpt2-10m", "h.0.attn.c_attn.weight", 3},
      {"gpt2-10m", "h.1", 16},
      {"gpt2-10m", "embedding", 2},
      /* all experts of a layer are three of ours */
      {"mixtral-8x7b", "layers.0.block_sparse_moe.experts", 3},
      {"mixtral-8x7b", "model.layers.0-1.block_sparse_moe", 8},
      {"mixtral-8x7b", "layers.*.block_sparse_moe.gate", 32},
      {"mixtral-8x7b", "layers.1.experts.gate", 1},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (frozen_by(cases[i].preset, cases[i].pattern) != cases[i].count)
      fail_msg("%s of %s: %d, expected %d", cases[i].pattern, cases[i].preset,
               frozen_by(cases[i].preset, cases[i].pattern), cases[i].count);
}

static void what_covers_nothing_or_all_is_refused(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"embeding", "no parameter is called embeding; the nearest is embedding"},
      {"layers.0-4", "no parameter is called layers.4 (of layers.0-4); the nearest is layers.0"},
      {"layers.1.nrm1", "the nearest is layers.1.norm1"},
      {"layers.3-1", "expected the lower number first"},
      {"layer", "no parameter is called layer"},
      {"layers.0.norm1.weight.x", "no parameter is called"},
      {"0-1", "no parameter is called 0 (of 0-1)"},
      {"*", "freezes all 38 parameters"},
      {"wte", "expected names such as"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ls_arena *arena = ls_arena_create();
    ls_model_config config;
    ls_error error = {0};
    ls_graph *graph = build(arena, "llama-3m", &config);
    assert_int_equal(ls_freeze(&config, graph, cases[i], 1, &error), LS_INPUT);
    if (!strstr(error.text, cases[i][1])) fail_msg("%s: %s", cases[i][0], error.text);
    ls_arena_destroy(&arena);
  }
}

/* They are one tensor of ours, of which all is trained or nothing. */
static void one_expert_is_refused(void **state) {
  (void)state;
  const char *const pattern = "layers.0.block_sparse_moe.experts.7";
  ls_arena *arena = ls_arena_create();
  ls_model_config config;
  ls_error error = {0};
  ls_graph *graph = build(arena, "mixtral-8x7b", &config);
  assert_int_equal(ls_freeze(&config, graph, &pattern, 1, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "the nearest is layers.0.block_sparse_moe.experts"));
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_cover_parameters),
      cmocka_unit_test(what_covers_nothing_or_all_is_refused),
      cmocka_unit_test(one_expert_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
