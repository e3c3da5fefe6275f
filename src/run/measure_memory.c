#include <string.h>

#include "base/clock.h"
#include "device/device.h"
#include "run/measure_parts.h"

/* What a loop takes at once: compilers make of it what the processor has. */
typedef float floats __attribute__((vector_size(32), may_alias));
typedef uint64_t words __attribute__((vector_size(32), may_alias));

enum { PAGE = 4096, STREAMS = 4, PARTS = LS_HOST_PARTS };

/* The arrays of one measurement, shared by page among threads. */
typedef struct arrays {
  char *a, *b, *c;
  int64_t pages;
  ls_memory_way way;
  uint64_t *sums; /* of each part: what is read must be used */
} arrays;

/* Of STREAMS pages at a time: a processor fetches ahead within a page only, and of one stream alone
 * a core read 6.6 GB/s where it reads 10 of four. */
static uint64_t sum_of(const char *from, int64_t pages) {
  words sums[STREAMS] = {{0}};
  for (int64_t page = 0; page < pages; page += STREAMS) {
    const int64_t left = pages - page, streams = left < STREAMS ? left : STREAMS;
    for (int64_t at = 0; at < PAGE; at += 2 * (int64_t)sizeof(words))
      for (int64_t s = 0; s < streams; s++) {
        const words *line = (const words *)(const void *)(from + (page + s) * PAGE + at);
        sums[s] += line[0] + line[1];
      }
  }
  const words all = sums[0] + sums[1] + sums[2] + sums[3];
  return all[0] + all[1] + all[2] + all[3];
}

static void triad(floats *a, const floats *b, const floats *c, int64_t count) {
  const float s = 3;
  for (int64_t i = 0; i < count; i++) a[i] = b[i] + s * c[i];
}

static void run_pages(const void *work, int part, int64_t begin, int64_t end) {
  const arrays *on = work;
  const int64_t bytes = (end - begin) * PAGE, count = bytes / (int64_t)sizeof(floats);
  char *a = on->a + begin * PAGE, *b = on->b + begin * PAGE, *c = on->c + begin * PAGE;
  switch (on->way) {
    case LS_MEMORY_READ: on->sums[part] += sum_of(a, end - begin); break;
    case LS_MEMORY_WRITE: memset(a, part + 1, (size_t)bytes); break;
    case LS_MEMORY_COPY: memcpy(a, b, (size_t)bytes); break;
    default: triad((floats *)a, (const floats *)b, (const floats *)c, count); break;
  }
}

/* First touched by the threads that will use it, so that each has its part nearby. */
static void touch_pages(const void *work, int part, int64_t begin, int64_t end) {
  const arrays *on = work;
  (void)part;
  memset(on->a + begin * PAGE, 0, (size_t)((end - begin) * PAGE));
  memset(on->b + begin * PAGE, 0, (size_t)((end - begin) * PAGE));
  memset(on->c + begin * PAGE, 0, (size_t)((end - begin) * PAGE));
}

static void measure_way(measuring *self, arrays *on, int threads) {
  static const int touched[LS_MEMORY_WAYS] = {1, 1, 2, 3};
  ls_measure_next(self, "memory %s, %d thread%s", ls_memory_way_name(on->way), threads,
                  threads == 1 ? "" : "s");
  ls_host_split(threads, threads, on->pages, run_pages, on);
  ls_measure_begin(self);
  while (ls_measure_more(self)) {
    const double begin = ls_now_s();
    ls_host_split(threads, threads, on->pages, run_pages, on);
    ls_measure_add(self, ls_now_s() - begin);
  }
  const double bytes = (double)on->pages * PAGE * touched[on->way];
  *LS_APPEND(self->arena, &self->rates->memory) =
      (ls_memory_rate){on->way, threads, ls_measure_rate(self, bytes)};
}

int ls_measure_memory_count(const measuring *self) {
  return LS_MEMORY_WAYS * (self->rates->key.cores > 1 ? 2 : 1);
}

ls_status ls_measure_memory(measuring *self, ls_error *error) {
  const int64_t pages = (self->options->memory_bytes + PAGE - 1) / PAGE;
  const size_t bytes = (size_t)pages * PAGE;
  int all = self->rates->key.cores;
  if (all > PARTS) all = PARTS;
  char *memory = ls_measure_map(3 * bytes);
  if (!memory)
    return ls_fail(error, LS_FAILED, "no memory for three arrays of %zu MiB", bytes >> 20);
  arrays on = {.a = memory,
               .b = memory + bytes,
               .c = memory + 2 * bytes,
               .pages = pages,
               .sums = LS_NEW_ARRAY(self->arena, uint64_t, PARTS)};
  ls_host_split(all, all, pages, touch_pages, &on);
  for (int w = 0; w < LS_MEMORY_WAYS; w++) {
    on.way = (ls_memory_way)w;
    measure_way(self, &on, self->rates->key.cores > 1 ? all : 1);
    if (self->rates->key.cores > 1) measure_way(self, &on, 1);
  }
  self->rates->memory_bytes = (int64_t)bytes;
  ls_measure_unmap(memory, 3 * bytes);
  return LS_OK;
}
