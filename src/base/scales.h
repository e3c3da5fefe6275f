/* Scales of blocks that are quantised again (bitsandbytes' double quantisation; T. Dettmers et al.,
 * arXiv 2305.14314): of each scale a code of 8 bits, and of all
 *
 *   nested[0]      the mean of the scales
 *   nested[1 + g]  the largest distance from it of scales 256 g to 256 g + 255
 *
 * so that scale b is ls_codes_signed[code] * nested[1 + b / 256] + nested[0], in fp32, rounded
 * twice. Codes are those of bitsandbytes 0.50 on CPUs: the nearest of a distance that was rounded
 * to 1 / 65535 before. Its mean is a sum in fp32, whose order is the machine's; ours is rounded
 * once. Thread-safe: no state. */
#ifndef LS_BASE_SCALES_H
#define LS_BASE_SCALES_H

#include <stdint.h>

enum { LS_SCALES_TOGETHER = 256 };

/* Numbers of `nested` for so many scales. */
int64_t ls_scales_nested(int64_t count);

/* Makes `nested` of all scales of a matrix, which are finite. */
void ls_scales_measure(const float *scales, int64_t count, float *nested);

/* The code of scale number `at`, and what it stands for. */
uint8_t ls_scale_code(float scale, const float *nested, int64_t at);
float ls_scale_of(uint8_t code, const float *nested, int64_t at);

#endif
