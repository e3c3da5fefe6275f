#include "verify/trace.h"

static const char *const known[] = {"pairs", "texts", "group", "scale"};

static ls_status read_form(ls_arena *arena, const ls_json_object *root, ls_trace *trace,
                           ls_error *error) {
  ls_json_object hyper;
  ls_text_pairs *form = &trace->texts;
  int64_t *const numbers[] = {&form->pairs, &form->texts, &form->group};
  LS_TRY(ls_json_child(arena, root, "hyper", &hyper, error));
  for (int n = 0; n < 3; n++) LS_TRY(ls_json_count(&hyper, known[n], numbers[n], error));
  LS_TRY(ls_json_number(&hyper, "scale", &form->scale, error));
  if (form->texts >= 2 && form->pairs > 0 && form->group > 0 && form->scale > 0) return LS_OK;
  return ls_fail(
      error, LS_INPUT,
      "%s: found %lld pairs of %lld texts in groups of %lld rows, times %g; expected 1 of "
      "2 in 1 at least, and a number above 0",
      hyper.where, (long long)form->pairs, (long long)form->texts, (long long)form->group,
      form->scale);
}

static ls_status read_found(ls_arena *arena, const ls_json_object *root, ls_trace *trace,
                            ls_error *error) {
  const json_t *list = json_object_get(root->json, "steps");
  for (int64_t s = 0; s < trace->steps; s++) {
    ls_json_object step;
    const char *where = ls_arena_printf(arena, "%s: step %lld", root->where, (long long)s);
    LS_TRY(ls_json_root(where, json_array_get(list, (size_t)s), &step, error));
    LS_TRY(ls_json_number(&step, "accuracy_f64", &trace->step[s].rewards[0], error));
  }
  return LS_OK;
}

ls_status ls_trace_read_texts(ls_arena *arena, const ls_json_object *root, ls_trace *trace,
                              ls_error *error) {
  const int64_t count = trace->steps * trace->rows * trace->sequence;
  ls_trace_given *given = &trace->given;
  ls_safetensors *file;
  LS_TRY(read_form(arena, root, trace, error));
  LS_TRY(read_found(arena, root, trace, error));
  LS_TRY(ls_safetensors_open(trace->folder, "batches", &file, error));
  const struct {
    const char *name;
    int32_t **numbers;
  } all[] = {
      {"input_ids", &given->ids}, {"position_ids", &given->positions}, {"texts", &given->labels}};
  ls_status status = LS_OK;
  for (int i = 0; i < 3 && status == LS_OK; i++)
    status = ls_trace_read_numbers(arena, trace, file, all[i].name, count, all[i].numbers, error);
  ls_safetensors_close(&file);
  return status;
}
