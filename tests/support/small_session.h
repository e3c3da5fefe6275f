/* A session of a small llama, in the test's own folder.
 *
 *   ls_session *session = open_session(2, (const char *[]){"zero=1"}, 1);
 *   cmocka_unit_test_setup_teardown(something_holds, set_up_model, tear_down)
 *
 * One thread. */
#ifndef LS_TEST_SMALL_SESSION_H
#define LS_TEST_SMALL_SESSION_H

#include <string.h>

#include "session/session.h"
#include "support/test_folder.h"

static const char model[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 64, \"hidden_size\": 16,"
    " \"intermediate_size\": 24, \"num_hidden_layers\": 4, \"num_attention_heads\": 4,"
    " \"num_key_value_heads\": 2, \"max_position_embeddings\": 16, \"rms_norm_eps\": 1e-5,"
    " \"tie_word_embeddings\": true}";

static inline int set_up_model(void **state) {
  ls_error error;
  return set_up(state) ||
         ls_file_write(in_folder("config.json"), model, strlen(model), &error) != LS_OK;
}

/* `keys` come last and so win. */
static inline ls_session *open_session(int devices, const char *const *keys, int key_count) {
  const char *words[24] = {ls_arena_printf(arena, "model=%s", in_folder("config.json")),
                           "data.seq_len=8", "train.batch=8", "dtype=fp32", "device.threads=1"};
  int count = 5;
  for (int k = 0; k < key_count; k++) words[count++] = keys[k];
  ls_run_file *run;
  ls_session *session = NULL;
  ls_error error = {0};
  if (ls_run_file_read(arena, NULL, words, count, &run, &error) != LS_OK ||
      ls_session_create(arena, run, devices, devices, &session, &error) != LS_OK)
    fail_msg("%s", error.text);
  return session;
}

#endif
