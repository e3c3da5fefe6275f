/* Texts as one row of token ids, kept in a cache file that is mapped into memory.
 *
 *   ls_corpus corpus;
 *   LS_TRY(ls_corpus_open(arena, &(ls_corpus_options){.key = "data.text", ...}, &corpus, error));
 *   LS_TRY(ls_corpus_copy(&corpus, first, count, ids, error));
 *   ls_corpus_close(&corpus);
 *
 * A document is a plain text file or a line of JSON lines; the tokenizer's end-of-text follows
 * each, where it has one. Token files (token_folder.h) are taken as they are, with the ids,
 * documents and fingerprint that their texts have. The cache is made again when a file's path,
 * size, time or content, the tokenizer, or what is read of the files changed. It is published
 * whole, so several processes may open one corpus at the same time, and made again where one of
 * them removes it before it is mapped. Reading an open corpus is thread-safe. */
#ifndef LS_DATA_CORPUS_H
#define LS_DATA_CORPUS_H

#include <stdbool.h>

#include "base/file.h"
#include "chat/chat.h"
#include "data/labelled.h"
#include "data/text_files.h"
#include "data/text_pairs.h"
#include "tokenizer/tokenizer.h"

/* Called now and then while texts are read; done and total in bytes as they lie on disk, and the
 * tokens that are made so far: 0 while a text is only compared with what it was. */
typedef void ls_corpus_progress(void *context, int64_t done, int64_t total, int64_t tokens);

typedef struct ls_corpus_options {
  const char *key;             /* of the run file, for errors */
  const char *const *patterns; /* paths, globs or folders */
  int pattern_count;
  const char *const *fields;   /* of JSON lines, one for each pattern; NULL: text_key for all */
  const char *text_key;        /* of JSON lines where `fields` has none; NULL: "text" */
  bool skip_bad_lines;         /* count them and go on */
  const ls_chat *chat;         /* of chats, an example a line; NULL: texts */
  const ls_labelled *labelled; /* likewise of texts with a class; NULL: they have none */
  const ls_text_pair_options *text_pairs; /* likewise of pairs of texts; NULL: there are none */
  const ls_tokenizer *tokenizer;
  const char *cache_folder;     /* made if it is needed */
  ls_corpus_progress *progress; /* may be NULL */
  void *context;
  int threads; /* 0: as OpenMP has them */
} ls_corpus_options;

typedef struct ls_document {
  int64_t first; /* token */
  uint64_t hash; /* of its text: draws the documents kept for evaluation */
} ls_document;

typedef struct ls_corpus {
  ls_map map;
  const void *tokens; /* little-endian, `width` bytes each */
  int width;          /* 1, 2 or 4 */
  bool marked;        /* each says whether it is trained (ls_chat_id) */
  int64_t count;
  const ls_document *documents; /* of a count of tokens each above 0, in order */
  int64_t document_count;
  int64_t skipped;      /* bad lines left out */
  uint64_t content;     /* fingerprint of the documents and the tokenizer */
  const uint64_t *sums; /* of each block of the file; NULL: nothing to check */
  uint8_t *checked;     /* blocks that were found whole */
  ls_text_files files;
  bool from_cache; /* an earlier cache file still fitted */
  const char *cache_path;
  /* Of several token files: each as a corpus, where they begin in this one, and no `tokens`. */
  struct ls_corpus *parts;
  int part_count;
  int64_t first;
} ls_corpus;

/* LS_INPUT for a missing, unreadable or empty text, a file named twice, a bad line, a text that
 * changed while it was read, a token file of another tokenizer; LS_STOPPED; LS_FAILED where the
 * cache cannot be written. Names in the corpus live in the arena. */
LS_CHECKED ls_status ls_corpus_open(ls_arena *arena, const ls_corpus_options *options,
                                    ls_corpus *corpus, ls_error *error);

void ls_corpus_close(ls_corpus *corpus);

/* Ids of tokens [first, first + count). LS_FAILED where the cache file was damaged since it was
 * written: its checksums are looked at before their bytes are used for the first time. */
LS_CHECKED ls_status ls_corpus_copy(const ls_corpus *corpus, int64_t first, int64_t count,
                                    int32_t *ids, ls_error *error);

/* Labels of the same tokens: their ids, and -1 for those that are not trained. */
LS_CHECKED ls_status ls_corpus_copy_labels(const ls_corpus *corpus, int64_t first, int64_t count,
                                           int32_t *labels, ls_error *error);

/* The document that a token is of. */
int64_t ls_corpus_document(const ls_corpus *corpus, int64_t token);

/* The id that ends a document; -1: the tokenizer has none. */
int32_t ls_corpus_end_of_text(const ls_tokenizer *tokenizer);

/* Whether tokens are marked: chats, and texts with a class. */
static inline bool ls_corpus_is_marked(const ls_corpus_options *options) {
  return options->chat || options->labelled || options->text_pairs;
}

/* The key of JSON lines whose string is the document, in this file. */
const char *ls_corpus_field(const ls_corpus_options *options, const ls_text_file *file);

/* Where caches go: $XDG_CACHE_HOME/lockstep, else the folder "cache" beside the run's `out`. */
const char *ls_corpus_cache_folder(ls_arena *arena, const char *out);

#endif
