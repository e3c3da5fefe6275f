/* The number that an fp16 run multiplies its loss by, so that small gradients are not lost.
 *
 *   ls_loss_scale scale = ls_loss_scale_start();
 *   ... gradients of the loss times scale.scale; their norm is the same on every rank ...
 *   if (!isfinite(norm)) leave the parameters as they are
 *   LS_TRY(ls_loss_scale_after_step(&scale, !isfinite(norm), &error));
 *
 * As PyTorch's GradScaler: a step whose scaled gradients overflow is skipped and halves the scale,
 * 2,000 steps in a row without one double it. Unlike there, overflow at a scale of 1 is an error:
 * fp16 holds such gradients, so the fault is another one. All ranks make the same calls with the
 * same answers, so nothing is sent. A value: no state, thread-safe. */
#ifndef LS_SESSION_LOSS_SCALE_H
#define LS_SESSION_LOSS_SCALE_H

#include <stdbool.h>
#include <stdint.h>

#include "lockstep/status.h"

typedef struct ls_loss_scale {
  double scale;           /* a power of 2, so that scaling changes no digit */
  double growth, backoff; /* what it is multiplied by */
  int64_t interval;       /* steps in a row without overflow after which it grows */
  int64_t steps;          /* of these so far */
  int64_t skipped;        /* steps skipped since the run began: AdamW does not count them */
} ls_loss_scale;

/* 65536, growth 2, backoff 0.5, interval 2000. */
ls_loss_scale ls_loss_scale_start(void);

/* The scale of the next step. It grows no further than 2^126, the reciprocal of fp32's smallest
 * normal number. LS_FAILED: overflow though the scale is 1, after which the value is unchanged. */
LS_CHECKED ls_status ls_loss_scale_after_step(ls_loss_scale *scale, bool overflowed,
                                              ls_error *error);

/* "65536 after 17 steps, 3 skipped", and back from it exactly. Growth, backoff and interval are not
 * in the text, since they are settings: reading leaves them as they are. LS_INPUT for any other
 * text, with `scale` unchanged. */
enum { LS_LOSS_SCALE_BYTES = 96 };
void ls_loss_scale_write(char text[LS_LOSS_SCALE_BYTES], const ls_loss_scale *scale);
LS_CHECKED ls_status ls_loss_scale_read(const char *text, ls_loss_scale *scale, ls_error *error);

#endif
