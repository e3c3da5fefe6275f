/* Measures this machine with the library's own kernels and collectives: matrix products, memory,
 * collectives and messages between threads, a drive.
 *
 *   const ls_rates *rates;
 *   LS_TRY(ls_measure_machine(arena, &(ls_measure_options){.folder = "."}, &rates, error));
 *   LS_TRY(ls_rates_write(rates, error));
 *
 * Everything is timed in rounds, of which best and median are told: on a machine that others use
 * the best is what it can, the median what it did. One at a time in a process. */
#ifndef LS_RUN_MEASURE_H
#define LS_RUN_MEASURE_H

#include "cluster/rates.h"
#include "device/device.h"

typedef struct ls_measure_options {
  double seconds;       /* of each measurement; 0: 0.15, which makes all of them about 20 */
  int64_t memory_bytes; /* of each of three arrays; 0: twice the largest cache, 1 GiB at most */
  int64_t disk_bytes;   /* 0: 256 MiB */
  int64_t most_bytes;   /* of a matrix in fp32 or a message: larger are left out; 0: none is */
  const char *folder;   /* whose drive is measured; NULL: none is */
  /* Called before each measurement, and at the end with done = count; NULL: nobody asks. */
  void (*progress)(void *context, int done, int count, const char *what);
  void *context;
} ls_measure_options;

/* The key of rates measured here and now: this process's cores, instruction sets and build. */
ls_rates_key ls_measure_key(ls_arena *arena);

/* In the arena; nothing is kept in a file. LS_INPUT where nothing can be written to the folder,
 * LS_FAILED where memory is short. */
LS_CHECKED ls_status ls_measure_machine(ls_arena *arena, const ls_measure_options *options,
                                        const ls_rates **rates, ls_error *error);

/* What is kept of this machine, or, where nothing is that can be believed, measured now (without
 * a drive) and kept; that it cannot be is no failure. *why: NULL, or in words why it was measured
 * and, where it was not, why it was not kept. */
LS_CHECKED ls_status ls_measure_or_read(ls_arena *arena, const ls_measure_options *options,
                                        const ls_rates **rates, const char **why, ls_error *error);

/* What a GPU can: a way of moving bytes, and its rate. */
typedef struct ls_gpu_way {
  const char *name; /* "copy", "from GPU 1" */
  const char *what; /* how bytes are counted */
  int64_t bytes;    /* of an array */
  ls_rate rate;
} ls_gpu_way;

typedef struct ls_gpu_rates {
  LS_LIST(ls_matmul_rate) products; /* threads 0 */
  LS_LIST(ls_gpu_way) ways;
  double memory, host,
      peer; /* bytes a second: the best, the slower way, the slowest peer; 0: none */
} ls_gpu_rates;

/* Measures the first visible GPU with our kernels and cuBLASLt, its link to the host, and those to
 * `count - 1` others of this process that it reaches. In the arena. Of the options: seconds and
 * progress. Sizes grow as far as the GPU is quick. LS_INPUT: there is none, as ls_device_open says;
 * LS_FAILED: it has no memory left, or a call failed. */
LS_CHECKED ls_status ls_measure_gpus(ls_arena *arena, const ls_measure_options *options, int count,
                                     ls_gpu_rates *made, ls_error *error);

/* Fills a dense matrix on a device with numbers between -1 and 1. With zeros a processor draws less
 * power and may run faster for it; and host memory that nobody wrote is one page of zeros, which
 * stays in a cache. */
LS_CHECKED ls_status ls_measure_fill(const ls_memory_calls *memory, const ls_view *matrix,
                                     ls_error *error);

#endif
