/* Fuzz target of config.json: what is accepted has sizes that a graph can be built of, and is
 * written as the same mathematics. */
#include <stdint.h>
#include <string.h>

#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Small ones only: a graph has a node for each layer. */
static void build(ls_arena *arena, const ls_model_config *config) {
  if (config->layers > 8) return;
  for (ls_model_mode mode = LS_MODEL_TRAIN; mode <= LS_MODEL_DECODE; mode++) {
    ls_error error = {0};
    ls_graph *graph;
    const ls_build_options options = {.mode = mode, .tokens = 8, .sequence = 4, .cache_rows = 8};
    const ls_status status = ls_model_build(arena, config, &options, &graph, &error);
    LS_ASSERT(status == LS_OK || (status == LS_INPUT && !strchr(error.text, '\n')));
    if (status == LS_OK && mode == LS_MODEL_TRAIN) ls_graph_backward(graph);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  ls_error error = {0};
  ls_arena *arena = ls_arena_create();
  ls_model_config config, again;
  const ls_status status =
      ls_model_config_parse(arena, "fuzz", bytes ? (const char *)data : "", bytes, &config, &error);
  if (status == LS_OK) {
    LS_ASSERT(ls_model_parameters(&config) > 0);
    build(arena, &config);
    const char *text = ls_model_config_text(arena, &config, LS_F32);
    LS_ASSERT(ls_model_config_parse(arena, "again", text, strlen(text), &again, &error) == LS_OK);
    LS_ASSERT(ls_model_config_compare(&again, &config, &error) == LS_OK);
  } else {
    LS_ASSERT(status == LS_INPUT && !strncmp(error.text, "fuzz", 4) && !strchr(error.text, '\n'));
  }
  ls_arena_destroy(&arena);
  return 0;
}
