#include "data/text_pairs.h"

#include <string.h>

#include "base/arena.h"
#include "base/random.h"
#include "data/fingerprint.h"
#include "tokenizer/token_buffer.h"

static const char wrong_key[] = "negative";

uint64_t ls_text_pairs_fingerprint(const ls_text_pair_options *options) {
  uint64_t hash = ls_random_stream("pairs of texts");
  hash = ls_fingerprint_bytes(hash, options->asking, strlen(options->asking) + 1);
  hash = ls_fingerprint_bytes(hash, options->answering, strlen(options->answering) + 1);
  hash = ls_fingerprint_word(hash, (uint64_t)options->wrong);
  return ls_fingerprint_word(hash, (uint64_t)options->room);
}

/* Of a text that is too long the beginning, and the end tokens that the tokenizer gives each. */
static ls_status cut(const ls_text_pair_options *options, int64_t most, int64_t before, ls_ids *ids,
                     ls_error *error) {
  const int64_t all = ids->count;
  if (most <= 0 || all - before <= most) return LS_OK;
  LS_TRY(ls_tokenizer_append(options->tokenizer, "", 0, LS_TOKENS_SPECIAL | LS_TOKENS_CONTINUE, ids,
                             error));
  const int64_t ends = ids->count - all, kept = most > ends ? most - ends : 0;
  for (int64_t e = 0; e < most - kept; e++)
    ids->items[before + kept + e] = ids->items[all - (most - kept) + e];
  ids->count = before + most;
  return LS_OK;
}

/* A text's ids, behind what stands before it, at most `most` of them (0: all); the first is marked
 * where it is not the first text. */
static ls_status append(const ls_text_pair_options *options, int64_t most, const char *key,
                        const json_t *text, bool asks, ls_ids *marked, ls_error *error) {
  const int64_t before = marked->count;
  const char *front = asks ? options->asking : options->answering;
  if (!json_is_string(text) || json_string_length(text) == 0)
    return ls_fail(error, LS_INPUT, "\"%s\": found %s; expected a text", key,
                   json_is_string(text) ? "an empty text" : "no text");
  const size_t first = strlen(front), bytes = json_string_length(text);
  ls_arena *scratch = ls_arena_create();
  char *whole = ls_arena_alloc(scratch, first + bytes + 1);
  memcpy(whole, front, first);
  memcpy(whole + first, json_string_value(text), bytes);
  const ls_status status = ls_tokenizer_append(options->tokenizer, whole, (int64_t)(first + bytes),
                                               LS_TOKENS_SPECIAL, marked, error);
  ls_arena_destroy(&scratch);
  LS_TRY(status);
  if (marked->count == before)
    return ls_fail(error, LS_INPUT, "\"%s\": the tokenizer makes no tokens of it", key);
  LS_TRY(cut(options, most, before, marked, error));
  for (int64_t i = before; i < marked->count; i++) marked->items[i] *= 2;
  if (!asks) marked->items[before]++;
  return LS_OK;
}

/* As many wrong answers as each pair has. */
static ls_status append_wrong(const ls_text_pair_options *options, int64_t most, const json_t *json,
                              ls_ids *marked, ls_error *error) {
  const json_t *found = json_object_get(json, wrong_key);
  const bool list = json_is_array(found);
  const int64_t count = list                            ? (int64_t)json_array_size(found)
                        : found && !json_is_null(found) ? 1
                                                        : 0;
  if (count != options->wrong)
    return ls_fail(error, LS_INPUT,
                   "\"%s\": found %lld wrong answer%s; expected %lld, as embed.negatives says",
                   wrong_key, (long long)count, count == 1 ? "" : "s", (long long)options->wrong);
  for (int64_t w = 0; w < count; w++)
    LS_TRY(append(options, most, wrong_key, list ? json_array_get(found, (size_t)w) : found, false,
                  marked, error));
  return LS_OK;
}

/* What is null is not there, as in a table that has both keys. */
static const json_t *given(const json_t *json, const char *key) {
  const json_t *value = json_object_get(json, key);
  return json_is_null(value) ? NULL : value;
}

static ls_status encode(const ls_text_pair_options *options, int64_t most, const json_t *json,
                        ls_ids *marked, ls_error *error) {
  if (!json_is_object(json))
    return ls_fail(error, LS_INPUT,
                   "found no object; expected one with the texts \"anchor\" (or \"query\") and "
                   "\"positive\"");
  const json_t *anchor = given(json, "anchor"), *query = given(json, "query");
  const json_t *positive = json_object_get(json, "positive");
  if (!anchor == !query)
    return ls_fail(error, LS_INPUT, "found %s \"anchor\" %s \"query\"; expected one of the two",
                   anchor ? "both" : "neither", anchor ? "and" : "nor");
  if (!positive)
    return ls_fail(error, LS_INPUT, "found no \"positive\"; expected the text that answers \"%s\"",
                   anchor ? "anchor" : "query");
  LS_TRY(append(options, most, anchor ? "anchor" : "query", anchor ? anchor : query, true, marked,
                error));
  LS_TRY(append(options, most, "positive", positive, false, marked, error));
  return append_wrong(options, most, json, marked, error);
}

ls_status ls_text_pairs_encode(const ls_text_pair_options *options, const json_t *json,
                               ls_ids *marked, ls_error *error) {
  const int64_t before = marked->count, share = options->room / (2 + options->wrong);
  ls_status status = encode(options, 0, json, marked, error);
  if (status == LS_OK && share > 0 && marked->count - before > options->room) {
    marked->count = before;
    status = encode(options, share, json, marked, error);
  }
  if (status != LS_OK) marked->count = before;
  return status;
}
