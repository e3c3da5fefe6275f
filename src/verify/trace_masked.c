#include <string.h>

#include "verify/trace.h"

static ls_status read_all(ls_arena *arena, ls_trace *trace, const ls_safetensors *file,
                          ls_error *error) {
  ls_trace_given *given = &trace->given;
  const int64_t count = trace->steps * trace->rows * trace->sequence;
  int32_t *mask;
  trace->masked = true;
  LS_TRY(ls_trace_read_numbers(arena, trace, file, "input_ids", count, &given->ids, error));
  LS_TRY(ls_trace_read_numbers(arena, trace, file, "labels", count, &given->labels, error));
  LS_TRY(ls_trace_read_numbers(arena, trace, file, "attention_mask", count, &mask, error));
  if (ls_safetensors_find(file, "token_type_ids"))
    LS_TRY(
        ls_trace_read_numbers(arena, trace, file, "token_type_ids", count, &given->types, error));
  given->positions = LS_NEW_ARRAY(arena, int32_t, count);
  for (int64_t i = 0; i < count; i++) {
    const bool begins = i % trace->sequence == 0 || mask[i] != mask[i - 1];
    given->positions[i] = begins ? 0 : given->positions[i - 1] + 1;
    if (given->labels[i] < 0) given->labels[i] = -1;
  }
  return LS_OK;
}

ls_status ls_trace_read_masked(ls_arena *arena, ls_trace *trace, ls_error *error) {
  ls_safetensors *file;
  LS_TRY(ls_safetensors_open(trace->folder, "batches", &file, error));
  const ls_status status = read_all(arena, trace, file, error);
  ls_safetensors_close(&file);
  return status;
}
