/* Fuzz target of model.safetensors.index.json, beside two shards of a tensor each: what is accepted
 * has the tensors that it names, and no others. */
#include "store/safetensors.h"
#include "support/fuzz_folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void write_shard(const char *name, const char *tensor) {
  char file[256] = {0};
  const int length =
      snprintf(file + 8, sizeof file - 8,
               "{\"%s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", tensor);
  file[0] = (char)length;
  fuzz_folder_write(name, file, 8 + (size_t)length + 4);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static bool written;
  if (!written) write_shard("1.safetensors", "a");
  if (!written) write_shard("2.safetensors", "b");
  written = true;
  ls_error error = {0};
  ls_safetensors *opened;
  fuzz_folder_write("model.safetensors.index.json", data, bytes);
  const ls_status status = ls_safetensors_open(fuzz_folder(), NULL, &opened, &error);
  if (status == LS_OK) {
    const int count = ls_safetensors_count(opened);
    LS_ASSERT(count >= 0 && count <= 2);
    for (int i = 0; i < count; i++) {
      const ls_stored_tensor *tensor = ls_safetensors_at(opened, i);
      LS_ASSERT(ls_safetensors_find(opened, tensor->name) == tensor);
      LS_ASSERT(strcmp(tensor->name, "a") == 0 || strcmp(tensor->name, "b") == 0);
    }
    ls_safetensors_close(&opened);
  } else {
    LS_ASSERT(!opened);
    fuzz_check_refusal(status, &error);
  }
  return 0;
}
