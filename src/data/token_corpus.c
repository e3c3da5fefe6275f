#include "data/token_corpus.h"

#include <string.h>

#include "base/random.h"
#include "data/fingerprint.h"
#include "data/token_file.h"

ls_status ls_token_corpus_asked(const ls_corpus_options *options, const ls_text_files *files,
                                bool *tokens, ls_error *error) {
  const char *text = NULL, *file = NULL;
  *tokens = false;
  for (int i = 0; i < files->count; i++) {
    const ls_text_file *each = &files->items[i];
    if (!each->tokens) {
      text = each->path;
      continue;
    }
    file = each->path;
    if (options->fields && options->fields[each->pattern])
      return ls_fail(
          error, LS_INPUT,
          "%s: %s is a token file, whose texts were chosen when it was made; expected no "
          "field (%s) of it",
          options->key, file, options->fields[each->pattern]);
  }
  if (text && file)
    return ls_fail(error, LS_INPUT,
                   "%s: found a text, %s, and a token file, %s; expected one kind, or a weight for "
                   "each",
                   options->key, text, file);
  *tokens = file != NULL;
  return LS_OK;
}

/* The content's fingerprint as token_write.c makes it, over the documents of one more file. */
static uint64_t add_documents(uint64_t content, const ls_corpus *part) {
  for (int64_t d = 0; d < part->document_count; d++)
    content = ls_fingerprint_word(content, ls_fingerprint_unspread(part->documents[d].hash));
  return content;
}

/* The header has the beginning of the tokenizer's name; the content's fingerprint, all of it. */
static ls_status check_tokenizer(const ls_corpus_options *options, const ls_corpus *part,
                                 ls_error *error) {
  const ls_tokenizer *tokenizer = options->tokenizer;
  const ls_token_header *header = part->map.data;
  const int shown = (int)sizeof header->tokenizer - 1;
  const bool same = header->vocabulary == tokenizer->vocabulary &&
                    header->end_of_text == ls_corpus_end_of_text(tokenizer) &&
                    header->content == add_documents(ls_random_stream(tokenizer->name), part);
  if (same) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: %s was made with the tokenizer %.*s of %lld ids, and this one is %.*s of %d: "
                 "tokenize the text again, or name that tokenizer",
                 options->key, part->cache_path, shown, header->tokenizer,
                 (long long)header->vocabulary, shown, tokenizer->name, (int)tokenizer->vocabulary);
}

static ls_status open_parts(ls_arena *arena, const ls_corpus_options *options,
                            const ls_text_files *files, ls_corpus *corpus, ls_error *error) {
  corpus->parts = LS_NEW_ARRAY(arena, ls_corpus, files->count);
  corpus->content = ls_random_stream(options->tokenizer->name);
  for (; corpus->part_count < files->count; corpus->part_count++) {
    ls_corpus *part = &corpus->parts[corpus->part_count];
    const ls_status status =
        ls_token_file_view(arena, files->items[corpus->part_count].path, part, error);
    if (status != LS_OK) return ls_error_prefix(error, "%s", options->key);
    part->first = corpus->count;
    corpus->count += part->count;
    corpus->document_count += part->document_count;
    corpus->skipped += part->skipped;
    corpus->content = add_documents(corpus->content, part);
  }
  for (int p = 0; p < corpus->part_count; p++)
    if (corpus->parts[p].marked)
      return ls_fail(error, LS_INPUT, "%s: %s holds chats; expected texts: name the chats instead",
                     options->key, files->items[p].path);
  for (int p = 0; p < corpus->part_count; p++)
    LS_TRY(check_tokenizer(options, &corpus->parts[p], error));
  return LS_OK;
}

/* One table of all documents, which each file counts from its own beginning. */
static void join_documents(ls_arena *arena, ls_corpus *corpus) {
  ls_document *documents = LS_NEW_ARRAY(arena, ls_document, corpus->document_count);
  corpus->documents = documents;
  for (int p = 0; p < corpus->part_count; p++) {
    const ls_corpus *part = &corpus->parts[p];
    for (int64_t d = 0; d < part->document_count; d++)
      *documents++ = (ls_document){part->first + part->documents[d].first, part->documents[d].hash};
  }
}

ls_status ls_token_corpus_open(ls_arena *arena, const ls_corpus_options *options,
                               const ls_text_files *files, ls_corpus *corpus, ls_error *error) {
  *corpus = (ls_corpus){.files = *files, .from_cache = true};
  const ls_status status = open_parts(arena, options, files, corpus, error);
  if (status != LS_OK) {
    ls_corpus_close(corpus);
    return status;
  }
  corpus->width = corpus->parts[0].width;
  corpus->cache_path = corpus->parts[0].cache_path;
  join_documents(arena, corpus);
  return LS_OK;
}
