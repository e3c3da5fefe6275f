/* What drafts the texts of `lockstep generate`. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "cli/generate.h"
#include "store/adapters.h"

/* Tokens of a round where nothing is said. */
enum { USUAL_TOKENS = 4 };

ls_status ls_generate_read_draft(ls_generate_asked *asked, ls_error *error) {
  static const char layers[] = "layers=";
  ls_draft_options *draft = &asked->draft_options;
  if (!asked->draft) {
    if (!draft->tokens) return LS_OK;
    return ls_fail(error, LS_INPUT, "--draft-tokens: expected --draft with it");
  }
  if (!draft->tokens) draft->tokens = USUAL_TOKENS;
  if (draft->tokens > LS_MOST_DRAFTED)
    return ls_fail(error, LS_INPUT, "--draft-tokens: found %lld; expected 1 to %d",
                   (long long)draft->tokens, (int)LS_MOST_DRAFTED);
  if (strncmp(asked->draft, layers, sizeof layers - 1) != 0) return LS_OK;
  char *end;
  draft->layers = strtoll(asked->draft + sizeof layers - 1, &end, 10);
  if (draft->layers > 0 && !*end) return LS_OK;
  return ls_fail(error, LS_INPUT, "--draft: found \"%s\"; expected layers=N, of 1 or more",
                 asked->draft);
}

/* "\"the\"", or the bytes' numbers where they are no text. */
static const char *piece_text(ls_arena *arena, const ls_tokenizer *tokenizer, int32_t id) {
  char small[256];
  size_t bytes = 0;
  const char *piece = ls_tokenizer_piece(tokenizer, id, small, &bytes);
  return piece ? ls_arena_printf(arena, "\"%.*s\"", (int)(bytes < 40 ? bytes : 40), piece)
               : "nothing";
}

static bool same_piece(const ls_tokenizer *a, const ls_tokenizer *b, int32_t id) {
  char small[2][256];
  size_t bytes[2] = {0};
  const char *first = ls_tokenizer_piece(a, id, small[0], &bytes[0]);
  const char *second = ls_tokenizer_piece(b, id, small[1], &bytes[1]);
  if (!first || !second) return !first && !second;
  return bytes[0] == bytes[1] && memcmp(first, second, bytes[0]) == 0;
}

/* Ids must mean the same to both; rows of a vocabulary that no token has do not matter. */
static ls_status compare_tokenizers(ls_arena *arena, const char *folder,
                                    const ls_generate_opened *opened, const ls_tokenizer *its,
                                    ls_error *error) {
  const ls_tokenizer *ours = opened->tokenizer;
  if (its->vocabulary != ours->vocabulary)
    return ls_fail(error, LS_INPUT,
                   "--draft %s: its vocabulary has %lld tokens; expected the model's, %lld", folder,
                   (long long)its->vocabulary, (long long)ours->vocabulary);
  for (int32_t id = 0; id < (int32_t)ours->vocabulary; id++)
    if (!same_piece(its, ours, id))
      return ls_fail(error, LS_INPUT,
                     "--draft %s: its vocabulary is another: token %d is %s; expected %s", folder,
                     id, piece_text(arena, its, id), piece_text(arena, ours, id));
  return LS_OK;
}

static ls_status open_smaller(ls_arena *arena, const ls_generate_opened *opened,
                              const char **folder, ls_error *error) {
  const ls_generate_asked *asked = opened->asked;
  ls_model_config config;
  const ls_tokenizer *tokenizer;
  LS_TRY(ls_checkpoint_find(arena, asked->draft, asked->trust, folder, error));
  LS_TRY(ls_adapters_read(arena, *folder, &config, error));
  LS_TRY(ls_generate_find_tokenizer(*folder, &config, &tokenizer, error));
  const ls_status status = compare_tokenizers(arena, asked->draft, opened, tokenizer, error);
  ls_tokenizer_close(&tokenizer);
  return status;
}

ls_status ls_generate_open_draft(ls_arena *arena, const ls_generate_opened *opened,
                                 ls_draft_options *options, ls_error *error) {
  const ls_generate_asked *asked = opened->asked;
  *options = asked->draft_options;
  if (!asked->draft || strcmp(asked->draft, "ngram") == 0) return LS_OK;
  if (!options->layers) {
    const ls_status status = open_smaller(arena, opened, &options->folder, error);
    if (status == LS_OK || strncmp(error->text, "--draft", 7) == 0) return status;
    return ls_error_prefix(error, "--draft");
  }
  options->folder = opened->folder;
  if (options->layers < opened->config.layers) return LS_OK;
  return ls_fail(error, LS_INPUT, "--draft layers=%lld: the model has %lld; expected fewer",
                 (long long)options->layers, (long long)opened->config.layers);
}

void ls_generate_tell_draft(const ls_draft_counts *drafts) {
  if (!drafts->rounds) return;
  fprintf(stderr, "; of %lld drafted %lld kept (%.0f%%), %.2f tokens a round",
          (long long)drafts->drafted, (long long)drafts->kept,
          drafts->drafted ? 100 * (double)drafts->kept / (double)drafts->drafted : 0,
          1 + (double)drafts->kept / (double)drafts->rounds);
}
