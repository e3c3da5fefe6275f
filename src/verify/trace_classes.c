#include "verify/trace.h"

/* The class of each row goes to the last of its tokens. What is behind them no token sees. */
static ls_status place_labels(const ls_trace *trace, const int32_t *given, const int32_t *mask,
                              int32_t *labels, ls_error *error) {
  const int64_t rows = trace->steps * trace->rows;
  for (int64_t r = 0; r < rows; r++) {
    int64_t last = trace->sequence;
    for (int64_t t = 0; t < trace->sequence; t++) labels[r * trace->sequence + t] = -1;
    while (last > 0 && mask[r * trace->sequence + last - 1] == 0) last--;
    if (last == 0 || given[r] < 0)
      return ls_fail(error, LS_INPUT,
                     "%s/batches.safetensors: row %lld: expected a token and a label at least",
                     trace->folder, (long long)r);
    labels[r * trace->sequence + last - 1] = given[r];
  }
  return LS_OK;
}

static ls_status read_batches(ls_arena *arena, ls_trace *trace, const ls_safetensors *file,
                              ls_error *error) {
  const int64_t rows = trace->steps * trace->rows, tokens = rows * trace->sequence;
  ls_trace_given *rows_given = &trace->given;
  int32_t *given, *mask;
  LS_TRY(ls_trace_read_numbers(arena, trace, file, "input_ids", tokens, &rows_given->ids, error));
  LS_TRY(ls_trace_read_numbers(arena, trace, file, "attention_mask", tokens, &mask, error));
  LS_TRY(ls_trace_read_numbers(arena, trace, file, "labels", rows, &given, error));
  rows_given->labels = LS_NEW_ARRAY(arena, int32_t, tokens);
  return place_labels(trace, given, mask, rows_given->labels, error);
}

ls_status ls_trace_read_classes(ls_arena *arena, const ls_json_object *root, ls_trace *trace,
                                ls_error *error) {
  const json_t *list = json_object_get(root->json, "steps");
  trace->correct = LS_NEW_ARRAY(arena, double, trace->steps);
  for (int64_t s = 0; s < trace->steps; s++) {
    ls_json_object step;
    const char *where = ls_arena_printf(arena, "%s: step %lld", root->where, (long long)s);
    LS_TRY(ls_json_root(where, json_array_get(list, (size_t)s), &step, error));
    LS_TRY(ls_json_number(&step, "correct_f64", &trace->correct[s], error));
  }
  ls_safetensors *file;
  LS_TRY(ls_safetensors_open(trace->folder, "batches", &file, error));
  const ls_status status = read_batches(arena, trace, file, error);
  ls_safetensors_close(&file);
  return status;
}
