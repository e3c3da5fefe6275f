#include "data/token_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/random.h"

/* Ids are stored as the machine has them. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "token files are little-endian");

enum { VERSION = 1, PIECE_BYTES = 1 << 20 };

static const char magic[8] = {'L', 'S', 'T', 'O', 'K', 'E', 'N', 'S'};

typedef struct token_header {
  char magic[8];
  uint32_t version, width;
  uint64_t count;
  uint64_t quick, content; /* fingerprints */
  int64_t made_ns;         /* when reading the texts began */
  uint64_t vocabulary;
  uint64_t unused;
} token_header;
_Static_assert(sizeof(token_header) == 64, "ids start at byte 64");

/* One word more in a running fingerprint. It finds changes, it does not resist an adversary. */
static uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 29;
}

static uint64_t mix_bytes(uint64_t hash, const void *data, size_t bytes) {
  const char *from = data;
  for (; bytes >= sizeof(uint64_t); from += sizeof(uint64_t), bytes -= sizeof(uint64_t)) {
    uint64_t word;
    memcpy(&word, from, sizeof word);
    hash = mix(hash, word);
  }
  uint64_t last = 0;
  memcpy(&last, from, bytes);
  return mix(mix(hash, last), bytes);
}

static uint64_t quick_fingerprint(const ls_token_file *file) {
  uint64_t hash = ls_random_stream(file->options->tokenizer->name);
  for (int i = 0; i < file->source_count; i++) {
    const ls_corpus_source *each = &file->sources[i];
    hash = mix(mix(hash, (uint64_t)each->bytes), (uint64_t)each->modified_ns);
    hash = mix(mix(hash, each->device), each->inode);
  }
  return hash;
}

ls_token_file ls_token_file_of(ls_arena *arena, const ls_corpus_options *options,
                               const ls_corpus_source *sources, int source_count) {
  uint64_t hash = ls_random_stream(options->tokenizer->name);
  for (int i = 0; i < source_count; i++) {
    char *real = realpath(sources[i].path, NULL);
    const char *path = real ? real : sources[i].path;
    hash = mix_bytes(hash, path, strlen(path));
    free(real);
  }
  return (ls_token_file){options, sources, source_count,
                         ls_arena_printf(arena, "%s/tokens-%016llx.bin", options->cache_folder,
                                         (unsigned long long)hash)};
}

static int width_of(int32_t vocabulary) {
  if (vocabulary <= 1 << 8) return 1;
  return vocabulary <= 1 << 16 ? 2 : 4;
}

/* Ids to `width` bytes each. */
static void narrow(const int32_t *ids, int64_t count, int width, void *target) {
  for (int64_t i = 0; i < count; i++) {
    if (width == 1) ((uint8_t *)target)[i] = (uint8_t)ids[i];
    if (width == 2) ((uint16_t *)target)[i] = (uint16_t)ids[i];
    if (width == 4) ((int32_t *)target)[i] = ids[i];
  }
}

/* A pass over the texts: their fingerprint, and, with `out`, their ids. */
typedef struct pass {
  const ls_token_file *file;
  FILE *out; /* NULL: fingerprint only */
  const char *out_path;
  char *text;
  int32_t *ids;
  void *narrowed;
  int width;
  int64_t done, total; /* bytes */
  int64_t count;
  uint64_t content;
} pass;

static ls_status fail_write(const pass *state, ls_error *error) {
  return ls_fail(error, LS_FAILED,
                 "%s: writing the token cache failed: %m; make room for %lld bytes or set "
                 "XDG_CACHE_HOME to another disk",
                 state->out_path, (long long)(state->total * state->width));
}

static ls_status pass_piece(pass *state, size_t bytes, ls_error *error) {
  const ls_corpus_options *options = state->file->options;
  state->content = mix_bytes(state->content, state->text, bytes);
  state->done += (int64_t)bytes;
  if (options->progress) options->progress(options->context, state->done, state->total);
  if (!state->out) return LS_OK;
  const int64_t count =
      ls_tokenizer_encode(options->tokenizer, state->text, (int64_t)bytes, state->ids);
  narrow(state->ids, count, state->width, state->narrowed);
  state->count += count;
  if (fwrite(state->narrowed, (size_t)state->width, (size_t)count, state->out) == (size_t)count) {
    return LS_OK;
  }
  return fail_write(state, error);
}

static ls_status pass_source(pass *state, const ls_corpus_source *source, ls_error *error) {
  const char *key = state->file->options->key;
  FILE *in = fopen(source->path, "rb");
  if (!in) {
    return ls_fail(error, LS_INPUT, "%s: %s cannot be read: %m; expected a text file", key,
                   source->path);
  }
  ls_status status = LS_OK;
  int64_t seen = 0;
  for (size_t bytes; status == LS_OK;) {
    bytes = fread(state->text, 1, PIECE_BYTES, in);
    if (bytes == 0) break;
    seen += (int64_t)bytes;
    status = pass_piece(state, bytes, error);
  }
  if (status == LS_OK && ferror(in)) {
    status = ls_fail(error, LS_INPUT, "%s: %s cannot be read: %m", key, source->path);
  }
  fclose(in);
  if (status != LS_OK || seen == source->bytes) return status;
  return ls_fail(error, LS_INPUT,
                 "%s: %s changed while it was being read (%lld bytes, then %lld); start again", key,
                 source->path, (long long)source->bytes, (long long)seen);
}

static ls_status pass_all(pass *state, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  const ls_tokenizer *tokenizer = state->file->options->tokenizer;
  state->content = ls_random_stream(tokenizer->name);
  state->width = width_of(tokenizer->vocabulary);
  state->text = ls_arena_alloc(arena, PIECE_BYTES);
  if (state->out) {
    state->ids = LS_NEW_ARRAY(arena, int32_t, PIECE_BYTES);
    state->narrowed = LS_NEW_ARRAY(arena, int32_t, PIECE_BYTES);
  }
  for (int i = 0; i < state->file->source_count; i++) state->total += state->file->sources[i].bytes;
  ls_status status = LS_OK;
  for (int i = 0; i < state->file->source_count && status == LS_OK; i++) {
    status = pass_source(state, &state->file->sources[i], error);
  }
  ls_arena_destroy(&arena);
  return status;
}

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static bool header_is_sound(const ls_token_file *file, const token_header *header, int64_t bytes) {
  const int32_t vocabulary = file->options->tokenizer->vocabulary;
  return memcmp(header->magic, magic, sizeof magic) == 0 && header->version == VERSION &&
         header->vocabulary == (uint64_t)vocabulary &&
         header->width == (uint32_t)width_of(vocabulary) && header->count > 0 &&
         header->count <= (uint64_t)INT64_MAX / 8 &&
         (int64_t)(sizeof *header + header->count * header->width) == bytes;
}

/* A text written in the same moment as its cache may have changed since without another time: for
 * two seconds, the coarsest clock of a file system in use, times prove nothing. */
static bool times_prove(const ls_token_file *file, const token_header *header) {
  for (int i = 0; i < file->source_count; i++) {
    if (file->sources[i].modified_ns > header->made_ns - 2000000000) return false;
  }
  return true;
}

bool ls_token_file_fits(const ls_token_file *file) {
  FILE *in = fopen(file->path, "rb");
  if (!in) return false;
  token_header header;
  bool sound = fread(&header, sizeof header, 1, in) == 1 && fseeko(in, 0, SEEK_END) == 0;
  sound = sound && header_is_sound(file, &header, ftello(in));
  fclose(in);
  if (!sound) return false;
  if (header.quick == quick_fingerprint(file) && times_prove(file, &header)) return true;
  pass state = {.file = file};
  return pass_all(&state, NULL) == LS_OK && header.content == state.content;
}

static ls_status write_file(const ls_token_file *file, const char *aside, ls_error *error) {
  token_header header = {.version = VERSION,
                         .quick = quick_fingerprint(file),
                         .made_ns = now_ns(),
                         .vocabulary = (uint64_t)file->options->tokenizer->vocabulary};
  memcpy(header.magic, magic, sizeof magic);
  pass state = {.file = file, .out = fopen(aside, "wbx"), .out_path = aside};
  if (!state.out) {
    return ls_fail(error, LS_FAILED, "%s: the token cache cannot be made: %m", aside);
  }
  /* The header stands here once more when its counts are known. */
  bool written = fwrite(&header, sizeof header, 1, state.out) == 1;
  const ls_status status = pass_all(&state, error);
  header.width = (uint32_t)state.width;
  header.count = (uint64_t)state.count;
  header.content = state.content;
  written = written && fseeko(state.out, 0, SEEK_SET) == 0;
  written = written && fwrite(&header, sizeof header, 1, state.out) == 1;
  written = written && fflush(state.out) == 0 && fsync(fileno(state.out)) == 0;
  const int cause = errno;
  written = fclose(state.out) == 0 && written;
  if (status != LS_OK || written) return status;
  errno = cause;
  return fail_write(&state, error);
}

ls_status ls_token_file_make(const ls_token_file *file, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  const char *aside =
      ls_arena_printf(arena, "%s.%d.%llx", file->path, (int)getpid(), (unsigned long long)now_ns());
  ls_status status = write_file(file, aside, error);
  if (status == LS_OK && rename(aside, file->path) != 0) {
    status = ls_fail(error, LS_FAILED, "%s: the token cache cannot be published: %m", file->path);
  }
  if (status != LS_OK) unlink(aside);
  ls_arena_destroy(&arena);
  return status;
}

ls_status ls_token_file_view(const ls_token_file *file, ls_corpus *corpus, ls_error *error) {
  const token_header *header = corpus->map.data;
  const bool sound = corpus->map.bytes >= sizeof *header &&
                     header_is_sound(file, header, (int64_t)corpus->map.bytes);
  if (!sound) {
    ls_file_unmap(&corpus->map);
    return ls_fail(error, LS_FAILED,
                   "%s: found something else than the token cache just made; remove it and start "
                   "again",
                   file->path);
  }
  corpus->tokens = header + 1;
  corpus->width = (int)header->width;
  corpus->count = (int64_t)header->count;
  return LS_OK;
}
