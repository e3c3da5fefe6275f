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

/* In place, fp32, between threads: bytes of the buffer of a rank. */
typedef struct ls_reduce_rate {
  int ranks;
  int64_t bytes;
  ls_rate rate;
} ls_reduce_rate;

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
  LS_LIST(ls_reduce_rate) reduce;
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

/* Keeps them: the file is replaced whole. LS_INPUT where there is no place for it, LS_FAILED where
 * it cannot be written. */
LS_CHECKED ls_status ls_rates_write(const ls_rates *rates, ls_error *error);

/* The same as a JSON text, newline at the end. In the arena. */
const char *ls_rates_text(ls_arena *arena, const ls_rates *rates);

/* Floating-point operations per second of `threads` threads together on large products: the best
 * over shapes, of all cores or as many times one core's as there are threads, whichever is less. 0:
 * not measured for this type. */
double ls_rates_matmul(const ls_rates *rates, ls_dtype dtype, int threads);

/* Bytes per second that `threads` threads together reach at best: no way of moving bytes was
 * faster. 0: not measured. */
double ls_rates_memory(const ls_rates *rates, int threads);

#endif
