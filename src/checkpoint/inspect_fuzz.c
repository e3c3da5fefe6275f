/* Fuzz target of what `lockstep inspect` says of an adapter's or a model's folder. */
#include "checkpoint/inspect.h"
#include "support/fuzz_folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static const char *const names[] = {"adapter_config.json", "config.json",
                                      "adapter_model.safetensors"};
  ls_error error = {0};
  json_t *found;
  fuzz_folder_fill(names, 3, data, bytes);
  const ls_status status = ls_inspect(fuzz_folder(), true, &found, &error);
  if (status == LS_OK) {
    LS_ASSERT(json_object_size(found) > 0);
    json_decref(found);
  } else {
    LS_ASSERT(!found);
    fuzz_check_refusal(status, &error);
  }
  return 0;
}
