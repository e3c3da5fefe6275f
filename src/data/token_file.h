/* The cache file of a corpus: a header, then token ids, little-endian, of 1, 2 or 4 bytes. Used by
 * corpus.c alone.
 *
 * The name is made of the tokenizer and the texts' paths. The header has two fingerprints of the
 * texts: one of sizes, times and inodes, quick to compare, and one of their content, which decides
 * where the quick one differs or a text is so young that its time proves nothing. */
#ifndef LS_DATA_TOKEN_FILE_H
#define LS_DATA_TOKEN_FILE_H

#include "data/corpus.h"

typedef struct ls_token_file {
  const ls_corpus_options *options;
  const ls_corpus_source *sources;
  int source_count;
  const char *path;
} ls_token_file;

ls_token_file ls_token_file_of(ls_arena *arena, const ls_corpus_options *options,
                               const ls_corpus_source *sources, int source_count);

/* Whether the file is there, whole, and of these texts as they are now. */
bool ls_token_file_fits(const ls_token_file *file);

/* Tokenizes the texts and publishes the file. */
LS_CHECKED ls_status ls_token_file_make(const ls_token_file *file, ls_error *error);

/* Finds the ids in the mapped file. */
LS_CHECKED ls_status ls_token_file_view(const ls_token_file *file, ls_corpus *corpus,
                                        ls_error *error);

#endif
