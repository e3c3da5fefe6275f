/* A tokenizer put together from its components, and what encodes and decodes with it.
 *
 *   ls_token_pipeline *pipeline = ls_token_pipeline_create();
 *   LS_TRY(ls_token_pipeline_read_json(pipeline, path, text, bytes, error));
 *   LS_TRY(ls_token_pipeline_finish(pipeline, error));
 *   ls_token_pipeline_destroy(&pipeline);
 *
 * A reader of one format fills the components; after ls_token_pipeline_finish it is constant but
 * for its pool of encoders, which a lock guards: thread-safe, but for destroying. */
#ifndef LS_TOKENIZER_TOKEN_PIPELINE_H
#define LS_TOKENIZER_TOKEN_PIPELINE_H

#include <pthread.h>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/sentence.h"
#include "tokenizer/token_decoder.h"
#include "tokenizer/unigram.h"
#include "tokenizer/word_piece.h"

/* What a thread encodes with. */
typedef struct ls_encoder {
  struct ls_encoder *next; /* in the pool */
  ls_matcher matcher;
  ls_bytes repaired, sentence, word;
  ls_normalizer_work normalizer;
  ls_pre_tokenizer_work pre;
  ls_bpe_work bpe;
  ls_unigram_work unigram;
} ls_encoder;

/* A file the tokenizer was read from, as it was. */
typedef struct ls_tokenizer_file {
  const char *name;
  const char *data;
  size_t bytes;
} ls_tokenizer_file;

typedef struct ls_token_pipeline {
  ls_tokenizer tokenizer; /* the public part, which points here */
  ls_arena *arena;
  ls_vocabulary *vocabulary; /* all pieces, added tokens too */
  LS_LIST(ls_added_token) special;
  LS_LIST(ls_added_token) renamed;   /* tokens of normalized text: what they are decoded as */
  ls_added_tokens *added;            /* found in the text as it is */
  ls_added_tokens *added_normalized; /* found in the normalized text */
  ls_added_tokens *added_on_request; /* found in the text with LS_TOKENS_SPECIAL */
  ls_sentence *sentence;             /* SentencePiece's normalizer; NULL: the one below */
  ls_normalizer normalizer;
  ls_pre_tokenizer pre;
  ls_bpe *bpe; /* one of the three is the model */
  ls_unigram *unigram;
  ls_word_piece *word_piece;
  int32_t begin, mask; /* ids: before each text of a corpus; in the place of others; -1: none */
  bool cut_at_sign;    /* words begin with ▁, and no piece goes over that */
  ls_token_decoder decoder;
  bool nul_stands_in;  /* while tokenizer.json is read: another character stands for NUL */
  bool bytes_are_text; /* tiktoken: pieces are the text's bytes */
  LS_LIST(int32_t) prefix, suffix; /* ids before and behind a text */
  LS_LIST(ls_tokenizer_file) files;
  ls_span *shown; /* [vocabulary] pieces as they are decoded */
  ls_span *texts; /* [vocabulary] of each id inside a text */
  bool *is_special;
  pthread_mutex_t lock;
  ls_encoder *idle;
} ls_token_pipeline;

ls_token_pipeline *ls_token_pipeline_create(void);
void ls_token_pipeline_destroy(ls_token_pipeline **pipeline);

/* Adds a token that is found in texts. The content is copied. LS_INPUT where its id is another
 * piece's. */
LS_CHECKED ls_status ls_token_pipeline_add_token(ls_token_pipeline *pipeline, const char *where,
                                                 const ls_added_token *token,
                                                 ls_added_tokens **into, bool special,
                                                 ls_error *error);

/* What follows from the components: counts, the texts of ids, whether words may be cut at ▁. */
LS_CHECKED ls_status ls_token_pipeline_finish(ls_token_pipeline *pipeline, ls_error *error);

/* The "post_processor" of tokenizer.json: ByteLevel (which changes no id), TemplateProcessing and
 * Sequences of them. LS_INPUT names others. */
LS_CHECKED ls_status ls_post_processor_read(ls_token_pipeline *pipeline, const char *path,
                                            const json_t *json, ls_error *error);

/* Readers: fill a new pipeline from a file's content. `path` names it in errors. */
LS_CHECKED ls_status ls_token_pipeline_read_json(ls_token_pipeline *pipeline, const char *path,
                                                 const char *text, size_t bytes, ls_error *error);
LS_CHECKED ls_status ls_token_pipeline_read_form(ls_token_pipeline *pipeline, const char *path,
                                                 const json_t *json, ls_error *error);
LS_CHECKED ls_status ls_token_pipeline_read_sentencepiece(ls_token_pipeline *pipeline,
                                                          const char *path, const char *data,
                                                          size_t bytes, ls_error *error);
/* `pattern` NULL: the one that belongs to the file's name. */
LS_CHECKED ls_status ls_token_pipeline_read_tiktoken(ls_token_pipeline *pipeline, const char *path,
                                                     const char *text, size_t bytes,
                                                     const char *pattern, ls_error *error);
LS_CHECKED ls_status ls_token_pipeline_read_merges(ls_token_pipeline *pipeline,
                                                   const char *vocabulary_path,
                                                   const char *vocabulary, size_t vocabulary_bytes,
                                                   const char *merges_path, const char *merges,
                                                   size_t merges_bytes, ls_error *error);

#endif
