/* Texts made into a folder of token files, to train on later: one for each pattern.
 *
 *   ls_token_folder_file *made;
 *   int count;
 *   LS_TRY(ls_token_folder_write(arena, &options, &made, &count, error));
 *
 * Token files are named so that their order by name is that of the patterns: a corpus of the
 * folder has the ids, documents and fingerprint of the texts themselves. A file whose texts,
 * tokenizer and options are what they were is left as it is. Each is published whole; what a signal
 * or an error ends leaves those before it. One thread calls; ids are made by options->threads. */
#ifndef LS_DATA_TOKEN_FOLDER_H
#define LS_DATA_TOKEN_FOLDER_H

#include "data/token_file.h"

/* One pattern's token file. */
typedef struct ls_token_folder_file {
  const char *pattern;
  const char *path; /* NULL: its texts are empty, and no file is there */
  bool reused;
  int texts;     /* files ... */
  int64_t bytes; /* ... and their bytes, as they lie on disk */
  ls_token_header about;
} ls_token_folder_file;

enum { LS_TOKEN_FOLDER_MOST = 99999 };

/* Into options->cache_folder, which is made. Progress counts the bytes and tokens of all patterns.
 * LS_INPUT for what ls_corpus_open says of texts, for a token file among the texts, and where the
 * folder holds token files of other patterns, which a corpus of it would have too; LS_STOPPED;
 * LS_FAILED where one cannot be written. What is made lives in the arena. */
LS_CHECKED ls_status ls_token_folder_write(ls_arena *arena, const ls_corpus_options *options,
                                           ls_token_folder_file **made, int *count,
                                           ls_error *error);

#endif
