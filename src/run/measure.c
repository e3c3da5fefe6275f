#include "run/measure.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "base/clock.h"
#include "cluster/machine.h"
#include "comm/engine.h"
#include "device/device.h"
#include "run/measure_parts.h"
#include "run/rank_threads.h"

/* On a machine that others keep busy even few rounds may take long. */
static const double longest_s = 1;

void ls_measure_next(measuring *self, const char *format, ...) {
  char what[96];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  if (self->options->progress)
    self->options->progress(self->options->context, self->done, self->count, what);
  self->done++;
}

ls_status ls_measure_fill(const ls_memory_calls *memory, const ls_view *matrix, ls_error *error) {
  enum { VALUES = 8191 }; /* no row begins where another does */
  float values[VALUES];
  char narrow[VALUES * sizeof(double)];
  const size_t width = ls_dtype_bytes(matrix->dtype), block = VALUES * width;
  const size_t all = (size_t)(matrix->dims[0] * matrix->dims[1]) * width;
  uint32_t state = 12345;
  for (int i = 0; i < VALUES; i++) {
    state = state * 1664525u + 1013904223u;
    values[i] = (float)(state >> 8) * 0x1p-23f - 1.0f;
  }
  ls_convert(narrow, matrix->dtype, values, LS_F32, VALUES);
  for (size_t at = 0; at < all; at += block)
    LS_TRY(memory->write((char *)matrix->data + at, narrow, all - at < block ? all - at : block,
                         error));
  return LS_OK;
}

void ls_measure_begin(measuring *self) {
  self->rounds = 0;
  self->begin_s = ls_now_s();
}

void ls_measure_add(measuring *self, double seconds) {
  if (self->rounds < LS_MEASURE_ROUNDS) self->times[self->rounds++] = seconds;
}

bool ls_measure_more(const measuring *self) {
  const double spent = ls_now_s() - self->begin_s;
  if (self->rounds < LS_MEASURE_FEWEST) return !self->rounds || spent < longest_s;
  return self->rounds < LS_MEASURE_ROUNDS && spent < self->seconds;
}

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

ls_rate ls_measure_rate(measuring *self, double work) {
  qsort(self->times, (size_t)self->rounds, sizeof *self->times, compare);
  const double best = self->times[0], median = self->times[self->rounds / 2];
  const double shortest = 1e-9; /* a clock's tick: no rate is infinite */
  return (ls_rate){work / (best > shortest ? best : shortest),
                   work / (median > shortest ? median : shortest)};
}

bool ls_measure_takes(const measuring *self, int64_t bytes) {
  return !self->options->most_bytes || bytes <= self->options->most_bytes;
}

void *ls_measure_map(size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return NULL;
  madvise(memory, bytes, MADV_HUGEPAGE); /* where there are none, small ones do */
  return memory;
}

void ls_measure_unmap(void *memory, size_t bytes) {
  if (memory) munmap(memory, bytes);
}

ls_rates_key ls_measure_key(ls_arena *arena) {
  char processor[LS_PROCESSOR_BYTES];
  ls_machine_processor("", processor);
  const ls_device_facts *facts = ls_device_facts_here();
  return (ls_rates_key){
      .processor = ls_arena_strdup(arena, processor),
      .cores = ls_machine_cores(),
      .instructions = ls_arena_printf(arena, "%s, %s", facts->effective, facts->set),
      .library = ls_arena_printf(arena, "lockstep %s, %s", LS_VERSION, facts->library)};
}

static int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* Three arrays, none of which a cache holds, in at most an eighth of the memory. */
static int64_t choose_memory_bytes(void) {
  const int64_t cache = ls_machine_cache_bytes(""), memory = ls_machine_probe().memory_bytes;
  int64_t bytes = 2 * cache;
  if (bytes < 64 << 20) bytes = 64 << 20;
  bytes = smaller(bytes, 1 << 30);
  if (memory > 0) bytes = smaller(bytes, memory / 24);
  return bytes;
}

static ls_measure_options complete(const ls_measure_options *given) {
  ls_measure_options options = *given;
  if (options.seconds <= 0) options.seconds = 0.15;
  if (options.memory_bytes <= 0) options.memory_bytes = choose_memory_bytes();
  if (options.disk_bytes <= 0) options.disk_bytes = 256 << 20;
  return options;
}

static ls_status measure_loops(ls_comm *comm, void *context, ls_error *error) {
  (void)comm;
  LS_TRY(ls_measure_matmul(context, error));
  return ls_measure_memory(context, error);
}

/* On a thread of its own: OpenMP's threads stay with the one that they worked for, and while there
 * are more of them than cores all of them sleep early, which makes small kernels slow. */
static ls_status measure_apart(measuring *self, ls_error *error) {
  ls_world *world;
  const ls_world_options one = {.ranks = 1};
  LS_TRY(ls_world_start(ls_device_facts_here(), &one, &world, error));
  const ls_status status = ls_rank_threads_run(world, measure_loops, self, error);
  ls_world_destroy(&world);
  return status;
}

ls_status ls_measure_machine(ls_arena *arena, const ls_measure_options *given,
                             const ls_rates **rates, ls_error *error) {
  const ls_measure_options options = complete(given);
  const double begin = ls_now_s();
  measuring *self = LS_NEW(arena, measuring);
  self->arena = arena;
  self->options = &options;
  self->seconds = options.seconds;
  self->rates = LS_NEW(arena, ls_rates);
  self->rates->key = ls_measure_key(arena);
  self->count = ls_measure_matmul_count(self) + ls_measure_memory_count(self) +
                ls_measure_transfer_count(self) + ls_measure_disk_count(self);
  if (options.folder) LS_TRY(ls_measure_disk(self, error)); /* first: it is what may be refused */
  LS_TRY(measure_apart(self, error));
  LS_TRY(ls_measure_transfer(self, error));
  LS_ASSERT(self->done == self->count);
  ls_measure_next(self, "done");
  self->rates->seconds = ls_now_s() - begin;
  self->rates->measured_s = (int64_t)time(NULL);
  *rates = self->rates;
  return LS_OK;
}

ls_status ls_measure_or_read(ls_arena *arena, const ls_measure_options *options,
                             const ls_rates **rates, const char **why, ls_error *error) {
  const ls_rates_key key = ls_measure_key(arena);
  *rates = ls_rates_read(arena, &key, why);
  if (*rates) return LS_OK;
  LS_TRY(ls_measure_machine(arena, options, rates, error));
  ls_error unkept = {0};
  if (ls_rates_write(*rates, &unkept) != LS_OK)
    *why = ls_arena_printf(arena, "%s; not kept: %s", *why, unkept.text);
  return LS_OK;
}
