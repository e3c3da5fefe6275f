/* Fuzz target of generation_config.json: a few ids, or one line that says what is wrong. */
#include "generate/ends.h"
#include "support/fuzz_folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  ls_error error = {0};
  ls_arena *arena = ls_arena_create();
  ls_model_config config = {.end_count = 1};
  fuzz_folder_write("generation_config.json", data, bytes);
  const ls_status status = ls_ends_read(arena, fuzz_folder(), &config, &error);
  if (status != LS_OK) fuzz_check_refusal(status, &error);
  LS_ASSERT(config.end_count >= 0 && config.end_count <= LS_MAX_END_IDS);
  ls_arena_destroy(&arena);
  return 0;
}
