#include "cli/verify_layout_command.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "cli/command.h"
#include "verify/verify_layout.h"

/* Longer values are cut: what matters of them is said beside. */
enum { WIDEST_VALUE = 24 };

static const char *value_text(ls_arena *arena, const char *value) {
  if (strlen(value) <= WIDEST_VALUE) return value;
  return ls_arena_printf(arena, "%.*s...", WIDEST_VALUE - 3, value);
}

static int widest(int so_far, const char *text) {
  const int length = (int)strlen(text);
  return length > so_far ? length : so_far;
}

/* Strategies besides the mesh, all of them kept. */
static const char *kept_text(const ls_layout_verification *about) {
  ls_arena *arena = about->arena;
  const ls_layout *layout = &about->shrunk->layout;
  const ls_model_config *config = &about->shrunk->config;
  const char *text = ls_layout_print(arena, layout);
  if (layout->sequence_parallel) text = ls_arena_printf(arena, "%s, sequence parallel", text);
  if (ls_op_set_equal(&layout->recompute, &(ls_op_set)LS_EVERY_OP))
    text = ls_arena_printf(arena, "%s, recompute full", text);
  else if (layout->recompute_of_count)
    text = ls_arena_printf(arena, "%s, recompute chosen by layer", text);
  else if (!ls_op_set_is_empty(&layout->recompute))
    text = ls_arena_printf(arena, "%s, recompute of some ops", text);
  text = ls_arena_printf(arena, "%s, %d microbatch%s, %s", text, layout->microbatches,
                         layout->microbatches == 1 ? "" : "es",
                         ls_optimizer_row_of(&layout->optimizer)->name);
  if (layout->optimizer.clip > 0) text = ls_arena_printf(arena, "%s, clipping", text);
  if (config->tied) text = ls_arena_printf(arena, "%s, tied embeddings", text);
  return text;
}

static void print_shrunk(const ls_layout_verification *about, int from) {
  const ls_shrunk *shrunk = about->shrunk;
  int key = (int)strlen("key"), before = (int)strlen("from"), after = (int)strlen("to");
  for (int r = 0; r < shrunk->rows.count; r++) {
    const ls_shrink_row *row = &shrunk->rows.items[r];
    key = widest(key, row->key);
    before = widest(before, value_text(about->arena, row->from));
    after = widest(after, value_text(about->arena, row->to));
  }
  if (!from) printf("%-*s  %*s -> %-*s  why this much\n", key, "key", before, "from", after, "to");
  for (int r = from; r < shrunk->rows.count; r++) {
    const ls_shrink_row *row = &shrunk->rows.items[r];
    printf("%-*s  %*s -> %-*s  %s\n", key, row->key, before, value_text(about->arena, row->from),
           after, value_text(about->arena, row->to), row->why);
  }
}

static void print_head(const ls_layout_verification *about) {
  const ls_session *session = about->session;
  const ls_shrunk *shrunk = about->shrunk;
  printf("%s on %d device%s, shrunk", session->config.source, session->devices,
         session->devices == 1 ? "" : "s");
  if (about->ranks < session->devices) printf(" to %d", about->ranks);
  putchar('\n');
  print_shrunk(about, 0);
  for (int i = 0; i < shrunk->given_up.count; i++)
    printf("not kept, as it takes more than %d devices: %s\n", LS_SHRINK_MOST_RANKS,
           shrunk->given_up.items[i]);
  printf("%s\n", kept_text(about));
  fflush(stdout);
}

static void print_rows(const ls_layout_verification *about) {
  printf("%-20s %10s %12s %12s  %-6s  %s\n", "against one device", "numbers", "worst error",
         "tolerance", "", "where");
  for (int k = 0; k < LS_EQUALITY_KINDS; k++) {
    const ls_layout_row *row = &about->rows[k];
    printf("%-20s %10lld %12.3g %12.3g  %-6s  %s\n", ls_layout_row_name((ls_equality_kind)k),
           (long long)row->compared, row->worst, row->tolerance, row->ok ? "ok" : "FAILED",
           row->where);
  }
  fflush(stdout);
}

/* A number, or null for what JSON cannot say. */
static json_t *number(double value) {
  return isfinite(value) ? json_real(value) : json_null();
}

static json_t *shrunk_json(const ls_shrunk *shrunk) {
  json_t *rows = json_array();
  for (int r = 0; r < shrunk->rows.count; r++) {
    const ls_shrink_row *row = &shrunk->rows.items[r];
    json_array_append_new(rows, json_pack("{s:s, s:s, s:s, s:s}", "key", row->key, "from",
                                          row->from, "to", row->to, "why", row->why));
  }
  return rows;
}

static void print_json(const ls_layout_verification *about, bool ok) {
  json_t *kinds = json_array(), *given_up = json_array();
  for (int k = 0; k < LS_EQUALITY_KINDS; k++) {
    const ls_layout_row *row = &about->rows[k];
    json_array_append_new(
        kinds,
        json_pack("{s:s, s:I, s:o, s:o, s:s, s:b}", "what", ls_layout_row_name((ls_equality_kind)k),
                  "numbers", (json_int_t)row->compared, "worst_error", number(row->worst),
                  "tolerance", number(row->tolerance), "where", row->where, "ok", (int)row->ok));
  }
  for (int i = 0; i < about->shrunk->given_up.count; i++)
    json_array_append_new(given_up, json_string(about->shrunk->given_up.items[i]));
  json_t *root = json_pack("{s:s, s:s, s:i, s:i, s:s, s:o, s:o, s:o, s:s, s:b}", "model",
                           about->session->config.source, "dtype",
                           ls_dtype_name(about->shrunk->layout.compute), "devices",
                           about->session->devices, "shrunk_devices", about->ranks, "layout",
                           kept_text(about), "shrunk", shrunk_json(about->shrunk), "not_kept",
                           given_up, "kinds", kinds, "first", about->first, "ok", (int)ok);
  json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
  putchar('\n');
  json_decref(root);
}

ls_status ls_verify_layout_command(ls_arena *arena, ls_run_file *run, int devices, bool kernels,
                                   bool json, ls_error *error) {
  const ls_verify_layout_options options = {.kernels = kernels};
  ls_session *session;
  ls_layout_verification *about;
  if (!ls_command_is_first()) return LS_OK; /* all ranks are threads of one process */
  LS_TRY(ls_session_resolve(arena, run, devices, devices, NULL, &session, error));
  LS_TRY(ls_verify_layout_prepare(arena, session, &options, &about, error));
  const int said = about->shrunk->rows.count;
  if (!json) print_head(about);
  const ls_status status = ls_verify_layout_run(about, error);
  if (!json && about->shrunk->rows.count > said) print_shrunk(about, said);
  if (about->compared && json) print_json(about, status == LS_OK);
  if (about->compared && !json) print_rows(about);
  return status;
}
