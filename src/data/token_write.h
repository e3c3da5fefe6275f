/* Making a token file: reading texts, tokenizing them on all cores, writing. What token_file.c does
 * not need to know; private to the two.
 *
 * Memory is bounded whatever the texts' size: a batch of pieces, its ids, and a checksum for each
 * 64 KiB of the file. One thread calls; ids are made by as many as OpenMP has. */
#ifndef LS_DATA_TOKEN_WRITE_H
#define LS_DATA_TOKEN_WRITE_H

#include "data/token_file.h"

/* Sizes, times and inodes of the texts, and what is read of them. */
uint64_t ls_token_file_quick(const ls_token_file *file);

/* Bytes of an id below `vocabulary`. */
int ls_token_width(int64_t vocabulary);
/* Of what is stored for an id of a file of this version. */
int ls_token_stored_width(uint32_t version, int64_t vocabulary);

/* The fingerprint of the files as they lie on disk and of what is read of them; false where one
 * cannot be read. */
bool ls_token_file_read_texts(const ls_token_file *file, uint64_t *packed);

#endif
