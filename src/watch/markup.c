#include "watch/markup.h"

#include <math.h>
#include <string.h>

#include "text/utf8.h"

const char *ls_markup_clean(ls_arena *arena, const char *text) {
  const size_t bytes = strlen(text);
  char *clean = LS_NEW_ARRAY(arena, char, LS_UTF8_MOST(bytes) + LS_UTF8_MOST(0) + 1);
  ls_utf8_stream stream = {0};
  size_t length = ls_utf8_push(&stream, text, bytes, clean);
  length += ls_utf8_end(&stream, clean + length);
  for (size_t i = 0; i < length; i++)
    if ((unsigned char)clean[i] < 0x20 || clean[i] == 0x7f) clean[i] = '?';
  return clean;
}

void ls_markup_text(const char *text, FILE *stream) {
  for (; *text; text++) {
    switch (*text) {
      case '&': fputs("&amp;", stream); break;
      case '<': fputs("&lt;", stream); break;
      case '>': fputs("&gt;", stream); break;
      case '"': fputs("&quot;", stream); break;
      case '\'': fputs("&#39;", stream); break;
      default: fputc(*text, stream);
    }
  }
}

void ls_bytes_show(char text[LS_BYTES_TEXT], double bytes) {
  static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) {
    snprintf(text, LS_BYTES_TEXT, "%.0f bytes", bytes);
    return;
  }
  int unit = -1;
  while (bytes >= 1024 && unit < 3) {
    bytes /= 1024;
    unit++;
  }
  snprintf(text, LS_BYTES_TEXT, bytes < 100 ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
}

double ls_round_step(double least) {
  const double power = pow(10, floor(log10(least)));
  if (power >= least) return power;
  if (2 * power >= least) return 2 * power;
  return 5 * power >= least ? 5 * power : 10 * power;
}

double ls_hue_of(int microbatch) {
  const double turn = 0.618033988749895 * microbatch;
  return 360 * (turn - floor(turn));
}

/* Of red, green or blue (`n` 0, 8, 4) its part of the light that a screen gives. */
static double light_of(double n, double hue, double saturation, double lightness) {
  const double k = fmod(n + hue / 30, 12), a = saturation * fmin(lightness, 1 - lightness);
  const double value = lightness - a * fmax(-1, fmin(fmin(k - 3, 9 - k), 1));
  return value <= 0.04045 ? value / 12.92 : pow((value + 0.055) / 1.055, 2.4);
}

bool ls_hsl_is_dark(double hue, double saturation, double lightness) {
  const double light = 0.2126 * light_of(0, hue, saturation, lightness) +
                       0.7152 * light_of(8, hue, saturation, lightness) +
                       0.0722 * light_of(4, hue, saturation, lightness);
  return 1.05 / (light + 0.05) > (light + 0.05) / 0.05;
}
