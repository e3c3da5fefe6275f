#include "base/fp8.h"

#include <math.h>

/* Bits of the mantissa, the exponent of the least normal number, the largest. */
static const struct {
  int mantissa, least;
  double most;
} formats[LS_FP8_COUNT] = {[LS_FP8_E4M3] = {3, -6, 448}, [LS_FP8_E5M2] = {2, -14, 57344}};

enum { MOST_SCALE = 126 };

double ls_fp8_round(ls_fp8 format, double value) {
  if (isnan(value)) return value;
  if (isinf(value)) return format == LS_FP8_E4M3 ? NAN : value;
  int exponent; /* of 0.5 to 1 */
  frexp(value, &exponent);
  if (exponent - 1 < formats[format].least) exponent = formats[format].least + 1;
  const int last = exponent - 1 - formats[format].mantissa;
  const double rounded = ldexp(nearbyint(ldexp(value, -last)), last);
  return fabs(rounded) <= formats[format].most ? rounded : copysign(formats[format].most, value);
}

/* Both largest numbers are 0.875 of a power of two. */
int ls_fp8_scale(ls_fp8 format, double largest) {
  int most, exponent;
  if (!(largest > 0) || isinf(largest)) return 0;
  const double of_format = frexp(formats[format].most, &most);
  const int scale = most - (frexp(largest, &exponent) > of_format) - exponent;
  return scale < MOST_SCALE ? scale : MOST_SCALE;
}
