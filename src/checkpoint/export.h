/* A run's weights as a Hugging Face directory: config.json, safetensors, tokenizer files.
 *
 *   ls_export_report report;
 *   LS_TRY(ls_export(&(ls_export_options){.from = "runs/a", .to = "out", .dtype = LS_DTYPE_COUNT,
 *                                         .max_shard_bytes = 5000000000}, &report, error));
 *
 * Tensors have the names, and unless asked otherwise the types, of the folder that the run began
 * with: what was tied or split there is so here. Of a run that trained adapters it is PEFT's folder
 * of them, or with `merge` a model's. With `quantize` it is what transformers saves of a model in
 * bitsandbytes' NF4 or FP4, or in compressed-tensors' INT8. Written aside and published whole.
 * Thread-safe for different folders. */
#ifndef LS_CHECKPOINT_EXPORT_H
#define LS_CHECKPOINT_EXPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "graph/op.h"
#include "lockstep/dtype.h"
#include "lockstep/status.h"

typedef struct ls_export_options {
  const char *from; /* a run (its newest good checkpoint), a checkpoint or a model's folder */
  const char *to;   /* a folder that is not there yet, or empty */
  const char
      *names;     /* a folder of the same model whose names and types are taken; NULL: the run's
                     own start, where that was one with weights, else as the checkpoint has them */
  ls_dtype dtype; /* of all tensors; LS_DTYPE_COUNT: each keeps its own */
  int64_t max_shard_bytes;
  bool trust; /* checksums are not looked at */
  bool merge; /* adapters are added to the weights that they are beside, and these are written */
  /* With merge: folders of adapters beside the same weights that are added too, with commas between
   * them, each as "FOLDER" or "FOLDER=TIMES"; NULL: none. */
  const char *also;
  /* LS_BLOCKS_NF4, LS_BLOCKS_FP4 or LS_BLOCKS_INT8: products of blocks are quantised, as training
   * beside adapters has them; else LS_COMPUTE: all are numbers */
  ls_precision quantize;
  bool scales_again; /* with codes of 4 bits: scales are quantised again */
  /* After each tensor: bytes written so far, of all; NULL: nobody wants to know. */
  void (*progress)(void *context, int64_t done, int64_t all);
  void *context;
} ls_export_options;

typedef struct ls_export_report {
  int tensors, files;           /* files: copied beside the tensors, config.json among them */
  int64_t bytes;                /* of tensors */
  char from[1024], names[1024]; /* what was read; "" where names are the checkpoint's */
} ls_export_report;

/* LS_INPUT: what is to be read is no model or damaged, adapters are beside other weights, `to` has
 * something in it, or a type is none that weights have, or they cannot be quantised; LS_FAILED
 * where it cannot be written. Nothing is left behind then. */
LS_CHECKED ls_status ls_export(const ls_export_options *options, ls_export_report *report,
                               ls_error *error);

/* Copies what stands beside a model's weights, but for its config.json: the tokenizer's files and
 * what generating is told. */
LS_CHECKED ls_status ls_export_companions(ls_arena *arena, const char *from, const char *to,
                                          ls_error *error);

#endif
