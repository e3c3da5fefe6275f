#include "data/top_logits.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/random.h"
#include "data/fingerprint.h"
#include "store/safetensors.h"

#define FORM_KEY "lockstep_top_logits"
#define FORM "1"

enum { IDS, LOG_PROBS, CHECKSUMS, TENSORS };
static const char *const tensor_names[TENSORS] = {"ids", "log_probs", "checksums"};
static const ls_dtype tensor_types[TENSORS] = {LS_I32, LS_F32, LS_I32};

/* The numbers of the metadata, with the most that each may be. */
static const struct {
  const char *key;
  size_t offset;
  int64_t least, most;
} numbers[] = {
    {"vocabulary", offsetof(ls_top_about, vocabulary), 1, INT32_MAX},
    {"seq_len", offsetof(ls_top_about, seq_len), 1, INT32_MAX},
    {"top_k", offsetof(ls_top_about, top), 1, LS_TOP_LOGITS_MOST},
    {"training_sequences", offsetof(ls_top_about, training), 0, INT32_MAX},
    {"validation_sequences", offsetof(ls_top_about, evaluation), 0, INT32_MAX},
};
enum { NUMBERS = sizeof numbers / sizeof *numbers, TEXTS = 3 };

static ls_status damaged(const char *name, const char *what, ls_error *error) {
  return ls_fail(error, LS_INPUT,
                 "%s: %s; expected a file that lockstep evaluate --logits has written", name, what);
}

static ls_status read_about(ls_arena *arena, const char *name, const ls_safetensors *set,
                            ls_top_about *about, ls_error *error) {
  const char *form = ls_safetensors_metadata(set, FORM_KEY);
  if (!form) return damaged(name, "has no \"" FORM_KEY "\" in its metadata", error);
  if (strcmp(form, FORM) != 0)
    return ls_fail(error, LS_INPUT, "%s: is of form \"%s\"; expected \"" FORM "\"", name, form);
  for (int n = 0; n < NUMBERS; n++) {
    const char *text = ls_safetensors_metadata(set, numbers[n].key);
    char *end = NULL;
    errno = 0;
    const long long number = text && *text >= '0' && *text <= '9' ? strtoll(text, &end, 10) : -1;
    if (!end || *end || errno || number < numbers[n].least || number > numbers[n].most)
      return damaged(
          name, ls_arena_printf(arena, "its metadata says no \"%s\" that can be", numbers[n].key),
          error);
    *(int64_t *)((char *)about + numbers[n].offset) = number;
  }
  const char *teacher = ls_safetensors_metadata(set, "teacher");
  const char *dataset = ls_safetensors_metadata(set, "dataset");
  if (!teacher || !dataset) return damaged(name, "its metadata lacks teacher or dataset", error);
  about->teacher = ls_arena_strdup(arena, teacher);
  about->dataset = ls_arena_strdup(arena, dataset);
  if (about->top <= about->vocabulary && about->training + about->evaluation > 0) return LS_OK;
  return damaged(name, "tells of more ids than the vocabulary has, or of no sequence", error);
}

/* [sequences, T, k]; of checksums [sequences]. */
static int dims_of(const ls_top_about *about, int tensor, int64_t dims[3]) {
  dims[0] = about->training + about->evaluation;
  dims[1] = about->seq_len;
  dims[2] = about->top;
  return tensor == CHECKSUMS ? 1 : 3;
}

static ls_status take_tensors(ls_arena *arena, const ls_safetensors *set, ls_top_logits *parsed,
                              ls_error *error) {
  const char **places[TENSORS] = {&parsed->ids, &parsed->log_probs, &parsed->checksums};
  for (int t = 0; t < TENSORS; t++) {
    int64_t dims[3];
    const int ndim = dims_of(&parsed->about, t, dims);
    const ls_stored_tensor *found = ls_safetensors_find(set, tensor_names[t]);
    bool same = found && found->dtype == tensor_types[t] && found->ndim == ndim && found->data;
    for (int d = 0; same && d < ndim; d++) same = found->dims[d] == dims[d];
    if (!same)
      return damaged(parsed->name,
                     ls_arena_printf(arena, "has no tensor %s of the sizes that its metadata says",
                                     tensor_names[t]),
                     error);
    *places[t] = found->data;
  }
  return LS_OK;
}

ls_status ls_top_logits_parse(ls_arena *arena, const char *name, const void *data, size_t bytes,
                              ls_top_logits *parsed, ls_error *error) {
  ls_safetensors *set;
  *parsed = (ls_top_logits){.name = ls_arena_strdup(arena, name)};
  LS_TRY(ls_safetensors_parse(name, data, bytes, &set, error));
  ls_status status = read_about(arena, name, set, &parsed->about, error);
  if (status == LS_OK) status = take_tensors(arena, set, parsed, error);
  ls_safetensors_close(&set);
  return status;
}

ls_status ls_top_logits_open(ls_arena *arena, const char *path, const ls_top_logits **opened,
                             ls_error *error) {
  ls_map map;
  ls_top_logits *made = LS_NEW(arena, ls_top_logits);
  if (ls_directory_exists(path))
    return ls_fail(error, LS_INPUT, "%s is a folder; expected the file of a teacher's logits",
                   path);
  LS_TRY(ls_file_map(path, &map, error));
  const ls_status status = ls_top_logits_parse(arena, path, map.data, map.bytes, made, error);
  if (status != LS_OK) ls_file_unmap(&map);
  *opened = made;
  return status;
}

static uint32_t checksum_of(const int32_t *ids, const int32_t *positions, int64_t count) {
  const size_t bytes = (size_t)count * sizeof *ids;
  return ls_crc32c(ids, bytes) ^ (ls_crc32c(positions, bytes) * 2654435761u);
}

static ls_status bad_row(const ls_top_logits *opened, int64_t sequence, int64_t token,
                         const char *what, ls_error *error) {
  return ls_fail(error, LS_INPUT, "%s: sequence %lld, token %lld: %s", opened->name,
                 (long long)sequence, (long long)token, what);
}

/* A token's ids, of which the ones before were looked at. */
static ls_status take_token(const ls_top_logits *opened, int64_t sequence, int64_t token,
                            const int32_t *ids, float *below, ls_error *error) {
  const int64_t top = opened->about.top;
  float most = -INFINITY;
  for (int64_t j = 0; j < top; j++) {
    if (ids[j] < 0 || ids[j] >= opened->about.vocabulary || (j > 0 && ids[j] <= ids[j - 1]))
      return bad_row(opened, sequence, token,
                     "ids are not ascending, each once, below the vocabulary", error);
    if (!isfinite(below[j]) || below[j] > 1e-2f)
      return bad_row(opened, sequence, token, "a log-probability is no number up to 0", error);
    if (below[j] > most) most = below[j];
  }
  for (int64_t j = 0; j < top; j++) below[j] -= most;
  return LS_OK;
}

ls_status ls_top_logits_read(const ls_top_logits *opened, int64_t sequence, const int32_t *ids,
                             const int32_t *positions, int32_t *top_ids, float *below,
                             ls_error *error) {
  const ls_top_about *about = &opened->about;
  const int64_t count = about->seq_len * about->top;
  uint32_t kept;
  LS_ASSERT(sequence >= 0 && sequence < about->training + about->evaluation);
  memcpy(&kept, opened->checksums + sequence * (int64_t)sizeof kept, sizeof kept);
  if (kept != checksum_of(ids, positions, about->seq_len))
    return ls_fail(error, LS_INPUT,
                   "%s: sequence %lld is of other tokens than the run's: make it anew with the "
                   "run's data keys",
                   opened->name, (long long)sequence);
  memcpy(top_ids, opened->ids + sequence * count * (int64_t)sizeof *top_ids,
         (size_t)count * sizeof *top_ids);
  memcpy(below, opened->log_probs + sequence * count * (int64_t)sizeof *below,
         (size_t)count * sizeof *below);
  for (int64_t t = 0; t < about->seq_len; t++)
    LS_TRY(
        take_token(opened, sequence, t, top_ids + t * about->top, below + t * about->top, error));
  return LS_OK;
}

uint64_t ls_top_logits_glance(const ls_top_logits *opened) {
  enum { LOOKS = 256 };
  const ls_top_about *about = &opened->about;
  const int64_t sequences = about->training + about->evaluation;
  const int64_t looks = sequences < LOOKS ? sequences : LOOKS;
  uint64_t hash = ls_random_stream("top logits");
  hash = ls_fingerprint_bytes(hash, about->teacher, strlen(about->teacher));
  hash = ls_fingerprint_bytes(hash, about->dataset, strlen(about->dataset));
  for (int n = 0; n < NUMBERS; n++)
    hash = ls_fingerprint_word(hash, *(const uint64_t *)((const char *)about + numbers[n].offset));
  hash = ls_fingerprint_bytes(hash, opened->checksums, (size_t)sequences * sizeof(int32_t));
  for (int64_t l = 0; l < looks; l++) {
    const int64_t at = l * sequences / looks * about->seq_len * about->top;
    hash = ls_fingerprint_bytes(hash, opened->log_probs + at * (int64_t)sizeof(float),
                                (size_t)about->top * sizeof(float));
  }
  return ls_fingerprint_spread(hash);
}

struct ls_top_writer {
  const char *path, *begun; /* where it will be, and is until then */
  ls_top_about about;
  ls_safetensors_writer *to;
};

ls_status ls_top_writer_begin(ls_arena *arena, const char *path, const ls_top_about *about,
                              ls_top_writer **writer, ls_error *error) {
  ls_top_writer *made = *writer = LS_NEW(arena, ls_top_writer);
  ls_tensor_spec specs[TENSORS];
  ls_metadata_pair metadata[NUMBERS + TEXTS];
  int64_t dims[TENSORS][3];
  char *real = realpath(path, NULL); /* a link is followed */
  *made = (ls_top_writer){.path = ls_arena_strdup(arena, real ? real : path), .about = *about};
  free(real);
  made->begun = ls_arena_printf(arena, "%s.tmp-%ld", made->path, (long)getpid());
  for (int t = 0; t < TENSORS; t++)
    specs[t] = (ls_tensor_spec){tensor_names[t], tensor_types[t], dims_of(about, t, dims[t]),
                                dims[t], NULL};
  metadata[0] = (ls_metadata_pair){FORM_KEY, FORM};
  metadata[1] = (ls_metadata_pair){"teacher", about->teacher};
  metadata[2] = (ls_metadata_pair){"dataset", about->dataset};
  for (int n = 0; n < NUMBERS; n++)
    metadata[TEXTS + n] = (ls_metadata_pair){
        numbers[n].key,
        ls_arena_printf(arena, "%" PRId64,
                        *(const int64_t *)((const char *)about + numbers[n].offset))};
  return ls_safetensors_create(made->begun, specs, TENSORS, metadata, NUMBERS + TEXTS, &made->to,
                               error);
}

ls_status ls_top_writer_put(ls_top_writer *writer, int64_t sequence, const int32_t *ids,
                            const int32_t *positions, const int32_t *top_ids,
                            const float *log_probs, ls_error *error) {
  const int64_t count = writer->about.seq_len * writer->about.top;
  const uint32_t checksum = checksum_of(ids, positions, writer->about.seq_len);
  LS_TRY(ls_safetensors_write(writer->to, IDS, sequence * count, top_ids, count, error));
  LS_TRY(ls_safetensors_write(writer->to, LOG_PROBS, sequence * count, log_probs, count, error));
  return ls_safetensors_write(writer->to, CHECKSUMS, sequence, &checksum, 1, error);
}

ls_status ls_top_writer_end(ls_top_writer *writer, ls_error *error) {
  const ls_status synced = ls_safetensors_sync(writer->to, error);
  if (synced != LS_OK) return synced;
  LS_TRY(ls_safetensors_leave(&writer->to, error));
  if (rename(writer->begun, writer->path) == 0) return LS_OK;
  return ls_fail(error, LS_FAILED, "cannot rename %s: %s", writer->begun, strerror(errno));
}

void ls_top_writer_abandon(ls_top_writer *writer) {
  if (writer) ls_safetensors_abandon(&writer->to);
}
