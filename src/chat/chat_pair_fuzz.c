/* Fuzz target of pairs of answers: the input is JSON. What is accepted are two examples of chats
 * that are not equal; what is not is refused in one line. */
#include <stdint.h>
#include <string.h>

#include "base/arena.h"
#include "chat/chat_example.h"
#include "chat/chat_pair.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  json_t *json = json_loadb((const char *)data, bytes, JSON_ALLOW_NUL, NULL);
  ls_error error = {0};
  ls_chat_pair pair;
  const ls_status status = ls_chat_pair_read(json, &pair, &error);
  if (status == LS_OK) {
    LS_ASSERT(ls_chat_pair_is(json) && !json_equal(pair.side[0], pair.side[1]));
    for (int s = 0; s < 2; s++) {
      ls_chat_example example;
      LS_ASSERT(ls_chat_example_is(pair.side[s]));
      if (ls_chat_example_read(pair.side[s], &example, &error) != LS_OK) continue;
      LS_ASSERT(json_array_size(example.messages) > 0);
      ls_chat_example_free(&example);
    }
    ls_chat_pair_free(&pair);
  } else {
    LS_ASSERT(status == LS_INPUT && *error.text && !strchr(error.text, '\n'));
    LS_ASSERT(!pair.side[0] && !pair.side[1]);
  }
  json_decref(json);
  return 0;
}
