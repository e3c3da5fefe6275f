#include "support/trace_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "text/json.h"

ls_status ls_trace_case_run(ls_arena *arena, const char *trace, const char *words,
                            ls_verification **verification, ls_error *error) {
  enum { MOST = 16 };
  const char *list[MOST];
  int count = 0;
  char *rest = ls_arena_strdup(arena, words), *place;
  for (char *word = strtok_r(rest, " ", &place); word && count < MOST;
       word = strtok_r(NULL, " ", &place))
    list[count++] = word;
  LS_TRY(ls_verify_prepare(arena, trace, list, count, verification, error));
  ls_world *world;
  const int devices = (int)ls_run_file_mesh_devices((*verification)->run);
  LS_TRY(ls_world_create_threads(devices, &world, error));
  const ls_status status = ls_verify_run(*verification, world, error);
  ls_world_destroy(&world);
  return status;
}

bool ls_trace_case_holds(const char *trace, const char *dtype, const char *words) {
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  ls_verification *found = NULL;
  const char *all = ls_arena_printf(arena, "%s dtype=%s device.threads=1", words, dtype);
  ls_status status = ls_trace_case_run(arena, trace, all, &found, &error);
  double worst = 0;
  for (int k = 0; status == LS_OK && k < LS_VERIFY_KINDS; k++) {
    const ls_verify_row *row = &found->rows[k];
    const bool headless = k == LS_VERIFY_LOGITS && found->trace->texts.pairs;
    if (row->compared == 0 && !headless)
      status = ls_fail(&error, LS_FAILED, "nothing compared: %s",
                       ls_verify_kind_name((ls_verify_kind)k));
    if (row->worst > worst * row->tolerance) worst = row->worst / row->tolerance;
  }
  if (status == LS_OK)
    printf("  %s %s: %.2g of the tolerance\n", dtype, words, worst);
  else
    printf("  %s %s: %s\n", dtype, words, error.text);
  fflush(stdout);
  ls_arena_destroy(&arena);
  return status == LS_OK;
}

const char *ls_trace_adapters(ls_arena *arena, const char *trace, const char *made) {
  ls_error error = {0};
  char *data;
  size_t bytes;
  assert_int_equal(ls_directory_make(made, &error), LS_OK);
  assert_int_equal(
      ls_file_read(arena,
                   ls_arena_printf(arena, "%s/adapter_final/adapter_model.safetensors", trace),
                   &data, &bytes, &error),
      LS_OK);
  assert_int_equal(ls_file_write(ls_arena_printf(arena, "%s/adapter_model.safetensors", made), data,
                                 bytes, &error),
                   LS_OK);
  json_t *json;
  assert_int_equal(
      ls_json_read(ls_arena_printf(arena, "%s/adapter_final/adapter_config.json", trace), 0, &json,
                   &error),
      LS_OK);
  json_object_set_new(json, "base_model_name_or_path", json_string(trace));
  char *text = json_dumps(json, 0);
  const ls_status status = ls_file_write(ls_arena_printf(arena, "%s/adapter_config.json", made),
                                         text, strlen(text), &error);
  free(text);
  json_decref(json);
  assert_int_equal(status, LS_OK);
  return made;
}
