#include <math.h>
#include <stdio.h>

#include <jansson.h>

#include "cli/command.h"
#include "cli/verify_layout_command.h"
#include "verify/verify.h"

static const char help[] =
    "usage: lockstep verify RUN.yaml|RUN [key=value ...] [-n DEVICES] [--kernels] [--json]\n"
    "       lockstep verify --trace DIR [key=value ...] [-n DEVICES] [--json]\n\n"
    "The first form asks whether a run's own layout is the same training as one device. The model\n"
    "and the mesh shrink (to at most 24 devices, 32 where all axes are above 1, threads of this\n"
    "process) until both train here in a moment, with all strategies still in play, and all that\n"
    "does not divide still not dividing:\n"
    "a vocabulary uneven over tp, KV heads fewer than tp, layers and microbatches uneven over\n"
    "stages. It says what it shrank, and why that much. Then both do five steps on random tokens,\n"
    "and every step's loss and gradient norm, the first step's gradients, and the parameters "
    "after\n"
    "the first and the last step are compared. Needs the model's shape only: no data, no "
    "weights.\n\n"
    "The second form repeats a training that another program did, from the trace it left, and\n"
    "compares every step's loss and gradient norm, the first step's logits and gradients, and the\n"
    "parameters after the last step.\n\n"
    "Exit status 0: all within tolerance; 1: something is not, and it says what differs first.\n\n"
    "  -n DEVICES   devices of the whole mesh (default: the launcher's tasks, else the mesh)\n"
    "  --kernels    the run's own kernels and dtype, in place of fp64 on reference kernels\n"
    "  --trace DIR  folder with trace.json, tokens.u16le, step0.safetensors, config.json and\n"
    "               model.safetensors (or \"initial\" in trace.json naming a checkpoint)\n"
    "  --json       the tables as JSON\n"
    "  --help       this text\n\n"
    "A layout's differences are relative to the norm of the tensor. Tolerances: fp64, rounding\n"
    "(1e-10; 1e-8 where updates came before); with --kernels, 8 times what these and the dtype do\n"
    "to the tensor on one device (12 in fp16, 32 where updates came before).\n"
    "With a trace, keys are those of the layout and dtype (fp32 where not given). Tolerances: "
    "fp32,\n"
    "8 times what float32 did to the reference itself; fp64, rounding (or once that noise where\n"
    "parts of the reference are float32 even in its fp64 run); bf16 and fp16, wide ones.\n\n"
    "examples:\n"
    "  lockstep verify run.yaml mesh.tp=8 mesh.pp=4 schedule=zbv train.microbatches=16 -n 512\n"
    "  lockstep verify examples/quickstart.yaml zero=2 -n 4 --kernels\n"
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
  json_t *root = json_pack("{s:s, s:s, s:i}", "trace", about->trace->folder, "dtype",
                           ls_dtype_name(layout->compute), "devices", about->session->devices);
  for (int a = 0; a < LS_LAYOUT_AXES; a++)
    json_object_set_new(root, ls_layout_axis(a), json_integer(ls_layout_size(layout, a)));
  json_t *rest = json_pack("{s:i, s:b, s:i, s:o, s:b}", "zero", layout->zero, "sequence_parallel",
                           (int)layout->sequence_parallel, "microbatches", layout->microbatches,
                           "kinds", rows, "ok", (int)ok);
  json_object_update(root, rest);
  json_decref(rest);
  json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
  putchar('\n');
  json_decref(root);
}

typedef struct verify_flags {
  const char *trace, *devices;
  bool kernels, json;
} verify_flags;

static ls_status verify_trace(ls_arena *arena, const ls_words *words, const verify_flags *flags,
                              ls_error *error) {
  if (words->positional_count)
    return ls_fail(error, LS_INPUT, "%s: expected key=value or a flag (the trace is --trace DIR)",
                   words->positional[0]);
  if (flags->kernels)
    return ls_fail(error, LS_INPUT,
                   "--kernels: a trace is always repeated on the run's own kernels; expected "
                   "RUN.yaml with it, or dtype=fp64 for the reference's");
  ls_verification *about;
  LS_TRY(ls_verify_prepare(arena, flags->trace, words->keys, words->key_count, &about, error));
  int devices;
  LS_TRY(ls_command_devices(flags->devices, about->run, &devices, error));
  ls_world *world;
  LS_TRY(ls_command_world(devices, &world, error));
  const ls_status status = ls_verify_run(about, world, error);
  if ((status == LS_OK || status == LS_REFUTED) && ls_world_first_here(world) == 0 &&
      about->compared) {
    if (flags->json)
      print_json(about, status == LS_OK);
    else
      print_table(about);
    fflush(stdout);
  }
  ls_world_destroy(&world);
  return status;
}

static ls_status verify_run(ls_arena *arena, const ls_words *words, const verify_flags *flags,
                            ls_error *error) {
  ls_run_file *run;
  LS_TRY(ls_command_run_file(arena, words, &run, error));
  if (!words->positional_count && !*run->model)
    return ls_fail(error, LS_INPUT,
                   "found no run file and no trace; expected RUN.yaml, or --trace DIR, such as "
                   "--trace tests/data/traces/gpt2-tied");
  int devices;
  LS_TRY(ls_command_devices(flags->devices, run, &devices, error));
  return ls_verify_layout_command(arena, run, devices, flags->kernels, flags->json, error);
}

static ls_status verify(ls_arena *arena, const ls_words *words, void *asked, ls_error *error) {
  const verify_flags *flags = asked;
  return (flags->trace ? verify_trace : verify_run)(arena, words, flags, error);
}

int ls_command_verify(int count, char **words) {
  verify_flags asked = {0};
  const ls_command_flag flags[] = {{"--trace", &asked.trace, NULL},
                                   {"-n", &asked.devices, NULL},
                                   {"--kernels", NULL, &asked.kernels},
                                   {"--json", NULL, &asked.json}};
  return ls_command_run(
      &(ls_command){"verify", help, false, flags, sizeof flags / sizeof *flags, verify, &asked},
      count, words);
}
