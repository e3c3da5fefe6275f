/* Time that never goes back, for measuring how long things take: CLOCK_MONOTONIC. Thread-safe. */
#ifndef LS_BASE_CLOCK_H
#define LS_BASE_CLOCK_H

#include <stdint.h>

int64_t ls_now_ns(void);
double ls_now_s(void);

#endif
