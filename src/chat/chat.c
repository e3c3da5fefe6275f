#include "chat/chat.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/random.h"
#include "chat/chat_example.h"
#include "chat/chat_pair.h"
#include "chat/jinja.h"
#include "text/json.h"
#include "tokenizer/token_pipeline.h"

static const char template_name[] = "chat_template.jinja";

struct ls_chat {
  ls_arena *arena;
  const ls_tokenizer *tokenizer;
  const ls_jinja *template;
  const char *given; /* the template's text where a file gave it */
  size_t given_bytes;
  json_t *tokens; /* bos_token and the others, by name */
  ls_loss_on loss_on;
  bool pairs;
  uint64_t fingerprint;
};

static const ls_tokenizer_file *file_of(const ls_tokenizer *tokenizer, const char *name) {
  const ls_token_pipeline *pipeline = tokenizer->pipeline;
  for (int f = 0; pipeline && f < pipeline->files.count; f++)
    if (strcmp(pipeline->files.items[f].name, name) == 0) return &pipeline->files.items[f];
  return NULL;
}

/* The template among those of a list that is used for chats: the one named default. */
static const json_t *named_default(const json_t *list) {
  size_t t;
  const json_t *each;
  json_array_foreach(list, t, each) {
    const char *name = json_string_value(json_object_get(each, "name"));
    if (name && strcmp(name, "default") == 0) return json_object_get(each, "template");
  }
  return NULL;
}

static const char *const token_names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token"};

/* What the templates call special tokens: strings, or objects with their content. */
static void take_tokens(ls_chat *self, const json_t *from) {
  for (size_t t = 0; t < sizeof token_names / sizeof *token_names; t++) {
    json_t *value = json_object_get(from, token_names[t]);
    if (json_is_object(value)) value = json_object_get(value, "content");
    if (json_is_string(value)) json_object_set(self->tokens, token_names[t], value);
  }
}

static ls_status read_config(ls_chat *self, const char *name, json_t **config, ls_error *error) {
  const ls_tokenizer_file *file = file_of(self->tokenizer, name);
  *config = NULL;
  if (!file) return LS_OK;
  LS_TRY(ls_json_parse(name, file->data, file->bytes, LS_JSON_LAST_KEY, config, error));
  take_tokens(self, *config);
  return LS_OK;
}

static ls_status fail_missing(const ls_chat_options *options, ls_error *error) {
  return ls_fail(error, LS_INPUT,
                 "the tokenizer (%s) has no chat template; expected chat_template.jinja, or "
                 "chat_template in its tokenizer_config.json: give %s",
                 options->tokenizer->name,
                 options->remedy ? options->remedy : "data.template=FILE.jinja");
}

/* A file that is asked for, or that lies beside a model of bytes; NULL: none. */
static const char *given_template(const ls_chat *self, const ls_chat_options *options) {
  if (options->template || !options->folder || self->tokenizer->pipeline) return options->template;
  const char *beside = ls_arena_printf(self->arena, "%s/%s", options->folder, template_name);
  return ls_file_exists(beside) ? beside : NULL;
}

/* The template's text and where it is from. */
static ls_status find_template(ls_chat *self, const ls_chat_options *options, const json_t *config,
                               const char **name, const char **text, size_t *bytes,
                               ls_error *error) {
  const ls_tokenizer_file *file = file_of(self->tokenizer, template_name);
  const char *given = given_template(self, options);
  if (given) {
    char *read;
    LS_TRY(ls_file_read(self->arena, given, &read, bytes, error));
    *name = given;
    *text = self->given = read;
    self->given_bytes = *bytes;
    return LS_OK;
  }
  if (file) {
    *name = file->name;
    *text = file->data;
    *bytes = file->bytes;
    return LS_OK;
  }
  const json_t *template = json_object_get(config, "chat_template");
  if (json_is_array(template)) template = named_default(template);
  if (!json_is_string(template)) return fail_missing(options, error);
  *name = "tokenizer_config.json: chat_template";
  *text = ls_arena_strdup(self->arena, json_string_value(template));
  *bytes = json_string_length(template);
  return LS_OK;
}

static uint64_t fingerprint_of(const ls_chat *self, const char *text, size_t bytes) {
  char *tokens = json_dumps(self->tokens, JSON_SORT_KEYS);
  uint64_t hash =
      ls_random_stream(tokens ? tokens : "") + (uint64_t)self->loss_on + (self->pairs ? 16 : 0);
  for (size_t i = 0; i < bytes; i++) hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
  free(tokens);
  return hash;
}

static ls_status open_template(ls_chat *self, const ls_chat_options *options, const json_t *config,
                               ls_error *error) {
  const char *name = NULL, *text = NULL;
  size_t bytes = 0;
  LS_TRY(find_template(self, options, config, &name, &text, &bytes, error));
  LS_TRY(ls_jinja_read(self->arena, name, text, bytes, &self->template, error));
  self->fingerprint = fingerprint_of(self, text, bytes);
  return LS_OK;
}

static ls_status open_parts(ls_chat *self, const ls_chat_options *options, ls_error *error) {
  json_t *map = NULL, *config = NULL;
  ls_status status = read_config(self, "special_tokens_map.json", &map, error);
  json_decref(map);
  if (status == LS_OK) status = read_config(self, "tokenizer_config.json", &config, error);
  if (status == LS_OK) status = open_template(self, options, config, error);
  json_decref(config);
  return status;
}

ls_status ls_chat_open(const ls_chat_options *options, ls_chat **chat, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  ls_chat *self = LS_NEW(arena, ls_chat);
  *self = (ls_chat){.arena = arena,
                    .tokenizer = options->tokenizer,
                    .tokens = json_object(),
                    .loss_on = options->loss_on,
                    .pairs = options->pairs};
  ls_status status = open_parts(self, options, error);
  if (status == LS_OK && options->tokenizer->pipeline && options->tokenizer->pipeline->sentence)
    status = ls_fail(error, LS_INPUT,
                     "the tokenizer (%s) does not tell special tokens in a text from its letters; "
                     "expected one with a tokenizer.json",
                     options->tokenizer->name);
  if (status != LS_OK) ls_chat_close(&self);
  *chat = self;
  return status;
}

void ls_chat_close(ls_chat **chat) {
  ls_chat *dying = *chat;
  *chat = NULL;
  if (!dying) return;
  json_decref(dying->tokens);
  ls_arena_destroy(&dying->arena); /* which it lies in */
}

uint64_t ls_chat_fingerprint(const ls_chat *chat) {
  return chat->fingerprint;
}

/* Special tokens are ids wherever they stand in the text. */
static unsigned token_flags(const ls_tokenizer *tokenizer) {
  const bool asked = tokenizer->pipeline && tokenizer->pipeline->added_on_request;
  return asked ? LS_TOKENS_SPECIAL | LS_TOKENS_CONTINUE | LS_TOKENS_MORE : 0;
}

/* One example on its way to marked ids. */
typedef struct work {
  const ls_chat *chat;
  ls_arena *arena;
  ls_chat_example example;
  ls_jinja_text whole;
  LS_LIST(ls_jinja_span) answers;
  ls_error *error;
} work;

/* The first `count` messages; `asks`: up to where the model answers. */
static ls_status render(const work *self, size_t count, bool asks, ls_jinja_text *text,
                        ls_error *error) {
  json_t *messages = json_array(), *variables = json_copy(self->chat->tokens);
  for (size_t m = 0; m < count; m++)
    json_array_append(messages, json_array_get(self->example.messages, m));
  json_object_set_new(variables, "messages", messages);
  json_object_set_new(variables, "add_generation_prompt", json_boolean(asks));
  json_object_set_new(variables, "documents", json_null());
  json_object_set(variables, "tools", self->example.tools);
  if (!self->example.tools) json_object_set_new(variables, "tools", json_null());
  if (self->example.more) json_object_update(variables, self->example.more);
  const ls_status status =
      ls_jinja_render(self->arena, self->chat->template, variables, NULL, text, error);
  json_decref(variables);
  return status;
}

static size_t common(const ls_jinja_text *left, const ls_jinja_text *right) {
  const size_t most = left->bytes < right->bytes ? left->bytes : right->bytes;
  size_t bytes = 0;
  while (bytes < most && left->text[bytes] == right->text[bytes]) bytes++;
  return bytes;
}

static ls_status fail_boundary(const work *self, size_t message) {
  return ls_fail(self->error, LS_INPUT,
                 "message %zu: where the answer lies in the chat's text cannot be told, since the "
                 "template renders it otherwise when more follows: give a template with "
                 "{%% generation %%}, or data.loss_on=last",
                 message);
}

/* Where the answer of a message begins: what is rendered up to it, with what asks for it. */
static ls_status find_begin(const work *self, size_t message, size_t *begin) {
  ls_jinja_text before = {.text = ""}, asked;
  if (message > 0 && render(self, message, false, &before, NULL) != LS_OK)
    return fail_boundary(self, message);
  if (common(&before, &self->whole) < before.bytes) return fail_boundary(self, message);
  *begin = before.bytes;
  if (render(self, message, true, &asked, NULL) != LS_OK) return LS_OK;
  const size_t same = common(&asked, &self->whole);
  if (same > *begin) *begin = same;
  return LS_OK;
}

static ls_status find_end(const work *self, size_t message, size_t *end) {
  ls_jinja_text upto;
  *end = self->whole.bytes;
  if (message + 1 == json_array_size(self->example.messages)) return LS_OK;
  if (render(self, message + 1, false, &upto, NULL) != LS_OK ||
      common(&upto, &self->whole) < upto.bytes)
    return fail_boundary(self, message);
  *end = upto.bytes;
  return LS_OK;
}

static ls_status fail_unanswered(const work *self) {
  bool spoken = false;
  for (size_t m = 0; m < json_array_size(self->example.messages); m++)
    spoken |= ls_chat_example_speaks(&self->example, m);
  return ls_fail(self->error, LS_INPUT,
                 spoken ? "found a chat of whose answers none is trained; expected a weight of 1 "
                          "for one of them"
                        : "found a chat without an answer; expected a message of the role "
                          "assistant");
}

/* Answers by rendering the chat up to each, or by the template's own blocks: one each for the
 * messages that are answers, as far as it has as many. */
static ls_status find_answers(work *self) {
  const size_t count = json_array_size(self->example.messages);
  const bool marks = ls_jinja_marks(self->chat->template);
  size_t first = 0, answers = 0;
  for (size_t m = 0; m < count; m++) {
    const bool answer = ls_chat_example_answers(&self->example, m);
    if (answer && self->chat->loss_on == LS_LOSS_ON_LAST) first = m;
    answers += answer;
  }
  if (answers == 0) return fail_unanswered(self);
  int block = 0;
  for (size_t m = 0; m < count; m++) {
    const char *role =
        json_string_value(json_object_get(json_array_get(self->example.messages, m), "role"));
    const bool spoken = strcmp(role, "assistant") == 0 || strcmp(role, "model") == 0;
    const int at = block;
    block += spoken;
    if (!ls_chat_example_answers(&self->example, m) || m < first) continue;
    ls_jinja_span span;
    if (marks) {
      if (at >= self->whole.span_count)
        return ls_fail(self->error, LS_INPUT,
                       "message %zu: the template has no {%% generation %%} block of it; expected "
                       "one for each message of the assistant",
                       m);
      span = self->whole.spans[at];
    } else {
      LS_TRY(find_begin(self, m, &span.begin));
      LS_TRY(find_end(self, m, &span.end));
    }
    if (span.end > span.begin) *LS_APPEND(self->arena, &self->answers) = span;
  }
  return LS_OK;
}

static void mark(ls_ids *ids, int64_t first, int64_t end) {
  for (int64_t i = first; i < end && i < ids->count; i++) ids->items[i] |= 1;
}

/* Marks what lies in an answer, if the ids' own bytes are the text, or are behind a space that the
 * tokenizer puts first; false: they are not. An id that an answer has a part of is trained. */
static bool mark_by_bytes(const work *self, ls_ids *ids, int64_t first) {
  size_t total = 0, bytes;
  char small[256];
  size_t *ends = LS_NEW_ARRAY(self->arena, size_t, ids->count - first + 1);
  for (int pass = 0, shift = 0; pass < 2; pass++, shift++, total = 0) {
    bool same = true;
    for (int64_t i = first; i < ids->count && same; i++) {
      const char *piece =
          ls_tokenizer_piece(self->chat->tokenizer, ids->items[i] >> 1, small, &bytes);
      const size_t skip = i == first && shift ? 1 : 0;
      same = piece && bytes >= skip && (!skip || *piece == ' ') &&
             total + bytes - skip <= self->whole.bytes &&
             memcmp(piece + skip, self->whole.text + total, bytes - skip) == 0;
      total += same ? bytes - skip : 0;
      ends[i - first] = total;
    }
    if (!same || total != self->whole.bytes) continue;
    for (int a = 0; a < self->answers.count; a++)
      for (int64_t i = first; i < ids->count; i++) {
        const size_t begin = i > first ? ends[i - first - 1] : 0;
        if (ends[i - first] > self->answers.items[a].begin && begin < self->answers.items[a].end)
          mark(ids, i, i + 1);
      }
    return true;
  }
  return false;
}

/* How many of the ids are those of the text's first bytes alone. */
static ls_status ids_before(const work *self, const ls_ids *ids, int64_t first, size_t bytes,
                            int64_t *count) {
  ls_ids alone = {0};
  const ls_status status =
      ls_tokenizer_append(self->chat->tokenizer, self->whole.text, (int64_t)bytes,
                          token_flags(self->chat->tokenizer), &alone, self->error);
  *count = first;
  for (int64_t i = 0; status == LS_OK && i < alone.count && *count < ids->count; i++, ++*count)
    if (alone.items[i] != ids->items[*count] >> 1) break;
  ls_ids_free(&alone);
  return status;
}

/* Ids with room for the mark. */
static ls_status encode_text(const work *self, ls_ids *ids) {
  const int64_t first = ids->count;
  LS_TRY(ls_tokenizer_append(self->chat->tokenizer, self->whole.text, (int64_t)self->whole.bytes,
                             token_flags(self->chat->tokenizer), ids, self->error));
  for (int64_t i = first; i < ids->count; i++) ids->items[i] *= 2;
  if (self->chat->loss_on == LS_LOSS_ON_ALL) {
    mark(ids, first, ids->count);
    return LS_OK;
  }
  if (mark_by_bytes(self, ids, first)) return LS_OK;
  for (int a = 0; a < self->answers.count; a++) {
    int64_t begin, end;
    LS_TRY(ids_before(self, ids, first, self->answers.items[a].begin, &begin));
    LS_TRY(ids_before(self, ids, first, self->answers.items[a].end, &end));
    mark(ids, begin, end);
  }
  return LS_OK;
}

static ls_status encode(work *self, ls_ids *ids) {
  LS_TRY(render(self, json_array_size(self->example.messages), false, &self->whole, self->error));
  if (self->chat->loss_on != LS_LOSS_ON_ALL) LS_TRY(find_answers(self));
  return encode_text(self, ids);
}

ls_status ls_chat_encode(const ls_chat *chat, const json_t *example, ls_ids *marked,
                         ls_error *error) {
  work self = {.chat = chat, .error = error};
  LS_TRY(ls_chat_example_read(example, &self.example, error));
  const int64_t before = marked->count;
  self.arena = ls_arena_create();
  const ls_status status = encode(&self, marked);
  if (status != LS_OK) marked->count = before;
  ls_arena_destroy(&self.arena);
  ls_chat_example_free(&self.example);
  return status;
}

bool ls_chat_has_pairs(const ls_chat *chat) {
  return chat->pairs;
}

static ls_status encode_sides(const ls_chat *chat, const ls_chat_pair *pair, ls_ids *marked,
                              int64_t *chosen, ls_error *error) {
  const int64_t before = marked->count;
  if (ls_chat_encode(chat, pair->side[0], marked, error) != LS_OK)
    return ls_error_prefix(error, "chosen");
  *chosen = marked->count - before;
  if (ls_chat_encode(chat, pair->side[1], marked, error) != LS_OK)
    return ls_error_prefix(error, "rejected");
  const int64_t rejected = marked->count - before - *chosen;
  if (*chosen == 0 || rejected == 0)
    return ls_fail(error, LS_INPUT, "%s: the template makes no tokens of it",
                   *chosen == 0 ? "chosen" : "rejected");
  if (rejected != *chosen || memcmp(marked->items + before, marked->items + before + *chosen,
                                    (size_t)*chosen * sizeof *marked->items) != 0)
    return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "found chosen and rejected with the same tokens; expected two different answers");
}

ls_status ls_chat_encode_pair(const ls_chat *chat, const json_t *example, ls_ids *marked,
                              int64_t *chosen, ls_error *error) {
  const int64_t before = marked->count;
  ls_chat_pair pair;
  LS_TRY(ls_chat_pair_read(example, &pair, error));
  const ls_status status = encode_sides(chat, &pair, marked, chosen, error);
  if (status != LS_OK) marked->count = before;
  ls_chat_pair_free(&pair);
  return status;
}

ls_status ls_chat_ask(const ls_chat *chat, const json_t *question, ls_ids *ids, ls_error *error) {
  work self = {.chat = chat, .error = error};
  LS_TRY(ls_chat_question_read(question, &self.example, error));
  self.arena = ls_arena_create();
  ls_status status =
      render(&self, json_array_size(self.example.messages), true, &self.whole, error);
  if (status == LS_OK)
    status = ls_tokenizer_append(chat->tokenizer, self.whole.text, (int64_t)self.whole.bytes,
                                 token_flags(chat->tokenizer), ids, error);
  ls_arena_destroy(&self.arena);
  ls_chat_example_free(&self.example);
  return status;
}

/* Of an answer that occurs in no template. */
static const char *find_behind(const work *self, const char *answer) {
  ls_jinja_text rendered;
  if (render(self, 2, false, &rendered, NULL) != LS_OK) return "";
  const char *begin = strstr(rendered.text, answer);
  if (!begin) return "";
  begin += strlen(answer);
  begin += strspn(begin, " \t\r\n");
  size_t bytes = strcspn(begin, "\r\n");
  while (bytes && strchr(" \t", begin[bytes - 1])) bytes--;
  return ls_arena_printf(self->arena, "%.*s", (int)bytes, begin);
}

ls_status ls_chat_find_end(ls_arena *arena, const ls_chat *chat, ls_chat_end *end,
                           ls_error *error) {
  static const char answer[] = "AnAnswerOfNoOne";
  work self = {.chat = chat, .arena = arena, .error = error};
  ls_ids ids = {0};
  self.example.messages = json_pack("[{s:s, s:s}, {s:s, s:s}]", "role", "user", "content", "a",
                                    "role", "assistant", "content", answer);
  *end = (ls_chat_end){.id = -1, .text = find_behind(&self, answer)};
  ls_chat_example_free(&self.example);
  const ls_status status =
      ls_tokenizer_append(chat->tokenizer, end->text, (int64_t)strlen(end->text),
                          token_flags(chat->tokenizer) | LS_TOKENS_CONTINUE, &ids, error);
  if (status == LS_OK && ids.count && ls_tokenizer_is_special(chat->tokenizer, ids.items[0]))
    *end = (ls_chat_end){.id = ids.items[0], .text = ""};
  ls_ids_free(&ids);
  return status;
}

const char *ls_chat_given_template(const ls_chat *chat, size_t *bytes) {
  *bytes = chat->given_bytes;
  return chat->given;
}
