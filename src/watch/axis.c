#include "watch/axis.h"

#include <math.h>
#include <stdio.h>

#include "watch/markup.h"

enum { TICK = 60 }; /* pixels between ticks, at least */
/* An axis whose numbers are further apart is one of powers. */
#define LOG_RANGE 6.0

ls_axis ls_axis_of(double least, double most, bool may_be_powers) {
  if (!(least <= most)) least = most = 1;
  const bool positive = least >= 0;
  ls_axis made = {least, most, may_be_powers && least > 0 && most > LOG_RANGE * least};
  if (made.powers) made.low = log(least), made.high = log(most);
  const double margin =
      made.high > made.low ? 0.05 * (made.high - made.low) : 0.1 * fabs(made.high) + 0.1;
  made.low -= margin;
  made.high += margin;
  if (!made.powers && positive && made.low < 0) made.low = 0;
  return made;
}

double ls_axis_at(const ls_axis *axis, double value) {
  return ((axis->powers ? log(value) : value) - axis->low) / (axis->high - axis->low);
}

void ls_axis_ticks(const ls_axis *axis, double pixels, void (*draw)(void *context, double value),
                   void *context) {
  if (!axis->powers) {
    const double step = ls_round_step((axis->high - axis->low) * TICK / pixels);
    for (double at = ceil(axis->low / step); at * step <= axis->high; at++)
      draw(context, at * step);
    return;
  }
  static const double parts[] = {1, 2, 5};
  const double decade = pixels / (axis->high - axis->low) * log(10);
  for (double power = floor(axis->low / log(10)); power * log(10) <= axis->high; power++)
    for (int p = 0; p < (decade > 3 * TICK ? 3 : 1); p++) {
      const double value = parts[p] * pow(10, power);
      if (log(value) >= axis->low && log(value) <= axis->high) draw(context, value);
    }
}

void ls_axis_number(char text[LS_TICK_TEXT], double value) {
  static const char letters[] = {'k', 'M', 'B', 'T'};
  int letter = -1;
  for (; fabs(value) >= (letter < 0 ? 99999.5 : 999.95) && letter < 3; letter++) value /= 1000;
  if (letter < 0)
    snprintf(text, LS_TICK_TEXT, "%.6g", value);
  else
    snprintf(text, LS_TICK_TEXT, "%.5g%c", value, letters[letter]);
}
