/* The scratch of attention's kernels, in floats of a part: what they lay tiles out in and what the
 * recipe counts. `width`: columns of a head, up to whole vectors. */
#ifndef LS_DEVICE_CPU_ATTENTION_SCRATCH_H
#define LS_DEVICE_CPU_ATTENTION_SCRATCH_H

#include <stdbool.h>
#include <stdint.h>

/* Keys whose scores are made at a time; on the diagonal, where queries see some of a block, it is
 * gone through in strips, so that little is computed that none sees. And queries at a time. */
enum {
  LS_ATTENTION_KEYS = 64,
  LS_ATTENTION_STRIP = 16,
  LS_FORWARD_QUERIES = 64,
  LS_BACKWARD_QUERIES = 64,
  LS_CACHED_QUERIES = 128
};

static inline int64_t ls_whole_blocks(int64_t rows, int64_t block) {
  return (rows + block - 1) / block * block;
}

/* Rows of a block of a ring's keys, and those behind them that blocks of keys reach into. */
static inline int64_t ls_ring_rows(int64_t rows) {
  return ls_whole_blocks(rows + LS_ATTENTION_KEYS, LS_ATTENTION_KEYS);
}

/* A head's keys or values, in whole blocks. */
static inline int64_t ls_attention_key_floats(int64_t width, int64_t sequence, bool pairs) {
  return ls_whole_blocks(sequence, LS_ATTENTION_KEYS) * width / (pairs ? 2 : 1);
}

static inline int64_t ls_attention_floats(int64_t width, int64_t sequence, bool pairs) {
  return 2 * ls_attention_key_floats(width, sequence, pairs) + 3 * LS_FORWARD_QUERIES * width +
         LS_ATTENTION_KEYS * LS_FORWARD_QUERIES + 2 * LS_FORWARD_QUERIES;
}

static inline int64_t ls_attention_bwd_floats(int64_t width, int64_t sequence) {
  return 3 * LS_ATTENTION_KEYS * width + 2 * LS_BACKWARD_QUERIES * LS_ATTENTION_KEYS +
         ls_whole_blocks(sequence, LS_BACKWARD_QUERIES) * (5 * width + 2);
}

static inline int64_t ls_cached_attention_floats(int64_t width) {
  return (3 * LS_ATTENTION_KEYS + 2 * LS_CACHED_QUERIES) * width +
         LS_CACHED_QUERIES * LS_ATTENTION_KEYS + 2 * LS_CACHED_QUERIES;
}

#endif
