#include <string.h>

#include "store/safetensors.h"
#include "verify/trace.h"

static const char *const sides[2] = {"chosen", "rejected"};

static ls_status read_settings(ls_arena *arena, const ls_json_object *root, ls_trace *trace,
                               ls_error *error) {
  ls_json_object hyper;
  const char *loss;
  LS_TRY(ls_json_child(arena, root, "hyper", &hyper, error));
  LS_TRY(ls_json_number(&hyper, "beta", &trace->pairs.beta, error));
  LS_TRY(ls_json_string_or(&hyper, "loss_type", "sigmoid", &loss, error));
  trace->pairs.odds = strcmp(loss, "orpo") == 0;
  if (trace->pairs.beta > 0 && (trace->pairs.odds || strcmp(loss, "sigmoid") == 0)) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: beta %g, loss_type %.40s; expected above 0, and sigmoid or orpo", hyper.where,
                 trace->pairs.beta, loss);
}

static ls_status read_logps(ls_arena *arena, const ls_json_object *root, ls_trace *trace,
                            ls_error *error) {
  ls_json_object all;
  LS_TRY(ls_json_child(arena, root, "step0_logps_micro0_f64", &all, error));
  for (int s = 0; s < 2; s++) {
    ls_json_object side;
    int count;
    LS_TRY(ls_json_child(arena, &all, sides[s], &side, error));
    LS_TRY(ls_json_numbers(arena, &side, "policy",
                           s ? &trace->pairs.rejected : &trace->pairs.chosen, &count, error));
    if (count < 1 || count > trace->rows || (s && count != trace->pairs.count))
      return ls_fail(error, LS_INPUT, "%s: found %d numbers; expected one for each pair",
                     side.where, count);
    trace->pairs.count = count;
  }
  return LS_OK;
}

static ls_status read_rewards(ls_arena *arena, const ls_json_object *root, ls_trace *trace,
                              ls_error *error) {
  static const char *const keys[3] = {"reward_chosen_f64", "reward_rejected_f64", "accuracy_f64"};
  const json_t *list = json_object_get(root->json, "steps");
  for (int64_t s = 0; s < trace->steps; s++) {
    ls_json_object step;
    const char *where = ls_arena_printf(arena, "%s: step %lld", root->where, (long long)s);
    LS_TRY(ls_json_root(where, json_array_get(list, (size_t)s), &step, error));
    for (int r = 0; r < 3; r++)
      LS_TRY(ls_json_number(&step, keys[r], &trace->step[s].rewards[r], error));
  }
  return LS_OK;
}

/* One answer's tokens of all rows, in their half; a label lies at its own token there, and before
 * it here. */
static ls_status read_side(ls_arena *arena, ls_trace *trace, const ls_safetensors *file, int side,
                           bool labels, ls_error *error) {
  const char *name = ls_arena_printf(arena, "%s_%s", sides[side], labels ? "labels" : "ids");
  const ls_stored_tensor *stored = ls_safetensors_find(file, name);
  const int64_t half = trace->sequence / 2, rows = trace->steps * trace->rows;
  if (!stored || stored->dtype != LS_I32 || stored->count != rows * half)
    return ls_fail(error, LS_INPUT,
                   "%s/batches.safetensors: expected a tensor %s of %lld x %lld int32 numbers",
                   trace->folder, name, (long long)rows, (long long)half);
  if (!trace->pairs.ids) trace->pairs.ids = LS_NEW_ARRAY(arena, int32_t, 2 * rows * half);
  if (!trace->pairs.labels) trace->pairs.labels = LS_NEW_ARRAY(arena, int32_t, 2 * rows * half);
  int32_t *read = LS_NEW_ARRAY(arena, int32_t, rows * half);
  LS_TRY(ls_stored_tensor_read(stored, 0, rows * half, LS_I32, read, error));
  for (int64_t r = 0; r < rows; r++)
    for (int64_t t = 0; t < half; t++) {
      const int64_t to = r * trace->sequence + side * half + t;
      if (!labels) trace->pairs.ids[to] = read[r * half + t];
      if (labels)
        trace->pairs.labels[to] =
            t + 1 < half && read[r * half + t + 1] >= 0 ? read[r * half + t + 1] : -1;
    }
  return LS_OK;
}

static ls_status read_batches(ls_arena *arena, ls_trace *trace, ls_error *error) {
  ls_safetensors *file;
  LS_TRY(ls_safetensors_open(trace->folder, "batches", &file, error));
  ls_status status = LS_OK;
  for (int s = 0; s < 4 && status == LS_OK; s++)
    status = read_side(arena, trace, file, s / 2, s % 2 == 1, error);
  ls_safetensors_close(&file);
  return status;
}

ls_status ls_trace_read_pairs(ls_arena *arena, const ls_json_object *root, ls_trace *trace,
                              ls_error *error) {
  LS_TRY(read_settings(arena, root, trace, error));
  LS_TRY(read_logps(arena, root, trace, error));
  LS_TRY(read_rewards(arena, root, trace, error));
  trace->sequence *= 2;
  return read_batches(arena, trace, error);
}
