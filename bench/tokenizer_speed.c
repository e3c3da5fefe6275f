/* How fast a tokenizer encodes a text on one core: the best of several rounds, in MB a second
 * of processor time (which other programs on the machine do not lengthen much).
 *
 *   build/bench/tokenizer_speed TOKENIZER TEXT [ROUNDS]
 *
 * bench/tokenizer_peers.py runs it beside others' libraries. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <zlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "data/tokenizer.h"

static double processor_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static ls_status measure(ls_arena *arena, const char *path, const char *text_path, int rounds,
                         ls_error *error) {
  const double begin = ls_now_s();
  const ls_tokenizer *tokenizer;
  LS_TRY(ls_tokenizer_open(path, NULL, &tokenizer, error));
  const double opened = ls_now_s() - begin;
  char *text;
  size_t bytes;
  ls_status status = ls_file_read(arena, text_path, &text, &bytes, error);
  ls_ids ids = {0};
  double best = 1e30;
  for (int i = 0; i < rounds && status == LS_OK; i++) {
    ids.count = 0;
    const double start = processor_s();
    status = ls_tokenizer_append(tokenizer, text, (int64_t)bytes, 0, &ids, error);
    const double seconds = processor_s() - start;
    if (seconds < best) best = seconds;
  }
  if (status == LS_OK) {
    const size_t id_bytes = (size_t)ids.count * sizeof *ids.items;
    const unsigned long check = crc32_z(0, (const Bytef *)ids.items, id_bytes);
    printf("{\"ids\": %lld, \"crc32\": %lu, \"mb_per_s\": %.2f, \"open_s\": %.3f}\n",
           (long long)ids.count, check, (double)bytes / 1e6 / best, opened);
  }
  ls_ids_free(&ids);
  ls_tokenizer_close(&tokenizer);
  return status;
}

int main(int count, char **words) {
  if (count < 3) {
    fprintf(stderr, "usage: tokenizer_speed TOKENIZER TEXT [ROUNDS]\n");
    return 2;
  }
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  const int rounds = count > 3 ? (int)strtol(words[3], NULL, 10) : 5;
  const ls_status status = measure(arena, words[1], words[2], rounds, &error);
  if (status != LS_OK) fprintf(stderr, "tokenizer_speed: %s\n", error.text);
  ls_arena_destroy(&arena);
  return ls_exit_status(status);
}
