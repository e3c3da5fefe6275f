/* One piece of work, once, for counting its instructions: instructions CASE; without a case it
 * names all of them. tools/bench_check.sh runs it under callgrind, which counts what counted_work
 * does and nothing around it. Kernels are those of the instruction set that ONEDNN_MAX_CPU_ISA
 * leaves. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/check.h"
#include "device/cpu/cpu.h"
#include "lower/compile.h"
#include "session/session.h"

/* Tokens, columns, vocabulary, and the columns of a head. */
enum { N = 64, C = 768, V = 4096, D = 64, ELEMENTS = 65536 };

typedef struct work {
  ls_kernel_table table;
  ls_op_kind kind;
  ls_kernel_args args;
  ls_device_queue queue;
  ls_attributes attributes;
  ls_dtype dtype;
} work;

/* A matrix, or with 0 rows a vector, of numbers between -1 and 1; ids from 0 to V - 1. */
static ls_view view_of(ls_dtype dtype, int64_t rows, int64_t columns) {
  ls_view view = {.dtype = dtype, .ndim = rows ? 2 : 1};
  view.dims[0] = view.valid[0] = rows ? rows : columns;
  if (rows) view.dims[1] = view.valid[1] = columns;
  const int64_t count = (rows ? rows : 1) * columns;
  view.data = aligned_alloc(64, ((size_t)count * ls_dtype_bytes(dtype) + 63) / 64 * 64);
  if (!view.data) abort();
  uint32_t state = 12345;
  for (int64_t i = 0; i < count; i++) {
    state = state * 1664525u + 1013904223u;
    const float value = (float)(state >> 8) * 0x1p-23f - 1.0f;
    char *at = (char *)view.data + (size_t)i * ls_dtype_bytes(dtype);
    if (dtype == LS_I32)
      *(int32_t *)(void *)at = (int32_t)(state >> 8) % V;
    else
      ls_convert(at, dtype, &value, LS_F32, 1);
  }
  return view;
}

/* "n": a row of `columns` for each token; "c": one row; "r": a number for each token, "h" for each
 * token and head; "i": ids; "e": elements of an update; "1": a cell. Compute type but for r, h, c
 * of an output, e (fp32) and cells. */
static ls_view operand(const work *w, char letter, int64_t columns, bool output) {
  switch (letter) {
    case 'n': return view_of(w->dtype, N, columns);
    case 'c': return view_of(output ? LS_F32 : w->dtype, 0, columns);
    case 'r': return view_of(LS_F32, 0, N);
    case 'h': return view_of(LS_F32, N, columns / D);
    case 'i': return view_of(LS_I32, 0, N);
    case 'e': return view_of(LS_F32, 0, ELEMENTS);
    default: return view_of(LS_F64, 0, 1);
  }
}

static const struct {
  const char *name;
  ls_op_kind kind;
  ls_dtype dtype;
  int64_t columns;
  const char *in, *out;
} cases[] = {
    {"layernorm fp32", LS_OP_LAYERNORM, LS_F32, C, "ncc", "nrr"},
    {"layernorm_bwd fp32", LS_OP_LAYERNORM_BWD, LS_F32, C, "nncrr", "ncc"},
    {"rmsnorm bf16", LS_OP_RMSNORM, LS_BF16, C, "nc", "nr"},
    {"gelu fp32", LS_OP_GELU, LS_F32, C, "n", "n"},
    {"swiglu_bwd bf16", LS_OP_SWIGLU_BWD, LS_BF16, C, "nnn", "nn"},
    {"attention fp32", LS_OP_ATTENTION, LS_F32, C, "nnn", "nh"},
    {"attention_bwd bf16", LS_OP_ATTENTION_BWD, LS_BF16, C, "nnnnnh", "nnn"},
    {"xent_sum fp32", LS_OP_XENT_SUM, LS_F32, V, "nri", "rr"},
    {"xent_grad bf16", LS_OP_XENT_GRAD, LS_BF16, V, "nrri1", "n"},
    {"adamw fp32", LS_OP_ADAMW, LS_F32, 0, "e111", "eee"},
    {"squared_norm fp32", LS_OP_SQUARED_NORM, LS_F32, 0, "e", "1"},
};

enum { CASES = sizeof cases / sizeof *cases };

/* What grows with a model's layers and with microbatches is counted where it is many times what a
 * usual run has: work that grows with their square would be most of it. */
static const struct {
  const char *name;
  int layers, microbatches, stages; /* 0: a run of GPT-2 124M */
} compile_cases[] = {{"compile", 0, 0, 0},
                     {"compile 1000 layers", 1000, 2, 1},
                     {"compile 1000 microbatches", 8, 1000, 4}};

enum { COMPILE_CASES = sizeof compile_cases / sizeof *compile_cases };

static ls_status prepare(work *w, int number, ls_error *error) {
  w->kind = cases[number].kind;
  w->dtype = cases[number].dtype;
  w->attributes = (ls_attributes){.sequence = N,
                                  .head_dim = D,
                                  .softmax_scale = 1 / sqrt(D),
                                  .epsilon = 1e-5,
                                  .activation = w->kind == LS_OP_GELU ? LS_GELU_TANH : LS_SILU,
                                  .beta1 = 0.9,
                                  .beta2 = 0.95,
                                  .weight_decay = 0.1,
                                  .weight = 1};
  w->args = (ls_kernel_args){.queue = &w->queue, .attributes = &w->attributes};
  w->queue.facts = ls_cpu_facts();
  for (const char *at = cases[number].in; *at; at++)
    w->args.in[w->args.inputs++] = operand(w, *at, cases[number].columns, false);
  for (const char *at = cases[number].out; *at; at++)
    w->args.out[w->args.outputs++] = operand(w, *at, cases[number].columns, true);
  if (w->kind == LS_OP_ADAMW) { /* the learning rate, the step, the factor; a second moment >= 0 */
    for (int i = 1; i < 4; i++) *(double *)w->args.in[i].data = 1;
    memset(w->args.out[2].data, 0, ELEMENTS * sizeof(float));
  }
  LS_TRY(ls_cpu_kernels(&w->table, w->dtype, error));
  w->args.workspace_bytes = ls_device_workspace(ls_cpu_facts(), w->kind, &w->args);
  w->args.workspace = aligned_alloc(64, (w->args.workspace_bytes + 127) / 64 * 64);
  return LS_OK;
}

static const char tiny_config[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 96, \"hidden_size\": 32,"
    " \"intermediate_size\": 64, \"num_hidden_layers\": %d, \"num_attention_heads\": 4,"
    " \"num_key_value_heads\": 2, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5}";

/* The programs of a step and their proof. */
static ls_status compile_tiny(ls_arena *arena, int number, ls_error *error) {
  const int layers = compile_cases[number].layers, stages = compile_cases[number].stages;
  const char *text = ls_arena_printf(arena, tiny_config, layers);
  ls_model_config config;
  LS_TRY(ls_model_config_parse(arena, "tiny", text, strlen(text), &config, error));
  ls_layout layout = ls_layout_default();
  layout.pp = stages;
  layout.dp_shard = 2;
  layout.tp = 2;
  layout.zero = 3;
  layout.microbatches = compile_cases[number].microbatches;
  ls_graph *graph;
  const ls_build_options options = {.tokens = 16, .sequence = 8};
  LS_TRY(ls_model_build(arena, &config, &options, &graph, error));
  ls_graph_backward(graph);
  ls_program **programs = LS_NEW_ARRAY(arena, ls_program *, stages);
  LS_TRY(ls_program_compile(graph, &layout, LS_PROGRAM_STEP, programs, error));
  return ls_check(graph, &layout, (const ls_program *const *)programs, NULL, error);
}

/* From the run file to the programs. */
static ls_status compile_run(ls_arena *arena, ls_error *error) {
  static const char *keys[] = {"model=gpt2-124m", "dropout=0",        "dtype=fp32", "train.batch=8",
                               "mesh.dp_shard=4", "device.threads=1", "zero=3"};
  ls_run_file *run;
  ls_session *session;
  LS_TRY(ls_run_file_read(arena, NULL, keys, sizeof keys / sizeof *keys, &run, error));
  return ls_session_create(arena, run, 4, 4, &session, error);
}

static ls_status compile(int number, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  const bool tiny = compile_cases[number].layers > 0;
  const ls_status status = tiny ? compile_tiny(arena, number, error) : compile_run(arena, error);
  ls_arena_destroy(&arena);
  return status;
}

/* What is counted: kept whole, under its own name. A kernel, or where w is NULL the compiler. */
__attribute__((noinline, used)) ls_status counted_work(const work *w, int compiled,
                                                       ls_error *error);
ls_status counted_work(const work *w, int compiled, ls_error *error) {
  const ls_status status = w ? w->table.kernel[w->kind](&w->args, error) : compile(compiled, error);
  __asm__ volatile("" ::: "memory"); /* or it would be left by a jump, and end elsewhere */
  return status;
}

int main(int argc, char **argv) {
  static work w;
  ls_error error = {0};
  if (argc != 2) {
    for (int c = 0; c < CASES; c++) printf("%s\n", cases[c].name);
    for (int c = 0; c < COMPILE_CASES; c++) printf("%s\n", compile_cases[c].name);
    return 0;
  }
  int number = -1;
  for (int c = 0; c < CASES; c++)
    if (strcmp(cases[c].name, argv[1]) == 0) number = c;
  int compiled = -1;
  for (int c = 0; c < COMPILE_CASES; c++)
    if (strcmp(compile_cases[c].name, argv[1]) == 0) compiled = c;
  const bool compiles = compiled >= 0;
  ls_status status = LS_OK;
  if (number < 0 && !compiles) status = ls_fail(&error, LS_INPUT, "no case \"%s\"", argv[1]);
  if (status == LS_OK && !compiles) status = prepare(&w, number, &error);
  if (status == LS_OK && !compiles) printf("kernels: %s\n", ls_cpu_facts()->set);
  if (status == LS_OK) status = counted_work(compiles ? NULL : &w, compiled, &error);
  if (status != LS_OK) fprintf(stderr, "instructions: %s\n", error.text);
  return ls_exit_status(status);
}
