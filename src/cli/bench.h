/* The two forms of `lockstep bench`, inside this room: the machine, and a model's step on it. */
#ifndef LS_CLI_BENCH_H
#define LS_CLI_BENCH_H

#include <jansson.h>
#include <stdio.h>

#include "cli/command.h"
#include "run/measure.h"
#include "watch/progress.h"

typedef struct ls_bench_flags {
  const char *model, *devices, *folder, *steps, *output;
  bool json, kept, shapes, cpu;
} ls_bench_flags;

/* A progress line on stderr, begun by its first use: "12/40  WHAT  left 9s". */
typedef struct ls_bench_teller {
  ls_arena *arena;
  ls_progress *progress; /* NULL: not begun */
  double begin_s;
} ls_bench_teller;

/* `done` of `count` are finished, and `what` begins; at done = count the line is left standing. The
 * context of ls_measure_options. */
void ls_bench_tell(void *context, int done, int count, const char *what);

/* Measures this machine, or with --kept reads what is kept of it, and prints it. LS_REFUTED:
 * nothing that can be believed is kept. */
LS_CHECKED ls_status ls_bench_machine(ls_arena *arena, const ls_bench_flags *flags,
                                      ls_error *error);

/* The same of its GPUs, which are there. LS_INPUT: the catalog has none like them, and they are to
 * be written to a file. */
LS_CHECKED ls_status ls_bench_gpus(ls_arena *arena, const ls_bench_flags *flags, ls_error *error);

/* Runs some steps of a model and prints where their time went. Collective: all processes. */
LS_CHECKED ls_status ls_bench_model(ls_arena *arena, const ls_bench_flags *flags,
                                    const ls_words *words, ls_error *error);

/* The kept rates of this machine, measured first where there are none, with a progress line. */
LS_CHECKED ls_status ls_bench_rates(ls_arena *arena, const ls_rates **rates, ls_error *error);

/* A table for people. */
void ls_bench_print(const ls_rates *rates, FILE *stream);

#endif
