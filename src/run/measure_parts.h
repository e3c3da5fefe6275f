/* The parts of ls_measure_machine, inside this room. Each adds to measuring->rates. */
#ifndef LS_RUN_MEASURE_PARTS_H
#define LS_RUN_MEASURE_PARTS_H

#include "run/measure.h"

/* The most that are looked at, and the fewest that are made. */
enum { LS_MEASURE_ROUNDS = 2000, LS_MEASURE_FEWEST = 3 };

typedef struct measuring {
  ls_arena *arena;
  const ls_measure_options *options;
  ls_rates *rates;
  int done, count;
  double seconds;                  /* of each measurement */
  double times[LS_MEASURE_ROUNDS]; /* seconds of the rounds so far */
  int rounds;
  double begin_s; /* of the first */
} measuring;

/* Says what begins now. */
void ls_measure_next(measuring *self, const char *format, ...) LS_PRINTF(2, 3);

/* Rounds of one measurement: no round yet; one more; whether there is time for another, by the
 * clock (three are made unless they are very long); work a round over their times. */
void ls_measure_begin(measuring *self);
void ls_measure_add(measuring *self, double seconds);
bool ls_measure_more(const measuring *self);
ls_rate ls_measure_rate(measuring *self, double work);

/* Whether something of this size is measured at all. */
bool ls_measure_takes(const measuring *self, int64_t bytes);

/* How many measurements each makes, then the measurements. */
int ls_measure_matmul_count(const measuring *self);
LS_CHECKED ls_status ls_measure_matmul(measuring *self, ls_error *error);
int ls_measure_memory_count(const measuring *self);
LS_CHECKED ls_status ls_measure_memory(measuring *self, ls_error *error);
int ls_measure_transfer_count(const measuring *self);
LS_CHECKED ls_status ls_measure_transfer(measuring *self, ls_error *error);
int ls_measure_disk_count(const measuring *self);
LS_CHECKED ls_status ls_measure_disk(measuring *self, ls_error *error);

/* `bytes` of memory of its own, in large pages where there are some; NULL: there is not so much. */
void *ls_measure_map(size_t bytes);
void ls_measure_unmap(void *memory, size_t bytes);

#endif
