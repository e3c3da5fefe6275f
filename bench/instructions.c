/* One piece of work, once, for counting its instructions: instructions CASE; without a case it
 * names all of them. tools/bench_check.sh runs it under callgrind, which counts what counted_work
 * does and nothing around it. Kernels are those of the instruction set that ONEDNN_MAX_CPU_ISA
 * leaves. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/cpu/cpu.h"
#include "train/session.h"

/* Tokens, columns, vocabulary, and the columns of a head. */
enum { N = 64, C = 768, V = 4096, D = 64, ELEMENTS = 65536 };

typedef struct work {
  ls_kernel_table table;
  ls_op_kind kind;
  ls_kernel_args args;
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

static const char compile_case[] = "compile";

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
  w->args = (ls_kernel_args){.attributes = &w->attributes, .threads = 1};
  for (const char *at = cases[number].in; *at; at++)
    w->args.in[w->args.inputs++] = operand(w, *at, cases[number].columns, false);
  for (const char *at = cases[number].out; *at; at++)
    w->args.out[w->args.outputs++] = operand(w, *at, cases[number].columns, true);
  if (w->kind == LS_OP_ADAMW) { /* the learning rate, the step, the factor; a second moment >= 0 */
    for (int i = 1; i < 4; i++) *(double *)w->args.in[i].data = 1;
    memset(w->args.out[2].data, 0, ELEMENTS * sizeof(float));
  }
  LS_TRY(ls_cpu_kernels(&w->table, w->dtype, error));
  w->args.workspace_bytes = ls_cpu_workspace_bytes(w->kind, &w->args);
  w->args.workspace = aligned_alloc(64, (w->args.workspace_bytes + 127) / 64 * 64);
  return LS_OK;
}

/* From the run file to the programs, with their way through the saved form. */
static ls_status compile(ls_error *error) {
  static const char *keys[] = {"model=gpt2-124m", "dropout=0",        "dtype=fp32", "train.batch=8",
                               "mesh.dp_shard=4", "device.threads=1", "zero=3"};
  ls_arena *arena = ls_arena_create();
  ls_run_file *run;
  ls_session *session;
  ls_status status = ls_run_file_read(arena, NULL, keys, sizeof keys / sizeof *keys, &run, error);
  if (status == LS_OK) status = ls_session_create(arena, run, 4, 4, &session, error);
  ls_arena_destroy(&arena);
  return status;
}

/* What is counted: kept whole, under its own name. NULL: the compiler. */
__attribute__((noinline, used)) ls_status counted_work(const work *w, ls_error *error);
ls_status counted_work(const work *w, ls_error *error) {
  const ls_status status = w ? w->table.kernel[w->kind](&w->args, error) : compile(error);
  __asm__ volatile("" ::: "memory"); /* or it would be left by a jump, and end elsewhere */
  return status;
}

int main(int argc, char **argv) {
  static work w;
  ls_error error = {0};
  if (argc != 2) {
    for (int c = 0; c < CASES; c++) printf("%s\n", cases[c].name);
    printf("%s\n", compile_case);
    return 0;
  }
  int number = -1;
  for (int c = 0; c < CASES; c++)
    if (strcmp(cases[c].name, argv[1]) == 0) number = c;
  const bool compiles = strcmp(argv[1], compile_case) == 0;
  ls_status status = LS_OK;
  if (number < 0 && !compiles) status = ls_fail(&error, LS_INPUT, "no case \"%s\"", argv[1]);
  if (status == LS_OK && !compiles) status = prepare(&w, number, &error);
  if (status == LS_OK && !compiles) printf("kernels: %s\n", ls_cpu_vector_set());
  if (status == LS_OK) status = counted_work(compiles ? NULL : &w, &error);
  if (status != LS_OK) fprintf(stderr, "instructions: %s\n", error.text);
  return ls_exit_status(status);
}
