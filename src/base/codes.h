/* Codes of 8 bits for numbers from -1 to 1, finer the smaller they are: bitsandbytes' dynamic maps
 * (T. Dettmers et al., "8-bit Optimizers via Block-wise Quantization", arXiv 2110.02861).
 *
 *   const uint8_t code = ls_code_of(ls_codes_signed, 0.25);
 *   const float near = ls_codes_signed[code];
 *
 * Thread-safe: constant. */
#ifndef LS_BASE_CODES_H
#define LS_BASE_CODES_H

#include <stdint.h>

enum { LS_CODES = 256 };

/* What codes stand for, in rising order: from -0.993 to 1, and from 0 to 1. */
extern const float ls_codes_signed[LS_CODES];
extern const float ls_codes_positive[LS_CODES];

/* The code of the nearest number of a map; halfway between two, of the lower. */
uint8_t ls_code_of(const float map[LS_CODES], double value);

#endif
