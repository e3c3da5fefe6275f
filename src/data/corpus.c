#include "data/corpus.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/stop.h"
#include "data/text_cache.h"
#include "data/token_corpus.h"
#include "data/token_file.h"

int32_t ls_corpus_end_of_text(const ls_tokenizer *tokenizer) {
  return tokenizer->end_of_text;
}

const char *ls_corpus_field(const ls_corpus_options *options, const ls_text_file *file) {
  const char *field = options->fields ? options->fields[file->pattern] : NULL;
  if (!field) field = options->text_key;
  return field ? field : "text";
}

/* Waits for the lock, unless this process is asked to stop. *taken false: there are no locks here.
 */
static ls_status take_turn(int folder, bool *taken, ls_error *error) {
  const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
  while (flock(folder, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return LS_OK;
    LS_TRY(ls_stop_check("waiting for another process to read the texts", error));
    nanosleep(&pause, NULL);
  }
  *taken = true;
  return LS_OK;
}

static ls_status make(void *context, ls_error *error) {
  const ls_token_file *file = context;
  ls_cache_sweep(file->options->cache_folder);
  return ls_token_file_make(file, error);
}

/* Of several processes that want one corpus, the first makes it with all cores, and the others
 * wait. A file system without locks has them all make it. */
static ls_status make_alone(const ls_token_file *file, bool *fits, ls_error *error) {
  struct stat before = {0}, now = {0};
  stat(file->path, &before);
  const int folder = open(file->options->cache_folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  bool waited = false;
  ls_status status = folder >= 0 ? take_turn(folder, &waited, error) : LS_OK;
  stat(file->path, &now);
  /* Looking may mean to read all texts: only where someone else has made a file meanwhile. */
  *fits = waited && now.st_ino != before.st_ino && ls_token_file_fits(file);
  if (status == LS_OK && !*fits) {
    ls_token_file wanted = *file;
    status = ls_arena_guard(make, &wanted, true, error); /* the lock must not outlive it */
  }
  if (folder >= 0) close(folder);
  return status;
}

/* Until the file fits. Looking may take long: another process is to see before that it is in use.
 */
static ls_status prepare(const ls_token_file *file, bool *fits, ls_error *error) {
  ls_cache_touch(file->path);
  *fits = ls_token_file_fits(file);
  return *fits ? LS_OK : make_alone(file, fits, error);
}

ls_status ls_corpus_open(ls_arena *arena, const ls_corpus_options *options, ls_corpus *corpus,
                         ls_error *error) {
  *corpus = (ls_corpus){0};
  ls_text_files files;
  LS_TRY(ls_text_files_find(arena, options->key, options->patterns, options->pattern_count, &files,
                            error));
  bool tokens;
  LS_TRY(ls_token_corpus_asked(options, &files, &tokens, error));
  if (tokens && ls_corpus_is_marked(options))
    return ls_fail(error, LS_INPUT, "%s: found token files; expected %s", options->key,
                   options->chat ? "chats" : "texts with a class");
  if (tokens) return ls_token_corpus_open(arena, options, &files, corpus, error);
  LS_TRY(ls_directory_make(options->cache_folder, error));
  const ls_token_file file = ls_token_file_of(arena, options, &files);
  bool fits;
  LS_TRY(prepare(&file, &fits, error));
  ls_status status = ls_token_file_view(arena, file.path, corpus, error);
  if (status == LS_INPUT) { /* another process has just removed it */
    LS_TRY(prepare(&file, &fits, error));
    status = ls_token_file_view(arena, file.path, corpus, error);
  }
  LS_TRY(status);
  corpus->files = files;
  corpus->from_cache = fits;
  return LS_OK;
}

void ls_corpus_close(ls_corpus *corpus) {
  for (int p = 0; p < corpus->part_count; p++) ls_file_unmap(&corpus->parts[p].map);
  ls_file_unmap(&corpus->map);
  *corpus = (ls_corpus){0};
}

/* Of one file. */
static ls_status copy(const ls_corpus *corpus, int64_t first, int64_t count, int32_t *ids,
                      ls_error *error) {
  LS_TRY(ls_token_file_check(corpus, first, count, error));
  if (corpus->width == 1) {
    const uint8_t *from = (const uint8_t *)corpus->tokens + first;
    for (int64_t i = 0; i < count; i++) ids[i] = from[i];
  } else if (corpus->width == 2) {
    const uint16_t *from = (const uint16_t *)corpus->tokens + first;
    for (int64_t i = 0; i < count; i++) ids[i] = from[i];
  } else {
    memcpy(ids, (const int32_t *)corpus->tokens + first, (size_t)count * sizeof *ids);
  }
  return LS_OK;
}

/* The token file that a token lies in. */
static int find_part(const ls_corpus *corpus, int64_t token) {
  int low = 0, high = corpus->part_count; /* parts[low].first <= token */
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    if (corpus->parts[middle].first <= token)
      low = middle;
    else
      high = middle;
  }
  return low;
}

static ls_status copy_stored(const ls_corpus *corpus, int64_t first, int64_t count, int32_t *ids,
                             ls_error *error) {
  LS_ASSERT(first >= 0 && count >= 0 && first <= corpus->count - count);
  if (!corpus->parts) return copy(corpus, first, count, ids, error);
  for (int p = find_part(corpus, first); count > 0; p++) {
    const ls_corpus *part = &corpus->parts[p];
    const int64_t place = first - part->first, left = part->count - place;
    const int64_t here = count < left ? count : left;
    LS_TRY(copy(part, place, here, ids, error));
    ids += here;
    first += here;
    count -= here;
  }
  return LS_OK;
}

ls_status ls_corpus_copy(const ls_corpus *corpus, int64_t first, int64_t count, int32_t *ids,
                         ls_error *error) {
  LS_TRY(copy_stored(corpus, first, count, ids, error));
  for (int64_t i = 0; corpus->marked && i < count; i++) ids[i] = ls_chat_id(ids[i]);
  return LS_OK;
}

ls_status ls_corpus_copy_labels(const ls_corpus *corpus, int64_t first, int64_t count,
                                int32_t *labels, ls_error *error) {
  LS_TRY(copy_stored(corpus, first, count, labels, error));
  for (int64_t i = 0; corpus->marked && i < count; i++)
    labels[i] = ls_chat_is_trained(labels[i]) ? ls_chat_id(labels[i]) : -1;
  return LS_OK;
}

int64_t ls_corpus_document(const ls_corpus *corpus, int64_t token) {
  LS_ASSERT(token >= 0 && token < corpus->count);
  int64_t low = 0, high = corpus->document_count; /* documents[low].first <= token */
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    if (corpus->documents[middle].first <= token)
      low = middle;
    else
      high = middle;
  }
  return low;
}

const char *ls_corpus_cache_folder(ls_arena *arena, const char *out) {
  const char *cache = getenv("XDG_CACHE_HOME");
  if (cache && cache[0] == '/') return ls_arena_printf(arena, "%s/lockstep", cache);
  const char *end = out + strlen(out);
  while (end > out && end[-1] == '/') end--;
  while (end > out && end[-1] != '/') end--;
  return ls_arena_printf(arena, "%.*scache", (int)(end - out), out);
}
