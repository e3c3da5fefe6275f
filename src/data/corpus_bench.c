/* How fast texts become a token cache, and how fast a cache opens: one line of CSV for each file
 * named, with the byte tokenizer, whose work is nothing.
 *
 *   build/bench/corpus_bench FOLDER FILE... */
#include <stdio.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "data/corpus.h"

static int64_t resident_bytes(void) {
  struct rusage usage;
  return getrusage(RUSAGE_SELF, &usage) == 0 ? (int64_t)usage.ru_maxrss * 1024 : 0;
}

static int run(const char *folder, const char *path) {
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  const ls_corpus_options options = {.key = "text",
                                     .patterns = &path,
                                     .pattern_count = 1,
                                     .tokenizer = ls_tokenizer_bytes(),
                                     .cache_folder = folder};
  ls_corpus corpus;
  double seconds[2];
  for (int again = 0; again < 2; again++) {
    const double begin = ls_now_s();
    if (ls_corpus_open(arena, &options, &corpus, &error) != LS_OK) {
      fprintf(stderr, "corpus_bench: %s\n", error.text);
      ls_arena_destroy(&arena);
      return 1;
    }
    seconds[again] = ls_now_s() - begin;
    if (!again) ls_corpus_close(&corpus);
  }
  const double bytes = (double)corpus.files.bytes, tokens = (double)corpus.count;
  printf("%s,%lld,%lld,%.3f,%.1f,%.1f,%.4f,%.0f\n", path, (long long)corpus.document_count,
         (long long)corpus.count, seconds[0], bytes / seconds[0] / 1e6, tokens / seconds[0] / 1e6,
         seconds[1], (double)resident_bytes() / 1048576);
  ls_corpus_close(&corpus);
  ls_arena_destroy(&arena);
  return 0;
}

int main(int count, char **given) {
  if (count < 3) {
    fprintf(stderr, "usage: corpus_bench FOLDER FILE...\n");
    return 2;
  }
  printf("file,documents,tokens,seconds,packed_MB_per_s,text_MB_per_s,open_seconds,peak_MiB\n");
  int failed = 0;
  for (int i = 2; i < count; i++) failed |= run(given[1], given[i]);
  return failed;
}
