#include <string.h>

#include "text/number.h"
#include "verify/trace.h"

/* The class of each row, or 0 where it has a set of them, goes to the last of its tokens, or to the
 * first. What is behind them no token sees. */
static ls_status place_labels(const ls_trace *trace, const int32_t *given, const int32_t *mask,
                              bool first, int32_t *labels, ls_error *error) {
  const int64_t rows = trace->steps * trace->rows;
  for (int64_t r = 0; r < rows; r++) {
    int64_t last = trace->sequence;
    for (int64_t t = 0; t < trace->sequence; t++) labels[r * trace->sequence + t] = -1;
    while (last > 0 && mask[r * trace->sequence + last - 1] == 0) last--;
    if (last == 0 || (given && given[r] < 0))
      return ls_fail(error, LS_INPUT,
                     "%s/batches.safetensors: row %lld: expected a token and a label at least",
                     trace->folder, (long long)r);
    labels[r * trace->sequence + (first ? 0 : last - 1)] = given ? given[r] : 0;
  }
  return LS_OK;
}

/* Padding is a text of its own: tokens that see those behind them would see it. */
static ls_status place_tokens(ls_arena *arena, ls_trace *trace, const ls_safetensors *file,
                              const int32_t *mask, ls_error *error) {
  ls_trace_given *given = &trace->given;
  const int64_t count = trace->steps * trace->rows * trace->sequence;
  trace->masked = true;
  given->positions = LS_NEW_ARRAY(arena, int32_t, count);
  for (int64_t i = 0; i < count; i++) {
    const bool begins = i % trace->sequence == 0 || mask[i] != mask[i - 1];
    given->positions[i] = begins ? 0 : given->positions[i - 1] + 1;
  }
  if (!ls_safetensors_find(file, "token_type_ids")) return LS_OK; /* of a decoder */
  return ls_trace_read_numbers(arena, trace, file, "token_type_ids", count, &given->types, error);
}

/* Labels of tokens, where -100 is none, as torch has it. */
static void take_labels(int32_t *labels, int64_t tokens) {
  for (int64_t t = 0; t < tokens; t++)
    if (labels[t] < 0) labels[t] = -1;
}

/* Sets of classes, each of as many words as there are for a row. */
static ls_status read_sets(ls_arena *arena, ls_trace *trace, const ls_safetensors *file,
                           int64_t rows, ls_error *error) {
  const ls_stored_tensor *stored = ls_safetensors_find(file, "labels");
  const int64_t words = stored && stored->count > rows ? stored->count / rows : 1;
  trace->given.set_words = words;
  return ls_trace_read_numbers(arena, trace, file, "labels", rows * words, &trace->given.sets,
                               error);
}

static ls_status read_batches(ls_arena *arena, ls_trace *trace, const ls_safetensors *file,
                              bool pooled, bool each, bool several, ls_error *error) {
  const int64_t rows = trace->steps * trace->rows, tokens = rows * trace->sequence;
  ls_trace_given *rows_given = &trace->given;
  int32_t *given = NULL, *mask;
  LS_TRY(ls_trace_read_numbers(arena, trace, file, "input_ids", tokens, &rows_given->ids, error));
  LS_TRY(ls_trace_read_numbers(arena, trace, file, "attention_mask", tokens, &mask, error));
  if (several)
    LS_TRY(read_sets(arena, trace, file, rows, error));
  else
    LS_TRY(
        ls_trace_read_numbers(arena, trace, file, "labels", each ? tokens : rows, &given, error));
  if (pooled) LS_TRY(place_tokens(arena, trace, file, mask, error));
  if (each) {
    take_labels(given, tokens);
    rows_given->labels = given;
    return LS_OK;
  }
  rows_given->labels = LS_NEW_ARRAY(arena, int32_t, tokens);
  return place_labels(trace, given, mask, pooled, rows_given->labels, error);
}

static ls_status read_weights(ls_arena *arena, const ls_json_object *root, ls_trace *trace,
                              ls_error *error) {
  ls_json_object hyper;
  double *numbers;
  LS_TRY(ls_json_child(arena, root, "hyper", &hyper, error));
  if (!ls_json_has(&hyper, "class_weights")) return LS_OK;
  LS_TRY(
      ls_json_numbers(arena, &hyper, "class_weights", &numbers, &trace->class_weight_count, error));
  trace->class_weights = LS_NEW_ARRAY(arena, const char *, trace->class_weight_count + 1);
  for (int c = 0; c < trace->class_weight_count; c++) {
    char number[LS_NUMBER_BYTES];
    ls_number_write(number, numbers[c]);
    trace->class_weights[c] = ls_arena_strdup(arena, number);
  }
  return LS_OK;
}

ls_status ls_trace_read_classes(ls_arena *arena, const ls_json_object *root, bool pooled, bool each,
                                ls_trace *trace, ls_error *error) {
  const json_t *list = json_object_get(root->json, "steps");
  trace->correct = LS_NEW_ARRAY(arena, double, trace->steps);
  for (int64_t s = 0; s < trace->steps; s++) {
    ls_json_object step;
    const char *where = ls_arena_printf(arena, "%s: step %lld", root->where, (long long)s);
    LS_TRY(ls_json_root(where, json_array_get(list, (size_t)s), &step, error));
    LS_TRY(ls_json_number(&step, "correct_f64", &trace->correct[s], error));
  }
  LS_TRY(read_weights(arena, root, trace, error));
  const char *loss = json_string_value(json_object_get(root->json, "loss"));
  const bool several = loss && strncmp(loss, "binary", 6) == 0;
  ls_safetensors *file;
  LS_TRY(ls_safetensors_open(trace->folder, "batches", &file, error));
  const ls_status status = read_batches(arena, trace, file, pooled, each, several, error);
  ls_safetensors_close(&file);
  return status;
}
