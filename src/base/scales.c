#include "base/scales.h"

#include <math.h>

#include "base/codes.h"

enum { STEPS = 65535 };

int64_t ls_scales_nested(int64_t count) {
  return 1 + (count + LS_SCALES_TOGETHER - 1) / LS_SCALES_TOGETHER;
}

void ls_scales_measure(const float *scales, int64_t count, float *nested) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += (double)scales[i];
  nested[0] = count ? (float)(sum / (double)count) : 0;
  for (int64_t i = 0; i < count; i++) {
    float *largest = &nested[1 + i / LS_SCALES_TOGETHER];
    const float distance = fabsf(scales[i] - nested[0]);
    *largest = i % LS_SCALES_TOGETHER ? fmaxf(*largest, distance) : distance;
  }
}

/* The first code of whose halfway to the next the value is not above. */
static uint8_t nearest(float value) {
  int low = 0, high = LS_CODES - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (0.5f * (ls_codes_signed[middle] + ls_codes_signed[middle + 1]) < value)
      low = middle + 1;
    else
      high = middle;
  }
  return (uint8_t)low;
}

uint8_t ls_scale_code(float scale, const float *nested, int64_t at) {
  const float largest = nested[1 + at / LS_SCALES_TOGETHER];
  if (!(largest > 1e-38f)) return 0; /* all are the mean */
  const float inverse = 1.0f / largest;
  const float share = fminf(fmaxf((scale - nested[0]) * inverse, -1.0f), 1.0f);
  const int step = (int)((share + 1.0f) * 0.5f * STEPS + 0.5f);
  return nearest(-1.0f + 2.0f * (float)step / STEPS);
}

float ls_scale_of(uint8_t code, const float *nested, int64_t at) {
  const float distance = ls_codes_signed[code] * nested[1 + at / LS_SCALES_TOGETHER];
  return distance + nested[0];
}
