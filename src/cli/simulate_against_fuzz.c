/* Fuzz target of the trace.json that a simulation is held against: what is read is told whole. */
#include "cli/simulate_against.h"
#include "support/fuzz_folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  ls_error error = {0};
  ls_arena *arena = ls_arena_create();
  const ls_timeline simulated = {.microseconds = 1, .processes = 1, .end = 1};
  ls_kind_comparison made;
  fuzz_folder_write("trace.json", data, bytes);
  const ls_status status = ls_compare_kinds(arena, &simulated, fuzz_folder(), &made, &error);
  if (status != LS_OK) {
    fuzz_check_refusal(status, &error);
  } else {
    json_t *told = ls_compared_json(&made);
    LS_ASSERT(json_array_size(json_object_get(told, "kinds")) == (size_t)made.kinds.count);
    json_decref(told);
  }
  ls_arena_destroy(&arena);
  return 0;
}
