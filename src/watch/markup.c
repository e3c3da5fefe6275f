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
