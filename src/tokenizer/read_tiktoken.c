/* tiktoken's rank files: a piece in base64 and its rank on each line, a rank being an id. */
#include <stdlib.h>
#include <string.h>

#include "text/quote.h"
#include "tokenizer/token_pipeline.h"

typedef struct special {
  const char *content;
  int32_t id;
} special;

/* The encodings that tiktoken knows by name, with the patterns of its openai_public.py (0.14.0). */
#define GPT2 "'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|" ENDINGS
#define ENDINGS "\\s++$|\\s+(?!\\S)|\\s"
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define BEFORE "[^\\r\\n\\p{L}\\p{N}]?"

static const struct encoding {
  const char *name, *pattern;
  special specials[6];
} encodings[] = {
    {"r50k_base", GPT2, {{"<|endoftext|>", 50256}}},
    {"p50k_base", GPT2, {{"<|endoftext|>", 50256}}},
    {"cl100k_base",
     "'(?i:[sdmt]|ll|ve|re)|" BEFORE
     "+\\p{L}++|\\p{N}{1,3}+| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|"
     "\\s+(?!\\S)|\\s",
     {{"<|endoftext|>", 100257},
      {"<|fim_prefix|>", 100258},
      {"<|fim_middle|>", 100259},
      {"<|fim_suffix|>", 100260},
      {"<|endofprompt|>", 100276}}},
    {"o200k_base",
     BEFORE UPPER "*" LOWER "+" CONTRACTION "?|" BEFORE UPPER "+" LOWER "*" CONTRACTION
                  "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|"
                  "\\s+(?!\\S)|\\s+",
     {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}},
};

static int base64_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  return c == '/' ? 63 : -1;
}

static bool read_base64(const char *text, size_t length, ls_bytes *out) {
  out->count = 0;
  if (length % 4 || !length) return false;
  ls_bytes_reserve(out, length);
  for (size_t i = 0; i < length; i += 4) {
    const int padding = i + 4 < length ? 0 : (text[i + 3] == '=') + (text[i + 2] == '=');
    uint32_t bits = 0;
    for (size_t k = 0; k < 4; k++) {
      const bool pad = k >= (size_t)(4 - padding);
      const int value = pad ? 0 : base64_value(text[i + k]);
      if (value < 0 || (pad && text[i + k] != '=')) return false;
      bits = bits << 6 | (uint32_t)value;
    }
    for (int k = 0; k < 3 - padding; k++) out->data[out->count++] = (char)(bits >> (16 - 8 * k));
  }
  return true;
}

static ls_status read_line(ls_token_pipeline *self, const char *path, int line, const char *text,
                           size_t length, ls_bytes *piece, ls_error *error) {
  const char *space = memchr(text, ' ', length);
  const size_t coded = space ? (size_t)(space - text) : length;
  int64_t rank = 0;
  bool whole = space && coded + 1 < length && length - coded <= 10;
  for (size_t i = coded + 1; i < length && whole; i++) {
    whole = text[i] >= '0' && text[i] <= '9';
    rank = 10 * rank + (text[i] - '0');
  }
  if (!whole || !read_base64(text, coded, piece)) {
    char shown[LS_QUOTE_BYTES];
    return ls_fail(error, LS_INPUT, "%s:%d: found \"%s\"; expected a piece in base64 and its rank",
                   path, line, ls_quote(shown, text, length));
  }
  const char *where = path;
  return ls_vocabulary_add(self->vocabulary, where, (ls_span){piece->data, piece->count}, rank,
                           error);
}

static ls_status read_lines(ls_token_pipeline *self, const char *path, const char *text,
                            size_t bytes, ls_error *error) {
  ls_bytes piece = {0};
  ls_status status = LS_OK;
  int line = 0;
  for (const char *at = text, *end = text + bytes; at < end && status == LS_OK;) {
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    if (!stop) stop = end;
    size_t length = (size_t)(stop - at);
    if (length && at[length - 1] == '\r') length--;
    line++;
    if (length) status = read_line(self, path, line, at, length, &piece, error);
    at = stop + 1;
  }
  ls_bytes_free(&piece);
  return status;
}

typedef struct pair {
  int32_t left, right, made;
} pair;

/* Two pieces may be merged where together they are one; its rank is the merge's. */
static void make_merges(ls_token_pipeline *self, const ls_bpe_options *options) {
  const ls_vocabulary *vocabulary = self->vocabulary;
  ls_arena *scratch = ls_arena_create();
  LS_LIST(pair) pairs = {0};
  for (int32_t id = 0; id < vocabulary->count; id++) {
    const ls_span piece = vocabulary->pieces[id];
    for (size_t cut = 1; cut < piece.bytes; cut++) {
      const int32_t left = ls_vocabulary_find(vocabulary, (ls_span){piece.text, cut});
      if (left < 0) continue;
      const int32_t right =
          ls_vocabulary_find(vocabulary, (ls_span){piece.text + cut, piece.bytes - cut});
      if (right >= 0) *LS_APPEND(scratch, &pairs) = (pair){left, right, id};
    }
  }
  self->bpe = ls_bpe_create(self->arena, options, pairs.count);
  for (int i = 0; i < pairs.count; i++) {
    const pair *each = &pairs.items[i];
    ls_bpe_add_merge(self->bpe, each->left, each->right, (uint32_t)each->made, each->made);
  }
  ls_arena_destroy(&scratch);
}

static const struct encoding *find_encoding(const char *path) {
  const char *slash = strrchr(path, '/');
  const char *name = slash ? slash + 1 : path;
  for (size_t i = 0; i < sizeof encodings / sizeof *encodings; i++) {
    const size_t length = strlen(encodings[i].name);
    if (strncmp(name, encodings[i].name, length) != 0) continue;
    if (strcmp(name + length, ".tiktoken") == 0 || !name[length]) return &encodings[i];
  }
  return NULL;
}

static ls_status add_specials(ls_token_pipeline *self, const char *path,
                              const struct encoding *known, ls_error *error) {
  for (int i = 0; i < 6 && known->specials[i].content; i++) {
    const special *each = &known->specials[i];
    const ls_added_token token = {.content = {each->content, strlen(each->content)},
                                  .id = each->id};
    LS_TRY(ls_token_pipeline_add_token(self, path, &token, &self->added_on_request, true, error));
  }
  self->tokenizer.end_of_text = known->specials[0].id;
  return LS_OK;
}

ls_status ls_token_pipeline_read_tiktoken(ls_token_pipeline *self, const char *path,
                                          const char *text, size_t bytes, const char *pattern,
                                          ls_error *error) {
  const struct encoding *known = find_encoding(path);
  if (!known && !pattern) {
    return ls_fail(error, LS_INPUT,
                   "%s: the pattern that belongs to these ranks is not known by the file's name "
                   "(r50k_base, p50k_base, cl100k_base, o200k_base); give it with --pattern",
                   path);
  }
  LS_TRY(read_lines(self, path, text, bytes, error));
  int32_t *symbols = LS_NEW_ARRAY(self->arena, int32_t, 256);
  for (int byte = 0; byte < 256; byte++) {
    const char each = (char)byte;
    symbols[byte] = ls_vocabulary_find(self->vocabulary, (ls_span){&each, 1});
    if (symbols[byte] >= 0) continue;
    return ls_fail(error, LS_INPUT, "%s: byte %d has no rank; expected one for each of the 256",
                   path, byte);
  }
  ls_vocabulary *whole;
  LS_TRY(ls_vocabulary_copy(self->arena, self->vocabulary, path, &whole, error));
  make_merges(self, &(ls_bpe_options){.whole = whole,
                                      .byte_symbols = symbols,
                                      .unknown = -1,
                                      .pieces = self->vocabulary->count});
  ls_pre_tokenizer_step *step = LS_APPEND(self->arena, &self->pre.steps);
  step->kind = LS_PRE_SPLIT;
  step->behavior = LS_SPLIT_REMOVED; /* text that is no match is dropped, as there */
  step->invert = true;
  self->pre.bytes = true;
  self->bytes_are_text = true;
  LS_TRY(ls_pattern_compile(self->arena, path, pattern ? pattern : known->pattern, LS_PATTERN_RUST,
                            &step->pattern, error));
  return known ? add_specials(self, path, known, error) : LS_OK;
}
