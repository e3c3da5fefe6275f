/* The cache file of a corpus: ids of all its documents, one after another. Used by corpus.c,
 * and by who says what such a file holds.
 *
 * A header of 128 bytes with its own checksum; token ids, little-endian, of 1, 2 or 4 bytes, filled
 * up to 8; a ls_document each; and a checksum of each 64 KiB of what lies between header and
 * checksums. A cache's name is made of the tokenizer, the texts' paths and what is read of them.
 * The header has three fingerprints: `quick` of sizes, times and inodes; `packed` of the files'
 * bytes, which decides where the quick one differs or a text is so young that its time proves
 * nothing; both with what is read of the texts; and `content` of the documents, which a run
 * remembers. */
#ifndef LS_DATA_TOKEN_FILE_H
#define LS_DATA_TOKEN_FILE_H

#include "data/corpus.h"

enum { LS_TOKEN_BLOCK_BYTES = 1 << 16 };

typedef struct ls_token_header {
  char magic[8];
  uint32_t version, width;
  int64_t count, documents;
  int64_t skipped;                 /* bad lines */
  uint64_t quick, packed, content; /* fingerprints */
  int64_t made_ns;                 /* when reading the texts began */
  int64_t vocabulary, end_of_text;
  char tokenizer[24]; /* the beginning of its name */
  uint64_t checksums; /* the fingerprint of the checksums */
  uint64_t checksum;  /* of the header before it */
} ls_token_header;
_Static_assert(sizeof(ls_token_header) == 128, "ids start at byte 128");

/* The cache file of these texts under these options. */
typedef struct ls_token_file {
  const ls_corpus_options *options;
  const ls_text_files *files;
  const char *path;
  uint64_t settings;  /* fingerprint of what is read of the texts, and by which tokenizer */
  const char *advice; /* how it is written to another disk, where this one is full */
} ls_token_file;

ls_token_file ls_token_file_of(ls_arena *arena, const ls_corpus_options *options,
                               const ls_text_files *files);

/* Whether the file is there, whole, and of these texts as they are now. */
bool ls_token_file_fits(const ls_token_file *file);

/* Tokenizes the texts and publishes the file. Errors: as ls_corpus_open has. */
LS_CHECKED ls_status ls_token_file_make(const ls_token_file *file, ls_error *error);

/* Finds ids and documents in the mapped file at `path`, checks that they are whole, and unmaps it
 * where they are not: LS_FAILED. Checksums of ids are looked at when they are read. */
LS_CHECKED ls_status ls_token_file_view(ls_arena *arena, const char *path, ls_corpus *corpus,
                                        ls_error *error);

/* The header of a file; false where it is no token file, or was cut. */
bool ls_token_file_header(const char *path, ls_token_header *header);

/* Whether a file begins as token files do. */
bool ls_token_file_is(const char *path);

/* The header of a token file, all of which is read and found whole: else LS_FAILED. */
LS_CHECKED ls_status ls_token_file_about(const char *path, ls_token_header *about, ls_error *error);

/* Whether tokens [first, first + count) of a corpus are what was written; LS_FAILED where not. */
LS_CHECKED ls_status ls_token_file_check(const ls_corpus *corpus, int64_t first, int64_t count,
                                         ls_error *error);

/* Bytes between header and checksums, and how many checksums that makes. */
int64_t ls_token_body_bytes(const ls_token_header *header);
int64_t ls_token_blocks(const ls_token_header *header);

/* Whether magic, version, sizes and checksum are right for a file of so many bytes. */
bool ls_token_header_is_sound(const ls_token_header *header, int64_t bytes);

extern const char ls_token_magic[8];
/* Of chats ids are marked (chat/chat.h): what does not know of marks does not know the version. */
enum { LS_TOKEN_VERSION = 2, LS_TOKEN_MARKED_VERSION = 3 };

uint64_t ls_token_header_checksum(const ls_token_header *header);
uint64_t ls_token_block_checksum(const void *block, size_t bytes);

#endif
