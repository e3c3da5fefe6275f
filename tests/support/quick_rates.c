/* Measures this machine in seconds and keeps that, as `lockstep bench` does in a minute, for tests
 * of what reads it: rates that are there, not rates that are right.  quick_rates FOLDER */
#include <stdio.h>

#include "run/measure.h"
#include "session/calibrate.h"

static ls_status keep_rates(ls_arena *arena, const char *folder, ls_error *error) {
  const ls_measure_options options = {
      .seconds = 1e-3, .memory_bytes = 1 << 20, .disk_bytes = 1, .folder = folder};
  const ls_rates *measured;
  LS_TRY(ls_measure_machine(arena, &options, &measured, error));
  ls_rates rates = *measured;
  LS_TRY(ls_calibrate(arena, &(ls_calibrate_options){.shapes = 1}, &rates, error));
  return ls_rates_write(&rates, error);
}

int main(int count, char **words) {
  if (count != 2) return 2;
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  const ls_status status = keep_rates(arena, words[1], &error);
  if (status != LS_OK) fprintf(stderr, "%s\n", error.text);
  ls_arena_destroy(&arena);
  return status != LS_OK;
}
