/* Several writers of one set, each of pieces of its tensors, side by side: what large pieces pass
 * by the system's cache and what small ones leave in it is one file. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/random.h"
#include "store/safetensors.h"
#include "support/test_seed.h"

enum { TENSORS = 9, WRITERS = 3, MOST = 900000, LIMIT = 2000000 };

static char folder[] = "/tmp/lockstep-join-XXXXXX";
static uint64_t seed;
static ls_arena *arena;

static uint64_t draw(uint64_t stream, uint64_t index, uint64_t bound) {
  return ls_random_bits(seed, stream, index) % bound;
}

typedef struct set {
  ls_tensor_spec specs[TENSORS];
  int64_t dims[TENSORS];
  uint32_t *data[TENSORS];
  ls_safetensors_writer *writers[WRITERS];
  int round;
} set;

typedef struct part {
  set *of;
  int number;
  ls_error error;
} part;

static void make_set(set *made, int round) {
  *made = (set){.round = round};
  for (uint64_t t = 0; t < TENSORS; t++) {
    const uint64_t most = t % 3 ? MOST : 50; /* some are small, so that the others lie anywhere */
    made->dims[t] = 1 + (int64_t)draw(1, (uint64_t)round * TENSORS + t, most);
    made->data[t] = LS_NEW_ARRAY(arena, uint32_t, made->dims[t]);
    for (int64_t i = 0; i < made->dims[t]; i++)
      made->data[t][i] = (uint32_t)ls_random_bits(seed, 2 + t, (uint64_t)i);
    made->specs[t] = (ls_tensor_spec){.name = ls_arena_printf(arena, "t%d", (int)t),
                                      .dtype = LS_F32,
                                      .ndim = 1,
                                      .dims = &made->dims[t]};
  }
}

/* Every third piece of every tensor; pieces are of all sizes, and the last come first. */
static void *write_part(void *argument) {
  part *own = argument;
  set *of = own->of;
  ls_safetensors_writer *writer = of->writers[own->number];
  for (int t = TENSORS - 1; t >= 0; t--) {
    int piece = 0;
    for (int64_t first = 0, count; first < of->dims[t]; first += count, piece++) {
      const uint64_t index = (uint64_t)((of->round * TENSORS + t) * 4096 + piece);
      count = 1 + (int64_t)draw(20, index, piece % 2 ? 700 : 400000);
      if (count > of->dims[t] - first) count = of->dims[t] - first;
      if ((piece + t) % WRITERS != own->number || own->error.status != LS_OK) continue;
      own->error.status =
          ls_safetensors_write(writer, t, first, of->data[t] + first, count, &own->error);
    }
  }
  if (own->error.status == LS_OK) own->error.status = ls_safetensors_sync(writer, &own->error);
  return NULL;
}

static void write_together(set *of, part parts[WRITERS]) {
  pthread_t threads[WRITERS];
  for (int w = 0; w < WRITERS; w++) {
    parts[w] = (part){.of = of, .number = w};
    assert_int_equal(pthread_create(&threads[w], NULL, write_part, &parts[w]), 0);
  }
  for (int w = 0; w < WRITERS; w++) assert_int_equal(pthread_join(threads[w], NULL), 0);
}

static void open_writers(set *of, const char *path) {
  ls_error error = {0};
  assert_int_equal(ls_directory_make(path, &error), LS_OK);
  for (int w = 0; w < WRITERS; w++)
    if ((w ? ls_safetensors_join_shards : ls_safetensors_create_shards)(
            path, "model", LIMIT, of->specs, TENSORS, NULL, 0, &of->writers[w], &error) != LS_OK)
      fail_msg("%s", error.text);
}

/* What the writers say of a file together is what is in it. */
static void check_file(const set *of, int file) {
  uint64_t written = 0;
  ls_checksum sum = {0}, found = {0};
  ls_written_file about = {0};
  for (int w = 0; w < WRITERS; w++) {
    about = ls_safetensors_file(of->writers[w], file);
    written += about.written;
    ls_checksum_join(&sum, &about.checksum);
  }
  assert_true(written == about.bytes);
  ls_map map;
  assert_int_equal(ls_file_map(about.path, &map, NULL), LS_OK);
  assert_true(map.bytes == about.bytes);
  ls_checksum_add(&found, 0, map.data, map.bytes);
  ls_file_unmap(&map);
  assert_true(found.words == sum.words && found.places == sum.places);
}

static void many_write_one_set(void **state) {
  (void)state;
  int most_files = 0;
  for (int round = 0; round < 4; round++) {
    set of;
    part parts[WRITERS];
    ls_error error = {0};
    make_set(&of, round);
    const char *path = ls_arena_printf(arena, "%s/%d", folder, round);
    open_writers(&of, path);
    write_together(&of, parts);
    for (int w = 0; w < WRITERS; w++)
      if (parts[w].error.status != LS_OK) fail_msg("%s", parts[w].error.text);
    const int files = ls_safetensors_files(of.writers[0]);
    most_files = files > most_files ? files : most_files;
    for (int f = 0; f < files; f++) check_file(&of, f);
    for (int w = 0; w < WRITERS; w++)
      assert_int_equal(ls_safetensors_leave(&of.writers[w], &error), LS_OK);
    ls_safetensors *opened;
    if (ls_safetensors_open(path, NULL, &opened, &error) != LS_OK) fail_msg("%s", error.text);
    for (int t = 0; t < TENSORS; t++) {
      const ls_stored_tensor *tensor = ls_safetensors_find(opened, of.specs[t].name);
      assert_non_null(tensor);
      assert_true(tensor->count == of.dims[t]);
      assert_memory_equal(tensor->data, of.data[t], tensor->bytes);
    }
    ls_safetensors_close(&opened);
  }
  assert_true(most_files > 1);
}

/* A disk that takes no more, found while a large piece is written behind the caller's back. */
static void failures_behind_are_told(void **state) {
  (void)state;
  set of;
  part parts[WRITERS];
  make_set(&of, 0);
  open_writers(&of, ls_arena_printf(arena, "%s/limited", folder));
  struct rlimit before, limit;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  limit = before;
  limit.rlim_cur = 1 << 20;
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  write_together(&of, parts);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  int failures = 0;
  for (int w = 0; w < WRITERS; w++) {
    if (parts[w].error.status == LS_OK) continue;
    assert_int_equal(parts[w].error.status, LS_FAILED);
    assert_non_null(strstr(parts[w].error.text, ": cannot write: "));
    failures++;
  }
  assert_true(failures > 0);
  const char *path = ls_safetensors_file(of.writers[0], 0).path;
  char *kept = strdup(path);
  for (int w = 0; w < WRITERS; w++) ls_safetensors_abandon(&of.writers[w]);
  assert_false(ls_file_exists(kept));
  free(kept);
}

static int set_up(void **state) {
  (void)state;
  seed = test_seed(20261128);
  arena = ls_arena_create();
  return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state) {
  (void)state;
  ls_arena_destroy(&arena);
  return ls_directory_remove(folder, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(many_write_one_set),
                                     cmocka_unit_test(failures_behind_are_told)};
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
