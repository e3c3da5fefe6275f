/* A training done by someone else's program, written down: what `verify` repeats.
 *
 * A folder with trace.json (hyper-parameters, how the tokens are cut into batches, loss and
 * gradient norm of every step in fp64 and fp32, a summary of every parameter after the last step),
 * tokens.u16le, step0.safetensors (logits and gradients of the first step), and config.json with
 * model.safetensors; in place of the last two "initial" may name a checkpoint. Of kind "lora" the
 * adapters of adapter_initial are trained, as PEFT has them, and gradients are theirs alone.
 *
 *   ls_trace *trace;
 *   LS_TRY(ls_trace_read(arena, "tests/data/traces/gpt2-tied", &trace, error));
 *   int id = ls_trace_token(trace, 7);
 *
 * Read-only once read: threads may share it. */
#ifndef LS_VERIFY_TRACE_H
#define LS_VERIFY_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "graph/graph.h"
#include "lockstep/status.h"
#include "store/adapters.h"
#include "store/safetensors.h"
#include "text/json.h"

typedef struct ls_trace_step {
  double learning_rate;
  double loss, norm;         /* of the fp64 run */
  double loss_f32, norm_f32; /* of the fp32 run */
  /* Of pairs, means: of chosen and rejected answers, and of who was preferred; with a teacher
   * cross-entropy and divergence; of texts the share of those that find their answer. */
  double rewards[3];
} ls_trace_step;

enum { LS_TRACE_EDGE = 4 };

/* A tensor after the last step, by its Hugging Face name. */
typedef struct ls_trace_summary {
  const char *name;
  double l2, sum;
  double first[LS_TRACE_EDGE], last[LS_TRACE_EDGE];
  int edge; /* how many numbers first and last have: fewer in a shorter tensor */
} ls_trace_summary;

/* The largest difference of two numbers between the reference's fp32 and its fp64 run. */
typedef struct ls_trace_noise {
  double logits, gradients, parameters;
} ls_trace_noise;

/* Pairs of answers in place of tokens: a row is one of them, what was chosen and what was rejected,
 * each in half of it. [steps x rows x sequence] each, positions [sequence]. */
typedef struct ls_trace_pairs {
  double beta; /* 0: there are none */
  bool odds;   /* odds ratios, of which beta is lambda */
  int32_t *ids, *labels;
  double *chosen, *rejected; /* log-probabilities of the first step's, by row of its microbatch 0 */
  int count;                 /* of these */
} ls_trace_pairs;

/* Rows in place of a stream of tokens, [steps x rows x sequence] each. */
typedef struct ls_trace_given {
  int32_t *ids;       /* NULL: tokens are a stream */
  int32_t *labels;    /* what is asked at a token, -1: nothing */
  int32_t *positions; /* NULL: from 0 in each row; what a row is padded with is another document */
  int32_t *types;     /* NULL: none */
  /* [steps x rows x set_words], of several labels: each row's set; NULL: there are none. */
  int32_t *sets;
  int64_t set_words;
} ls_trace_given;

/* What a larger model teaches. */
typedef struct ls_trace_teacher {
  const char *folder; /* NULL: there is none */
  double temperature, share;
} ls_trace_teacher;

/* What is not AdamW on all parameters. */
typedef struct ls_trace_optimizer {
  const char *name; /* as optimizer.name has it */
  double muon_lr, momentum;
  double muon_weight_decay;
  const char **matrices; /* that Muon updates, by their Hugging Face names */
  int matrix_count;
} ls_trace_optimizer;

typedef struct ls_trace {
  const char *folder;
  const char *model; /* the folder of config.json and of the weights at the start */
  int64_t steps;
  int64_t rows;     /* sequences of a step: those of all its microbatches, in order */
  int64_t sequence; /* tokens of a row */
  ls_trace_pairs pairs;
  ls_text_pairs texts; /* whose vectors are told apart, labels being those of op_table_texts.c */
  ls_trace_given given;
  double *correct; /* [steps] correct labels before the update; NULL: there are no classes */
  const char **class_weights; /* as classes.weights has them; NULL: each class counts once */
  int class_weight_count;
  ls_trace_teacher teacher;
  bool masked; /* masked tokens are predicted: a label lies at its own token */
  bool packed; /* rows are of several documents, whose positions count from 0 */
  double learning_rate, betas[2], epsilon, weight_decay, clip; /* clip 0: none */
  ls_trace_optimizer optimizer;
  const char **frozen; /* parameters by their Hugging Face names: their gradients are zeros */
  int frozen_count;
  ls_adapters adapters;       /* rank 0: all is trained that is not frozen */
  const char *adapter_folder; /* as they are at the start */
  ls_trace_step *step;
  ls_trace_summary *summaries;
  int summary_count;
  ls_trace_noise noise;
  /* What the reference computes in fp32 even in its fp64 run; NULL: nothing. `single_share`:
   * how many times its fp32 run's noise that puts between it and a double run. */
  const char *single_parts;
  double single_share;
  const unsigned char *tokens; /* two bytes each, the low one first; none where rows are given */
  int64_t token_count;         /* steps x rows x sequence, and one for the last label */
} ls_trace;

/* LS_INPUT names the file and what is missing or wrong. In the arena. */
LS_CHECKED ls_status ls_trace_read(ls_arena *arena, const char *folder, ls_trace **trace,
                                   ls_error *error);

/* Those of a trace of preferences (kind dpo): its settings, its batches and what it tells of them.
 * Used by ls_trace_read. */
LS_CHECKED ls_status ls_trace_read_pairs(ls_arena *arena, const ls_json_object *root,
                                         ls_trace *trace, ls_error *error);

/* A tensor of batches.safetensors that has so many int32 numbers. */
LS_CHECKED ls_status ls_trace_read_numbers(ls_arena *arena, const ls_trace *trace,
                                           const ls_safetensors *file, const char *name,
                                           int64_t count, int32_t **numbers, ls_error *error);

/* Rows and classes of a trace of texts' classes (kind llama_classification, or where they are told
 * by their first tokens, bert_classification), or of `each` token's (bert_token_classification).
 * Used by ls_trace_read. */
LS_CHECKED ls_status ls_trace_read_classes(ls_arena *arena, const ls_json_object *root, bool pooled,
                                           bool each, ls_trace *trace, ls_error *error);

/* Rows of a trace of vectors of texts (kind embed), and what it tells of them. Used by
 * ls_trace_read. */
LS_CHECKED ls_status ls_trace_read_texts(ls_arena *arena, const ls_json_object *root,
                                         ls_trace *trace, ls_error *error);

/* The teacher of a trace of kind distillation, and its rows. Used by ls_trace_read. */
LS_CHECKED ls_status ls_trace_read_teacher(ls_arena *arena, const ls_json_object *root,
                                           ls_trace *trace, ls_error *error);

/* Those of a trace of masked language modelling (kind bert_mlm, modernbert_mlm): its batches. Used
 * by ls_trace_read. */
LS_CHECKED ls_status ls_trace_read_masked(ls_arena *arena, ls_trace *trace, ls_error *error);

/* Those of a trace of packed chats (kind sft_packed). Used by ls_trace_read. */
LS_CHECKED ls_status ls_trace_read_packed(ls_arena *arena, ls_trace *trace, ls_error *error);

/* The optimizer of a trace of kind adamw8bit or muon, whose settings must be those that are built;
 * `hyper` is its object of hyper-parameters. Used by ls_trace_read. */
LS_CHECKED ls_status ls_trace_read_optimizer(ls_arena *arena, const ls_json_object *root,
                                             ls_trace *trace, ls_error *error);

static inline int32_t ls_trace_token(const ls_trace *trace, int64_t index) {
  return trace->tokens[2 * index] | trace->tokens[2 * index + 1] << 8;
}

#endif
