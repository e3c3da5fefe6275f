#include <math.h>
#include <stdio.h>

#include <jansson.h>

#include "cli/command.h"
#include "train/verify.h"

static const char help[] =
    "usage: lockstep verify --trace DIR [key=value ...] [-n DEVICES] [--json]\n\n"
    "Repeats a training that another program did, from the trace it left, and compares every\n"
    "step's loss and gradient norm, the first step's logits and gradients, and the parameters\n"
    "after the last step. Exit status 0: all within tolerance; 1: something is not.\n\n"
    "  --trace DIR  folder with trace.json, tokens.u16le, step0.safetensors, config.json and\n"
    "               model.safetensors (or \"initial\" in trace.json naming a checkpoint)\n"
    "  -n DEVICES   devices of the whole mesh (default: the launcher's tasks, else the mesh)\n"
    "  --json       the table as JSON\n"
    "  --help       this text\n\n"
    "Keys are those of the layout, as in a run file (mesh.dp_shard, mesh.tp, zero,\n"
    "sequence_parallel, train.microbatches, ...), and dtype: fp32 (the default), fp64,\n"
    "bf16 or fp16.\n"
    "Tolerances: fp32, 8 times what float32 did to the reference itself; fp64, rounding (or once\n"
    "that noise where parts of the reference are float32 even in its fp64 run); bf16 and fp16,\n"
    "wide bands.\n\n"
    "examples:\n"
    "  lockstep verify --trace tests/data/traces/gpt2-tied\n"
    "  lockstep verify --trace tests/data/traces/llama-gqa-free mesh.dp_shard=3 dtype=fp64\n"
    "  lockstep verify --trace tests/data/traces/llama-gqa-tied mesh.tp=2 zero=2 -n 4\n";

static void print_table(const ls_verification *about) {
  const ls_trace *trace = about->trace;
  const ls_session *session = about->session;
  const ls_layout *layout = &session->layout;
  printf("%s: %lld steps of %lld x %lld tokens, in %s on %d device%s (%s%s, %d microbatch%s)\n",
         trace->folder, (long long)trace->steps, (long long)trace->rows, (long long)trace->sequence,
         ls_dtype_name(layout->compute), session->devices, session->devices == 1 ? "" : "s",
         ls_layout_print(session->arena, layout),
         layout->sequence_parallel ? ", sequence parallel" : "", layout->microbatches,
         layout->microbatches == 1 ? "" : "es");
  if (layout->compute == LS_F64 && trace->single_parts)
    printf("the reference has float32 %s even in its fp64 run\n", trace->single_parts);
  printf("%-20s %10s %12s %12s  %-6s  %s\n", "what", "numbers", "worst error", "tolerance", "",
         "where");
  for (int k = 0; k < LS_VERIFY_KINDS; k++) {
    const ls_verify_row *row = &about->rows[k];
    printf("%-20s %10lld %12.3g %12.3g  %-6s  %s\n", ls_verify_kind_name((ls_verify_kind)k),
           (long long)row->compared, row->worst, row->tolerance, row->ok ? "ok" : "FAILED",
           row->where);
  }
}

/* A number, or null for what JSON cannot say. */
static json_t *number(double value) {
  return isfinite(value) ? json_real(value) : json_null();
}

static void print_json(const ls_verification *about, bool ok) {
  const ls_layout *layout = &about->session->layout;
  json_t *rows = json_array();
  for (int k = 0; k < LS_VERIFY_KINDS; k++) {
    const ls_verify_row *row = &about->rows[k];
    json_array_append_new(
        rows,
        json_pack("{s:s, s:I, s:o, s:o, s:s, s:b}", "what", ls_verify_kind_name((ls_verify_kind)k),
                  "numbers", (json_int_t)row->compared, "worst_error", number(row->worst),
                  "tolerance", number(row->tolerance), "where", row->where, "ok", (int)row->ok));
  }
  json_t *root = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:b, s:i, s:o, s:b}", "trace",
                           about->trace->folder, "dtype", ls_dtype_name(layout->compute), "devices",
                           about->session->devices, "dp_replicate", layout->dp_replicate,
                           "dp_shard", layout->dp_shard, "tp", layout->tp, "zero", layout->zero,
                           "sequence_parallel", (int)layout->sequence_parallel, "microbatches",
                           layout->microbatches, "kinds", rows, "ok", (int)ok);
  json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
  putchar('\n');
  json_decref(root);
}

static ls_status verify(ls_arena *arena, const ls_words *words, const char *trace,
                        const char *devices_text, bool json, ls_error *error) {
  if (words->positional_count)
    return ls_fail(error, LS_INPUT, "%s: expected key=value or a flag (the trace is --trace DIR)",
                   words->positional[0]);
  if (!trace)
    return ls_fail(error, LS_INPUT,
                   "found no trace; expected --trace DIR, such as --trace "
                   "tests/data/traces/gpt2-tied");
  ls_verification *about;
  LS_TRY(ls_verify_prepare(arena, trace, words->keys, words->key_count, &about, error));
  int devices;
  LS_TRY(ls_command_devices(devices_text, about->run, &devices, error));
  ls_world *world;
  LS_TRY(ls_command_world(devices, &world, error));
  const ls_status status = ls_verify_run(about, world, error);
  if ((status == LS_OK || status == LS_NO) && ls_world_first_here(world) == 0 && about->compared) {
    if (json)
      print_json(about, status == LS_OK);
    else
      print_table(about);
    fflush(stdout);
  }
  ls_world_destroy(&world);
  return status;
}

int ls_command_verify(int count, char **given) {
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  const char *trace = NULL, *devices = NULL;
  bool json = false, wants_help = false;
  const ls_flag flags[] = {{"--trace", &trace, NULL},
                           {"-n", &devices, NULL},
                           {"--json", NULL, &json},
                           {"--help", NULL, &wants_help},
                           {"-h", NULL, &wants_help}};
  ls_words words;
  ls_status status =
      ls_words_parse(arena, count, given, flags, sizeof flags / sizeof *flags, &words, &error);
  if (status == LS_OK && wants_help)
    fputs(help, stdout);
  else if (status == LS_OK)
    status = verify(arena, &words, trace, devices, json, &error);
  const int exit_status = ls_command_fail("verify", status, &error);
  ls_arena_destroy(&arena);
  return exit_status;
}
