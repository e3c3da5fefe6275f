/* Lockstep for C programs: compile the training step of a run file for a mesh of devices, ask what
 * it costs, print it, run it. It does not start processes (a launcher does) and prints nothing but
 * to the stream it is given.
 *
 *   ls_error error = {LS_OK, ""};
 *   ls_run *run = NULL;
 *   const char *keys[] = {"mesh.dp_shard=4", "zero=3"};
 *   if (ls_run_open("run.yaml", keys, 2, 4, &run, &error) != LS_OK) puts(error.text);
 *   if (run && ls_run_print(run, LS_SHOW_MEMORY, stdout, &error) != LS_OK) puts(error.text);
 *   ls_run_close(&run);
 *
 * Running out of memory is LS_FAILED like any other failure; ls_run_execute then may leave files
 * open until the process ends.
 * A run is used by one thread at a time; several runs may be open at once. The record of the last
 * error is the caller's `ls_error` (lockstep/status.h); every call takes NULL for it too. */
#ifndef LOCKSTEP_LOCKSTEP_H
#define LOCKSTEP_LOCKSTEP_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "lockstep/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A run file, read and compiled. */
typedef struct ls_run ls_run;

/* Reads a run file and compiles its training step and its evaluation.
 * path: of a YAML file; NULL: defaults only. keys: key_count texts such as "train.steps=500", as on
 * the command line; they win over the file. devices: of the whole mesh; 0: the product of its axes.
 * Collective: none. Owns: caller closes *run; it is NULL on failure.
 * Errors: LS_INPUT the run file, the model's configuration or the layout cannot be, with the line
 * or key and what can; LS_REFUTED a device needs more than device.memory; LS_FAILED a file cannot
 * be read. Deterministic: yes. */
LS_CHECKED ls_status ls_run_open(const char *path, const char *const *keys, int key_count,
                                 int devices, ls_run **run, ls_error *error);

/* Frees the run and all that was got from it; *run becomes NULL. Nothing happens where it is. */
void ls_run_close(ls_run **run);

/* Devices of the whole mesh. */
int ls_run_devices(const ls_run *run);

/* Parameters of the model: elements, a tied tensor counted once. */
int64_t ls_run_parameters(const ls_run *run);

/* Floating-point operations of one step over the whole mesh: matrix products and attention. */
double ls_run_flops(const ls_run *run);

/* Bytes that one device, of the stage that sends most, sends in one step, by the field's formulas
 * (an all-reduce of K bytes over n devices: 2K(n-1)/n). collectives: how many that is; may be NULL.
 */
double ls_run_bytes_sent(const ls_run *run, int *collectives);

/* Memory of one device by what it is for. */
typedef struct ls_memory_part {
  const char *name; /* "activations kept"; static */
  int64_t bytes;    /* at the moment of the step that needs most */
} ls_memory_part;

/* Count of the parts, and part `index` (0 to count - 1). */
int ls_run_memory_parts(const ls_run *run);
ls_memory_part ls_run_memory_part(const ls_run *run, int index);

/* Bytes that one device needs to run step and evaluation: one mapping, made before the first step,
 * and a workspace of this machine's kernels. It is no less than the sum of the parts, which leave
 * out gaps between them. */
int64_t ls_run_memory_bytes(const ls_run *run);

/* What ls_run_print prints, each as `lockstep show` has it. */
typedef enum ls_show {
  LS_SHOW_PROGRAM = 0, /* every instruction of the step, with addresses and reasons */
  LS_SHOW_EVALUATION,  /* the same for the evaluation */
  LS_SHOW_MEMORY,      /* by category, at the peak */
  LS_SHOW_COLLECTIVES, /* bytes sent, and why */
  LS_SHOW_RUN_FILE     /* every key with its value, as YAML */
} ls_show;

/* Prints to a stream that the caller has opened and closes. Errors: LS_FAILED the stream reports an
 * error. Deterministic: yes; the forms are stable between versions with the same first number. */
LS_CHECKED ls_status ls_run_print(const ls_run *run, ls_show what, FILE *stream, ls_error *error);

/* A finished step. NaN stands for what is not known. */
typedef struct ls_step_report {
  int64_t step;     /* 1 for the first */
  int64_t tokens;   /* since the run's start */
  double loss;      /* nats per token, mean over the batch of the whole mesh */
  double grad_norm; /* not finite where fp16 gradients overflowed: the step changed nothing */
  double learning_rate;
  double seconds, tokens_per_second;
  double mfu; /* 0 to 1, of the rate of matrix products that `lockstep bench` has kept of
                 this machine, else of one measured at the start */
  double validation_loss; /* where an evaluation followed this step; else NaN */
} ls_step_report;

/* How to train. All zero is a valid choice. */
typedef struct ls_execute_options {
  bool fresh; /* start anew in place of going on with the run in `out`, whose checkpoints and
                 metrics are kept under other names once the first step is made */
  /* Called by a thread of the library, never by two at once; each may be NULL. */
  void (*on_begin)(void *context, int64_t steps_done, int64_t steps, const char *where_from);
  void (*on_step)(void *context, const ls_step_report *report);
  void *context;
  /* Not 0: what takes long is left, the step is finished, the state saved, LS_STOPPED; NULL: never.
   * It is the process's, as signals are: of several runs at a time the last one's counts for all.
   */
  const volatile sig_atomic_t *stop;
} ls_execute_options;

/* Trains to the last step, from the newest checkpoint in the run's `out` or from the start, with
 * one thread of this process for each device. options: NULL: all zero.
 * Collective: none. Owns: nothing passes.
 * Errors: LS_INPUT no text, a text shorter than a batch, `out` belongs to another run or is in use,
 * or a launcher started several processes (for those there is the command); LS_STOPPED stop was
 * set, the state is saved; LS_FAILED a file, or a loss or gradient that is no number (named).
 * Deterministic: yes, for one layout, instruction set and thread count. */
LS_CHECKED ls_status ls_run_execute(ls_run *run, const ls_execute_options *options,
                                    ls_error *error);

#ifdef __cplusplus
}
#endif
#endif
