/* Fuzz target of packed texts: the first byte says how the file is packed and in what pieces it is
 * read. What comes out does not depend on the pieces. */
#include "data/text_stream.h"
#include "support/fuzz_folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { MOST = 1 << 21 }; /* a small input may unpack to gigabytes */

typedef struct unpacked {
  ls_status status;
  size_t bytes;
  char text[MOST];
} unpacked;

static void unpack(const ls_text_file *file, size_t piece, unpacked *out) {
  ls_error error = {0};
  ls_text_stream *stream;
  size_t got = 1;
  out->bytes = 0;
  out->status = ls_text_stream_open("fuzz", file, &stream, &error);
  while (out->status == LS_OK && got > 0 && out->bytes < MOST) {
    const size_t room = MOST - out->bytes;
    out->status = ls_text_stream_read(stream, out->text + out->bytes, piece < room ? piece : room,
                                      &got, &error);
    LS_ASSERT(got <= piece && got <= room);
    if (out->status == LS_OK) out->bytes += got;
  }
  if (out->status == LS_OK && got == 0)
    LS_ASSERT(ls_text_stream_packed_bytes(stream) == file->bytes);
  if (out->status != LS_OK) fuzz_check_refusal(out->status, &error);
  ls_text_stream_close(&stream);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static unpacked whole, pieces;
  if (bytes == 0) return 0;
  fuzz_folder_write("text", data + 1, bytes - 1);
  ls_error error = {0};
  ls_arena *arena = ls_arena_create();
  const char *const path = ls_arena_printf(arena, "%s/text", fuzz_folder());
  ls_text_files files;
  const ls_status status = ls_text_files_find(arena, "fuzz", &path, 1, &files, &error);
  if (status == LS_OK) {
    ls_text_file file = files.items[0];
    file.packing = (ls_text_packing)(data[0] % 4);
    unpack(&file, MOST, &whole);
    unpack(&file, 1 + data[0] / 4u * 37u, &pieces);
    LS_ASSERT(whole.status == pieces.status);
    if (whole.status == LS_OK)
      LS_ASSERT(whole.bytes == pieces.bytes && !memcmp(whole.text, pieces.text, whole.bytes));
  } else {
    fuzz_check_refusal(status, &error);
  }
  ls_arena_destroy(&arena);
  return 0;
}
