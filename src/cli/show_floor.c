#include "cli/show_floor.h"

#include <stdio.h>

#include "cli/show_compare.h"
#include "run/measure.h"
#include "watch/step_table.h"

void ls_show_floor(const ls_session *session, bool json) {
  const ls_rates_key key = ls_measure_key(session->arena);
  const char *why;
  const ls_rates *rates = ls_rates_read(session->arena, &key, &why);
  ls_step_limits limits = {0};
  if (rates) {
    const ls_session_limits found = ls_session_limits_of(session, rates);
    limits = (ls_step_limits){.flops_per_s = found.flops_per_s, .bytes_per_s = found.bytes_per_s};
  } else {
    fprintf(stderr, "no floors: %s; lockstep bench measures it\n", why);
  }
  const ls_step_table *table =
      ls_step_table_planned(session->arena, session->stages[LS_SESSION_STEP], &limits, false);
  if (json) {
    ls_show_print_json(ls_step_table_json(table));
    return;
  }
  ls_step_table_print(table, stdout);
}
