#include "session/loss_scale.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "text/number.h"

static const double smallest = 1, largest = 0x1p126;

ls_loss_scale ls_loss_scale_start(void) {
  return (ls_loss_scale){.scale = 65536, .growth = 2, .backoff = 0.5, .interval = 2000};
}

ls_status ls_loss_scale_after_step(ls_loss_scale *scale, bool overflowed, ls_error *error) {
  if (overflowed && scale->scale <= smallest)
    return ls_fail(error, LS_FAILED,
                   "gradients are not finite though the loss is scaled by %g only: lower train.lr, "
                   "or use dtype: bf16 or fp32",
                   scale->scale);
  if (overflowed) {
    scale->scale *= scale->backoff;
    if (scale->scale < smallest) scale->scale = smallest;
    scale->steps = 0;
    scale->skipped++;
    return LS_OK;
  }
  scale->steps++;
  if (scale->steps < scale->interval) return LS_OK;
  scale->steps = 0;
  if (scale->scale * scale->growth <= largest) scale->scale *= scale->growth;
  return LS_OK;
}

void ls_loss_scale_write(char text[LS_LOSS_SCALE_BYTES], const ls_loss_scale *scale) {
  char number[LS_NUMBER_BYTES];
  ls_number_write(number, scale->scale);
  snprintf(text, LS_LOSS_SCALE_BYTES, "%s after %" PRId64 " steps, %" PRId64 " skipped", number,
           scale->steps, scale->skipped);
}

/* What was read is right if it is written the same: one rule for blanks, signs and what follows. */
ls_status ls_loss_scale_read(const char *text, ls_loss_scale *scale, ls_error *error) {
  ls_loss_scale found = *scale;
  char number[LS_NUMBER_BYTES], again[LS_LOSS_SCALE_BYTES];
  const bool fields = sscanf(text, "%31s after %" SCNd64 " steps, %" SCNd64 " skipped", number,
                             &found.steps, &found.skipped) == 3 &&
                      ls_number_read(number, &found.scale);
  if (fields) ls_loss_scale_write(again, &found);
  const bool right = fields && strcmp(again, text) == 0 && found.scale >= smallest &&
                     found.scale <= largest && found.steps >= 0 && found.skipped >= 0;
  if (!right)
    return ls_fail(error, LS_INPUT,
                   "loss scale: found \"%.100s\"; expected such as \"65536 after 17 steps, 3 "
                   "skipped\"",
                   text);
  *scale = found;
  return LS_OK;
}
