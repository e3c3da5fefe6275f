/* Fuzz target of a sweep's sweep.json: what is taken from it is written and read as the same. */
#include <math.h>

#include "cli/sweep.h"
#include "support/fuzz_folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static ls_sweep sweep_of_two(ls_arena *arena) {
  ls_sweep made = {.arena = arena, .out = fuzz_folder()};
  *LS_APPEND(arena, &made.runs) =
      (ls_sweep_run){.name = "train.lr=1e-4", .text = "train:\n  lr: 1e-4\n", .loss = NAN};
  *LS_APPEND(arena, &made.runs) =
      (ls_sweep_run){.name = "train.lr=3e-4", .text = "train:\n  lr: 3e-4\n", .loss = NAN};
  return made;
}

static bool same_number(double a, double b) {
  return a == b || (isnan(a) && isnan(b));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  ls_error error = {0};
  ls_arena *arena = ls_arena_create();
  ls_sweep first = sweep_of_two(arena), again = sweep_of_two(arena);
  fuzz_folder_write("sweep.json", data, bytes);
  const ls_status status = ls_sweep_read(&first, &error);
  if (status != LS_OK) {
    fuzz_check_refusal(status, &error);
  } else {
    if (ls_sweep_write(&first, &error) != LS_OK || ls_sweep_read(&again, &error) != LS_OK)
      ls_panic("%s", error.text);
    for (int r = 0; r < first.runs.count; r++) {
      const ls_sweep_run *a = &first.runs.items[r], *b = &again.runs.items[r];
      LS_ASSERT(a->state == b->state && a->step == b->step && same_number(a->loss, b->loss) &&
                strcmp(a->error ? a->error : "", b->error) == 0);
    }
  }
  ls_arena_destroy(&arena);
  return 0;
}
