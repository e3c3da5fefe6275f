#include "chat/chat_pair.h"

#include <string.h>

static const char *const names[2] = {"chosen", "rejected"};
static const char *const other_names[2] = {"chosen_messages", "rejected_messages"};

static json_t *answer_of(const json_t *json, int side) {
  json_t *answer = json_object_get(json, names[side]);
  return answer ? answer : json_object_get(json, other_names[side]);
}

bool ls_chat_pair_is(const json_t *json) {
  return json_is_object(json) && answer_of(json, 0) && answer_of(json, 1);
}

static json_t *one_message(const char *role, const json_t *text) {
  return json_pack("[{s:s, s:O}]", "role", role, "content", text);
}

static bool is_blank(const json_t *text) {
  const char *at = json_string_value(text);
  return at && at[strspn(at, " \t\r\n")] == 0;
}

/* An answer as messages. */
static ls_status read_answer(const json_t *json, int side, json_t **messages, ls_error *error) {
  json_t *answer = answer_of(json, side);
  const json_t *last = json_array_get(answer, json_array_size(answer) - 1);
  if (!answer)
    return ls_fail(error, LS_INPUT,
                   "found no \"%s\"; expected an object with \"prompt\", \"chosen\" and "
                   "\"rejected\"",
                   names[side]);
  if (!json_is_string(answer) && json_array_size(answer) == 0)
    return ls_fail(error, LS_INPUT, "\"%s\": expected a text, or a list of messages", names[side]);
  if (json_is_array(answer) && !json_is_object(last))
    return ls_fail(error, LS_INPUT, "\"%s\": expected a list of messages", names[side]);
  if (is_blank(answer) || is_blank(json_object_get(last, "content")))
    return ls_fail(error, LS_INPUT, "\"%s\": found an empty answer; expected a text", names[side]);
  *messages = json_is_string(answer) ? one_message("assistant", answer) : json_incref(answer);
  return LS_OK;
}

/* How many messages both begin with; each keeps its last as an answer. */
static size_t shared(const json_t *a, const json_t *b) {
  const size_t most =
      json_array_size(a) < json_array_size(b) ? json_array_size(a) : json_array_size(b);
  size_t count = 0;
  while (count + 1 < most && json_equal(json_array_get(a, count), json_array_get(b, count)))
    count++;
  return count;
}

static json_t *slice(const json_t *list, size_t first, size_t end) {
  json_t *made = json_array();
  for (size_t m = first; m < end; m++) json_array_append(made, json_array_get(list, m));
  return made;
}

static bool is_assistant(const json_t *message) {
  const char *role = json_string_value(json_object_get(message, "role"));
  return role && strcmp(role, "assistant") == 0;
}

/* A text beside lists that begin with a question alike says again what they say (TRL takes it from
 * them, too). */
static bool says_again(const json_t *given, json_t *answers[2]) {
  return json_is_string(given) && shared(answers[0], answers[1]) > 0 &&
         !is_assistant(json_array_get(answers[0], 0));
}

static ls_status take_given(json_t *given, json_t *answers[2], json_t **prompt, ls_error *error) {
  if (!json_is_string(given) && !json_is_array(given))
    return ls_fail(error, LS_INPUT, "\"prompt\": expected a text, or a list of messages");
  for (int s = 0; s < 2; s++)
    if (json_array_size(given) && json_array_size(answers[s]) > 1 &&
        json_equal(json_array_get(given, 0), json_array_get(answers[s], 0)))
      return ls_fail(error, LS_INPUT,
                     "\"%s\": begins with the prompt again; expected the answer alone", names[s]);
  *prompt = json_is_string(given) ? one_message("user", given) : json_incref(given);
  return LS_OK;
}

/* What is asked, as messages: given, or what the two answers begin with alike. */
static ls_status read_prompt(const json_t *json, json_t *answers[2], json_t **prompt,
                             ls_error *error) {
  json_t *given = json_object_get(json, "prompt");
  if (given && !json_is_null(given) && !says_again(given, answers))
    return take_given(given, answers, prompt, error);
  if (json_is_string(answer_of(json, 0)) || json_is_string(answer_of(json, 1)))
    return ls_fail(error, LS_INPUT,
                   "found \"chosen\" and \"rejected\" without a \"prompt\"; expected it, or "
                   "lists of messages that begin with it");
  const size_t count = shared(answers[0], answers[1]);
  if (count == 0)
    return ls_fail(error, LS_INPUT,
                   "found \"chosen\" and \"rejected\" that begin with no message alike; expected "
                   "the question first in both, or under \"prompt\"");
  *prompt = slice(answers[0], 0, count);
  for (int s = 0; s < 2; s++) {
    json_t *rest = slice(answers[s], count, json_array_size(answers[s]));
    json_decref(answers[s]);
    answers[s] = rest;
  }
  return LS_OK;
}

/* The object with one answer in place of two. */
static json_t *with_answer(const json_t *json, json_t *prompt, json_t *answer) {
  json_t *made = json_copy((json_t *)json);
  for (int s = 0; s < 2; s++) {
    json_object_del(made, names[s]);
    json_object_del(made, other_names[s]);
  }
  json_object_del(made, "messages"); /* forms of an example that come before a prompt */
  json_object_del(made, "conversations");
  json_object_del(made, "instruction");
  json_object_set(made, "prompt", prompt);
  json_object_set(made, "completion", answer);
  json_object_del(made, "output");
  return made;
}

ls_status ls_chat_pair_read(const json_t *json, ls_chat_pair *pair, ls_error *error) {
  json_t *answers[2] = {NULL, NULL}, *prompt = NULL;
  ls_status status = LS_OK;
  *pair = (ls_chat_pair){0};
  for (int s = 0; s < 2 && status == LS_OK; s++) status = read_answer(json, s, &answers[s], error);
  if (status == LS_OK && json_equal(answers[0], answers[1]))
    status = ls_fail(error, LS_INPUT,
                     "found equal \"chosen\" and \"rejected\"; expected two different answers");
  if (status == LS_OK) status = read_prompt(json, answers, &prompt, error);
  for (int s = 0; s < 2 && status == LS_OK; s++)
    pair->side[s] = with_answer(json, prompt, answers[s]);
  for (int s = 0; s < 2; s++) json_decref(answers[s]);
  json_decref(prompt);
  return status;
}

void ls_chat_pair_free(ls_chat_pair *pair) {
  for (int s = 0; s < 2; s++) json_decref(pair->side[s]);
  *pair = (ls_chat_pair){0};
}
