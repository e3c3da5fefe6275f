/* Event files: their records, read back by the rules of their format. */
#include "train/event_file.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/crc32c.h"
#include "support/test_folder.h"

static ls_error error;

typedef struct event {
  int64_t step;
  char version[32];
  bool starts;
  int values;
  char tag[8][32];
  float value[8];
} event;

static uint64_t word(const unsigned char *at, int bytes) {
  uint64_t value = 0;
  for (int b = 0; b < bytes; b++) value |= (uint64_t)at[b] << 8 * b;
  return value;
}

static uint64_t varint(const unsigned char **at) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const unsigned char byte = *(*at)++;
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

static void read_value(const unsigned char *at, const unsigned char *end, event *into) {
  while (at < end) {
    const uint64_t field = varint(&at);
    if (field == (1 << 3 | 2)) {
      const uint64_t bytes = varint(&at);
      snprintf(into->tag[into->values], sizeof into->tag[0], "%.*s", (int)bytes, (const char *)at);
      at += bytes;
    } else {
      assert_int_equal(field, 2 << 3 | 5);
      const uint32_t bits = (uint32_t)word(at, 4);
      memcpy(&into->value[into->values], &bits, 4);
      at += 4;
    }
  }
  into->values++;
}

static void read_summary(const unsigned char *at, const unsigned char *end, event *into) {
  while (at < end) {
    assert_int_equal(varint(&at), 1 << 3 | 2);
    const uint64_t bytes = varint(&at);
    read_value(at, at + bytes, into);
    at += bytes;
  }
}

static event read_event(const unsigned char *at, const unsigned char *end) {
  event made = {0};
  while (at < end) {
    const uint64_t field = varint(&at);
    if (field == (1 << 3 | 1)) {
      at += 8;
    } else if (field == (2 << 3 | 0)) {
      made.step = (int64_t)varint(&at);
    } else {
      assert_int_equal(field & 7, 2);
      const uint64_t bytes = varint(&at);
      if (field >> 3 == 3)
        snprintf(made.version, sizeof made.version, "%.*s", (int)bytes, (const char *)at);
      if (field >> 3 == 5) read_summary(at, at + bytes, &made);
      if (field >> 3 == 7) made.starts = bytes == 2 && at[0] == 1 << 3 && at[1] == 1;
      at += bytes;
    }
  }
  assert_ptr_equal(at, end);
  return made;
}

static uint32_t unmask(uint32_t masked) {
  const uint32_t rotated = masked - 0xa282ead8u;
  return rotated << 15 | rotated >> 17;
}

/* The events of the only file of the folder. */
static int read_events(const char *where, event *events, int most) {
  DIR *listed = opendir(where);
  assert_non_null(listed);
  const char *path = NULL;
  for (struct dirent *each; (each = readdir(listed));)
    if (strncmp(each->d_name, "events.out.tfevents.", 20) == 0)
      path = ls_arena_printf(arena, "%s/%s", where, each->d_name);
  closedir(listed);
  assert_non_null(path);
  char *text;
  size_t bytes;
  assert_int_equal(ls_file_read(arena, path, &text, &bytes, &error), LS_OK);
  const unsigned char *at = (const unsigned char *)text, *end = at + bytes;
  int count = 0;
  while (at < end) {
    assert_true(count < most && end - at > 16);
    const uint64_t length = word(at, 8);
    assert_int_equal(unmask((uint32_t)word(at + 8, 4)), ls_crc32c(at, 8));
    at += 12;
    assert_true(length + 4 <= (uint64_t)(end - at));
    assert_int_equal(unmask((uint32_t)word(at + length, 4)), ls_crc32c(at, length));
    events[count++] = read_event(at, at + length);
    at += length + 4;
  }
  return count;
}

static void a_run_is_read_back(void **state) {
  (void)state;
  const char *where = ls_arena_printf(arena, "%s/out/tensorboard", folder);
  ls_event_file *file;
  assert_int_equal(ls_event_file_open(where, 300, &file, &error), LS_OK);
  const ls_metrics_step steps[] = {{.step = 301,
                                    .loss = 5.5,
                                    .grad_norm = INFINITY,
                                    .learning_rate = 3e-4,
                                    .epoch = 0.5,
                                    .tokens_per_second = 1234,
                                    .mfu = NAN,
                                    .validation_loss = NAN},
                                   {.step = 1LL << 40, .loss = 5.25, .validation_loss = 4.75}};
  for (int s = 0; s < 2; s++) assert_int_equal(ls_event_file_write(file, &steps[s], &error), LS_OK);
  ls_event_file_close(&file);
  assert_null(file);
  event events[8];
  assert_int_equal(read_events(where, events, 8), 4);
  assert_string_equal(events[0].version, "brain.Event:2");
  assert_true(events[1].starts && events[1].step == 301);
  assert_true(events[2].step == 301 && events[2].values == 4);
  assert_string_equal(events[2].tag[0], "train/loss");
  assert_true(events[2].value[0] == 5.5f && events[2].value[1] == 3e-4f);
  assert_string_equal(events[2].tag[3], "train/tokens_per_second");
  assert_true(events[3].step == 1LL << 40 && events[3].values == 7);
  assert_string_equal(events[3].tag[6], "eval/loss");
  assert_true(events[3].value[6] == 4.75f);
}

static void two_starts_are_two_files(void **state) {
  (void)state;
  for (int start = 0; start < 2; start++) {
    ls_event_file *file;
    assert_int_equal(ls_event_file_open(folder, 0, &file, &error), LS_OK);
    ls_event_file_close(&file);
  }
  char **paths;
  int count;
  assert_int_equal(
      ls_file_glob(arena, ls_arena_printf(arena, "%s/events.*", folder), &paths, &count, &error),
      LS_OK);
  assert_int_equal(count, 2);
}

static void a_folder_that_cannot_be_is_named(void **state) {
  (void)state;
  ls_event_file *file;
  const char *taken = ls_arena_printf(arena, "%s/taken", folder);
  assert_int_equal(ls_file_write(taken, "x", 1, &error), LS_OK);
  assert_int_not_equal(ls_event_file_open(taken, 0, &file, &error), LS_OK);
  assert_null(file);
  assert_non_null(strstr(error.text, taken));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_run_is_read_back, set_up, tear_down),
      cmocka_unit_test_setup_teardown(two_starts_are_two_files, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_folder_that_cannot_be_is_named, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
