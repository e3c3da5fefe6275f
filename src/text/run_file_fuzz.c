/* libFuzzer target: any text is refused with one line or read, and what is read is written in a
 * form that reads back to the same values. */
#include <stdlib.h>
#include <string.h>

#include "text/run_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  ls_run_file *run = NULL, *again = NULL;
  const ls_status status =
      ls_run_file_parse(arena, "fuzz.yaml", (const char *)data, size, NULL, 0, &run, &error);
  if (status != LS_OK && (!error.text[0] || strchr(error.text, '\n'))) abort();
  if (status == LS_OK) {
    const char *text = ls_run_file_text(arena, run);
    if (ls_run_file_parse(arena, "fuzz.yaml", text, strlen(text), NULL, 0, &again, &error)) abort();
    if (ls_run_file_diff(arena, run, again).count) abort();
  }
  ls_arena_destroy(&arena);
  return 0;
}
