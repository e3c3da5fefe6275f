#include <string.h>

#include "verify/trace.h"

static ls_status read_settings(ls_arena *arena, const ls_json_object *root, ls_trace *trace,
                               ls_error *error) {
  ls_json_object hyper;
  ls_trace_teacher *teacher = &trace->teacher;
  LS_TRY(ls_json_child(arena, root, "hyper", &hyper, error));
  LS_TRY(ls_json_number(&hyper, "alpha", &teacher->share, error));
  LS_TRY(ls_json_number(&hyper, "temperature", &teacher->temperature, error));
  teacher->folder = ls_arena_printf(arena, "%s/teacher", trace->folder);
  if (teacher->share >= 0 && teacher->share <= 1 && teacher->temperature > 0) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: alpha %g, temperature %g; expected from 0 to 1, and above 0",
                 hyper.where, teacher->share, teacher->temperature);
}

static ls_status read_parts(ls_arena *arena, const ls_json_object *root, ls_trace *trace,
                            ls_error *error) {
  const json_t *list = json_object_get(root->json, "steps");
  for (int64_t s = 0; s < trace->steps; s++) {
    ls_json_object step;
    const char *where = ls_arena_printf(arena, "%s: step %lld", root->where, (long long)s);
    LS_TRY(ls_json_root(where, json_array_get(list, (size_t)s), &step, error));
    LS_TRY(ls_json_number(&step, "ce_f64", &trace->step[s].rewards[0], error));
    LS_TRY(ls_json_number(&step, "kl_f64", &trace->step[s].rewards[1], error));
  }
  return LS_OK;
}

/* A label lies at its own token there, and before it here. */
static void shift(const ls_trace *trace, int32_t *labels) {
  const int64_t count = trace->steps * trace->rows * trace->sequence;
  for (int64_t i = 0; i < count; i++) {
    const bool last = (i + 1) % trace->sequence == 0;
    labels[i] = last || labels[i + 1] < 0 ? -1 : labels[i + 1];
  }
}

ls_status ls_trace_read_teacher(ls_arena *arena, const ls_json_object *root, ls_trace *trace,
                                ls_error *error) {
  ls_safetensors *file;
  ls_trace_given *given = &trace->given;
  const int64_t count = trace->steps * trace->rows * trace->sequence;
  LS_TRY(read_settings(arena, root, trace, error));
  LS_TRY(read_parts(arena, root, trace, error));
  LS_TRY(ls_safetensors_open(trace->folder, "batches", &file, error));
  ls_status status =
      ls_trace_read_numbers(arena, trace, file, "input_ids", count, &given->ids, error);
  if (status == LS_OK)
    status = ls_trace_read_numbers(arena, trace, file, "labels", count, &given->labels, error);
  ls_safetensors_close(&file);
  if (status == LS_OK) shift(trace, given->labels);
  return status;
}
