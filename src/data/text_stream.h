/* The bytes of one text file, unpacked while they are read.
 *
 *   ls_text_stream *stream;
 *   LS_TRY(ls_text_stream_open("data.text", file, &stream, error));
 *   do status = ls_text_stream_read(stream, buffer, sizeof buffer, &got, error);
 *   while (status == LS_OK && got > 0);
 *   ls_text_stream_close(&stream);
 *
 * Memory is bounded, whatever the file's size. One thread at a time for one stream. */
#ifndef LS_DATA_TEXT_STREAM_H
#define LS_DATA_TEXT_STREAM_H

#include <stddef.h>

#include "data/text_files.h"

typedef struct ls_text_stream ls_text_stream;

/* LS_INPUT where the file cannot be opened, or is not packed as its name says. `key` and `file`
 * stay the caller's and must live as long as the stream. */
LS_CHECKED ls_status ls_text_stream_open(const char *key, const ls_text_file *file,
                                         ls_text_stream **stream, ls_error *error);

/* Up to `bytes` more, unpacked; *got is 0 at the end only. LS_INPUT names the file: damaged or cut
 * short, or changed since it was found. */
LS_CHECKED ls_status ls_text_stream_read(ls_text_stream *stream, void *data, size_t bytes,
                                         size_t *got, ls_error *error);

/* Bytes read of the file as it lies on disk, and their fingerprint, which does not depend on how
 * they were asked for. At the end these are of the whole file. */
int64_t ls_text_stream_packed_bytes(const ls_text_stream *stream);
uint64_t ls_text_stream_fingerprint(const ls_text_stream *stream);

void ls_text_stream_close(ls_text_stream **stream);

#endif
