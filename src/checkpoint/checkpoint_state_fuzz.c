/* Fuzz target of a checkpoint's state.json. Where it is an object with a checksum, this is made
 * right first, so that what lies behind it is reached: what is accepted names files of the folder
 * itself, and states that a run can go on with; the files it names are then looked for. */
#include "checkpoint/checkpoint_folder.h"
#include "support/fuzz_folder.h"
#include "text/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void write_state(const uint8_t *data, size_t bytes) {
  json_t *root = json_loadb((const char *)data, bytes, LS_JSON_EXACT, NULL);
  fuzz_folder_write("state.json", data, bytes);
  if (json_is_object(root) && json_object_del(root, "checksum") == 0) {
    ls_checksum sum = {0};
    char digits[LS_CHECKSUM_DIGITS + 1];
    char *text = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
    LS_ASSERT(text);
    ls_checksum_add(&sum, 0, text, strlen(text));
    ls_checksum_text(&sum, digits);
    free(text);
    json_object_set_new(root, "checksum", json_string(digits));
    text = json_dumps(root, 0);
    fuzz_folder_write("state.json", text, strlen(text));
    free(text);
  }
  json_decref(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  ls_error error = {0};
  ls_arena *arena = ls_arena_create();
  write_state(data, bytes);
  ls_sealed_folder sealed;
  const ls_status status = ls_checkpoint_sealed(arena, fuzz_folder(), &sealed, &error);
  if (status == LS_OK) {
    LS_ASSERT(sealed.state.step >= 0 && sealed.state.tokens >= 0 && sealed.state.sequences >= 0);
    for (int i = 0; i < sealed.count; i++) {
      const char *name = sealed.files[i].path + strlen(fuzz_folder()) + 1;
      LS_ASSERT(!strchr(name, '/') && sealed.files[i].bytes >= 0 && sealed.files[i].checksum);
    }
    ls_checkpoint_state state;
    LS_ASSERT(ls_checkpoint_state_read(fuzz_folder(), &state, &error) == LS_OK);
    const ls_status sizes = ls_checkpoint_check_sizes(fuzz_folder(), &error);
    if (sizes != LS_OK && sizes != LS_FAILED) fuzz_check_refusal(sizes, &error);
  } else {
    fuzz_check_refusal(status, &error);
  }
  ls_arena_destroy(&arena);
  return 0;
}
