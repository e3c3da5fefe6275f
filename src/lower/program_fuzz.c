/* Fuzz target of the saved form of programs: what is accepted has no index out of its list, so that
 * everything can be asked of it, and is saved again as it was read. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cost/cost.h"
#include "ir/saved.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void ask(ls_arena *arena, const ls_program *program) {
  char *text = NULL;
  size_t bytes = 0;
  int count;
  int64_t by_category[LS_CATEGORY_COUNT];
  FILE *stream = open_memstream(&text, &bytes);
  LS_ASSERT(stream);
  ls_program_print(program, stream);
  ls_program_print_memory(program, 0, stream);
  ls_program_print_collectives(program, stream);
  LS_ASSERT(fclose(stream) == 0 && bytes > 0);
  free(text);
  ls_program_bytes(program);
  ls_program_peak(program, by_category);
  ls_program_bytes_sent(program, &count);
  for (int tier = 0; tier < LS_TIER_COUNT; tier++) ls_program_alive(arena, program, (ls_tier)tier);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  ls_error error = {0};
  ls_arena *arena = ls_arena_create();
  ls_program *program, *again;
  const ls_status status =
      ls_program_parse(arena, "fuzz", bytes ? (const char *)data : "", bytes, &program, &error);
  if (status == LS_OK) {
    ask(arena, program);
    const char *text = ls_program_text(arena, program);
    LS_ASSERT(ls_program_parse(arena, "again", text, strlen(text), &again, &error) == LS_OK);
    LS_ASSERT(strcmp(ls_program_text(arena, again), text) == 0);
  } else {
    LS_ASSERT(status == LS_INPUT && !strncmp(error.text, "fuzz", 4) && !strchr(error.text, '\n'));
  }
  ls_arena_destroy(&arena);
  return 0;
}
