#include "cli/simulate_against.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "text/json.h"

/* A step of a year is none. */
#define MOST_MICROSECONDS 3.2e13

/* "begin all-gather of layers.0" is an all-gather. */
static ls_kind_seconds *kind_of(ls_arena *arena, ls_kind_comparison *made, const char *name) {
  static const char *const phases[] = {"begin ", "end of "};
  for (int p = 0; p < 2; p++)
    if (strncmp(name, phases[p], strlen(phases[p])) == 0) name += strlen(phases[p]);
  const char *of = strstr(name, " of ");
  size_t length = of ? (size_t)(of - name) : strlen(name);
  if (length >= sizeof made->kinds.items->name) { /* of another program: cut between characters */
    length = sizeof made->kinds.items->name - 1;
    while (length && ((unsigned char)name[length] & 0xc0) == 0x80) length--;
  }
  for (int k = 0; k < made->kinds.count; k++)
    if (strlen(made->kinds.items[k].name) == length &&
        strncmp(made->kinds.items[k].name, name, length) == 0)
      return &made->kinds.items[k];
  ls_kind_seconds *added = LS_APPEND(arena, &made->kinds);
  snprintf(added->name, sizeof added->name, "%.*s", (int)length, name);
  return added;
}

static void add_simulated(ls_arena *arena, ls_kind_comparison *made, const ls_timeline *simulated) {
  const double second = simulated->microseconds * 1e-6;
  for (int i = 0; i < simulated->spans.count; i++) {
    const ls_timeline_span *span = &simulated->spans.items[i];
    kind_of(arena, made, span->name)->simulated +=
        (span->end - span->start) * second / simulated->processes;
  }
  made->simulated = simulated->end * second;
}

static ls_status add_event(ls_arena *arena, ls_kind_comparison *made, const char *path,
                           const json_t *event, int processes, ls_error *error) {
  ls_json_object object;
  const char *name, *phase;
  double start, duration;
  LS_TRY(ls_json_root(path, event, &object, error));
  LS_TRY(ls_json_string(&object, "ph", &phase, error));
  if (strcmp(phase, "X") != 0) return LS_OK;
  LS_TRY(ls_json_string(&object, "name", &name, error));
  LS_TRY(ls_json_number(&object, "ts", &start, error));
  LS_TRY(ls_json_number(&object, "dur", &duration, error));
  if (!(start >= 0 && start <= MOST_MICROSECONDS && duration >= 0 && duration <= MOST_MICROSECONDS))
    return ls_fail(error, LS_INPUT,
                   "%s: an event from %g for %g microseconds; expected 0 to %g of each", path,
                   start, duration, MOST_MICROSECONDS);
  kind_of(arena, made, name)->measured += duration * 1e-6 / processes;
  if ((start + duration) * 1e-6 > made->measured) made->measured = (start + duration) * 1e-6;
  return LS_OK;
}

static ls_status add_measured(ls_arena *arena, ls_kind_comparison *made, const char *path,
                              const json_t *root, ls_error *error) {
  const json_t *events = json_object_get(root, "traceEvents");
  if (!json_is_array(events))
    return ls_fail(error, LS_INPUT,
                   "%s: expected traceEvents, as trace: true leaves them in a "
                   "run's trace.json",
                   path);
  int64_t processes = 0;
  for (size_t i = 0; i < json_array_size(events); i++) {
    const json_t *process = json_object_get(json_array_get(events, i), "pid");
    const int64_t number = json_integer_value(process) + 1;
    if (number > processes && number < 1 << 20) processes = number;
  }
  for (size_t i = 0; i < json_array_size(events); i++)
    LS_TRY(add_event(arena, made, path, json_array_get(events, i), processes ? (int)processes : 1,
                     error));
  return LS_OK;
}

static int by_time(const void *a, const void *b) {
  const ls_kind_seconds *x = a, *y = b;
  const double first = x->simulated > x->measured ? x->simulated : x->measured;
  const double second = y->simulated > y->measured ? y->simulated : y->measured;
  return (first < second) - (first > second);
}

static void print_line(const char *name, double simulated, double measured, double step) {
  printf("  %-24s %12.3f %12.3f", name, simulated * 1e3, measured * 1e3);
  if (measured > 0)
    printf(" %+9.1f %% %+9.1f %%\n", 100 * (simulated / measured - 1),
           100 * (simulated - measured) / step);
  else
    printf("\n");
}

void ls_compared_print(const ls_kind_comparison *made) {
  printf("\n%-26s %12s %12s %11s %11s\n", "a rank, ms", "simulated", "measured", "off by",
         "of the step");
  for (int k = 0; k < made->kinds.count; k++)
    print_line(made->kinds.items[k].name, made->kinds.items[k].simulated,
               made->kinds.items[k].measured, made->measured);
  print_line("the step", made->simulated, made->measured, made->measured);
}

json_t *ls_compared_json(const ls_kind_comparison *made) {
  json_t *kinds = json_array();
  for (int k = 0; k < made->kinds.count; k++) {
    const ls_kind_seconds *each = &made->kinds.items[k];
    json_array_append_new(kinds, json_pack("{s:s, s:f, s:f}", "kind", each->name, "simulated_s",
                                           each->simulated, "measured_s", each->measured));
  }
  return json_pack("{s:f, s:f, s:o}", "step_simulated_s", made->simulated, "step_measured_s",
                   made->measured, "kinds", kinds);
}

ls_status ls_compare_kinds(ls_arena *arena, const ls_timeline *simulated, const char *path,
                           ls_kind_comparison *made, ls_error *error) {
  *made = (ls_kind_comparison){0};
  if (ls_directory_exists(path)) path = ls_arena_printf(arena, "%s/trace.json", path);
  if (!ls_file_exists(path))
    return ls_fail(error, LS_INPUT, "there is no %s; a run with trace=true leaves it", path);
  json_t *root;
  LS_TRY(ls_json_read(path, 0, &root, error));
  add_simulated(arena, made, simulated);
  const ls_status status = add_measured(arena, made, path, root, error);
  json_decref(root);
  LS_TRY(status);
  qsort(made->kinds.items, (size_t)made->kinds.count, sizeof *made->kinds.items, by_time);
  return LS_OK;
}
