#include "tokenizer/tokenizer_stream.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "tokenizer/token_buffer.h"

enum { PIECE_BYTES = 1 << 20, PIECES_A_THREAD = 2, MOST_THREADS = 256 };
enum { LONGEST = 256 << 20 }; /* bytes without a place to cut that are still encoded at once */

typedef struct piece {
  ls_bytes text;
  ls_ids ids;
  unsigned flags;
  ls_status status;
  ls_error error;
} piece;

typedef struct stream {
  const ls_token_stream *options;
  FILE *file;
  const char *name;
  piece *pieces;
  int capacity, filled;
  ls_bytes held; /* read, but not yet in a piece */
  bool begun, ended;
  atomic_int next;
} stream;

/* Reads until `held` has that many bytes or the file ends. */
static ls_status read_more(stream *self, size_t wanted, ls_error *error) {
  while (!self->ended && self->held.count < wanted) {
    ls_bytes_reserve(&self->held, wanted - self->held.count);
    const size_t got =
        fread(self->held.data + self->held.count, 1, wanted - self->held.count, self->file);
    self->held.count += got;
    if (got) continue;
    if (ferror(self->file)) {
      return ls_fail(error, LS_INPUT, "%s: cannot be read: %m; expected a text", self->name);
    }
    self->ended = true;
  }
  return LS_OK;
}

/* The next piece: up to a place where the text may be cut, or its rest. */
static ls_status fill_piece(stream *self, piece *into, ls_error *error) {
  const int64_t asked = self->options->piece_bytes;
  size_t wanted = asked > 0 ? (size_t)asked : PIECE_BYTES;
  size_t taken = 0;
  for (;; wanted *= 2) {
    LS_TRY(read_more(self, wanted, error));
    if (self->ended && self->held.count <= wanted) {
      taken = self->held.count;
      break;
    }
    taken = (size_t)ls_tokenizer_cut(self->options->tokenizer, self->held.data,
                                     (int64_t)self->held.count);
    if (taken) break;
    if (wanted >= LONGEST) {
      return ls_fail(error, LS_INPUT,
                     "%s: found %zu MiB without a place where the text may be cut; expected a line "
                     "end or a space between words",
                     self->name, wanted >> 20);
    }
  }
  into->text.count = 0;
  ls_bytes_append(&into->text, self->held.data, taken);
  self->held.count -= taken;
  if (self->held.count) memmove(self->held.data, self->held.data + taken, self->held.count);
  const bool last = self->ended && !self->held.count;
  into->flags = (self->options->flags & LS_TOKENS_SPECIAL) |
                (self->begun ? LS_TOKENS_CONTINUE : 0u) | (last ? 0u : LS_TOKENS_MORE);
  self->begun = true;
  return LS_OK;
}

static void *encode_pieces(void *context) {
  stream *self = context;
  for (;;) {
    const int at = atomic_fetch_add(&self->next, 1);
    if (at >= self->filled) return NULL;
    piece *each = &self->pieces[at];
    each->ids.count = 0;
    each->status =
        ls_tokenizer_append(self->options->tokenizer, each->text.data, (int64_t)each->text.count,
                            each->flags, &each->ids, &each->error);
  }
}

/* Encodes the filled pieces; the calling thread is one of the threads. */
static void encode_all(stream *self, int threads) {
  pthread_t others[MOST_THREADS];
  int started = 0;
  if (threads > self->filled) threads = self->filled;
  atomic_store(&self->next, 0);
  while (started < threads - 1 &&
         pthread_create(&others[started], NULL, encode_pieces, self) == 0) {
    started++;
  }
  encode_pieces(self);
  for (int i = 0; i < started; i++) pthread_join(others[i], NULL);
}

static ls_status give_out(stream *self, ls_error *error) {
  for (int i = 0; i < self->filled; i++) {
    const piece *each = &self->pieces[i];
    if (each->status != LS_OK) {
      if (!error) return each->status;
      *error = each->error;
      return ls_error_prefix(error, "%s", self->name);
    }
    LS_TRY(self->options->take(self->options->context, each->ids.items, each->ids.count, error));
  }
  return LS_OK;
}

static ls_status run(stream *self, int threads, ls_error *error) {
  for (bool done = false; !done;) {
    self->filled = 0;
    while (self->filled < self->capacity && !done) {
      LS_TRY(fill_piece(self, &self->pieces[self->filled], error));
      self->filled++;
      LS_TRY(read_more(self, 1, error)); /* so that the last piece is known as such */
      done = self->ended && !self->held.count;
    }
    encode_all(self, threads);
    LS_TRY(give_out(self, error));
  }
  return LS_OK;
}

ls_status ls_token_stream_run(const ls_token_stream *options, FILE *file, const char *name,
                              ls_error *error) {
  int threads = options->threads > 0 ? options->threads : 1;
  if (threads > MOST_THREADS) threads = MOST_THREADS;
  ls_arena *arena = ls_arena_create();
  stream self = {.options = options, .file = file, .name = name};
  self.capacity = PIECES_A_THREAD * threads;
  self.pieces = LS_NEW_ARRAY(arena, piece, self.capacity);
  const ls_status status = run(&self, threads, error);
  for (int i = 0; i < self.capacity; i++) {
    ls_bytes_free(&self.pieces[i].text);
    ls_ids_free(&self.pieces[i].ids);
  }
  ls_bytes_free(&self.held);
  ls_arena_destroy(&arena);
  return status;
}
