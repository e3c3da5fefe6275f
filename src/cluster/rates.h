/* How fast this machine is, as `lockstep bench` measured it, and the file that keeps it.
 *
 *   const char *why;
 *   const ls_rates *rates = ls_rates_read(arena, &key, &why);
 *   if (!rates) fprintf(stderr, "measuring: %s\n", why);
 *   else flops = ls_rates_matmul(rates, LS_F32, 8);
 *
 * The file is one of the user's cache, named by its key: $XDG_CACHE_HOME/lockstep or
 * ~/.cache/lockstep, machine-KEY.json. It is believed only whole, unchanged, of this key and not
 * older than LS_RATES_DAYS. Nothing is cached in memory; thread-safe, each with its own arena. */
#ifndef LS_CLUSTER_RATES_H
#define LS_CLUSTER_RATES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "graph/op.h"
#include "ir/collective.h"
#include "lockstep/dtype.h"

enum { LS_RATES_DAYS = 30 };

/* What rates hold for: on another processor, with other cores, another instruction set or another
 * build they are others. Borrows its texts. */
typedef struct ls_rates_key {
  const char *processor; /* ls_machine_processor */
  int cores;             /* ls_machine_cores */
  const char *instructions;
  const char *library; /* versions of what computes */
} ls_rates_key;

/* The best and the median of the rounds of one measurement, per second; 0: not measured. */
typedef struct ls_rate {
  double best, median;
} ls_rate;

/* y[rows, columns] = x[rows, depth] w[columns, depth]^T: floating-point operations. */
typedef struct ls_matmul_rate {
  ls_dtype dtype;
  bool native; /* multiplied as it is stored, not widened first */
  int threads;
  int64_t rows, columns, depth;
  ls_rate rate;
} ls_matmul_rate;

/* Bytes, by the rule of STREAM (McCalpin 1995): each array that a loop names counts once, whatever
 * a cache reads before it writes. */
typedef enum ls_memory_way {
  LS_MEMORY_READ = 0, /* a sum */
  LS_MEMORY_WRITE,    /* a fill */
  LS_MEMORY_COPY,     /* a = b */
  LS_MEMORY_TRIAD,    /* a = b + s c */
  LS_MEMORY_WAYS
} ls_memory_way;

typedef struct ls_memory_rate {
  ls_memory_way way;
  int threads;
  ls_rate rate;
} ls_memory_rate;

/* Between threads, all `world` ranks of the machine at once, in groups of `ranks`: bytes of the
 * whole, as ls_collective_bytes has it. */
typedef struct ls_transfer_rate {
  ls_collective collective;
  int ranks, world;
  int64_t bytes;
  ls_rate rate; /* bytes of the whole */
} ls_transfer_rate;

/* What an op took in a training step: its operands were where the ops before had left them, and
 * other ranks kept the other cores as busy. The time of one without operands, or of very small
 * ones, is that of handing it to the kernel. */
enum { LS_OP_SIZES = 3 };
typedef struct ls_op_time {
  ls_op_kind kind;
  ls_dtype dtype; /* of what it reads */
  int threads;
  bool adds;                 /* an output, to what is there */
  double work;               /* flops; of an op that counts none, bytes */
  double sizes[LS_OP_SIZES]; /* that its rate depends on (ls_op_time_of) */
  double seconds;            /* the mean of calls of a step */
} ls_op_time;

/* How much longer measured runs took in ops of a kind than was simulated: measured over simulated,
 * of each run that `plan --learn` has read, the oldest first. */
typedef struct ls_residual {
  const char *kind; /* an op's name, as traces have it */
  LS_LIST(double) ratios;
} ls_residual;

/* Of the file system that a folder is on. Writing ends with what was written on the drive. */
typedef struct ls_disk_rate {
  const char *folder;
  const char *how; /* how reading kept clear of the page cache, or that it could not */
  int64_t bytes;
  ls_rate write, read;
} ls_disk_rate;

typedef struct ls_rates {
  ls_rates_key key;
  int64_t measured_s;   /* seconds since 1970 */
  double seconds;       /* that measuring took */
  int64_t memory_bytes; /* of each array of the memory measurements */
  LS_LIST(ls_matmul_rate) matmul;
  LS_LIST(ls_memory_rate) memory;
  LS_LIST(ls_transfer_rate) transfer;
  double slice_s; /* a core is given to one thread for so long, where there are more than cores */
  LS_LIST(ls_op_time) ops; /* none: lockstep bench has not run, only what others needed */
  LS_LIST(ls_residual) residuals;
  ls_disk_rate disk; /* folder NULL: not measured */
} ls_rates;

/* "read", "write", "copy", "triad". */
const char *ls_memory_way_name(ls_memory_way way);

/* The folder of the user's cache; NULL where neither XDG_CACHE_HOME nor HOME is set. */
const char *ls_rates_folder(ls_arena *arena);

/* Where rates of this key are kept; NULL where neither XDG_CACHE_HOME nor HOME is set. */
const char *ls_rates_path(ls_arena *arena, const ls_rates_key *key);

/* What is kept and fresh, in the arena; else NULL, and *why says in words what was found instead.
 */
const ls_rates *ls_rates_read(ls_arena *arena, const ls_rates_key *key, const char **why);

/* What is in a file that was carried here, whatever machine it is of; one without a checksum was
 * written by hand. LS_INPUT: "FILE:LINE: KEY: ..."; LS_FAILED: it cannot be read. */
LS_CHECKED ls_status ls_rates_open(ls_arena *arena, const char *path, const ls_rates **rates,
                                   ls_error *error);

/* Keeps them: the file is replaced whole. LS_INPUT where there is no place for it, LS_FAILED where
 * it cannot be written. */
LS_CHECKED ls_status ls_rates_write(const ls_rates *rates, ls_error *error);

/* The same as a text that is both JSON and YAML, newline at the end. In the arena. */
const char *ls_rates_text(ls_arena *arena, const ls_rates *rates);

/* Floating-point operations per second of `threads` threads together on large products: the best
 * over shapes, of all cores or as many times one core's as there are threads, whichever is less. 0:
 * not measured for this type. */
double ls_rates_matmul(const ls_rates *rates, ls_dtype dtype, int threads);

/* Bytes per second that `threads` threads together reach at best: no way of moving bytes was
 * faster. 0: not measured. */
double ls_rates_memory(const ls_rates *rates, int threads);

/* By what ops of a kind take longer than their times say: the median of what was learned; 1 where
 * nothing was. */
double ls_rates_residual(const ls_rates *rates, const char *kind);

/* Adds what a run has shown of a kind; of many runs the last LS_RESIDUAL_RUNS count. */
enum { LS_RESIDUAL_RUNS = 31 };
void ls_rates_learn(ls_arena *arena, ls_rates *rates, const char *kind, double ratio);

#endif
