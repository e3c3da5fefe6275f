#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/generate.h"

double ls_generate_prompt_rate(const ls_generate_printer *printer) {
  const double seconds = printer->first - printer->begin;
  return seconds > 0 ? (double)(printer->prompt_tokens - printer->reused) / seconds : 0;
}

double ls_generate_token_rate(const ls_generate_printer *printer) {
  const double seconds = printer->last - printer->first;
  return seconds > 0 ? (double)(printer->tokens - 1) / seconds : 0;
}

static bool write_to(FILE *file, const char *text, size_t bytes) {
  return !file || (fwrite(text, 1, bytes, file) == bytes && fflush(file) == 0);
}

ls_status ls_generate_put(const ls_generate_printer *printer, const char *text, size_t bytes,
                          ls_error *error) {
  if (write_to(printer->to, text, bytes) && write_to(printer->copy, text, bytes)) return LS_OK;
  return ls_fail(error, LS_FAILED, "the text cannot be written: %s", strerror(errno));
}

/* Bytes of tokens, as whole characters. */
static ls_status put_bytes(ls_generate_printer *self, const char *bytes, size_t count,
                           ls_error *error) {
  enum { AT_ONCE = 256 };
  char text[LS_UTF8_MOST(AT_ONCE)];
  while (count) {
    const size_t taken = count < AT_ONCE ? count : AT_ONCE;
    LS_TRY(ls_generate_put(self, text, ls_utf8_push(&self->stream, bytes, taken, text), error));
    bytes += taken;
    count -= taken;
  }
  return LS_OK;
}

/* What may be the beginning of the text that ends an answer is held back until it is not. */
static ls_status put_until_end(ls_generate_printer *self, const char *bytes, size_t count,
                               ls_error *error) {
  const char *end = self->opened->end.text;
  const size_t whole = strlen(end);
  for (size_t b = 0; b < count && !self->ended; b++) {
    size_t out = 0, have = self->held;
    /* The most bytes of `end` that what is held and this byte end with. */
    while (have > 0 && (end[have] != bytes[b] || memcmp(end + out, end, have) != 0)) out++, have--;
    const bool fits = end[have] == bytes[b];
    LS_TRY(put_bytes(self, end, out, error));
    if (!fits) LS_TRY(put_bytes(self, bytes + b, 1, error));
    self->held = have + fits;
    self->ended = self->held == whole;
  }
  return LS_OK;
}

/* A tokenizer that puts a space before words begins its text without it. */
static bool has_space_in_front(const ls_tokenizer *tokenizer, int32_t id, const char *piece) {
  char *text = NULL;
  size_t bytes = 0;
  if (*piece != ' ' || ls_tokenizer_text(tokenizer, &id, 1, 0, &text, &bytes, NULL) != LS_OK)
    return false;
  const bool dropped = bytes == 0 || *text != ' ';
  free(text);
  return dropped;
}

static ls_status put_token(void *context, int32_t id, ls_error *error) {
  ls_generate_printer *self = context;
  const ls_tokenizer *tokenizer = self->opened->tokenizer;
  char small[256];
  size_t bytes = 0;
  const char *piece = ls_tokenizer_piece(tokenizer, id, small, &bytes);
  self->last = ls_now_s();
  if (self->tokens++ == 0) self->first = self->last;
  if (!piece || !bytes || ls_tokenizer_is_special(tokenizer, id)) return LS_OK;
  if (self->answers && self->tokens == 1 && has_space_in_front(tokenizer, id, piece))
    piece++, bytes--;
  if (!self->answers || !*self->opened->end.text) return put_bytes(self, piece, bytes, error);
  return put_until_end(self, piece, bytes, error);
}

static bool has_enough(void *context) {
  const ls_generate_printer *self = context;
  return self->ended || (self->stops && self->stops());
}

ls_status ls_generate_print(ls_generate_printer *printer, ls_generator *generator,
                            const ls_generate_prompt *prompt, bool continues, ls_generate_end *end,
                            ls_error *error) {
  const ls_generate_opened *opened = printer->opened;
  printer->answers = !prompt->text;
  const ls_generate_request what = {.prompt = prompt->ids,
                                    .prompt_count = prompt->count,
                                    .most = opened->asked->most,
                                    .sampling = opened->asked->sampling,
                                    .ends = &opened->end.id,
                                    .end_count = printer->answers && opened->end.id >= 0,
                                    .continues = continues,
                                    .enough = has_enough,
                                    .token = put_token,
                                    .context = printer};
  char text[LS_UTF8_MOST(0)];
  printer->prompt_tokens = prompt->count;
  printer->begin = ls_now_s();
  LS_TRY(ls_generate(generator, &what, end, error));
  printer->reused = ls_generator_reused(generator);
  if (printer->ended) *end = LS_GENERATE_END_ID;
  if (!printer->ended) LS_TRY(put_bytes(printer, opened->end.text, printer->held, error));
  return ls_generate_put(printer, text, ls_utf8_end(&printer->stream, text), error);
}

void ls_generate_tell(const ls_generate_printer *printer, ls_generate_end end, int64_t rows) {
  fprintf(stderr, "prompt of %lld tokens, ", (long long)printer->prompt_tokens);
  if (printer->reused) fprintf(stderr, "%lld of them kept, ", (long long)printer->reused);
  fprintf(stderr, "%.1f a second; %lld tokens, %.1f a second", ls_generate_prompt_rate(printer),
          (long long)printer->tokens, ls_generate_token_rate(printer));
  if (end == LS_GENERATE_END_ID) fprintf(stderr, "; the model ended the text");
  if (end == LS_GENERATE_ENOUGH) fprintf(stderr, "; stopped");
  if (end == LS_GENERATE_POSITIONS)
    fprintf(stderr, "; stopped at the %lld positions %s", (long long)rows,
            rows == printer->opened->config.positions ? "the model is made for" : "of --context");
  fprintf(stderr, "\n");
}
