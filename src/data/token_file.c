#include "data/token_file.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/random.h"
#include "data/fingerprint.h"
#include "data/token_write.h"
#include "tokenizer/unicode_tables.h"

/* Ids are stored as the machine has them. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "token files are little-endian");

const char ls_token_magic[8] = {'L', 'S', 'T', 'O', 'K', 'E', 'N', 'S'};

static uint64_t text_fingerprint(uint64_t hash, const char *text) {
  return ls_fingerprint_bytes(hash, text, strlen(text));
}

/* What is read of a file, and how. */
static uint64_t settings_of(const ls_corpus_options *options, const ls_text_files *files) {
  uint64_t hash = ls_random_stream("token file");
  hash = text_fingerprint(hash, options->tokenizer->name);
  hash = text_fingerprint(hash, ls_unicode_version); /* another table gives other ids */
  hash = ls_fingerprint_word(hash, options->skip_bad_lines);
  if (options->chat) hash = ls_fingerprint_word(hash, ls_chat_fingerprint(options->chat));
  if (options->labelled)
    hash = ls_fingerprint_word(hash, ls_labelled_fingerprint(options->labelled));
  if (options->text_pairs)
    hash = ls_fingerprint_word(hash, ls_text_pairs_fingerprint(options->text_pairs));
  for (int i = 0; i < files->count; i++) {
    const ls_text_file *each = &files->items[i];
    if (each->json_lines) hash = text_fingerprint(hash, ls_corpus_field(options, each));
    hash = ls_fingerprint_word(hash, each->json_lines + 2u * each->json_array);
  }
  return hash;
}

ls_token_file ls_token_file_of(ls_arena *arena, const ls_corpus_options *options,
                               const ls_text_files *files) {
  const uint64_t settings = settings_of(options, files);
  uint64_t hash = settings;
  for (int i = 0; i < files->count; i++) {
    char *real = realpath(files->items[i].path, NULL);
    hash = text_fingerprint(hash, real ? real : files->items[i].path);
    free(real);
  }
  return (ls_token_file){options, files,
                         ls_arena_printf(arena, "%s/tokens-%016llx.bin", options->cache_folder,
                                         (unsigned long long)hash),
                         settings, "set XDG_CACHE_HOME to another disk"};
}

uint64_t ls_token_file_quick(const ls_token_file *file) {
  uint64_t hash = file->settings;
  for (int i = 0; i < file->files->count; i++) {
    const ls_text_file *each = &file->files->items[i];
    hash = ls_fingerprint_word(hash, (uint64_t)each->bytes);
    hash = ls_fingerprint_word(hash, (uint64_t)each->modified_ns);
    hash = ls_fingerprint_word(ls_fingerprint_word(hash, each->device), each->inode);
  }
  return hash;
}

int ls_token_width(int64_t vocabulary) {
  if (vocabulary <= 1 << 8) return 1;
  return vocabulary <= 1 << 16 ? 2 : 4;
}

int ls_token_stored_width(uint32_t version, int64_t vocabulary) {
  return ls_token_width(version == LS_TOKEN_MARKED_VERSION ? 2 * vocabulary : vocabulary);
}

uint64_t ls_token_header_checksum(const ls_token_header *header) {
  return ls_fingerprint_bytes(ls_random_stream("header"), header,
                              offsetof(ls_token_header, checksum));
}

uint64_t ls_token_block_checksum(const void *block, size_t bytes) {
  return ls_fingerprint_bytes(ls_random_stream("block"), block, bytes);
}

static int64_t token_bytes(const ls_token_header *header) {
  return (header->count * header->width + 7) / 8 * 8;
}

int64_t ls_token_body_bytes(const ls_token_header *header) {
  return token_bytes(header) + header->documents * (int64_t)sizeof(ls_document);
}

int64_t ls_token_blocks(const ls_token_header *header) {
  return (ls_token_body_bytes(header) + LS_TOKEN_BLOCK_BYTES - 1) / LS_TOKEN_BLOCK_BYTES;
}

bool ls_token_header_is_sound(const ls_token_header *header, int64_t bytes) {
  const int64_t most = INT64_MAX / 64;
  if (memcmp(header->magic, ls_token_magic, sizeof ls_token_magic) != 0) return false;
  if (header->version != LS_TOKEN_VERSION && header->version != LS_TOKEN_MARKED_VERSION)
    return false;
  if (header->checksum != ls_token_header_checksum(header)) return false;
  if (header->count <= 0 || header->count > most) return false;
  if (header->documents <= 0 || header->documents > header->count) return false;
  if (header->vocabulary < 0 || header->vocabulary > INT32_MAX) return false;
  if (header->width != (uint32_t)ls_token_stored_width(header->version, header->vocabulary))
    return false;
  return (int64_t)sizeof *header + ls_token_body_bytes(header) +
             ls_token_blocks(header) * (int64_t)sizeof(uint64_t) ==
         bytes;
}

/* A text written in the same moment as its cache may have changed since without another time: for
 * two seconds, the coarsest clock of a file system in use, times prove nothing. */
static bool times_prove(const ls_token_file *file, const ls_token_header *header) {
  for (int i = 0; i < file->files->count; i++) {
    if (file->files->items[i].modified_ns > header->made_ns - 2000000000) return false;
  }
  return true;
}

bool ls_token_file_header(const char *path, ls_token_header *header) {
  FILE *in = fopen(path, "rb");
  if (!in) return false;
  bool sound = fread(header, sizeof *header, 1, in) == 1 && fseeko(in, 0, SEEK_END) == 0;
  sound = sound && ls_token_header_is_sound(header, ftello(in));
  fclose(in);
  return sound;
}

bool ls_token_file_fits(const ls_token_file *file) {
  ls_token_header header;
  if (!ls_token_file_header(file->path, &header)) return false;
  if (header.vocabulary != file->options->tokenizer->vocabulary) return false;
  if ((header.version == LS_TOKEN_MARKED_VERSION) != ls_corpus_is_marked(file->options))
    return false;
  if (header.quick == ls_token_file_quick(file) && times_prove(file, &header)) return true;
  uint64_t packed;
  return ls_token_file_read_texts(file, &packed) && packed == header.packed;
}

static ls_status fail_damaged(const char *path, const char *what, ls_error *error) {
  return ls_fail(error, LS_FAILED, "%s: %s; remove it and start again", path, what);
}

/* The bytes of the file up to `end`, before they are used; a block at a time. */
static ls_status check_blocks(const ls_corpus *corpus, int64_t begin, int64_t end,
                              ls_error *error) {
  if (!corpus->sums) return LS_OK;
  const ls_token_header *header = corpus->map.data;
  const int64_t body = ls_token_body_bytes(header);
  for (int64_t b = begin / LS_TOKEN_BLOCK_BYTES; b * LS_TOKEN_BLOCK_BYTES < end; b++) {
    if (__atomic_load_n(&corpus->checked[b], __ATOMIC_RELAXED)) continue;
    const int64_t first = b * LS_TOKEN_BLOCK_BYTES, left = body - first;
    const size_t bytes = (size_t)(left < LS_TOKEN_BLOCK_BYTES ? left : LS_TOKEN_BLOCK_BYTES);
    const char *block = (const char *)(header + 1) + first;
    if (ls_token_block_checksum(block, bytes) != corpus->sums[b])
      return fail_damaged(corpus->cache_path, "the token file is damaged", error);
    __atomic_store_n(&corpus->checked[b], 1, __ATOMIC_RELAXED);
  }
  return LS_OK;
}

ls_status ls_token_file_check(const ls_corpus *corpus, int64_t first, int64_t count,
                              ls_error *error) {
  return check_blocks(corpus, first * corpus->width, (first + count) * corpus->width, error);
}

/* Documents are looked at all at once: everything that asks where one begins relies on them. */
static ls_status check_documents(const ls_corpus *corpus, ls_error *error) {
  const ls_token_header *header = corpus->map.data;
  LS_TRY(check_blocks(corpus, token_bytes(header), ls_token_body_bytes(header), error));
  int64_t before = -1;
  for (int64_t d = 0; d < corpus->document_count; d++) {
    const int64_t first = corpus->documents[d].first;
    if (first <= before || first >= corpus->count || (d == 0 && first != 0))
      return fail_damaged(corpus->cache_path, "its documents are not in order", error);
    before = first;
  }
  return LS_OK;
}

static ls_status view(ls_arena *arena, const char *path, ls_corpus *corpus, ls_error *error) {
  const ls_token_header *header = corpus->map.data;
  if (corpus->map.bytes < sizeof *header ||
      !ls_token_header_is_sound(header, (int64_t)corpus->map.bytes))
    return fail_damaged(path, "found something else than a token file of this version", error);
  const char *body = (const char *)(header + 1);
  corpus->cache_path = path;
  corpus->tokens = body;
  corpus->width = (int)header->width;
  corpus->marked = header->version == LS_TOKEN_MARKED_VERSION;
  corpus->count = header->count;
  corpus->documents = (const ls_document *)(body + token_bytes(header));
  corpus->document_count = header->documents;
  corpus->skipped = header->skipped;
  corpus->content = header->content;
  corpus->sums = (const uint64_t *)(body + ls_token_body_bytes(header));
  const int64_t blocks = ls_token_blocks(header);
  corpus->checked = LS_NEW_ARRAY(arena, uint8_t, blocks);
  const uint64_t found = ls_fingerprint_bytes(ls_random_stream("sums"), corpus->sums,
                                              (size_t)blocks * sizeof *corpus->sums);
  if (found != header->checksums) return fail_damaged(path, "the token file is damaged", error);
  return check_documents(corpus, error);
}

ls_status ls_token_file_view(ls_arena *arena, const char *path, ls_corpus *corpus,
                             ls_error *error) {
  LS_TRY(ls_file_map(path, &corpus->map, error));
  const ls_status status = view(arena, path, corpus, error);
  if (status != LS_OK) ls_file_unmap(&corpus->map);
  return status;
}

bool ls_token_file_is(const char *path) {
  char magic[sizeof ls_token_magic] = {0};
  FILE *in = fopen(path, "rb");
  const bool read = in && fread(magic, sizeof magic, 1, in) == 1;
  if (in) fclose(in);
  return read && memcmp(magic, ls_token_magic, sizeof magic) == 0;
}

ls_status ls_token_file_about(const char *path, ls_token_header *about, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  ls_corpus corpus = {0};
  ls_status status = ls_token_file_view(arena, path, &corpus, error);
  if (status == LS_OK) {
    memcpy(about, corpus.map.data, sizeof *about);
    about->tokenizer[sizeof about->tokenizer - 1] = 0;
    status = check_blocks(&corpus, 0, ls_token_body_bytes(about), error);
    ls_corpus_close(&corpus);
  }
  ls_arena_destroy(&arena);
  return status;
}
