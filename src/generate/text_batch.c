#include "generate/text_batch.h"

#include <stdlib.h>

struct batch;

/* A prompt's text; the writer comes first: it is the request's context. */
typedef struct item {
  ls_text_writer writer;
  struct batch *of;
  int number;
  char *text;
  size_t bytes;
  ls_generate_end end;
  bool done;
} item;

typedef struct batch {
  const ls_text_batch *asked;
  item *items;
  int handed_out;
} batch;

static ls_status begin(void *context, ls_error *error) {
  item *self = context;
  const ls_text_batch *asked = self->of->asked;
  (void)ls_text_writer_request(&self->writer, &asked->prompts[self->number]); /* its time */
  self->writer.to = open_memstream(&self->text, &self->bytes);
  return self->writer.to ? LS_OK : ls_fail(error, LS_FAILED, "out of memory");
}

static void close_text(item *self) {
  if (self->writer.to) fclose(self->writer.to);
  self->writer.to = NULL;
}

static ls_status hand_out(batch *self, ls_error *error) {
  const ls_text_batch *asked = self->asked;
  while (self->handed_out < asked->count && self->items[self->handed_out].done) {
    item *next = &self->items[self->handed_out++];
    const ls_text text = {.writer = &next->writer,
                          .prompt = &asked->prompts[next->number],
                          .text = next->text,
                          .bytes = next->bytes,
                          .end = next->end};
    LS_TRY(asked->take(asked->context, next->number, &text, error));
    free(next->text);
    next->text = NULL;
  }
  return LS_OK;
}

static ls_status finish(void *context, ls_generate_end end, ls_error *error) {
  item *self = context;
  self->end = end;
  LS_TRY(ls_text_writer_end(&self->writer, &self->end, error));
  close_text(self);
  self->done = true;
  return hand_out(self->of, error);
}

ls_status ls_text_batch_run(const ls_text_batch *asked, ls_generator *generator, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  batch self = {.asked = asked, .items = LS_NEW_ARRAY(arena, item, asked->count)};
  ls_generate_request *requests = LS_NEW_ARRAY(arena, ls_generate_request, asked->count);
  for (int i = 0; i < asked->count; i++) {
    self.items[i] = (item){.writer = asked->writer, .of = &self, .number = i};
    self.items[i].writer.to = self.items[i].writer.copy = NULL;
    requests[i] = ls_text_writer_request(&self.items[i].writer, &asked->prompts[i]);
    requests[i].begins = begin;
    requests[i].done = finish;
  }
  const ls_status status = ls_generate_all(generator, requests, asked->count, error);
  for (int i = 0; i < asked->count; i++) {
    close_text(&self.items[i]);
    free(self.items[i].text);
  }
  ls_arena_destroy(&arena);
  return status;
}
