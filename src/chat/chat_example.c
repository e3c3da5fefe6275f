#include "chat/chat_example.h"

#include <string.h>

#include "text/quote.h"

static bool is_text(const json_t *json, const char *key) {
  return json_is_string(json_object_get(json, key));
}

static bool is_given(const json_t *json, const char *key) {
  const json_t *value = json_object_get(json, key);
  return value && !json_is_null(value);
}

/* The answer of an instruction or a prompt. */
static const char *answer_key(const json_t *json) {
  static const char *const keys[] = {"output", "completion", "response"};
  for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
    if (is_given(json, keys[k])) return keys[k];
  return NULL;
}

bool ls_chat_example_is(const json_t *json) {
  if (!json_is_object(json)) return false;
  if (is_given(json, "messages") || is_given(json, "conversations")) return true;
  return (is_given(json, "instruction") || is_given(json, "prompt")) && answer_key(json) != NULL;
}

static ls_status append(json_t *messages, const char *role, json_t *content) {
  json_t *message = json_object();
  json_object_set_new(message, "role", json_string(role));
  json_object_set(message, "content", content);
  json_array_append_new(messages, message);
  return LS_OK;
}

static ls_status fail_kind(const char *what, size_t index, const char *expected, ls_error *error) {
  return ls_fail(error, LS_INPUT, "\"%s\"[%zu]: expected %s", what, index, expected);
}

/* One text behind another; either may hold a NUL. */
static json_t *joined(const json_t *first, const char *between, const json_t *second) {
  return json_pack("s%++%", json_string_value(first), json_string_length(first), between,
                   json_string_value(second), json_string_length(second));
}

/* [{"type": "text", "value": "..."}] as the text that it is; NULL: it is something else. */
static json_t *joined_parts(const json_t *content) {
  size_t p;
  const json_t *part;
  if (!json_is_array(content) || json_array_size(content) == 0) return NULL;
  json_array_foreach(content, p, part) if (!is_text(part, "value")) return NULL;
  json_t *text = json_string("");
  json_array_foreach(content, p, part) {
    json_t *more = joined(text, "", json_object_get(part, "value"));
    json_decref(text);
    text = more;
  }
  return text;
}

static ls_status read_messages(const char *key, const json_t *list, json_t *messages,
                               ls_error *error) {
  size_t m;
  json_t *each;
  if (!json_is_array(list))
    return ls_fail(error, LS_INPUT, "\"%s\": expected a list of messages", key);
  json_array_foreach(list, m, each) {
    if (!json_is_object(each) || !is_text(each, "role"))
      return fail_kind(key, m, "an object with a \"role\" and a \"content\"", error);
    json_t *message = json_copy(each), *text = joined_parts(json_object_get(each, "content"));
    if (text) json_object_set_new(message, "content", text);
    json_array_append_new(messages, message);
  }
  return LS_OK;
}

/* Names of roles in ShareGPT's form. */
static const char *role_of(const char *from) {
  static const char *const roles[][2] = {{"human", "user"},
                                         {"user", "user"},
                                         {"gpt", "assistant"},
                                         {"model", "assistant"},
                                         {"chatgpt", "assistant"},
                                         {"bot", "assistant"},
                                         {"bing", "assistant"},
                                         {"bard", "assistant"},
                                         {"assistant", "assistant"},
                                         {"system", "system"},
                                         {"observation", "tool"},
                                         {"tool", "tool"},
                                         {"function_call", "assistant"}};
  for (size_t r = 0; r < sizeof roles / sizeof *roles; r++)
    if (strcmp(roles[r][0], from) == 0) return roles[r][1];
  return NULL;
}

static const char *const weights[] = {"loss_weight", "weight"};

/* What a turn counts in the loss, for the message that it became. */
static void keep_weights(const json_t *turn, const json_t *messages) {
  json_t *message = json_array_get(messages, json_array_size(messages) - 1);
  for (int w = 0; w < 2; w++)
    if (is_given(turn, weights[w]))
      json_object_set(message, weights[w], json_object_get(turn, weights[w]));
}

/* {"name": ..., "arguments": ...} in a text: the call of a function. */
static ls_status append_call(json_t *messages, size_t index, const json_t *value, ls_error *error) {
  json_t *call =
      json_loadb(json_string_value(value), json_string_length(value), JSON_ALLOW_NUL, NULL);
  if (!json_is_object(call) || !is_text(call, "name")) {
    json_decref(call);
    return fail_kind("conversations", index,
                     "a function_call whose value is JSON with \"name\" and \"arguments\"", error);
  }
  json_array_append_new(messages,
                        json_pack("{s:s, s:s, s:[{s:s, s:o}]}", "role", "assistant", "content", "",
                                  "tool_calls", "type", "function", "function", call));
  return LS_OK;
}

static ls_status read_conversations(const json_t *list, json_t *messages, ls_error *error) {
  size_t m;
  json_t *each;
  if (!json_is_array(list))
    return ls_fail(error, LS_INPUT, "\"conversations\": expected a list of turns");
  if (json_is_object(json_array_get(list, 0)) && is_text(json_array_get(list, 0), "role"))
    return read_messages("conversations", list, messages, error);
  json_array_foreach(list, m, each) {
    char shown[LS_QUOTE_BYTES];
    json_t *value = json_object_get(each, "value");
    const char *from = json_string_value(json_object_get(each, "from"));
    if (!from || !json_is_string(value))
      return fail_kind("conversations", m, "an object with strings \"from\" and \"value\"", error);
    const char *role = role_of(from);
    if (!role)
      return ls_fail(error, LS_INPUT,
                     "\"conversations\"[%zu]: found a turn from \"%s\"; expected human, gpt, "
                     "system, function_call or observation",
                     m, ls_quote(shown, from, strlen(from)));
    LS_TRY(strcmp(from, "function_call") == 0 ? append_call(messages, m, value, error)
                                              : append(messages, role, value));
    keep_weights(each, messages);
  }
  return LS_OK;
}

/* Earlier turns as pairs: [["question", "answer"], ...]. */
static ls_status read_history(const json_t *history, json_t *messages, ls_error *error) {
  size_t m;
  json_t *pair;
  if (!history || json_is_null(history)) return LS_OK;
  if (!json_is_array(history))
    return ls_fail(error, LS_INPUT, "\"history\": expected a list of pairs");
  json_array_foreach(history, m, pair) {
    json_t *asked = json_array_get(pair, 0), *said = json_array_get(pair, 1);
    if (json_array_size(pair) != 2 || !json_is_string(asked) || !json_is_string(said))
      return fail_kind("history", m, "a question and its answer, two strings", error);
    LS_TRY(append(messages, "user", asked));
    LS_TRY(append(messages, "assistant", said));
  }
  return LS_OK;
}

/* An instruction, with what it is about behind it. */
static ls_status read_instruction(const json_t *json, json_t *messages, ls_error *error) {
  const char *key = answer_key(json);
  const json_t *input = json_object_get(json, "input");
  json_t *instruction = json_object_get(json, "instruction"), *output = json_object_get(json, key);
  if (!json_is_string(instruction) || !json_is_string(output) ||
      (input && !json_is_null(input) && !json_is_string(input)))
    return ls_fail(error, LS_INPUT, "expected strings under \"instruction\", \"input\" and \"%s\"",
                   key);
  LS_TRY(read_history(json_object_get(json, "history"), messages, error));
  if (json_string_length(input) == 0) {
    LS_TRY(append(messages, "user", instruction));
  } else {
    json_t *both = joined(instruction, "\n", input);
    LS_TRY(append(messages, "user", both));
    json_decref(both);
  }
  return append(messages, "assistant", output);
}

/* Two texts, or two lists of messages, of which those of the prompt are given. */
static ls_status read_prompt(const json_t *json, ls_chat_example *example, ls_error *error) {
  const char *key = answer_key(json);
  json_t *prompt = json_object_get(json, "prompt"), *answer = json_object_get(json, key);
  if (json_is_array(prompt) && json_is_array(answer)) {
    LS_TRY(read_messages("prompt", prompt, example->messages, error));
    example->given = (int)json_array_size(example->messages);
    return read_messages(key, answer, example->messages, error);
  }
  if (!json_is_string(prompt) || !json_is_string(answer))
    return ls_fail(error, LS_INPUT,
                   "expected two strings, or two lists of messages, under \"prompt\" and \"%s\"",
                   key);
  LS_TRY(append(example->messages, "user", prompt));
  return append(example->messages, "assistant", answer);
}

/* A list, or a text with one. */
static ls_status read_tools(const json_t *json, ls_chat_example *example, ls_error *error) {
  json_t *tools = json_object_get(json, "tools");
  if (!tools || json_is_null(tools)) return LS_OK;
  if (json_is_string(tools) && json_string_length(tools) == 0) return LS_OK;
  tools = json_is_string(tools)
              ? json_loadb(json_string_value(tools), json_string_length(tools), 0, NULL)
              : json_incref(tools);
  const bool list = json_is_array(tools), some = json_array_size(tools) > 0;
  if (list && some) example->tools = tools;
  if (!list || !some) json_decref(tools);
  return list ? LS_OK
              : ls_fail(error, LS_INPUT, "\"tools\": expected a list of functions, or JSON of one");
}

static ls_status read_system(const json_t *json, ls_chat_example *example, ls_error *error) {
  json_t *system = json_object_get(json, "system");
  if (!is_given(json, "system")) return LS_OK;
  if (!json_is_string(system)) return ls_fail(error, LS_INPUT, "\"system\": expected a text");
  return json_string_length(system) > 0 ? append(example->messages, "system", system) : LS_OK;
}

/* Further variables of the template. */
static ls_status read_more(const json_t *json, ls_chat_example *example, ls_error *error) {
  static const char *const own[] = {"messages", "tools", "documents", "add_generation_prompt"};
  if (!is_given(json, "chat_template_kwargs")) return LS_OK;
  example->more = json_object_get(json, "chat_template_kwargs");
  if (!json_is_object(example->more))
    return ls_fail(error, LS_INPUT, "\"chat_template_kwargs\": expected an object");
  for (size_t o = 0; o < sizeof own / sizeof *own; o++)
    if (json_object_get(example->more, own[o]))
      return ls_fail(error, LS_INPUT,
                     "\"chat_template_kwargs\": found %s, which the chat itself says; expected "
                     "further variables of the template",
                     own[o]);
  return LS_OK;
}

static ls_status read_form(const json_t *json, ls_chat_example *example, ls_error *error) {
  LS_TRY(read_system(json, example, error));
  LS_TRY(read_tools(json, example, error));
  LS_TRY(read_more(json, example, error));
  if (is_given(json, "messages"))
    return read_messages("messages", json_object_get(json, "messages"), example->messages, error);
  if (is_given(json, "conversations"))
    return read_conversations(json_object_get(json, "conversations"), example->messages, error);
  if (is_given(json, "instruction")) return read_instruction(json, example->messages, error);
  return read_prompt(json, example, error);
}

/* An answer is trained or is not. */
static ls_status check_weights(const json_t *messages, ls_error *error) {
  size_t m;
  json_t *each;
  json_array_foreach(messages, m, each) for (int w = 0; w < 2; w++) {
    const json_t *weight = json_object_get(each, weights[w]);
    const double number = json_number_value(weight);
    if (!is_given(each, weights[w]) || (json_is_number(weight) && (number == 0 || number == 1)))
      continue;
    return ls_fail(error, LS_INPUT, "message %zu: \"%s\": expected 0 (not trained) or 1", m,
                   weights[w]);
  }
  return LS_OK;
}

ls_status ls_chat_example_read(const json_t *json, ls_chat_example *example, ls_error *error) {
  *example = (ls_chat_example){0};
  if (!ls_chat_example_is(json))
    return ls_fail(error, LS_INPUT,
                   "found no chat; expected an object with \"messages\", \"conversations\", "
                   "\"instruction\" and \"output\", or \"prompt\" and \"completion\"");
  example->messages = json_array();
  ls_status status = read_form(json, example, error);
  if (status == LS_OK && json_array_size(example->messages) == 0)
    status = ls_fail(error, LS_INPUT, "found a chat without messages; expected some");
  if (status == LS_OK) status = check_weights(example->messages, error);
  if (status != LS_OK) ls_chat_example_free(example);
  return status;
}

/* A prompt as messages, beside what the object has besides. */
static json_t *with_messages(const json_t *json) {
  json_t *copy = json_copy((json_t *)json), *prompt = json_object_get(json, "prompt");
  if (is_given(json, "messages") || is_given(json, "conversations")) return copy;
  if (json_is_string(prompt))
    json_object_set_new(copy, "messages",
                        json_pack("[{s:s, s:O}]", "role", "user", "content", prompt));
  if (json_is_array(prompt)) json_object_set(copy, "messages", prompt);
  return copy;
}

ls_status ls_chat_question_read(const json_t *json, ls_chat_example *question, ls_error *error) {
  *question = (ls_chat_example){0};
  json_t *copy = with_messages(json);
  ls_status status = LS_OK;
  if (is_given(copy, "messages") || is_given(copy, "conversations"))
    status = ls_chat_example_read(copy, question, error);
  else
    status = ls_fail(error, LS_INPUT,
                     "found no question; expected an object with \"messages\" or \"prompt\"");
  json_decref(copy);
  if (status != LS_OK) return status;
  const json_t *last = json_array_get(question->messages, json_array_size(question->messages) - 1);
  const char *role = json_string_value(json_object_get(last, "role"));
  if (strcmp(role, "assistant") != 0 && strcmp(role, "model") != 0) return LS_OK;
  ls_chat_example_free(question);
  return ls_fail(error, LS_INPUT,
                 "found a chat that ends with an answer; expected one that ends with what is to be "
                 "answered");
}

void ls_chat_example_free(ls_chat_example *example) {
  json_decref(example->messages);
  json_decref(example->tools);
  *example = (ls_chat_example){0};
}

bool ls_chat_example_speaks(const ls_chat_example *example, size_t message) {
  const json_t *each = json_array_get(example->messages, message);
  const char *role = json_string_value(json_object_get(each, "role"));
  if (message < (size_t)example->given || !role) return false;
  return strcmp(role, "assistant") == 0 || strcmp(role, "model") == 0;
}

bool ls_chat_example_answers(const ls_chat_example *example, size_t message) {
  const json_t *each = json_array_get(example->messages, message);
  for (int w = 0; w < 2; w++) {
    const json_t *weight = json_object_get(each, weights[w]);
    if (json_is_number(weight) && json_number_value(weight) == 0) return false;
  }
  return ls_chat_example_speaks(example, message);
}
