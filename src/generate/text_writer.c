#include "generate/text_writer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

double ls_text_writer_prompt_rate(const ls_text_writer *writer) {
  const double seconds = writer->first - writer->begin;
  return seconds > 0 ? (double)(writer->prompt_tokens - writer->reused) / seconds : 0;
}

double ls_text_writer_token_rate(const ls_text_writer *writer) {
  const double seconds = writer->last - writer->first;
  return seconds > 0 ? (double)(writer->tokens - 1) / seconds : 0;
}

static bool write_to(FILE *file, const char *text, size_t bytes) {
  return !file || (fwrite(text, 1, bytes, file) == bytes && fflush(file) == 0);
}

ls_status ls_text_writer_put(const ls_text_writer *writer, const char *text, size_t bytes,
                             ls_error *error) {
  if (write_to(writer->to, text, bytes) && write_to(writer->copy, text, bytes)) return LS_OK;
  return ls_fail(error, LS_FAILED, "the text cannot be written: %s", strerror(errno));
}

ls_status ls_text_writer_put_prompt(const ls_text_writer *writer, const ls_prompt *prompt,
                                    ls_error *error) {
  if (prompt->where) {
    char line[512];
    const int length = snprintf(line, sizeof line, "==> %.500s <==\n", prompt->where);
    LS_TRY(ls_text_writer_put(writer, line, (size_t)length, error));
  }
  return prompt->text ? ls_text_writer_put(writer, prompt->text, prompt->text_bytes, error) : LS_OK;
}

static ls_status put_before(ls_text_writer *self, ls_error *error) {
  const ls_prompt *before = self->before;
  self->before = NULL;
  return before ? ls_text_writer_put_prompt(self, before, error) : LS_OK;
}

/* Bytes of tokens, as whole characters. */
static ls_status put_bytes(ls_text_writer *self, const char *bytes, size_t count, ls_error *error) {
  enum { AT_ONCE = 256 };
  char text[LS_UTF8_MOST(AT_ONCE)];
  while (count) {
    const size_t taken = count < AT_ONCE ? count : AT_ONCE;
    LS_TRY(ls_text_writer_put(self, text, ls_utf8_push(&self->stream, bytes, taken, text), error));
    bytes += taken;
    count -= taken;
  }
  return LS_OK;
}

/* What may be the beginning of the text that ends an answer is held back until it is not. */
static ls_status put_until_end(ls_text_writer *self, const char *bytes, size_t count,
                               ls_error *error) {
  const char *end = self->end.text;
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
  ls_text_writer *self = context;
  const ls_tokenizer *tokenizer = self->tokenizer;
  char small[256];
  size_t bytes = 0;
  const char *piece = ls_tokenizer_piece(tokenizer, id, small, &bytes);
  self->last = ls_now_s();
  if (self->tokens++ == 0) self->first = self->last;
  LS_TRY(put_before(self, error));
  if (!piece || !bytes || ls_tokenizer_is_special(tokenizer, id)) return LS_OK;
  if (self->answers && self->tokens == 1 && has_space_in_front(tokenizer, id, piece))
    piece++, bytes--;
  if (!self->answers || !*self->end.text) return put_bytes(self, piece, bytes, error);
  return put_until_end(self, piece, bytes, error);
}

static bool has_enough(void *context) {
  const ls_text_writer *self = context;
  return self->ended || (self->stops && self->stops());
}

ls_generate_request ls_text_writer_request(ls_text_writer *writer, const ls_prompt *prompt) {
  writer->answers = !prompt->text;
  writer->before = writer->repeats ? prompt : NULL;
  writer->prompt_tokens = prompt->count;
  writer->begin = ls_now_s();
  return (ls_generate_request){.prompt = prompt->ids,
                               .prompt_count = prompt->count,
                               .most = writer->most,
                               .sampling = writer->sampling,
                               .ends = &writer->end.id,
                               .end_count = writer->answers && writer->end.id >= 0,
                               .enough = has_enough,
                               .token = put_token,
                               .drafts = &writer->drafts,
                               .context = writer};
}

ls_status ls_text_writer_end(ls_text_writer *writer, ls_generate_end *end, ls_error *error) {
  char text[LS_UTF8_MOST(0)];
  LS_TRY(put_before(writer, error));
  if (writer->ended) *end = LS_GENERATE_END_ID;
  if (!writer->ended) LS_TRY(put_bytes(writer, writer->end.text, writer->held, error));
  return ls_text_writer_put(writer, text, ls_utf8_end(&writer->stream, text), error);
}

ls_status ls_text_writer_run(ls_text_writer *writer, ls_generator *generator,
                             const ls_prompt *prompt, bool continues, ls_generate_end *end,
                             ls_error *error) {
  ls_generate_request request = ls_text_writer_request(writer, prompt);
  request.continues = continues;
  LS_TRY(ls_generate(generator, &request, end, error));
  writer->reused = ls_generator_reused(generator);
  return ls_text_writer_end(writer, end, error);
}
