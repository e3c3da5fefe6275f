/* How fast checkpoints are written and read, beside dd on the same disk: rounds in turns, medians.
 *
 *   build/bench/checkpoint_speed CONFIG FOLDER [RANKS] [ROUNDS] [key=value ...]
 *
 * Saved are weights and moments of the model of CONFIG, by all ranks, until they are on the disk;
 * loaded are its weights (as a run that begins with them does) and all of it (as a run that goes
 * on), into memory that was touched before, since how fast a system hands out memory is another
 * matter. dd writes as many bytes with conv=fsync and reads the same files; before each reading the
 * system forgets them. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "run/rank_threads.h"

enum { MOST_ROUNDS = 99 };

typedef enum what { SAVE, LOAD_WEIGHTS, LOAD_ALL, WHATS } what;

typedef struct bench {
  ls_session *session;
  const char *folder, *checkpoint;
  what does;
  double seconds;                 /* of the last one */
  size_t file_bytes;              /* of all files */
  const char *pattern, *read_all; /* files to load, and the line that reads them */
} bench;

/* Touches weights and moments, as training would have. */
static ls_status touch(ls_rank *rank, ls_error *error) {
  enum { AT_ONCE = 1 << 16 };
  static float values[AT_ONCE]; /* only read */
  const ls_program *program = ls_rank_program(rank, LS_SESSION_STEP);
  for (int p = 0; p < program->parameter_count; p++)
    for (ls_state_part part = LS_PART_MASTER; part <= LS_PART_MOMENT2; part++) {
      const int64_t elements = ls_program_parameter_elements(&program->parameters[p]);
      for (int64_t first = 0; first < elements; first += AT_ONCE) {
        const int64_t left = elements - first, count = left < AT_ONCE ? left : AT_ONCE;
        LS_TRY(
            ls_rank_write_parameter(rank, program, p, part, first, count, values, LS_F32, error));
      }
    }
  return LS_OK;
}

static ls_status act(const bench *self, ls_rank *rank, ls_error *error) {
  const ls_checkpoint_extra extra = {.run_text = "model: x\n"};
  ls_checkpoint_state state;
  switch (self->does) {
    case SAVE: return ls_checkpoint_save(self->session, rank, self->folder, 1, &extra, error);
    case LOAD_WEIGHTS:
      return ls_session_load_weights(self->session, rank, self->checkpoint, NULL, error);
    case LOAD_ALL: return ls_checkpoint_load(self->session, rank, self->checkpoint, &state, error);
    case WHATS: break;
  }
  return ls_fail(error, LS_INTERNAL, "nothing to do");
}

/* Memory that a virtual machine's host has to find first is slow to the one who gets it: both sides
 * are given some that was just in use. */
static void warm_memory(size_t bytes) {
  if (bytes == 0) return;
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  memset(memory, 1, bytes);
  munmap(memory, bytes);
}

/* Bytes of the files of a pattern; `forget`: the system drops them from its cache. */
static int64_t look(const char *pattern, bool forget) {
  glob_t found = {0};
  int64_t bytes = 0;
  (void)glob(pattern, 0, NULL, &found);
  for (size_t i = 0; i < found.gl_pathc; i++) {
    const int file = open(found.gl_pathv[i], O_RDONLY | O_CLOEXEC);
    struct stat about;
    if (file < 0 || fstat(file, &about)) continue;
    bytes += about.st_size;
    if (forget) (void)posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    close(file);
  }
  globfree(&found);
  return bytes;
}

static double shell(const char *line) {
  const double begin = ls_now_s();
  if (system(line) != 0) fprintf(stderr, "failed: %s\n", line);
  return ls_now_s() - begin;
}

/* Both sides are given pages that were just given up, and files that are not in the cache. */
static void prepare(const bench *self) {
  if (self->does == SAVE) {
    warm_memory(self->file_bytes);
    return;
  }
  (void)shell(self->read_all);
  (void)look(self->pattern, true);
}

static ls_status body(ls_comm *comm, void *context, ls_error *error) {
  bench *self = context;
  ls_rank *rank;
  LS_TRY(ls_session_rank(self->session, comm, &rank, error));
  ls_status status = touch(rank, error);
  if (status == LS_OK) status = ls_barrier(ls_rank_world_group(rank), error);
  if (ls_rank_number(rank) == 0) prepare(self);
  if (status == LS_OK) status = ls_barrier(ls_rank_world_group(rank), error);
  const double begin = ls_now_s();
  if (status == LS_OK) status = act(self, rank, error);
  if (status == LS_OK) status = ls_barrier(ls_rank_world_group(rank), error);
  if (ls_rank_number(rank) == 0) self->seconds = ls_now_s() - begin;
  ls_rank_destroy(&rank);
  return status;
}

static ls_status run(bench *self, what does, ls_error *error) {
  ls_world *world;
  self->does = does;
  LS_TRY(ls_world_create_threads(self->session->devices, &world, error));
  const ls_status status = ls_rank_threads_run(world, body, self, error);
  ls_world_destroy(&world);
  return status;
}

static int by_size(const void *a, const void *b) {
  const double left = *(const double *)a, right = *(const double *)b;
  return (left > right) - (left < right);
}

/* A round's figures as they come. */
static void report(const char *name, double bytes, double ours, double theirs) {
  fprintf(stderr, "%-14s lockstep %5.0f dd %5.0f MB/s\n", name, 1e-6 * bytes / ours,
          1e-6 * bytes / theirs);
}

/* MB/s of each round on both sides, and the ratio of the medians. */
static void print(const char *name, double bytes, double *ours, double *theirs, int rounds) {
  printf("%-14s %6.2f GB  lockstep", name, 1e-9 * bytes);
  for (int i = 0; i < rounds; i++) printf(" %5.0f", 1e-6 * bytes / ours[i]);
  printf("  dd");
  for (int i = 0; i < rounds; i++) printf(" %5.0f", 1e-6 * bytes / theirs[i]);
  qsort(ours, (size_t)rounds, sizeof *ours, by_size);
  qsort(theirs, (size_t)rounds, sizeof *theirs, by_size);
  printf("  MB/s; medians' ratio %.2f\n", theirs[rounds / 2] / ours[rounds / 2]);
}

static ls_status measure(ls_arena *arena, bench *self, int rounds, ls_error *error) {
  static double ours[WHATS][MOST_ROUNDS], theirs[WHATS][MOST_ROUNDS];
  static const char *const names[WHATS] = {"save", "load weights", "load all"};
  const char *patterns[WHATS] = {ls_arena_printf(arena, "%s/*.safetensors", self->checkpoint),
                                 ls_arena_printf(arena, "%s/model*.safetensors", self->checkpoint),
                                 ls_arena_printf(arena, "%s/*.safetensors", self->checkpoint)};
  const char *copy = ls_arena_printf(arena, "%s/dd", self->folder);
  double bytes[WHATS] = {0};
  const int64_t parameters = ls_model_parameters(&self->session->config);
  self->file_bytes = (size_t)parameters * 3 * sizeof(float);
  for (int i = 0; i < rounds; i++) {
    LS_TRY(ls_directory_remove(ls_arena_printf(arena, "%s/checkpoints", self->folder), error));
    (void)unlink(copy);
    sync();
    LS_TRY(run(self, SAVE, error));
    ours[SAVE][i] = self->seconds;
    for (int w = 0; w < WHATS; w++) bytes[w] = (double)look(patterns[w], false);
    sync();
    self->does = SAVE;
    prepare(self);
    theirs[SAVE][i] = shell(ls_arena_printf(arena,
                                            "dd if=/dev/zero of=%s bs=8M count=%.0f "
                                            "iflag=count_bytes conv=fsync status=none",
                                            copy, bytes[SAVE]));
    (void)unlink(copy);
    report(names[SAVE], bytes[SAVE], ours[SAVE][i], theirs[SAVE][i]);
    for (what w = LOAD_WEIGHTS; w < WHATS; w++) {
      const char *read_all = ls_arena_printf(
          arena, "for f in %s; do dd if=$f of=/dev/null bs=8M status=none || exit 1; done",
          patterns[w]);
      self->pattern = patterns[w];
      self->read_all = read_all;
      LS_TRY(run(self, w, error));
      ours[w][i] = self->seconds;
      self->does = w;
      prepare(self);
      theirs[w][i] = shell(read_all);
      report(names[w], bytes[w], ours[w][i], theirs[w][i]);
    }
  }
  for (what w = SAVE; w < WHATS; w++) print(names[w], bytes[w], ours[w], theirs[w], rounds);
  return LS_OK;
}

int main(int count, char **words) {
  if (count < 3) {
    fprintf(stderr, "usage: checkpoint_speed CONFIG FOLDER [RANKS] [ROUNDS] [key=value ...]\n");
    return 2;
  }
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  const int ranks = count > 3 ? atoi(words[3]) : 2, rounds = count > 4 ? atoi(words[4]) : 3;
  LS_LIST(const char *) keys = {0};
  *LS_APPEND(arena, &keys) = ls_arena_printf(arena, "model=%s", words[1]);
  *LS_APPEND(arena, &keys) = "data.text=none";
  *LS_APPEND(arena, &keys) = "data.seq_len=16";
  for (int i = 5; i < count; i++) *LS_APPEND(arena, &keys) = words[i];
  bench self = {.folder = words[2]};
  self.checkpoint = ls_arena_printf(arena, "%s/checkpoints/step-1", self.folder);
  ls_run_file *file;
  ls_status status = ls_run_file_read(arena, NULL, keys.items, keys.count, &file, &error);
  if (status == LS_OK) status = ls_session_create(arena, file, ranks, ranks, &self.session, &error);
  if (status == LS_OK)
    status = measure(arena, &self, rounds < MOST_ROUNDS ? rounds : MOST_ROUNDS, &error);
  if (status != LS_OK) fprintf(stderr, "%s\n", error.text);
  ls_arena_destroy(&arena);
  return ls_exit_status(status);
}
