/* The nearest known name to a mistyped one, for "did you mean".
 *
 *   const char *near = ls_nearest(word, names, count);
 *
 * Thread-safe: no state. */
#ifndef LS_TEXT_DISTANCE_H
#define LS_TEXT_DISTANCE_H

/* Edits that turn one word into the other: insert, delete, replace, or swap two neighbours
 * (Damerau-Levenshtein in its restricted form: no part is edited twice). Upper and lower case are
 * the same, and so are '-' and '_'. Only the first 63 bytes of each word count. */
int ls_distance(const char *first, const char *second);

/* The name nearest to `word`, the earlier of equals; NULL where none is near enough to be what was
 * meant: more than a quarter of the longer word's letters edited (a third below 8, one below 6). A
 * last part after '.' that fits exactly ("seq_len" for "data.seq_len"), and a beginning of at
 * least three letters ("--temp" for "--temperature"), count as one edit. */
const char *ls_nearest(const char *word, const char *const *names, int count);

#endif
