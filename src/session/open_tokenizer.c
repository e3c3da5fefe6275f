#include <string.h>

#include "base/file.h"
#include "session/session.h"

/* The folder a model is in: its own, or its config.json's; NULL for a preset. */
static const char *model_folder(const ls_session *session) {
  const char *model = session->run->model;
  if (ls_directory_exists(model)) return model;
  if (!ls_file_exists(model)) return NULL;
  const char *slash = strrchr(model, '/');
  if (!slash) return ".";
  return ls_arena_printf(session->arena, "%.*s", (int)(slash > model ? slash - model : 1), model);
}

static ls_status find_tokenizer(const ls_session *session, const ls_tokenizer **tokenizer,
                                ls_error *error) {
  const char *asked = session->run->data.tokenizer;
  *tokenizer = ls_tokenizer_bytes();
  if (strcmp(asked, "bytes") == 0) return LS_OK;
  if (strcmp(asked, "auto") != 0) {
    const ls_status status = ls_tokenizer_open(asked, NULL, tokenizer, error);
    if (status != LS_INPUT) return status;
    return ls_error_prefix(error, "%s", ls_run_file_where(session->run, "data.tokenizer"));
  }
  const char *folder = model_folder(session), *base = session->config.base;
  if (folder) LS_TRY(ls_tokenizer_of(folder, tokenizer, error));
  const bool none = *tokenizer == ls_tokenizer_bytes(); /* adapters may come without one */
  return none && base ? ls_tokenizer_of(base, tokenizer, error) : LS_OK;
}

ls_status ls_session_open_tokenizer(const ls_session *session, const ls_tokenizer **tokenizer,
                                    ls_error *error) {
  LS_TRY(find_tokenizer(session, tokenizer, error));
  const ls_status status = ls_session_check_tokenizer(session, *tokenizer, error);
  if (status != LS_OK) ls_tokenizer_close(tokenizer);
  return status;
}

ls_status ls_session_check_tokenizer(const ls_session *session, const ls_tokenizer *tokenizer,
                                     ls_error *error) {
  if (session->config.vocabulary >= tokenizer->vocabulary) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: a vocabulary of %lld, but the tokenizer (%s) has %d ids: take another model "
                 "or tokenizer, or a config.json with a vocab_size of at least %d",
                 session->config.source, (long long)session->config.vocabulary, tokenizer->name,
                 (int)tokenizer->vocabulary, (int)tokenizer->vocabulary);
}
