/* What a teacher has said of a dataset's sequences, kept in a file: for each of their tokens the
 * ids that it finds likeliest to come next, and their log-probabilities. A safetensors file:
 *
 *   ids        I32 [sequences, T, k]  ascending, each once
 *   log_probs  F32 [sequences, T, k]  natural logarithms, of a softmax over the whole vocabulary
 *   checksums  I32 [sequences]        of each one's tokens and positions
 *
 * Sequences are those of ls_dataset.training in the text's order, and behind them those of
 * ls_dataset.evaluation. Its metadata says which dataset that is.
 *
 *   const ls_top_logits *told;
 *   LS_TRY(ls_top_logits_open(arena, "teacher.safetensors", &told, error));
 *   LS_TRY(ls_top_logits_read(told, sequence, ids, positions, top_ids, below, error));
 *
 * Open it may be read by many threads; it stays mapped. A writer belongs to one. */
#ifndef LS_DATA_TOP_LOGITS_H
#define LS_DATA_TOP_LOGITS_H

#include <stdint.h>

#include "base/arena.h"

enum { LS_TOP_LOGITS_MOST = 1 << 20 };

typedef struct ls_top_about {
  const char *teacher;              /* as it was called; for people */
  const char *dataset;              /* its fingerprint (ls_dataset) */
  int64_t vocabulary, seq_len, top; /* T; k, at most the vocabulary */
  int64_t training, evaluation;     /* sequences */
} ls_top_about;

typedef struct ls_top_logits {
  const char *name; /* of the file, for errors */
  ls_top_about about;
  const char *ids, *log_probs, *checksums; /* in the map, aligned as the file is */
} ls_top_logits;

/* LS_INPUT: it is no such file, in one line. Its rows are looked at when they are read. */
LS_CHECKED ls_status ls_top_logits_open(ls_arena *arena, const char *path,
                                        const ls_top_logits **opened, ls_error *error);

/* The same of a file in memory, borrowed. For tests and fuzzing. */
LS_CHECKED ls_status ls_top_logits_parse(ls_arena *arena, const char *name, const void *data,
                                         size_t bytes, ls_top_logits *parsed, ls_error *error);

/* What is told of a sequence [T, k]: ids, and how far below the likeliest one's logit each one's
 * is. LS_INPUT: it is of other tokens than these, or its row is none. */
LS_CHECKED ls_status ls_top_logits_read(const ls_top_logits *opened, int64_t sequence,
                                        const int32_t *ids, const int32_t *positions,
                                        int32_t *top_ids, float *below, ls_error *error);

/* Changes where what is told may have changed: of the file's metadata, of all checksums, and of the
 * first token of some sequences. */
uint64_t ls_top_logits_glance(const ls_top_logits *opened);

typedef struct ls_top_writer ls_top_writer;

/* Begins `path`, which is there whole after ls_top_writer_end, and not before. */
LS_CHECKED ls_status ls_top_writer_begin(ls_arena *arena, const char *path,
                                         const ls_top_about *about, ls_top_writer **writer,
                                         ls_error *error);

/* One sequence, in any order: `top_ids` and `log_probs` [T, k]. */
LS_CHECKED ls_status ls_top_writer_put(ls_top_writer *writer, int64_t sequence, const int32_t *ids,
                                       const int32_t *positions, const int32_t *top_ids,
                                       const float *log_probs, ls_error *error);

LS_CHECKED ls_status ls_top_writer_end(ls_top_writer *writer, ls_error *error);

/* Removes what was begun. Nothing to do after the end, or where writer is NULL. */
void ls_top_writer_abandon(ls_top_writer *writer);

#endif
