#include "verify/trace.h"

/* A label lies at its own token there, and before it here. A document's first token is none. */
static ls_status shift(const ls_trace *trace, ls_error *error) {
  const ls_trace_given *given = &trace->given;
  const int64_t count = trace->steps * trace->rows * trace->sequence;
  for (int64_t i = 0; i < count; i++) {
    const bool begins = i % trace->sequence == 0;
    const int32_t expected = begins ? 0 : given->positions[i - 1] + 1;
    if (given->positions[i] != 0 && given->positions[i] != expected)
      return ls_fail(error, LS_INPUT,
                     "%s/batches.safetensors: found position %d at token %lld; expected 0 or %d",
                     trace->folder, (int)given->positions[i], (long long)i, (int)expected);
  }
  for (int64_t i = 0; i < count; i++) {
    const bool last = (i + 1) % trace->sequence == 0;
    const bool asked = !last && given->positions[i + 1] > 0 && given->labels[i + 1] >= 0;
    given->labels[i] = asked ? given->labels[i + 1] : -1;
  }
  return LS_OK;
}

ls_status ls_trace_read_packed(ls_arena *arena, ls_trace *trace, ls_error *error) {
  ls_safetensors *file;
  ls_trace_given *given = &trace->given;
  const int64_t count = trace->steps * trace->rows * trace->sequence;
  trace->packed = true;
  LS_TRY(ls_safetensors_open(trace->folder, "batches", &file, error));
  ls_status status =
      ls_trace_read_numbers(arena, trace, file, "input_ids", count, &given->ids, error);
  if (status == LS_OK)
    status = ls_trace_read_numbers(arena, trace, file, "labels", count, &given->labels, error);
  if (status == LS_OK)
    status =
        ls_trace_read_numbers(arena, trace, file, "position_ids", count, &given->positions, error);
  ls_safetensors_close(&file);
  return status == LS_OK ? shift(trace, error) : status;
}
