/* The run file: what a user asks for, as typed values.
 *
 *   ls_run_file *run;
 *   LS_TRY(ls_run_file_read(arena, "run.yaml", words, word_count, &run, error));
 *   LS_TRY(ls_run_file_resolve_mesh(run, devices, error));
 *   LS_TRY(ls_run_file_resolve_batch(run, error));
 *   if (run->train.lr == 0) run->train.lr = 3e-4;
 *   LS_TRY(ls_run_file_write(run, "runs/bible/run.yaml", error));
 *
 * Every key is a row of one table (run_keys.h): reading, ranges, `--help`, the resolved file and
 * the rules of resuming come from it. A run file belongs to one thread at a time. */
#ifndef LS_TEXT_RUN_FILE_H
#define LS_TEXT_RUN_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "lockstep/status.h"

/* Choices, in the order of their words in the table. */
typedef enum ls_run_init { LS_RUN_INIT_AUTO, LS_RUN_INIT_WEIGHTS, LS_RUN_INIT_SCRATCH } ls_run_init;
typedef enum ls_run_gather {
  LS_RUN_GATHER_AUTO,
  LS_RUN_GATHER_MICROBATCH,
  LS_RUN_GATHER_STEP
} ls_run_gather; /* also of `reduce` */
typedef enum ls_run_dtype {
  LS_RUN_DTYPE_AUTO,
  LS_RUN_DTYPE_FP32,
  LS_RUN_DTYPE_BF16,
  LS_RUN_DTYPE_FP16,
  LS_RUN_DTYPE_FP64,
  LS_RUN_DTYPE_FP8 /* bf16, but for operands of layers' products */
} ls_run_dtype;
typedef enum ls_run_grad_dtype { LS_RUN_GRAD_FP32, LS_RUN_GRAD_BF16 } ls_run_grad_dtype;
typedef enum ls_run_numerics { LS_RUN_FAST, LS_RUN_EXACT } ls_run_numerics;
typedef enum ls_run_device_kind {
  LS_RUN_DEVICE_AUTO,
  LS_RUN_DEVICE_CPU,
  LS_RUN_DEVICE_CUDA
} ls_run_device_kind;
typedef enum ls_run_tune { LS_RUN_TUNE_AUTO, LS_RUN_TUNE_TRUE, LS_RUN_TUNE_FALSE } ls_run_tune;
typedef enum ls_run_lr_schedule {
  LS_RUN_LR_CONSTANT,
  LS_RUN_LR_LINEAR,
  LS_RUN_LR_COSINE,
  LS_RUN_LR_WSD
} ls_run_lr_schedule;
typedef enum ls_run_optimizer_name {
  LS_RUN_ADAMW,
  LS_RUN_SGD,
  LS_RUN_LION,
  LS_RUN_ADAMW8BIT,
  LS_RUN_MUON,
  LS_RUN_SCHEDULEFREE,
  LS_RUN_ADAFACTOR
} ls_run_optimizer_name;
typedef enum ls_run_adjust_lr { LS_RUN_ADJUST_ORIGINAL, LS_RUN_ADJUST_RMS } ls_run_adjust_lr;

/* A count of steps, or a percentage of the run's steps. */
typedef struct ls_run_span {
  double value;
  bool percent;
} ls_run_span;

/* Texts of a list: paths or globs, layers, ops. */
typedef struct ls_run_globs {
  const char *const *items;
  int count;
} ls_run_globs;

/* Files of text, and what holds for them alone. */
typedef struct ls_run_text {
  const char *path;  /* a path, a glob or a folder */
  const char *field; /* of JSON lines; NULL: data.text_key */
  double weight;     /* share of the sequences; 0: none given */
} ls_run_text;

/* Without weights all files are one corpus; with one, each item is a corpus of its own. */
typedef struct ls_run_texts {
  const ls_run_text *items;
  int count;
} ls_run_texts;

/* A fraction of the text, or, where globs.count > 0, files of its own. */
typedef struct ls_run_validation {
  double fraction;
  ls_run_globs globs;
} ls_run_validation;

enum { LS_ULYSSES_DEGREE = 2 }; /* where the run file says no other */

typedef enum ls_run_context {
  LS_RUN_CONTEXT_GATHER,
  LS_RUN_CONTEXT_RING,
  LS_RUN_CONTEXT_ULYSSES,
  LS_RUN_CONTEXT_HYBRID
} ls_run_context;
typedef enum ls_run_documents {
  LS_RUN_DOCUMENTS_AUTO, /* until it is resolved; else a stream */
  LS_RUN_STREAM,
  LS_RUN_MASKED,
  LS_RUN_PAD /* masked, and an example is a sequence */
} ls_run_documents;
typedef enum ls_run_loss_on {
  LS_RUN_LOSS_ON_ANSWERS,
  LS_RUN_LOSS_ON_ALL,
  LS_RUN_LOSS_ON_LAST
} ls_run_loss_on;
typedef enum ls_run_too_long {
  LS_RUN_TOO_LONG_DROP,
  LS_RUN_TOO_LONG_CUT,
  LS_RUN_TOO_LONG_SPLIT
} ls_run_too_long;
typedef enum ls_run_bad_line { LS_RUN_BAD_LINE_STOP, LS_RUN_BAD_LINE_SKIP } ls_run_bad_line;
typedef enum ls_run_split {
  LS_RUN_SPLIT_AUTO,
  LS_RUN_SPLIT_DOCUMENT,
  LS_RUN_SPLIT_TAIL
} ls_run_split;
typedef enum ls_run_change { LS_RUN_CHANGE_STOP, LS_RUN_CHANGE_ALLOW } ls_run_change;

typedef struct ls_run_data {
  ls_run_texts text;     /* count 0: not given */
  const char *text_key;  /* of JSON lines */
  const char *label_key; /* likewise, of texts with a class */
  const char *tokenizer; /* "auto", "bytes", a folder or a file */
  int64_t seq_len;
  ls_run_validation validation;
  ls_run_split split;
  ls_run_documents documents;
  const char *template; /* of chats: "auto" or a file */
  ls_run_loss_on loss_on;
  ls_run_too_long too_long;
  ls_run_bad_line on_bad_line;
  ls_run_change on_change;
  int64_t cache_limit; /* bytes; 0: none */
  int64_t seed;
} ls_run_data;

/* Whether attention and positions stay inside documents. */
static inline bool ls_run_masks_documents(const ls_run_data *data) {
  return data->documents == LS_RUN_MASKED || data->documents == LS_RUN_PAD;
}

/* Devices along each axis, outermost first; -1: what is left of -n. */
typedef struct ls_run_mesh {
  int64_t pp, dp_replicate, dp_shard, cp, tp, ep;
} ls_run_mesh;

typedef struct ls_run_offload {
  int optimizer, parameters, activations; /* 0 none, 1 host, 2 nvme */
  double optimizer_fraction;
  const char *path; /* "": none given */
} ls_run_offload;

typedef struct ls_run_device {
  ls_run_device_kind kind;
  ls_run_device_kind taken; /* where kind is auto: what a run takes; AUTO: the CPU */
  int64_t memory;           /* bytes; 0 auto */
  int64_t threads;          /* of each device; 0 auto */
  bool graphs;
  ls_run_tune tune;
  bool loopback; /* ranks share GPUs */
} ls_run_device;

static inline bool ls_run_device_is_gpu(const ls_run_device *of) {
  return (of->kind == LS_RUN_DEVICE_AUTO ? of->taken : of->kind) == LS_RUN_DEVICE_CUDA;
}

typedef struct ls_run_host {
  int64_t memory; /* bytes; 0 auto */
} ls_run_host;

typedef struct ls_run_train {
  int64_t steps;        /* 0: train.epochs was given instead */
  double epochs;        /* 0: train.steps holds */
  int64_t batch;        /* sequences a step over the whole mesh */
  int64_t micro_batch;  /* sequences of a data-parallel rank at a time; 0 auto */
  int64_t microbatches; /* 0 auto */
  double lr;            /* 0 auto */
  double lr_min;
  ls_run_lr_schedule lr_schedule;
  ls_run_span warmup, decay;
  double clip; /* 0: none */
  int64_t seed;
  ls_run_globs freeze; /* names of parameters, or one item "none" */
} ls_run_train;

/* Parameters that are trained otherwise, by name; or products that have other adapters. */
typedef struct ls_run_group {
  const char *match;
  double lr;           /* 0: none given */
  bool lr_times;       /* train.lr counts so many times */
  double weight_decay; /* below 0: none given */
  int64_t rank;        /* 0: none given */
  double alpha;        /* likewise */
} ls_run_group;

typedef struct ls_run_groups {
  const ls_run_group *items;
  int count;
} ls_run_groups;

/* In the order of the words of quantize. */
typedef enum ls_run_quantize {
  LS_RUN_QUANTIZE_AUTO, /* as the model's folder is */
  LS_RUN_QUANTIZE_NONE,
  LS_RUN_QUANTIZE_NF4,
  LS_RUN_QUANTIZE_INT8,
  LS_RUN_QUANTIZE_FP4,
  LS_RUN_QUANTIZE_NF4_DOUBLE,
  LS_RUN_QUANTIZE_FP4_DOUBLE
} ls_run_quantize;

typedef struct ls_run_lora {
  int64_t rank;         /* 0: none, or as the model's folder has them */
  double alpha;         /* 0 auto */
  ls_run_globs targets; /* names of products, or one item "all-linear" */
  ls_run_groups groups; /* of other rank or alpha; the first that matches holds */
  bool rslora;
  double dropout; /* -1 auto: as the model's folder has it, else 0 */
} ls_run_lora;

typedef enum ls_run_aux_form {
  LS_RUN_AUX_MODEL,
  LS_RUN_AUX_LAYER,
  LS_RUN_AUX_SEQUENCE
} ls_run_aux_form;

typedef enum ls_run_exchange {
  LS_RUN_EXCHANGE_AUTO,
  LS_RUN_EXCHANGE_GATHER,
  LS_RUN_EXCHANGE_ALL_TO_ALL
} ls_run_exchange;

typedef struct ls_run_experts {
  bool tensor_parallel; /* mesh.tp cuts each expert; else mesh.ep takes it in */
  ls_run_exchange exchange;
  double bound, again; /* 0 auto: all */
  double drop;         /* 0 off: experts take all rows */
  double aux_loss;     /* -1 auto: as the model's configuration says */
  ls_run_aux_form aux_form;
  int64_t aux_microbatches;
  double z_loss, bias_rate;
  bool loads;
} ls_run_experts;

/* What is learned: the next token, which of two answers is preferred (against a reference, or by
 * the ratio of their odds), the class of a text, what a teacher says, what was masked, or vectors
 * of texts, near those of their answers. */
typedef enum ls_run_task {
  LS_RUN_NEXT_TOKEN,
  LS_RUN_DPO,
  LS_RUN_CLASSIFY,
  LS_RUN_DISTILL,
  LS_RUN_MLM,
  LS_RUN_ORPO,
  LS_RUN_EMBED
} ls_run_task;

/* Whether it is learned of pairs of answers. */
static inline bool ls_run_task_prefers(ls_run_task task) {
  return task == LS_RUN_DPO || task == LS_RUN_ORPO;
}

typedef struct ls_run_distill {
  double temperature, mix;
  const char *logits; /* a file of what a teacher has said; "": none */
} ls_run_distill;

/* Of masked language modelling: shares of tokens that are asked for, and of these of those that are
 * replaced by the mask, and by any token. */
typedef struct ls_run_mlm {
  double probability, mask_replace, random_replace;
} ls_run_mlm;

typedef struct ls_run_dpo {
  double beta, label_smoothing;
  int64_t longest; /* no key: tokens of a prompt with its answer, as the model is made for */
} ls_run_dpo;

typedef struct ls_run_orpo {
  double lambda;
} ls_run_orpo;

typedef enum ls_run_text_pooling {
  LS_RUN_TEXT_AUTO = 0,
  LS_RUN_TEXT_LAST,
  LS_RUN_TEXT_CLS,
  LS_RUN_TEXT_MEAN
} ls_run_text_pooling;

/* Vectors of texts. */
typedef struct ls_run_embed {
  ls_run_text_pooling pooling; /* once the model is found no longer auto */
  double scale;
  int64_t pairs, negatives;
  int64_t group; /* 0 auto: train.batch */
  const char *query_prompt, *answer_prompt;
} ls_run_embed;

typedef enum ls_run_pooling {
  LS_RUN_POOLING_AUTO = 0,
  LS_RUN_POOLING_LAST,
  LS_RUN_POOLING_CLS,
  LS_RUN_POOLING_MEAN,
  LS_RUN_POOLING_TOKENS
} ls_run_pooling;

/* The classes that texts are told apart by. */
typedef struct ls_run_classes {
  ls_run_pooling pooling;
  bool several;         /* a text has any of the classes; once the model is found, as that has it */
  ls_run_globs weights; /* "none", "balanced", or numbers, one for each class */
  const double *weight; /* no key: [count] these numbers, as training counts them; NULL: none */
  /* No keys: as the model has them; and whether a class is asked of a text's first token. */
  bool first;
  bool each;       /* each token has a class of its own */
  int pair_ends;   /* end tokens between two texts; 0: the second begins as it does alone */
  bool pair_types; /* tokens of the second are of another type */
  const char *const *names; /* [count] */
  int64_t count;
} ls_run_classes;

typedef struct ls_run_optimizer {
  ls_run_optimizer_name name;
  double betas[2], eps, weight_decay;
  double momentum; /* below 0 auto */
  double muon_lr;  /* 0 auto */
  ls_run_adjust_lr adjust_lr;
  bool scale_parameter;
  ls_run_groups groups; /* the first that matches holds */
  double layer_decay;
} ls_run_optimizer;

typedef struct ls_run_eval {
  int64_t every, batches; /* every 0: never */
  int64_t patience;       /* evaluations without a better one, then the run ends; 0: none */
  double min_delta;       /* a loss lower by less is no better one */
  ls_run_globs prompts;   /* texts, or one item that is a file of them, or "none" */
  int64_t max_new_tokens; /* of each */
  bool by_document;       /* no key: each document is read alone, and its log-probability found */
} ls_run_eval;

typedef struct ls_run_checkpoint {
  int64_t every, keep; /* every 0: at the end only */
  bool best;           /* that of the lowest validation loss is kept besides */
} ls_run_checkpoint;

typedef struct ls_run_comm {
  int engine;     /* a word of its key; 0: auto */
  double timeout; /* seconds */
} ls_run_comm;

/* Where a value came from. Later kinds override earlier ones. */
typedef enum ls_run_source {
  LS_RUN_DEFAULT,
  LS_RUN_FILE,         /* origin.line is the line */
  LS_RUN_COMMAND_LINE, /* origin.line is the word's number, from 1 */
  LS_RUN_RESOLVED      /* worked out from other values */
} ls_run_source;

typedef struct ls_run_origin {
  ls_run_source source;
  int line;
} ls_run_origin;

typedef struct ls_run_file {
  ls_arena *arena;        /* holds the texts in here; borrowed */
  const char *path;       /* "": command line only */
  bool of_folder;         /* a run's own file, found by its folder: its data axis follows -n */
  ls_run_origin *origins; /* one per row of the table */

  const char *model; /* "": not given */
  ls_run_init init;
  ls_run_task task;
  const char *teacher; /* "": none */
  ls_run_data data;
  ls_run_mesh mesh;
  int64_t zero;
  int64_t wrap; /* layers of a unit */
  bool sequence_parallel;
  ls_run_context context;
  int64_t ulysses_degree; /* ranks of cp that change tokens for heads; hybrid */
  const char *schedule;   /* of the pipeline: a name, or a CSV file */
  ls_run_globs stages;    /* layers of each chunk; one item "auto": by cost */
  int64_t chunks;         /* of a stage; 0 auto */
  bool post_validation;
  ls_run_gather gather, reduce;
  int64_t prefetch;       /* -1 auto */
  ls_run_globs recompute; /* "none", "full", "selective", or names of ops */
  int64_t recompute_layers;
  int64_t logits_rows; /* 0 auto */
  ls_run_offload offload;
  ls_run_dtype dtype;
  ls_run_grad_dtype grad_dtype;
  ls_run_numerics numerics;
  double dropout; /* -1 auto: as the model's configuration says */
  ls_run_experts experts;
  ls_run_device device;
  ls_run_host host;
  ls_run_train train;
  ls_run_lora lora;
  ls_run_quantize quantize;
  ls_run_dpo dpo;
  ls_run_orpo orpo;
  ls_run_classes classes;
  ls_run_embed embed;
  ls_run_distill distill;
  ls_run_mlm mlm;
  ls_run_optimizer optimizer;
  ls_run_eval eval;
  ls_run_checkpoint checkpoint;
  ls_run_comm comm;
  bool check, trace, tensorboard;
  const char *out;
} ls_run_file;

/* Reads the file at `path` (NULL: defaults only), then the words of the command line, each
 * "key=value", "--key=value", or "--key" with the value in the next word. Every word must be of
 * this kind: the caller has taken its own flags out. LS_INPUT names file and line, or the word. */
LS_CHECKED ls_status ls_run_file_read(ls_arena *arena, const char *path, const char *const *words,
                                      int word_count, ls_run_file **run, ls_error *error);

/* The same for a text in memory; `name` stands for the file in errors. */
LS_CHECKED ls_status ls_run_file_parse(ls_arena *arena, const char *name, const char *text,
                                       size_t bytes, const char *const *words, int word_count,
                                       ls_run_file **run, ls_error *error);

/* One with the same values, to be changed and resolved apart; it borrows the texts of the first. */
ls_run_file *ls_run_file_copy(ls_arena *arena, const ls_run_file *run);

/* Whether `word` is "key=value", "--key=value" or "--key" for a key or section of the table (so
 * that a command can tell keys from flags of its own). */
bool ls_run_file_is_word(const char *word);

/* LS_INPUT, saying what to give, where the key has no value ("model", "data.text"). */
LS_CHECKED ls_status ls_run_file_require(const ls_run_file *run, const char *key, ls_error *error);

/* Product of the mesh's axes, an open one counted as 1. ep is not in it. */
int64_t ls_run_file_mesh_devices(const ls_run_file *run);

/* Of an axis, by its key's name without "mesh."; and of the axes among which a batch is divided. */
int64_t ls_run_file_mesh_size(const ls_run_file *run, const char *axis);
int64_t ls_run_file_data_ranks(const ls_run_file *run);

/* Those, or `given` where that is not 0; LS_INPUT where either is more than a mesh may have. */
LS_CHECKED ls_status ls_run_file_count_devices(const ls_run_file *run, int64_t given, int *devices,
                                               ls_error *error);

/* Fills the open axis so that the mesh has `devices` devices; LS_INPUT where it cannot. Where the
 * file is of a run's folder and no axis was given beside it, dp_shard takes up what the mesh had
 * more or fewer of, or dp_replicate where that is the only data axis; micro-batches are then those
 * of the file where they divide a rank's sequences, else chosen anew. */
LS_CHECKED ls_status ls_run_file_resolve_mesh(ls_run_file *run, int64_t devices, ls_error *error);

/* Fills micro_batch and microbatches, so that batch = microbatches x micro_batch x data-parallel
 * ranks; LS_INPUT with the nearest batch that can be cut where this one cannot. Needs the mesh. */
LS_CHECKED ls_status ls_run_file_resolve_batch(ls_run_file *run, ls_error *error);

/* Fills embed.group where the task is vectors of texts, which ls_run_file_resolve_batch does where
 * the run says so itself; LS_INPUT with the nearest that can be where groups are not whole in a
 * step, or in a microbatch where these are known. */
LS_CHECKED ls_status ls_run_file_resolve_groups(ls_run_file *run, ls_error *error);

/* Turns train.epochs into train.steps, rounded up, for a text of so many sequences. */
void ls_run_file_resolve_steps(ls_run_file *run, int64_t sequences);

/* Marks a value that the caller worked out in place of auto ("train.lr"). */
void ls_run_file_mark_resolved(ls_run_file *run, const char *key);

/* Where a key's value came from, as errors say it: "run.yaml:7: train.lr", "command line:
 * train.lr", "default: train.lr". */
const char *ls_run_file_where(const ls_run_file *run, const char *key);

/* Every key with its value, as YAML that reads back to the same values. In the arena. */
char *ls_run_file_text(ls_arena *arena, const ls_run_file *run);

/* The same with every path absolute, as seen from the working folder: what can be read from any
 * other. A value that may be a path or a name (model) is one where there is such a file. */
ls_run_file *ls_run_file_absolute(ls_arena *arena, const ls_run_file *run);

/* Publishes that text at `path`. */
LS_CHECKED ls_status ls_run_file_write(const ls_run_file *run, const char *path, ls_error *error);

/* What changing a key between two starts of one run means. */
typedef enum ls_run_effect {
  LS_RUN_MATHEMATICS, /* other numbers: resuming is refused */
  LS_RUN_LAYOUT,      /* the same numbers elsewhere */
  LS_RUN_MEMORY,
  LS_RUN_LOGGING,
  LS_RUN_DURATION
} ls_run_effect;

typedef struct ls_run_difference {
  const char *key, *before, *after; /* values as the run file has them */
  ls_run_effect effect;
} ls_run_difference;

typedef struct ls_run_differences {
  ls_run_difference *items;
  int count;
  bool mathematics; /* at least one key that changes the mathematics */
} ls_run_differences;

/* Keys whose values differ, in the order of the table. In the arena. */
ls_run_differences ls_run_file_diff(ls_arena *arena, const ls_run_file *before,
                                    const ls_run_file *after);

/* LS_OK where a run of `before`, whose newest checkpoint is in that folder, may go on as `after`;
 * else LS_INPUT naming the keys and what to do. */
LS_CHECKED ls_status ls_run_file_may_resume(ls_arena *arena, const ls_run_file *before,
                                            const ls_run_file *after, const char *checkpoint,
                                            ls_error *error);

/* The keys as a table for --help: name, default, what it may be, one line of help. `only` is a key
 * or a section ("train"), or NULL for all; "" where there is none of that name. In the arena. */
char *ls_run_file_help(ls_arena *arena, const char *only);

/* Which keys may change between two starts of a run. In the arena. */
char *ls_run_file_resume_help(ls_arena *arena);

#endif
