#include "train/metrics_read.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "text/json.h"

static ls_status read_line(const json_t *root, ls_metrics_step *step, ls_error *error) {
  ls_json_object line;
  LS_TRY(ls_json_root("line", root, &line, error));
  const struct {
    const char *key;
    double *value;
  } numbers[] = {{"epoch", &step->epoch},
                 {"loss", &step->loss},
                 {"learning_rate", &step->learning_rate},
                 {"grad_norm", &step->grad_norm},
                 {"tokens_per_second", &step->tokens_per_second},
                 {"tokens_per_second_per_device", &step->tokens_per_second_per_device},
                 {"mfu", &step->mfu},
                 {"step_seconds", &step->step_seconds},
                 {"validation_loss", &step->validation_loss},
                 {"validation_accuracy", &step->validation_accuracy},
                 {"rewards/chosen", &step->reward_chosen},
                 {"rewards/rejected", &step->reward_rejected},
                 {"rewards/accuracies", &step->preferred},
                 {"cross_entropy", &step->cross_entropy},
                 {"kl", &step->divergence},
                 {"loss_scale", &step->loss_scale}};
  for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
    LS_TRY(ls_json_number_or(&line, numbers[n].key, NAN, numbers[n].value, error));
  LS_TRY(ls_json_int(&line, "step", &step->step, error));
  LS_TRY(ls_json_int_or(&line, "tokens", 0, &step->tokens, error));
  LS_TRY(ls_json_int_or(&line, "memory_bytes", 0, &step->memory_bytes, error));
  LS_TRY(ls_json_int_or(&line, "repeated", 0, &step->repeated, error));
  return ls_json_int_or(&line, "skipped", 0, &step->skipped, error);
}

ls_status ls_metrics_read(ls_arena *arena, const char *path, ls_metrics_rows *rows,
                          ls_error *error) {
  char *text;
  size_t bytes;
  LS_TRY(ls_file_read(arena, path, &text, &bytes, error));
  *rows = (ls_metrics_rows){0};
  int64_t number = 1;
  for (char *at = text, *end; (end = memchr(at, '\n', bytes - (size_t)(at - text))) != NULL;
       at = end + 1, number++) {
    json_t *root = NULL;
    ls_metrics_step step = {0};
    ls_status status = ls_json_parse("line", at, (size_t)(end - at), 0, &root, error);
    if (status == LS_OK) status = read_line(root, &step, error);
    json_decref(root);
    if (status != LS_OK) {
      return ls_fail(
          error, LS_INPUT,
          "%s:%lld: is no line of a run's metrics; expected {\"step\": 1, \"loss\": 5.5, "
          "...}",
          path, (long long)number);
    }
    *LS_APPEND(arena, rows) = step;
  }
  if (rows->count) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: no step is there yet; a line is written after each", path);
}
