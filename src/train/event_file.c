#include "train/event_file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/crc32c.h"
#include "base/file.h"

enum { EVENT_BYTES = 512, HEAD_BYTES = 12, FOOT_BYTES = 4 };

/* Fields of protocol buffers: a number, and how what follows is written. */
enum { VARINT = 0, EIGHT_BYTES = 1, WITH_LENGTH = 2, FOUR_BYTES = 5 };
enum { EVENT_WALL_TIME = 1, EVENT_STEP, EVENT_VERSION, EVENT_SUMMARY = 5, EVENT_SESSION = 7 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, SESSION_STATUS = 1, SESSION_START = 1 };

struct ls_event_file {
  ls_arena *arena;
  const char *path;
  int file;
};

typedef struct message {
  unsigned char bytes[EVENT_BYTES];
  size_t count;
} message;

static void put(message *to, const void *bytes, size_t count) {
  LS_ASSERT(to->count + count <= EVENT_BYTES);
  memcpy(to->bytes + to->count, bytes, count);
  to->count += count;
}

static void put_varint(message *to, uint64_t value) {
  do {
    const unsigned char byte = (unsigned char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
    put(to, &byte, 1);
    value >>= 7;
  } while (value);
}

static void put_field(message *to, int number, int kind) {
  put_varint(to, (uint64_t)(number << 3 | kind));
}

/* Little-endian whatever the host is. */
static void put_word(message *to, uint64_t value, int bytes) {
  for (int b = 0; b < bytes; b++) {
    const unsigned char byte = (unsigned char)(value >> 8 * b);
    put(to, &byte, 1);
  }
}

static void put_double(message *to, int number, double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  put_field(to, number, EIGHT_BYTES);
  put_word(to, bits, 8);
}

static void put_float(message *to, int number, float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  put_field(to, number, FOUR_BYTES);
  put_word(to, bits, 4);
}

static void put_text(message *to, int number, const void *text, size_t bytes) {
  put_field(to, number, WITH_LENGTH);
  put_varint(to, bytes);
  put(to, text, bytes);
}

static message begin_event(int64_t step) {
  message made = {.count = 0};
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  put_double(&made, EVENT_WALL_TIME, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
  put_field(&made, EVENT_STEP, VARINT);
  put_varint(&made, (uint64_t)step);
  return made;
}

static uint32_t masked_crc(const void *data, size_t bytes) {
  const uint32_t crc = ls_crc32c(data, bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* Length, its sum, the event, its sum: in one write, so that who reads along sees whole records. */
static ls_status write_record(const ls_event_file *file, const message *event, ls_error *error) {
  unsigned char record[HEAD_BYTES + EVENT_BYTES + FOOT_BYTES];
  message part = {.count = 0};
  put_word(&part, event->count, 8);
  put_word(&part, masked_crc(part.bytes, 8), 4);
  memcpy(record, part.bytes, HEAD_BYTES);
  memcpy(record + HEAD_BYTES, event->bytes, event->count);
  part.count = 0;
  put_word(&part, masked_crc(event->bytes, event->count), FOOT_BYTES);
  memcpy(record + HEAD_BYTES + event->count, part.bytes, FOOT_BYTES);
  const size_t bytes = HEAD_BYTES + event->count + FOOT_BYTES;
  const ssize_t written = write(file->file, record, bytes);
  if (written == (ssize_t)bytes) return LS_OK;
  if (written >= 0) errno = ENOSPC;
  return ls_fail(error, LS_FAILED, "%s: cannot be written: %m", file->path);
}

static ls_status write_start(const ls_event_file *file, int64_t steps_done, ls_error *error) {
  static const char version[] = "brain.Event:2";
  message event = begin_event(0);
  put_text(&event, EVENT_VERSION, version, sizeof version - 1);
  LS_TRY(write_record(file, &event, error));
  message session = {.count = 0};
  put_field(&session, SESSION_STATUS, VARINT);
  put_varint(&session, SESSION_START);
  event = begin_event(steps_done + 1); /* what earlier files have from here on, is left out */
  put_text(&event, EVENT_SESSION, session.bytes, session.count);
  return write_record(file, &event, error);
}

static ls_status make_file(ls_event_file *made, const char *folder, ls_error *error) {
  char host[64] = "host";
  LS_TRY(ls_directory_make(folder, error));
  (void)!gethostname(host, sizeof host - 1);
  for (int number = 0; made->file < 0; number++) {
    made->path = ls_arena_printf(made->arena, "%s/events.out.tfevents.%010lld.%s.%d.%d", folder,
                                 (long long)time(NULL), host, (int)getpid(), number);
    made->file = open(made->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (made->file < 0 && errno != EEXIST)
      return ls_fail(error, LS_FAILED, "%s: cannot be written: %m", made->path);
  }
  return LS_OK;
}

ls_status ls_event_file_open(const char *folder, int64_t steps_done, ls_event_file **file,
                             ls_error *error) {
  ls_arena *arena = ls_arena_create();
  ls_event_file *made = LS_NEW(arena, ls_event_file);
  *made = (ls_event_file){.arena = arena, .file = -1};
  ls_status status = make_file(made, folder, error);
  if (status == LS_OK) status = write_start(made, steps_done, error);
  if (status != LS_OK) ls_event_file_close(&made);
  *file = made;
  return status;
}

static void put_value(message *summary, const char *tag, double value) {
  if (!isfinite(value)) return;
  message made = {.count = 0};
  put_text(&made, VALUE_TAG, tag, strlen(tag));
  put_float(&made, VALUE_SIMPLE, (float)value);
  put_text(summary, SUMMARY_VALUE, made.bytes, made.count);
}

ls_status ls_event_file_write(ls_event_file *file, const ls_metrics_step *step, ls_error *error) {
  message summary = {.count = 0}, event = begin_event(step->step);
  put_value(&summary, "train/loss", step->loss);
  put_value(&summary, "train/grad_norm", step->grad_norm);
  put_value(&summary, "train/learning_rate", step->learning_rate);
  put_value(&summary, "train/epoch", step->epoch);
  put_value(&summary, "train/tokens_per_second", step->tokens_per_second);
  put_value(&summary, "train/mfu", step->mfu);
  put_value(&summary, "eval/loss", step->validation_loss);
  if (step->classifies) put_value(&summary, "eval/accuracy", step->validation_accuracy);
  if (step->pairs) {
    put_value(&summary, "train/rewards/chosen", step->reward_chosen);
    put_value(&summary, "train/rewards/rejected", step->reward_rejected);
    put_value(&summary, "train/rewards/accuracies", step->preferred);
    put_value(&summary, "train/rewards/margins", step->reward_chosen - step->reward_rejected);
  }
  if (step->taught) {
    put_value(&summary, "train/cross_entropy", step->cross_entropy);
    put_value(&summary, "train/kl", step->divergence);
  }
  put_text(&event, EVENT_SUMMARY, summary.bytes, summary.count);
  return write_record(file, &event, error);
}

void ls_event_file_close(ls_event_file **file) {
  if (!*file) return;
  if ((*file)->file >= 0) close((*file)->file);
  ls_arena *arena = (*file)->arena;
  *file = NULL;
  ls_arena_destroy(&arena);
}
