/* Fuzz target of trace.json and tokens.u16le: what is accepted has a token for every place of every
 * step, and numbers for every step. */
#include "support/fuzz_folder.h"
#include "verify/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static const char *const names[] = {"trace.json", "tokens.u16le"};
  ls_error error = {0};
  ls_arena *arena = ls_arena_create();
  fuzz_folder_fill(names, 2, data, bytes);
  fuzz_folder_write("config.json", "{}", 2); /* is there; not read here */
  ls_trace *trace;
  const ls_status status = ls_trace_read(arena, fuzz_folder(), &trace, &error);
  if (status == LS_OK) {
    LS_ASSERT(trace->steps > 0 && trace->rows > 0 && trace->sequence > 0);
    LS_ASSERT(trace->token_count > trace->steps && trace->summary_count >= 0);
    LS_ASSERT(ls_trace_token(trace, trace->token_count - 1) >= 0);
    LS_ASSERT(trace->step[trace->steps - 1].learning_rate >= 0);
  } else {
    fuzz_check_refusal(status, &error);
  }
  ls_arena_destroy(&arena);
  return 0;
}
