/* Fuzz target of adapter_config.json beside a small model: what is accepted has adapters that a
 * graph can be built of, and is written as the same ones. */
#include "store/adapters.h"
#include "support/fuzz_folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const char model[] =
    "{\"model_type\": \"gpt2\", \"vocab_size\": 37, \"n_positions\": 8, \"n_embd\": 12, "
    "\"n_layer\": 2, \"n_head\": 2}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  ls_error error = {0};
  ls_arena *arena = ls_arena_create();
  ls_model_config config, again;
  const ls_build_options options = {.tokens = 4, .sequence = 4};
  fuzz_folder_write("config.json", model, sizeof model - 1);
  fuzz_folder_write("adapter_config.json", data, bytes);
  const ls_status status = ls_adapters_read(arena, fuzz_folder(), &config, &error);
  if (status != LS_OK) {
    fuzz_check_refusal(status, &error);
  } else if (config.lora_rank) {
    ls_graph *graph;
    const char *text;
    if (ls_model_build(arena, &config, &options, &graph, &error) != LS_OK)
      ls_panic("%s", error.text);
    ls_graph_backward(graph);
    if (ls_adapters_text(arena, &config, &text, &error) != LS_OK) ls_panic("%s", error.text);
    fuzz_folder_write("adapter_config.json", text, strlen(text));
    if (ls_adapters_read(arena, fuzz_folder(), &again, &error) != LS_OK ||
        ls_model_config_compare(&again, &config, &error) != LS_OK)
      ls_panic("%s: %s", text, error.text);
  }
  ls_arena_destroy(&arena);
  return 0;
}
