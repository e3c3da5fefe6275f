/* How fast a tokenizer encodes a text on one core, in MB a second of processor time (which other
 * programs on the machine do not lengthen much): medians of several rounds, each with a tokenizer
 * that was just opened and has no words cached, and of the same text once more.
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
#include "tokenizer/tokenizer.h"

static double processor_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

enum { ROUNDS_MOST = 99 };

static int by_size(const void *one, const void *other) {
  const double a = *(const double *)one, b = *(const double *)other;
  return (a > b) - (a < b);
}

static double median(double *seconds, int count) {
  qsort(seconds, (size_t)count, sizeof *seconds, by_size);
  return seconds[count / 2];
}

/* One tokenizer, which has seen nothing yet, and then the same text. */
typedef struct round {
  double opened_s, cold_s, warm_s;
} round;

static ls_status encode(const ls_tokenizer *tokenizer, const char *text, size_t bytes, ls_ids *ids,
                        double *seconds, ls_error *error) {
  ids->count = 0;
  const double start = processor_s();
  LS_TRY(ls_tokenizer_append(tokenizer, text, (int64_t)bytes, 0, ids, error));
  *seconds = processor_s() - start;
  return LS_OK;
}

static ls_status one_round(const char *path, const char *text, size_t bytes, ls_ids *ids,
                           round *made, ls_error *error) {
  const double begin = ls_now_s();
  const ls_tokenizer *tokenizer;
  LS_TRY(ls_tokenizer_open(path, NULL, &tokenizer, error));
  made->opened_s = ls_now_s() - begin;
  ls_status status = encode(tokenizer, text, bytes, ids, &made->cold_s, error);
  if (status == LS_OK) status = encode(tokenizer, text, bytes, ids, &made->warm_s, error);
  ls_tokenizer_close(&tokenizer);
  return status;
}

static ls_status measure(ls_arena *arena, const char *path, const char *text_path, int rounds,
                         ls_error *error) {
  char *text;
  size_t bytes;
  LS_TRY(ls_file_read(arena, text_path, &text, &bytes, error));
  ls_ids ids = {0};
  double opened[ROUNDS_MOST], cold[ROUNDS_MOST], warm[ROUNDS_MOST];
  ls_status status = LS_OK;
  for (int i = 0; i < rounds && status == LS_OK; i++) {
    round made;
    status = one_round(path, text, bytes, &ids, &made, error);
    if (status == LS_OK) opened[i] = made.opened_s, cold[i] = made.cold_s, warm[i] = made.warm_s;
  }
  if (status == LS_OK) {
    const size_t id_bytes = (size_t)ids.count * sizeof *ids.items;
    const unsigned long check = crc32_z(0, (const Bytef *)ids.items, id_bytes);
    const double mb = (double)bytes / 1e6;
    printf(
        "{\"ids\": %lld, \"crc32\": %lu, \"mb_per_s\": %.2f, \"again_mb_per_s\": %.2f, "
        "\"open_s\": %.3f}\n",
        (long long)ids.count, check, mb / median(cold, rounds), mb / median(warm, rounds),
        median(opened, rounds));
  }
  ls_ids_free(&ids);
  return status;
}

int main(int count, char **words) {
  if (count < 3) {
    fprintf(stderr, "usage: tokenizer_speed TOKENIZER TEXT [ROUNDS]\n");
    return 2;
  }
  const long rounds = count > 3 ? strtol(words[3], NULL, 10) : 5;
  if (rounds < 1 || rounds > ROUNDS_MOST) {
    fprintf(stderr, "tokenizer_speed: expected 1 to %d rounds\n", ROUNDS_MOST);
    return 2;
  }
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  const ls_status status = measure(arena, words[1], words[2], (int)rounds, &error);
  if (status != LS_OK) fprintf(stderr, "tokenizer_speed: %s\n", error.text);
  ls_arena_destroy(&arena);
  return ls_exit_status(status);
}
