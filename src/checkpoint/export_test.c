/* A model's folder goes through export to the same bytes, in the names and types that it is asked
 * for; what is no model leaves nothing behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/file.h"
#include "checkpoint/export.h"
#include "store/safetensors.h"

enum { WIDTH = 8, VOCABULARY = 11, LAYERS = 2, MOST = 64 };

/* A GPT-2 as people find it: without the family's prefix, masks beside it, the head spelled out. */
typedef struct fixture {
  ls_arena *arena;
  const char *folder, *source, *target;
  const char *names[MOST];
  int64_t dims[MOST][2];
  int ndim[MOST], count;
} fixture;

static const char config[] =
    "{\"model_type\": \"gpt2\", \"vocab_size\": 11, \"n_positions\": 8, \"n_embd\": 8, "
    "\"n_layer\": 2,"
    " \"n_head\": 2, \"resid_pdrop\": 0, \"embd_pdrop\": 0, \"attn_pdrop\": 0,"
    " \"torch_dtype\": \"bfloat16\"}";

static void add(fixture *f, const char *name, int64_t rows, int64_t columns) {
  f->names[f->count] = name;
  f->dims[f->count][0] = rows;
  f->dims[f->count][1] = columns;
  f->ndim[f->count++] = columns ? 2 : 1;
}

static void add_layer(fixture *f, int layer) {
  static const struct {
    const char *name;
    int64_t rows, columns;
  } tensors[] = {{"ln_1.weight", WIDTH, 0},
                 {"ln_1.bias", WIDTH, 0},
                 {"attn.c_attn.weight", WIDTH, 3 * WIDTH},
                 {"attn.c_attn.bias", 3 * WIDTH, 0},
                 {"attn.c_proj.weight", WIDTH, WIDTH},
                 {"attn.c_proj.bias", WIDTH, 0},
                 {"ln_2.weight", WIDTH, 0},
                 {"ln_2.bias", WIDTH, 0},
                 {"mlp.c_fc.weight", WIDTH, 4 * WIDTH},
                 {"mlp.c_fc.bias", 4 * WIDTH, 0},
                 {"mlp.c_proj.weight", 4 * WIDTH, WIDTH},
                 {"mlp.c_proj.bias", WIDTH, 0}};
  for (int i = 0; i < (int)(sizeof tensors / sizeof *tensors); i++)
    add(f, ls_arena_printf(f->arena, "h.%d.%s", layer, tensors[i].name), tensors[i].rows,
        tensors[i].columns);
}

static double value_of(int tensor, int64_t i) {
  return (double)((tensor * 31 + i * 7) % 63 - 31) / 32; /* exact in every type */
}

/* `prefix`: before all names but the head's. */
static void write_model(fixture *f, const char *folder, const char *prefix, ls_dtype dtype) {
  ls_error error = {0};
  ls_tensor_spec specs[MOST];
  for (int t = 0; t < f->count; t++)
    specs[t] =
        (ls_tensor_spec){.name = strcmp(f->names[t], "lm_head.weight") == 0
                                     ? f->names[t]
                                     : ls_arena_printf(f->arena, "%s%s", prefix, f->names[t]),
                         .dtype = dtype,
                         .ndim = f->ndim[t],
                         .dims = f->dims[t]};
  ls_safetensors_writer *writer = NULL;
  assert_int_equal(ls_directory_make(folder, &error), LS_OK);
  assert_int_equal(ls_file_write(ls_arena_printf(f->arena, "%s/config.json", folder), config,
                                 strlen(config), &error),
                   LS_OK);
  assert_int_equal(ls_safetensors_create_shards(folder, "model", 1 << 30, specs, f->count, NULL, 0,
                                                &writer, &error),
                   LS_OK);
  for (int t = 0; t < f->count; t++) {
    const int same = strcmp(f->names[t], "lm_head.weight") == 0 ? 0 : t;
    const int64_t count = f->dims[t][0] * (f->ndim[t] == 2 ? f->dims[t][1] : 1);
    for (int64_t i = 0; i < count; i++) {
      const double exact = value_of(same, i);
      char narrow[8];
      ls_convert(narrow, dtype, &exact, LS_F64, 1);
      assert_int_equal(ls_safetensors_append(writer, narrow, ls_dtype_bytes(dtype), &error), LS_OK);
    }
  }
  assert_int_equal(ls_safetensors_finish(&writer, &error), LS_OK);
}

static int set_up(void **state) {
  ls_arena *arena = ls_arena_create();
  fixture *f = LS_NEW(arena, fixture);
  char folder[] = "/tmp/lockstep-export-XXXXXX";
  assert_non_null(mkdtemp(folder));
  *f = (fixture){.arena = arena, .folder = ls_arena_strdup(arena, folder)};
  f->source = ls_arena_printf(arena, "%s/model", folder);
  f->target = ls_arena_printf(arena, "%s/out", folder);
  add(f, "wte.weight", VOCABULARY, WIDTH);
  add(f, "wpe.weight", 8, WIDTH);
  for (int layer = 0; layer < LAYERS; layer++) add_layer(f, layer);
  add(f, "ln_f.weight", WIDTH, 0);
  add(f, "ln_f.bias", WIDTH, 0);
  *state = f;
  return 0;
}

static int tear_down(void **state) {
  fixture *f = *state;
  ls_error error;
  const int left = ls_directory_remove(f->folder, &error) != LS_OK;
  ls_arena_destroy(&f->arena);
  return left;
}

static void expect_tensors(const fixture *f, const char *prefix, ls_dtype dtype) {
  ls_safetensors *opened;
  ls_error error = {0};
  if (ls_safetensors_open(f->target, NULL, &opened, &error) != LS_OK) fail_msg("%s", error.text);
  assert_int_equal(ls_safetensors_count(opened), f->count);
  for (int t = 0; t < f->count; t++) {
    const bool head = strcmp(f->names[t], "lm_head.weight") == 0;
    const ls_stored_tensor *found = ls_safetensors_find(
        opened, head ? f->names[t] : ls_arena_printf(f->arena, "%s%s", prefix, f->names[t]));
    if (!found) fail_msg("no %s%s", prefix, f->names[t]);
    assert_int_equal(found->dtype, dtype);
    for (int64_t i = 0; i < found->count; i++) {
      double value;
      assert_int_equal(ls_stored_tensor_read(found, i, 1, LS_F64, &value, &error), LS_OK);
      assert_true(value == value_of(head ? 0 : t, i));
    }
  }
  ls_safetensors_close(&opened);
}

static ls_status export_from(const fixture *f, const char *names, ls_dtype dtype, int64_t shard,
                             ls_export_report *report, ls_error *error) {
  return ls_export(&(ls_export_options){.from = f->source,
                                        .to = f->target,
                                        .names = names,
                                        .dtype = dtype,
                                        .max_shard_bytes = shard},
                   report, error);
}

static void test_names_and_types_stay(void **state) {
  fixture *f = *state;
  ls_error error = {0};
  ls_export_report report;
  write_model(f, f->source, "", LS_BF16);
  if (export_from(f, NULL, LS_DTYPE_COUNT, 1 << 30, &report, &error) != LS_OK)
    fail_msg("%s", error.text);
  expect_tensors(f, "", LS_BF16);
  assert_int_equal(report.tensors, f->count);
  /* A second export does not write over the first. */
  assert_int_equal(export_from(f, NULL, LS_DTYPE_COUNT, 1 << 30, &report, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "something is there"));
}

/* As a run's checkpoint is named, with another folder's names, which has a head of its own. */
static void test_names_of_another_folder(void **state) {
  fixture *f = *state;
  ls_error error = {0};
  ls_export_report report;
  const char *names = ls_arena_printf(f->arena, "%s/names", f->folder);
  write_model(f, f->source, "transformer.", LS_F32);
  add(f, "lm_head.weight", VOCABULARY, WIDTH);
  write_model(f, names, "", LS_F16);
  if (export_from(f, names, LS_DTYPE_COUNT, 600, &report, &error) != LS_OK)
    fail_msg("%s", error.text);
  expect_tensors(f, "", LS_F16);
  assert_true(
      ls_file_exists(ls_arena_printf(f->arena, "%s/model.safetensors.index.json", f->target)));
  assert_string_equal(report.names, names);
}

static void test_types_on_demand(void **state) {
  fixture *f = *state;
  ls_error error = {0};
  ls_export_report report;
  write_model(f, f->source, "transformer.", LS_F32);
  if (export_from(f, NULL, LS_BF16, 1 << 30, &report, &error) != LS_OK) fail_msg("%s", error.text);
  expect_tensors(f, "transformer.", LS_BF16);
  char *text;
  size_t bytes;
  assert_int_equal(ls_file_read(f->arena, ls_arena_printf(f->arena, "%s/config.json", f->target),
                                &text, &bytes, &error),
                   LS_OK);
  assert_non_null(strstr(text, "bfloat16"));
}

static void test_what_fails_leaves_nothing(void **state) {
  fixture *f = *state;
  ls_error error = {0};
  ls_export_report report;
  assert_int_equal(export_from(f, NULL, LS_DTYPE_COUNT, 1 << 30, &report, &error), LS_INPUT);
  write_model(f, f->source, "transformer.", LS_F32);
  const char *names = ls_arena_printf(f->arena, "%s/names", f->folder);
  f->count -= 3;
  write_model(f, names, "", LS_F32);
  assert_int_equal(export_from(f, names, LS_DTYPE_COUNT, 1 << 30, &report, &error), LS_INPUT);
  print_message("%s\n", error.text);
  assert_non_null(strstr(error.text, "does not name all"));
  assert_false(ls_directory_exists(f->target));
  char **left;
  int count;
  assert_int_equal(ls_file_glob(f->arena, ls_arena_printf(f->arena, "%s/out*", f->folder), &left,
                                &count, &error),
                   LS_INPUT);
}

/* What is missing here, no reader of the export would find. */
static void test_another_model_than_its_config_says(void **state) {
  fixture *f = *state;
  ls_error error = {0};
  ls_export_report report;
  f->count--;
  write_model(f, f->source, "transformer.", LS_F32);
  assert_int_equal(export_from(f, NULL, LS_DTYPE_COUNT, 1 << 30, &report, &error), LS_INPUT);
  print_message("%s\n", error.text);
  assert_non_null(strstr(error.text, "no tensor transformer.ln_f.bias"));
  f->count++;
  f->dims[1][0]--;
  write_model(f, f->source, "transformer.", LS_F32);
  assert_int_equal(export_from(f, NULL, LS_DTYPE_COUNT, 1 << 30, &report, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "transformer.wpe.weight has shape [7, 8]; expected [8, 8]"));
  assert_false(ls_directory_exists(f->target));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_names_and_types_stay, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_names_of_another_folder, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_types_on_demand, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_what_fails_leaves_nothing, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_another_model_than_its_config_says, set_up, tear_down)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
