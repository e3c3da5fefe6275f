/* Chats to marked ids: every form of an example, and what of it is trained. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "chat/chat.h"
#include "chat/chat_example.h"
#include "support/test_folder.h"

static ls_error error;
static const char chatml[] =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";
static const char marked[] =
    "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}"
    "{{ m.content }}</>\n{% endgeneration %}{% else %}{{ m.content }}</>\n{% endif %}{% endfor %}";

static ls_chat *open_chat(const ls_tokenizer *tokenizer, const char *template, ls_loss_on loss_on) {
  char path[512];
  snprintf(path, sizeof path, "%s/t.jinja", folder);
  ls_chat *chat;
  assert_int_equal(ls_file_write(path, template, strlen(template), &error), LS_OK);
  const ls_chat_options options = {.tokenizer = tokenizer, .template = path, .loss_on = loss_on};
  if (ls_chat_open(&options, &chat, &error) != LS_OK) fail_msg("%s", error.text);
  return chat;
}

/* The text of an example with its trained bytes in brackets; of bytes as ids. */
static void show(const ls_chat *chat, const char *example, char shown[1024]) {
  json_t *json = json_loads(example, 0, NULL);
  ls_ids ids = {0};
  if (ls_chat_encode(chat, json, &ids, &error) != LS_OK) fail_msg("%s: %s", example, error.text);
  bool open = false;
  for (int64_t i = 0; i < ids.count; i++) {
    const bool trained = ls_chat_is_trained(ids.items[i]);
    if (trained != open) *shown++ = trained ? '[' : ']';
    open = trained;
    *shown++ = (char)ls_chat_id(ids.items[i]);
  }
  if (open) *shown++ = ']';
  *shown = 0;
  ls_ids_free(&ids);
  json_decref(json);
}

static void assert_shown(const char *template, ls_loss_on loss_on, const char *example,
                         const char *expected) {
  char shown[1024];
  ls_chat *chat = open_chat(ls_tokenizer_bytes(), template, loss_on);
  show(chat, example, shown);
  ls_chat_close(&chat);
  assert_string_equal(shown, expected);
}

static void assert_refused(const char *template, ls_loss_on loss_on, const char *example,
                           const char *words) {
  ls_ids ids = {0};
  ls_chat *chat = open_chat(ls_tokenizer_bytes(), template, loss_on);
  json_t *json = json_loads(example, JSON_DECODE_ANY, NULL);
  assert_int_equal(ls_chat_encode(chat, json, &ids, &error), LS_INPUT);
  if (!strstr(error.text, words)) fail_msg("%s", error.text);
  assert_int_equal(ids.count, 0);
  ls_ids_free(&ids);
  json_decref(json);
  ls_chat_close(&chat);
}

#define TURNS                                                                      \
  "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": "          \
  "\"assistant\", \"content\": \"b\"}, {\"role\": \"user\", \"content\": \"c\"}, " \
  "{\"role\": \"assistant\", \"content\": \"d\"}]}"

static void answers_alone_are_trained(void **state) {
  (void)state;
  static const char all[] = "[<user>a</>\n<assistant>b</>\n<user>c</>\n<assistant>d</>\n]";
  static const char both[] = "<user>a</>\n<assistant>[b</>\n]<user>c</>\n<assistant>[d</>\n]";
  static const char last[] = "<user>a</>\n<assistant>b</>\n<user>c</>\n<assistant>[d</>\n]";
  for (int t = 0; t < 2; t++) {
    assert_shown(t ? marked : chatml, LS_LOSS_ON_ANSWERS, TURNS, both);
    assert_shown(t ? marked : chatml, LS_LOSS_ON_LAST, TURNS, last);
    assert_shown(t ? marked : chatml, LS_LOSS_ON_ALL, TURNS, all);
  }
  assert_shown(chatml, LS_LOSS_ON_ANSWERS,
               "{\"messages\": [{\"role\": \"assistant\", \"content\": \"b\", \"weight\": 0}, "
               "{\"role\": \"assistant\", \"content\": \"d\"}]}",
               "<assistant>b</>\n<assistant>[d</>\n]");
  /* What asks for an answer is not of the first either. */
  assert_shown(chatml, LS_LOSS_ON_ANSWERS,
               "{\"messages\": [{\"role\": \"assistant\", \"content\": \"b\"}]}",
               "<assistant>[b</>\n]");
}

/* Gemma's word for the assistant. */
static void a_models_messages_are_answers(void **state) {
  (void)state;
  static const char turns[] =
      "{\"messages\": [{\"role\": \"model\", \"content\": \"a\"}, {\"role\": \"user\", "
      "\"content\": \"b\"}, {\"role\": \"model\", \"content\": \"c\"}]}";
  static const char blocks[] =
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'model' %}{% generation %}"
      "{{ m.content }}</>\n{% endgeneration %}{% else %}{{ m.content }}</>\n{% endif %}{% endfor "
      "%}";
  assert_shown(blocks, LS_LOSS_ON_ANSWERS, turns, "<model>[a</>\n]<user>b</>\n<model>[c</>\n]");
  assert_shown(blocks, LS_LOSS_ON_LAST, turns, "<model>a</>\n<user>b</>\n<model>[c</>\n]");
}

static void forms_are_read(void **state) {
  (void)state;
  static const char *const forms[][2] = {
      {"{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": \"gpt\", "
       "\"value\": \"b\"}], \"system\": \"s\"}",
       "<system>s</>\n<user>a</>\n<assistant>[b</>\n]"},
      {"{\"instruction\": \"a\", \"input\": \"i\", \"output\": \"b\", \"history\": [[\"h\", "
       "\"j\"]]}",
       "<user>h</>\n<assistant>[j</>\n]<user>a\ni</>\n<assistant>[b</>\n]"},
      {"{\"instruction\": \"a\", \"input\": \"\", \"output\": \"b\"}",
       "<user>a</>\n<assistant>[b</>\n]"},
      {"{\"prompt\": \"a\", \"completion\": \"b\"}", "<user>a</>\n<assistant>[b</>\n]"},
      {"{\"prompt\": \"a\", \"response\": \"b\"}", "<user>a</>\n<assistant>[b</>\n]"},
      {"{\"prompt\": [{\"role\": \"assistant\", \"content\": \"a\"}], \"completion\": [{\"role\": "
       "\"assistant\", \"content\": \"b\"}]}",
       "<assistant>a</>\n<assistant>[b</>\n]"},
      {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"value\": "
       "\"a\"}]}, "
       "{\"role\": \"assistant\", \"content\": \"b\"}], \"tools\": \"[]\"}",
       "<user>a</>\n<assistant>[b</>\n]"},
      /* A table has all keys, and null for those that an example is without. */
      {"{\"prompt\": \"a\", \"completion\": \"b\", \"system\": null, \"tools\": null, "
       "\"chat_template_kwargs\": null, \"messages\": null}",
       "<user>a</>\n<assistant>[b</>\n]"},
      {"{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": \"gpt\", "
       "\"value\": \"b\", \"weight\": 0}, {\"from\": \"gpt\", \"value\": \"c\"}]}",
       "<user>a</>\n<assistant>b</>\n<assistant>[c</>\n]"},
  };
  for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
    json_t *json = json_loads(forms[f][0], 0, NULL);
    assert_true(ls_chat_example_is(json));
    json_decref(json);
    assert_shown(chatml, LS_LOSS_ON_ANSWERS, forms[f][0], forms[f][1]);
  }
  assert_shown(
      "{{ tools[0].name }}{{ mode }}:{% for m in messages %}{{ m.content }}{% for c in "
      "m.tool_calls %}{{ c.function.arguments.x }}{% endfor %};{% endfor %}",
      LS_LOSS_ON_ANSWERS,
      "{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": "
      "\"function_call\", \"value\": \"{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": "
      "{\\\"x\\\": 7}}\"}], \"tools\": \"[{\\\"name\\\": \\\"f\\\"}]\", "
      "\"chat_template_kwargs\": {\"mode\": \"M\"}}",
      "fM:a;[7;]");
}

static void what_is_no_chat_is_refused(void **state) {
  (void)state;
  static const char *const wrong[][2] = {
      {"{\"text\": \"a\"}", "found no chat; expected an object with \"messages\""},
      {"[1]", "found no chat"},
      {"{\"messages\": []}", "without messages"},
      {"{\"messages\": 3}", "\"messages\": expected a list of messages"},
      {"{\"messages\": [{\"content\": \"x\"}]}", "\"messages\"[0]: expected an object with a"},
      {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", "a chat without an answer"},
      {"{\"conversations\": [{\"from\": \"wizard\", \"value\": \"a\"}]}", "a turn from \"wizard\""},
      {"{\"instruction\": 1, \"output\": \"b\"}", "expected strings under \"instruction\""},
      {"{\"prompt\": \"a\", \"completion\": [1]}", "expected two strings, or two lists"},
      {"{\"prompt\": \"a\", \"completion\": \"b\", \"tools\": {}}", "\"tools\": expected a list"},
      {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"weight\": 0}]}",
       "found a chat of whose answers none is trained; expected a weight of 1"},
      {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"weight\": 0.5}]}",
       "message 0: \"weight\": expected 0 (not trained) or 1"},
      {"{\"prompt\": \"a\", \"completion\": \"b\", \"system\": [\"s\"]}",
       "\"system\": expected a text"},
      {"{\"instruction\": \"a\", \"output\": \"b\", \"history\": [[\"q\", \"r\", \"s\"]]}",
       "\"history\"[0]: expected a question and its answer"},
      {"{\"prompt\": \"a\", \"completion\": \"b\", \"chat_template_kwargs\": "
       "{\"add_generation_prompt\": true}}",
       "\"chat_template_kwargs\": found add_generation_prompt, which the chat itself says"},
  };
  for (size_t w = 0; w < sizeof wrong / sizeof *wrong; w++)
    assert_refused(chatml, LS_LOSS_ON_ANSWERS, wrong[w][0], wrong[w][1]);
  assert_refused("{{ raise_exception('Only users: ' ~ messages[0].role) }}", LS_LOSS_ON_ANSWERS,
                 TURNS, "the template refuses the chat: Only users: user");
  assert_refused("{% generation %}{{ messages[1].content }}{% endgeneration %}", LS_LOSS_ON_ANSWERS,
                 TURNS, "message 3: the template has no {% generation %} block of it");
  /* A template that drops what was said before the last turn. */
  assert_refused("{{ messages[-1].content }}", LS_LOSS_ON_ANSWERS, TURNS,
                 "cannot be told, since the template renders it otherwise when more follows");
  ls_chat *chat;
  const ls_chat_options options = {.tokenizer = ls_tokenizer_bytes()};
  assert_int_equal(ls_chat_open(&options, &chat, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "has no chat template; expected chat_template.jinja"));
}

/* What stands behind a NUL is no less a part of a text. */
static void texts_may_hold_a_nul(void **state) {
  (void)state;
  static const char said[] = "<user>a\0b\ni</>\n<assistant>c</>\n";
  ls_ids ids = {0};
  ls_chat *chat = open_chat(ls_tokenizer_bytes(), chatml, LS_LOSS_ON_ANSWERS);
  json_t *json = json_loads("{\"instruction\": \"a\\u0000b\", \"input\": \"i\", \"output\": \"c\"}",
                            JSON_ALLOW_NUL, NULL);
  assert_int_equal(ls_chat_encode(chat, json, &ids, &error), LS_OK);
  assert_int_equal(ids.count, sizeof said - 1);
  for (int64_t i = 0; i < ids.count; i++) assert_int_equal(ls_chat_id(ids.items[i]), said[i]);
  ls_ids_free(&ids);
  json_decref(json);
  ls_chat_close(&chat);
}

/* Rendering up to an answer and the template's own blocks mark the same ids of a tokenizer that
 * merges, whether its ids are the text's bytes or not. */
static void tokenizers_agree_on_boundaries(void **state) {
  (void)state;
  static const char *const names[] = {"bytes-nfc-split", "bytes-falcon", "metaspace-first",
                                      "characters-byte-fallback"};
  json_t *json = json_loads(
      "{\"messages\": [{\"role\": \"user\", \"content\": \"What is it?\"}, {\"role\": "
      "\"assistant\", \"content\": \"Hello world, don't ask\"}, {\"role\": \"user\", \"content\": "
      "\"why\"}, {\"role\": \"assistant\", \"content\": \"Because.\"}]}",
      0, NULL);
  for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
    char path[256];
    const ls_tokenizer *tokenizer;
    snprintf(path, sizeof path, "tests/data/tokenizers/%s", names[n]);
    if (ls_tokenizer_open(path, NULL, &tokenizer, &error) != LS_OK) fail_msg("%s", error.text);
    ls_ids ids[2] = {{0}, {0}};
    int64_t trained = 0;
    uint64_t prints[2];
    for (int t = 0; t < 2; t++) {
      ls_chat *chat = open_chat(tokenizer, t ? marked : chatml, LS_LOSS_ON_ANSWERS);
      assert_int_equal(ls_chat_encode(chat, json, &ids[t], &error), LS_OK);
      prints[t] = ls_chat_fingerprint(chat);
      ls_chat_close(&chat);
    }
    assert_true(prints[0] != prints[1]);
    assert_int_equal(ids[0].count, ids[1].count);
    assert_memory_equal(ids[0].items, ids[1].items, (size_t)ids[0].count * sizeof(int32_t));
    for (int64_t i = 0; i < ids[0].count; i++) trained += ls_chat_is_trained(ids[0].items[i]);
    if (trained < 4 || trained > ids[0].count - 8)
      fail_msg("%s: %lld of %lld", names[n], (long long)trained, (long long)ids[0].count);
    for (int t = 0; t < 2; t++) ls_ids_free(&ids[t]);
    ls_tokenizer_close(&tokenizer);
  }
  json_decref(json);
}

static void assert_asked(const ls_chat *chat, const char *question, const char *expected) {
  json_t *json = json_loads(question, 0, NULL);
  ls_ids ids = {0};
  if (ls_chat_ask(chat, json, &ids, &error) != LS_OK) fail_msg("%s: %s", question, error.text);
  assert_int_equal(ids.count, strlen(expected)); /* an id a byte */
  for (int64_t i = 0; i < ids.count; i++) assert_int_equal(ids.items[i], expected[i]);
  ls_ids_free(&ids);
  json_decref(json);
}

static void a_question_ends_where_the_answer_begins(void **state) {
  (void)state;
  static const char *const wrong[][2] = {
      {TURNS, "a chat that ends with an answer"},
      {"{\"text\": \"a\"}", "found no question; expected an object with \"messages\""},
      {"[]", "found no question"},
      {"{\"messages\": []}", "without messages"},
      {"{\"prompt\": [{\"content\": \"a\"}]}", "\"messages\"[0]: expected an object with a"},
  };
  ls_chat *chat = open_chat(ls_tokenizer_bytes(), chatml, LS_LOSS_ON_ANSWERS);
  assert_asked(chat, "{\"prompt\": \"Hi\"}", "<user>Hi</>\n<assistant>");
  assert_asked(chat, "{\"prompt\": \"Hi\", \"system\": \"s\", \"completion\": \"Ho\"}",
               "<system>s</>\n<user>Hi</>\n<assistant>");
  assert_asked(chat, "{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}]}",
               "<user>a</>\n<assistant>");
  for (size_t w = 0; w < sizeof wrong / sizeof *wrong; w++) {
    json_t *json = json_loads(wrong[w][0], 0, NULL);
    ls_ids ids = {0};
    assert_int_equal(ls_chat_ask(chat, json, &ids, &error), LS_INPUT);
    if (!strstr(error.text, wrong[w][1])) fail_msg("%s: %s", wrong[w][0], error.text);
    assert_int_equal(ids.count, 0);
    json_decref(json);
  }
  ls_chat_close(&chat);
}

static ls_chat_end end_of(const ls_tokenizer *tokenizer, const char *template) {
  ls_chat_end end;
  ls_chat *chat = open_chat(tokenizer, template, LS_LOSS_ON_ANSWERS);
  assert_int_equal(ls_chat_find_end(arena, chat, &end, &error), LS_OK);
  ls_chat_close(&chat);
  return end;
}

/* A special token, or a text of a line, or what there is none of. */
static void what_ends_an_answer_is_found(void **state) {
  (void)state;
  const ls_tokenizer *tokenizer;
  static const char special[] =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }} <|end|>\n{% endfor %}";
  if (ls_tokenizer_open("tests/data/tokenizers/bytes-falcon", NULL, &tokenizer, &error) != LS_OK)
    fail_msg("%s", error.text);
  assert_int_equal(end_of(tokenizer, special).id, 330);
  assert_string_equal(end_of(tokenizer, special).text, "");
  ls_tokenizer_close(&tokenizer);
  const ls_tokenizer *bytes = ls_tokenizer_bytes();
  assert_int_equal(end_of(bytes, special).id, -1);
  assert_string_equal(end_of(bytes, special).text, "<|end|>");
  assert_string_equal(end_of(bytes, chatml).text, "</>");
  assert_string_equal(end_of(bytes, "{{ messages[1].content }}\n").text, "");
  assert_string_equal(end_of(bytes, "{{ messages[0].content }}</>").text, "");
  assert_string_equal(end_of(bytes, "{{ raise_exception('never') }}").text, "");
}

static void a_given_template_is_kept(void **state) {
  (void)state;
  size_t length;
  ls_chat *chat = open_chat(ls_tokenizer_bytes(), chatml, LS_LOSS_ON_ANSWERS);
  const char *given = ls_chat_given_template(chat, &length);
  assert_int_equal(length, strlen(chatml));
  assert_memory_equal(given, chatml, length);
  ls_chat_close(&chat);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(answers_alone_are_trained),
      cmocka_unit_test(a_models_messages_are_answers),
      cmocka_unit_test(forms_are_read),
      cmocka_unit_test(what_is_no_chat_is_refused),
      cmocka_unit_test(texts_may_hold_a_nul),
      cmocka_unit_test(tokenizers_agree_on_boundaries),
      cmocka_unit_test(a_question_ends_where_the_answer_begins),
      cmocka_unit_test(what_ends_an_answer_is_found),
      cmocka_unit_test(a_given_template_is_kept),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
