#include "data/text_stream.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

#include "base/random.h"
#include "data/fingerprint.h"
#include "data/token_file.h"

enum { INPUT_BYTES = 1 << 18, GZIP_WINDOW = 15 + 16 };

struct ls_text_stream {
  ls_arena *arena; /* that it lies in */
  const char *key;
  const ls_text_file *file;
  FILE *in;
  uint8_t *input; /* [INPUT_BYTES] as they lie on disk */
  size_t have, taken;
  int64_t packed_bytes;
  uint64_t fingerprint;
  bool at_end;  /* of the file */
  bool between; /* packed: before the first frame or after a whole one */
  z_stream gzip;
  ZSTD_DStream *zstd;
  uint64_t frame_bytes, frame_says; /* zstd: unpacked so far, and what the frame's head says */
};

static ls_status fail_at(const ls_text_stream *stream, const char *what, ls_error *error) {
  return ls_fail(error, LS_INPUT, "%s: %s: %s", stream->key, stream->file->path, what);
}

static bool begins_with(const ls_text_stream *stream, const char *magic, size_t bytes) {
  return stream->have >= bytes && memcmp(stream->input, magic, bytes) == 0;
}

/* Its size and time say that nobody wrote to it meanwhile. */
static ls_status check_unchanged(const ls_text_stream *stream, ls_error *error) {
  const ls_text_file *file = stream->file;
  struct stat now;
  if (fstat(fileno(stream->in), &now) != 0) return fail_at(stream, "cannot be looked at", error);
  const int64_t modified_ns = (int64_t)now.st_mtim.tv_sec * 1000000000 + now.st_mtim.tv_nsec;
  if (stream->packed_bytes == file->bytes && now.st_size == file->bytes &&
      modified_ns == file->modified_ns)
    return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: %s changed while it was being read (%lld bytes, then %lld); start again",
                 stream->key, file->path, (long long)file->bytes,
                 (long long)(stream->packed_bytes == file->bytes ? (int64_t)now.st_size
                                                                 : stream->packed_bytes));
}

/* Blocks of one size, so that the fingerprint is the same however much is asked for. */
static ls_status refill(ls_text_stream *stream, ls_error *error) {
  stream->have = fread(stream->input, 1, INPUT_BYTES, stream->in);
  stream->taken = 0;
  if (ferror(stream->in))
    return ls_fail(error, LS_INPUT, "%s: %s cannot be read: %m", stream->key, stream->file->path);
  stream->packed_bytes += (int64_t)stream->have;
  if (stream->have) {
    stream->fingerprint = ls_fingerprint_bytes(stream->fingerprint, stream->input, stream->have);
    return LS_OK;
  }
  stream->at_end = true;
  return check_unchanged(stream, error);
}

/* What is packed or binary, but not named so, would be trained on as it stands. */
static ls_status check_magic(const ls_text_stream *stream, ls_error *error) {
  const bool gzip = begins_with(stream, "\x1f\x8b\x08", 3);
  const bool zstd = begins_with(stream, "\x28\xb5\x2f\xfd", 4);
  const bool skippable = stream->have >= 4 && (stream->input[0] & 0xf0) == 0x50 &&
                         memcmp(stream->input + 1, "\x2a\x4d\x18", 3) == 0;
  switch (stream->file->packing) {
    case LS_TEXT_GZIP:
      if (gzip || stream->have == 0) return LS_OK;
      return fail_at(stream, "is not packed with gzip, as .gz says; rename or repack it", error);
    case LS_TEXT_ZSTD:
      if (zstd || skippable || stream->have == 0) return LS_OK;
      return fail_at(stream, "is not packed with zstd, as .zst says; rename or repack it", error);
    case LS_TEXT_RAW: return LS_OK;
    case LS_TEXT_UNPACKED: break;
  }
  if (gzip) return fail_at(stream, "is packed with gzip; give it a name that ends in .gz", error);
  if (zstd) return fail_at(stream, "is packed with zstd; give it a name that ends in .zst", error);
  if (begins_with(stream, ls_token_magic, sizeof ls_token_magic))
    return fail_at(stream,
                   "is a token file, not a text; to train on it, give it a name that ends in "
                   ".tokens",
                   error);
  if (begins_with(stream, "PAR1", 4))
    return fail_at(stream, "is a Parquet file, which is not read; convert it to JSON lines", error);
  return LS_OK;
}

static ls_status start(ls_text_stream *stream, ls_error *error) {
  stream->in = fopen(stream->file->path, "rb");
  if (!stream->in)
    return ls_fail(error, LS_INPUT, "%s: %s cannot be read: %m; expected a text file", stream->key,
                   stream->file->path);
  setvbuf(stream->in, NULL, _IONBF, 0); /* whole blocks are read already */
  if (stream->file->packing == LS_TEXT_ZSTD) stream->zstd = ZSTD_createDStream();
  bool ready = true;
  if (stream->file->packing == LS_TEXT_ZSTD) ready = ready && stream->zstd;
  if (stream->file->packing == LS_TEXT_GZIP)
    ready = ready && inflateInit2(&stream->gzip, GZIP_WINDOW) == Z_OK;
  if (!ready) return ls_fail(error, LS_FAILED, "%s: no memory to unpack it", stream->file->path);
  LS_TRY(refill(stream, error));
  return check_magic(stream, error);
}

ls_status ls_text_stream_open(const char *key, const ls_text_file *file, ls_text_stream **stream,
                              ls_error *error) {
  *stream = NULL;
  ls_arena *arena = ls_arena_create();
  ls_text_stream *made = LS_NEW(arena, ls_text_stream);
  made->arena = arena;
  made->input = ls_arena_alloc(arena, INPUT_BYTES);
  made->key = key;
  made->file = file;
  made->between = true;
  made->fingerprint = ls_random_stream("text");
  const ls_status status = start(made, error);
  if (status == LS_OK)
    *stream = made;
  else
    ls_text_stream_close(&made);
  return status;
}

void ls_text_stream_close(ls_text_stream **stream) {
  ls_text_stream *dying = *stream;
  *stream = NULL;
  if (!dying) return;
  if (dying->in) fclose(dying->in);
  inflateEnd(&dying->gzip); /* of a stream that never began, this does nothing */
  ZSTD_freeDStream(dying->zstd);
  ls_arena_destroy(&dying->arena);
}

static ls_status unpack_gzip(ls_text_stream *stream, void *data, size_t bytes, size_t *got,
                             ls_error *error) {
  z_stream *gzip = &stream->gzip;
  gzip->next_in = stream->input + stream->taken;
  gzip->avail_in = (uInt)(stream->have - stream->taken);
  gzip->next_out = data;
  gzip->avail_out = (uInt)bytes;
  const int answer = inflate(gzip, Z_NO_FLUSH);
  stream->taken = stream->have - gzip->avail_in;
  *got = bytes - gzip->avail_out;
  stream->between = answer == Z_STREAM_END;
  if (answer == Z_STREAM_END) { /* another may follow, as of files put together */
    LS_ASSERT(inflateReset(gzip) == Z_OK);
    return LS_OK;
  }
  if (answer == Z_OK || answer == Z_BUF_ERROR) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: %s: damaged: %s", stream->key, stream->file->path,
                 gzip->msg ? gzip->msg : "no gzip data");
}

static ls_status unpack_zstd(ls_text_stream *stream, void *data, size_t bytes, size_t *got,
                             ls_error *error) {
  ZSTD_inBuffer from = {stream->input, stream->have, stream->taken};
  ZSTD_outBuffer to = {data, bytes, 0};
  if (stream->between) {
    stream->frame_bytes = 0;
    stream->frame_says =
        ZSTD_getFrameContentSize(stream->input + stream->taken, stream->have - stream->taken);
  }
  const size_t answer = ZSTD_decompressStream(stream->zstd, &to, &from);
  stream->taken = from.pos;
  *got = to.pos;
  stream->between = answer == 0;
  stream->frame_bytes += to.pos;
  /* The library compares the two only where the whole frame fits in the output. */
  if (answer == 0 && stream->frame_says < ZSTD_CONTENTSIZE_ERROR &&
      stream->frame_says != stream->frame_bytes)
    return ls_fail(error, LS_INPUT, "%s: %s: damaged: a frame of %" PRIu64 " bytes has %" PRIu64,
                   stream->key, stream->file->path, stream->frame_says, stream->frame_bytes);
  if (!ZSTD_isError(answer)) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: %s: damaged: %s", stream->key, stream->file->path,
                 ZSTD_getErrorName(answer));
}

static ls_status take(ls_text_stream *stream, void *data, size_t bytes, size_t *got,
                      ls_error *error) {
  switch (stream->file->packing) {
    case LS_TEXT_GZIP: return unpack_gzip(stream, data, bytes, got, error);
    case LS_TEXT_ZSTD: return unpack_zstd(stream, data, bytes, got, error);
    case LS_TEXT_RAW:
    case LS_TEXT_UNPACKED: break;
  }
  const size_t left = stream->have - stream->taken;
  *got = bytes < left ? bytes : left;
  memcpy(data, stream->input + stream->taken, *got);
  stream->taken += *got;
  return LS_OK;
}

ls_status ls_text_stream_read(ls_text_stream *stream, void *data, size_t bytes, size_t *got,
                              ls_error *error) {
  enum { MOST = 1 << 30 }; /* zlib counts in 32 bits */
  LS_ASSERT(bytes > 0);
  *got = 0;
  if (bytes > MOST) bytes = MOST;
  for (;;) {
    if (stream->taken == stream->have && !stream->at_end) LS_TRY(refill(stream, error));
    /* A packed stream may hold back output after its last input. */
    const bool rest = stream->at_end && !stream->between;
    if (stream->at_end && !rest) return LS_OK;
    LS_TRY(take(stream, data, bytes, got, error));
    if (*got > 0) return LS_OK;
    if (rest && !stream->between) return fail_at(stream, "is cut short", error);
  }
}

int64_t ls_text_stream_packed_bytes(const ls_text_stream *stream) {
  return stream->packed_bytes;
}

uint64_t ls_text_stream_fingerprint(const ls_text_stream *stream) {
  return stream->fingerprint;
}
