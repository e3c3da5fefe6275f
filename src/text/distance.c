#include "text/distance.h"

#include <stddef.h>
#include <string.h>

enum { WORD_BYTES = 63 };

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

const char *ls_nearest(const char *word, const char *const *names, int count) {
  const char *nearest = NULL;
  int nearest_edits = 0;
  for (int i = 0; i < count; i++) {
    int edits = ls_distance(word, names[i]);
    const char *dot = strrchr(names[i], '.');
    if (edits > 1 && dot && ls_distance(word, dot + 1) == 0) edits = 1;
    const size_t word_bytes = strlen(word), name_bytes = strlen(names[i]);
    const size_t letters = word_bytes > name_bytes ? word_bytes : name_bytes;
    const int allowed = letters < 6 ? 1 : (int)(letters / 3);
    if (edits > allowed || edits >= (int)letters) continue;
    if (!nearest || edits < nearest_edits) {
      nearest = names[i];
      nearest_edits = edits;
    }
  }
  return nearest;
}
