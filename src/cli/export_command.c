#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "checkpoint/export.h"
#include "cli/command.h"
#include "text/number.h"

static const char help[] =
    "usage: lockstep export RUN_OR_CHECKPOINT OUT [flags]\n\n"
    "Writes OUT, a folder that transformers' from_pretrained loads: config.json, weights as\n"
    "safetensors, the tokenizer's files. The first word is a run's folder (its newest good\n"
    "checkpoint is taken), a checkpoint, or a Hugging Face folder. Tensors keep the names and "
    "types\n"
    "of the folder that the run was fine-tuned from; from scratch they are what the checkpoint "
    "has.\n"
    "Of a run that trained adapters (lora.rank) OUT is as PEFT loads it: adapter_config.json and\n"
    "adapter_model.safetensors.\n\n"
    "  --dtype WORD            fp32, bf16, fp16 or fp64 for all tensors\n"
    "  --max-shard-size SIZE   of one file (default 5GB)\n"
    "  --merge                 add adapters to the weights that they are beside, and write these\n"
    "  --also B,C=0.5          with --merge: add these adapters of the same weights as well, times "
    "a\n"
    "                          number where one is given\n"
    "  --quantize WORD         nf4 or fp4 (bitsandbytes'), int8 (compressed-tensors'): products\n"
    "                          of blocks in 4.5 or 8.5 bits a weight, as training beside adapters\n"
    "                          has them; generate and evaluate run them so. nf4-double and\n"
    "                          fp4-double: scales in 8 bits, 4.127 bits a weight in files\n"
    "  --trust                 do not look at the checkpoint's checksums\n"
    "  --names FOLDER          take names and types from this folder of the same model\n"
    "  --help                  this text\n\n"
    "examples:\n"
    "  lockstep export runs/quickstart out/\n"
    "  lockstep export runs/quickstart/checkpoints/step-500 out/ --dtype bf16\n"
    "  lockstep export runs/tuned out/ --max-shard-size 2GB\n"
    "  lockstep export runs/adapted out/ --merge\n"
    "  lockstep export runs/adapted out/ --merge --quantize nf4\n"
    "  lockstep export runs/style out/ --merge --also runs/facts,other=0.5\n";

static ls_status read_dtype(const char *word, ls_dtype *dtype, ls_error *error) {
  static const ls_dtype types[] = {LS_F32, LS_BF16, LS_F16, LS_F64};
  *dtype = LS_DTYPE_COUNT;
  for (int t = 0; word && t < 4; t++)
    if (strcmp(word, ls_dtype_name(types[t])) == 0) *dtype = types[t];
  if (!word || *dtype != LS_DTYPE_COUNT) return LS_OK;
  return ls_fail(error, LS_INPUT, "--dtype: found %s; expected fp32, bf16, fp16 or fp64", word);
}

static ls_status read_kind(const char *word, ls_export_options *options, ls_error *error) {
  static const struct {
    const char *word;
    ls_precision kind;
    bool scales_again;
  } kinds[] = {{"nf4", LS_BLOCKS_NF4, false},
               {"fp4", LS_BLOCKS_FP4, false},
               {"int8", LS_BLOCKS_INT8, false},
               {"nf4-double", LS_BLOCKS_NF4, true},
               {"fp4-double", LS_BLOCKS_FP4, true}};
  options->quantize = LS_COMPUTE;
  if (!word) return LS_OK;
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
    if (strcmp(word, kinds[k].word) == 0) {
      options->quantize = kinds[k].kind;
      options->scales_again = kinds[k].scales_again;
      return LS_OK;
    }
  return ls_fail(error, LS_INPUT,
                 "--quantize: found %s; expected nf4, fp4, int8, nf4-double or fp4-double", word);
}

static ls_status read_size(const char *word, int64_t *bytes, ls_error *error) {
  *bytes = 5000000000;
  if (!word || (ls_size_read(word, bytes) && *bytes > 0)) return LS_OK;
  return ls_fail(error, LS_INPUT, "--max-shard-size: found %s; expected a size such as 5GB", word);
}

static void print_progress(void *context, int64_t done, int64_t all) {
  (void)context;
  if (isatty(STDERR_FILENO))
    fprintf(stderr, "\r%lld of %lld MB%s", (long long)(done / 1000000), (long long)(all / 1000000),
            done == all ? "\r\033[K" : "");
}

typedef struct request {
  const char *dtype, *size, *kind;
  ls_export_options options;
} request;

static ls_status export_to(ls_arena *arena, const ls_words *words, void *flags, ls_error *error) {
  (void)arena;
  request *asked = flags;
  ls_export_options *options = &asked->options;
  LS_TRY(read_dtype(asked->dtype, &options->dtype, error));
  LS_TRY(read_kind(asked->kind, options, error));
  LS_TRY(read_size(asked->size, &options->max_shard_bytes, error));
  if (!ls_command_is_first()) return LS_OK;
  if (words->key_count)
    return ls_fail(error, LS_INPUT, "%s: export takes no keys of a run file", words->keys[0]);
  if (words->positional_count != 2)
    return ls_fail(error, LS_INPUT, "found %d word%s; expected a run and a folder to write",
                   words->positional_count, words->positional_count == 1 ? "" : "s");
  options->from = words->positional[0];
  options->to = words->positional[1];
  options->progress = print_progress;
  ls_command_catch_signals(NULL);
  const double begin = ls_now_s();
  ls_export_report report;
  LS_TRY(ls_export(options, &report, error));
  const double seconds = ls_now_s() - begin;
  printf("%s: %d tensors, %.1f MB, and %d files beside them, from %s", options->to, report.tensors,
         (double)report.bytes * 1e-6, report.files, report.from);
  if (*report.names) printf(", named as in %s", report.names);
  printf(" (%.0f MB/s)\n", (double)report.bytes * 1e-6 / seconds);
  return LS_OK;
}

int ls_command_export(int count, char **words) {
  request asked = {0};
  const ls_command_flag flags[] = {
      {"--dtype", &asked.dtype, NULL},         {"--max-shard-size", &asked.size, NULL},
      {"--names", &asked.options.names, NULL}, {"--quantize", &asked.kind, NULL},
      {"--also", &asked.options.also, NULL},   {"--merge", NULL, &asked.options.merge},
      {"--trust", NULL, &asked.options.trust}};
  return ls_command_run(
      &(ls_command){"export", help, false, flags, sizeof flags / sizeof *flags, export_to, &asked},
      count, words);
}
