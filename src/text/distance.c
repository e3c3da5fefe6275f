#include "text/distance.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

enum { WORD_BYTES = 63, NOT_MEANT = 1000 };

static int folded(char letter) {
  if (letter >= 'A' && letter <= 'Z') return letter - 'A' + 'a';
  return letter == '-' ? '_' : letter;
}

static int smaller(int first, int second) {
  return first < second ? first : second;
}

int ls_distance(const char *first, const char *second) {
  const int rows = (int)strnlen(first, WORD_BYTES), columns = (int)strnlen(second, WORD_BYTES);
  int edits[WORD_BYTES + 1][WORD_BYTES + 1];
  for (int column = 0; column <= columns; column++) edits[0][column] = column;
  for (int row = 1; row <= rows; row++) {
    edits[row][0] = row;
    for (int column = 1; column <= columns; column++) {
      const int a = folded(first[row - 1]), b = folded(second[column - 1]);
      int best = edits[row - 1][column - 1] + (a != b);
      best = smaller(best, edits[row - 1][column] + 1);
      best = smaller(best, edits[row][column - 1] + 1);
      if (row > 1 && column > 1 && a == folded(second[column - 2]) && folded(first[row - 2]) == b) {
        best = smaller(best, edits[row - 2][column - 2] + 1);
      }
      edits[row][column] = best;
    }
  }
  return edits[rows][columns];
}

/* Edits of what a user may have meant by `word`; more than is allowed: it is not this name. A
 * flag's dashes are no letters of it. */
static int edits_to(const char *word, const char *name) {
  while (*word == '-' && *name == '-') word++, name++;
  const size_t word_bytes = strlen(word), name_bytes = strlen(name);
  const size_t letters = word_bytes > name_bytes ? word_bytes : name_bytes;
  const char *dot = strrchr(name, '.');
  const bool last_part = dot && ls_distance(word, dot + 1) == 0;
  const bool beginning = word_bytes >= 3 && strncasecmp(word, name, word_bytes) == 0;
  const int edits = ls_distance(word, name);
  if (edits > 1 && (last_part || beginning)) return 1;
  const int allowed = letters < 6 ? 1 : letters < 8 ? 2 : (int)(letters / 4);
  return edits <= allowed && edits < (int)letters ? edits : NOT_MEANT;
}

const char *ls_nearest(const char *word, const char *const *names, int count) {
  const char *nearest = NULL;
  int fewest = NOT_MEANT;
  for (int i = 0; i < count; i++) {
    const int edits = edits_to(word, names[i]);
    if (edits >= fewest) continue;
    nearest = names[i];
    fewest = edits;
  }
  return nearest;
}
