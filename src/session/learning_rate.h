/* The learning rate of each step.
 *
 * With s the step (from 0), S the steps of the run, W those of warm-up and D those of decay:
 *
 *   s < W                 lr (s + 1) / W
 *   constant              lr
 *   linear                lr_min + (lr - lr_min) (1 - p)                p = (s - W) / (S - W)
 *   cosine                lr_min + (lr - lr_min) (1 + cos(pi p)) / 2    p as for linear
 *   wsd (stable, decay)   lr while s < S - D, then linear with          p = (s - (S - D)) / D
 *
 * p is cut at 1, so that a run taken past S stays at lr_min. The cosine is that of PyTorch's
 * CosineAnnealingLR and Megatron after their warm-up. No state; thread-safe. */
#ifndef LS_SESSION_LEARNING_RATE_H
#define LS_SESSION_LEARNING_RATE_H

#include <stdint.h>

#include "text/run_file.h"

typedef struct ls_learning_rate {
  ls_run_lr_schedule schedule;
  double lr, lr_min;
  int64_t steps, warmup, decay; /* S, W, D */
} ls_learning_rate;

/* From a run file whose train.lr and train.steps are known; parts given in % are rounded up to
 * whole steps, and a decay never reaches back into the warm-up. */
ls_learning_rate ls_learning_rate_of(const ls_run_file *run);

double ls_learning_rate_at(const ls_learning_rate *rate, int64_t step);

#endif
