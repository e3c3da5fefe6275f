#include "pipeline/stages.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "text/quote.h"

/* Sums of the same numbers in another order differ by less than this part of them. */
static const double rounding = 1e-12;

/* The least cost that the largest of `chunks` chunks can have. least[i] is that for the first i
 * segments; it does not fall with i while the last chunk's cost does, so where the two meet is
 * found by halving. */
static double least_largest(ls_arena *arena, const double *before, int segments, int chunks) {
  double *least = LS_NEW_ARRAY(arena, double, segments + 1);
  double *next = LS_NEW_ARRAY(arena, double, segments + 1);
  for (int i = 1; i <= segments; i++) least[i] = before[i];
  for (int k = 2; k <= chunks; k++) {
    for (int i = k; i <= segments; i++) {
      int low = k - 1, high = i - 1;
      while (low < high) {
        const int middle = (low + high) / 2;
        if (least[middle] >= before[i] - before[middle]) {
          high = middle;
        } else {
          low = middle + 1;
        }
      }
      next[i] = fmax(least[low], before[i] - before[low]);
      if (low > k - 1) next[i] = fmin(next[i], before[i] - before[low - 1]);
    }
    double *const swapped = least;
    least = next;
    next = swapped;
  }
  return least[segments];
}

/* Of the cuts whose chunks cost at most `most`, the one with the least sum of squares. Where k
 * chunks can end is a short range: neither they nor those that are left can hold more. */
static void cut_evenly(ls_arena *arena, const double *before, int segments, int chunks, double most,
                       int *first) {
  const size_t row = (size_t)segments + 1;
  int *from = LS_NEW_ARRAY(arena, int, (size_t)(chunks + 1) * row);
  double *squares = LS_NEW_ARRAY(arena, double, row), *next = LS_NEW_ARRAY(arena, double, row);
  const double slack = 1e-9 * before[segments]; /* sums of rounded numbers */
  for (int i = 1; i <= segments; i++) squares[i] = INFINITY;
  for (int k = 1; k <= chunks; k++) {
    const double earliest = before[segments] - (chunks - k) * most - slack;
    const double latest = k * most + slack;
    for (int i = 0; i <= segments; i++) {
      next[i] = INFINITY;
      if (before[i] < earliest || before[i] > latest) continue;
      for (int j = i - 1; j >= k - 1 && before[i] - before[j] <= most; j--) {
        const double cost = before[i] - before[j], sum = squares[j] + cost * cost;
        if (!isfinite(sum) || sum > next[i] * (1 + rounding)) continue;
        next[i] = sum;
        from[(size_t)k * row + (size_t)i] = j;
      }
    }
    double *const swapped = squares;
    squares = next;
    next = swapped;
  }
  LS_ASSERT(isfinite(squares[segments]));
  first[chunks] = segments;
  for (int k = chunks; k > 0; k--) first[k - 1] = from[(size_t)k * row + (size_t)first[k]];
  LS_ASSERT(first[0] == 0);
}

ls_status ls_stages_cut(const double *costs, int segments, int chunks, int *first,
                        ls_error *error) {
  LS_ASSERT(segments > 0);
  if (chunks < 1 || chunks > segments) {
    return ls_fail(error, LS_INPUT,
                   "found %d stages x chunks for a model of %d parts (embedding, layers, head); "
                   "expected 1 to %d",
                   chunks, segments, segments);
  }
  ls_arena *arena = ls_arena_create();
  double *before = LS_NEW_ARRAY(arena, double, segments + 1);
  for (int i = 0; i < segments; i++) {
    LS_ASSERT(costs[i] >= 0 && isfinite(costs[i]));
    before[i + 1] = before[i] + costs[i];
  }
  const double most = least_largest(arena, before, segments, chunks);
  cut_evenly(arena, before, segments, chunks, most + rounding * before[segments], first);
  ls_arena_destroy(&arena);
  return LS_OK;
}

/* One item, without the blanks around it; `number` counts from 1. */
typedef struct item {
  const char *text;
  size_t length;
  int number;
} item;

static ls_status fail_item(const item *at, const char *expected, ls_error *error) {
  char shown[LS_QUOTE_BYTES];
  return ls_fail(error, LS_INPUT, "stages: found \"%s\" as item %d; expected %s",
                 ls_quote(shown, at->text, at->length), at->number, expected);
}

/* Digits up to a billion; moves `text` past them. */
static bool read_layer(const char **text, const char *end, int *layer) {
  const char *start = *text;
  *layer = 0;
  for (; *text < end && isdigit((unsigned char)**text); (*text)++) {
    if (*layer >= 100000000) return false;
    *layer = *layer * 10 + (**text - '0');
  }
  return *text > start;
}

static bool read_range(const item *at, int *low, int *high) {
  const char *text = at->text, *end = at->text + at->length;
  if (!read_layer(&text, end, low)) return false;
  *high = *low;
  while (text < end && *text == ' ') text++;
  if (text == end) return true;
  if (*text++ != '-') return false;
  while (text < end && *text == ' ') text++;
  return read_layer(&text, end, high) && text == end;
}

/* The layers of one chunk follow those of the chunk before it. */
static ls_status take_item(const item *at, int layers, int *next, ls_error *error) {
  int low, high;
  char expected[128];
  if (at->length == 4 && !strncmp(at->text, "none", 4)) return LS_OK;
  if (!read_range(at, &low, &high)) {
    return fail_item(at, "layers such as 0-6, one layer such as 7, or none", error);
  }
  if (*next == layers) {
    snprintf(expected, sizeof expected, "none, as all %d layers are taken before it", layers);
    return fail_item(at, expected, error);
  }
  if (low != *next) {
    snprintf(expected, sizeof expected, "it to begin with layer %d, as items follow each other",
             *next);
    return fail_item(at, expected, error);
  }
  if (high < low || high >= layers) {
    snprintf(expected, sizeof expected, "a last layer of %d to %d: the model has %d layers", low,
             layers - 1, layers);
    return fail_item(at, expected, error);
  }
  *next = high + 1;
  return LS_OK;
}

static bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Without the blanks around it. */
static void trim(const char **text, size_t *length) {
  while (*length && is_blank(**text)) (*text)++, (*length)--;
  while (*length && is_blank((*text)[*length - 1])) (*length)--;
}

ls_status ls_stages_parse(const char *text, int layers, int chunks, int *first, ls_error *error) {
  size_t length = strlen(text);
  char shown[LS_QUOTE_BYTES];
  ls_quote(shown, text, length);
  trim(&text, &length);
  if (length && text[0] == '[') {
    if (text[length - 1] != ']') {
      return ls_fail(error, LS_INPUT, "stages: found \"%s\"; expected ] at its end", shown);
    }
    text++, length -= 2;
  }
  int next = 0, count = 0;
  for (const char *end = text + length; text <= end;) {
    const char *comma = memchr(text, ',', (size_t)(end - text));
    item at = {text, (size_t)((comma ? comma : end) - text), count + 1};
    text = (comma ? comma : end) + 1;
    trim(&at.text, &at.length);
    if (count < chunks) first[count] = next;
    LS_TRY(take_item(&at, layers, &next, error));
    count++;
  }
  if (count != chunks) {
    return ls_fail(error, LS_INPUT,
                   "stages: found %d items; expected %d, one for each chunk of each stage", count,
                   chunks);
  }
  if (next != layers) {
    return ls_fail(error, LS_INPUT,
                   "stages: found %d of %d layers taken; expected item %d to end with layer %d",
                   next, layers, count, layers - 1);
  }
  first[chunks] = layers;
  return LS_OK;
}
