#include "cli/tuning.h"

#include <stdio.h>

#include "base/clock.h"

enum { APART_S = 5 };

void ls_tuning_tell(void *context, const ls_rank_tuning *said) {
  static double told_s;
  (void)context;
  const double now = ls_now_s(), saved = said->first_took - said->took;
  const char *of = said->count == 1 ? "product" : "products";
  if (said->done == 0) {
    fprintf(stderr, "times the kernels of %d %s, which are kept for later runs\n", said->count, of);
    told_s = now;
  } else if (said->done == said->count) {
    fprintf(stderr,
            "timed the kernels of %d %s in %.1f s: of %d another is taken than the library's first "
            "guess, %.1f %% less time in all\n",
            said->count, of, said->seconds, said->others,
            said->first_took > 0 ? 100 * saved / said->first_took : 0);
  } else if (now - told_s >= APART_S) {
    fprintf(stderr, "times the kernels of %d %s: %.0f s left\n", said->count, of,
            said->seconds_left);
    told_s = now;
  }
}

void ls_tell_tuning(ls_session *session) {
  session->tuning = ls_tuning_tell;
}
