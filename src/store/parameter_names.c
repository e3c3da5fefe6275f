#include "store/parameter_names.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "store/names.h"
#include "text/distance.h"

static const char digits[] = "0123456789";

/* What each parameter may be called: our name, Hugging Face's, and that without the prefix. */
enum { NAMES = 3 };

struct ls_parameter_names {
  ls_arena *arena;
  int count;    /* parameters */
  char **names; /* [count x NAMES]; NULL: none */
};

/* Cuts a name to what another has the same, up to a point. */
static void keep_shared(char *name, const char *other) {
  size_t same = 0, point = 0;
  for (; name[same] && name[same] == other[same]; same++)
    if (name[same] == '.') point = same;
  if (name[same] || other[same] != '.') name[point] = 0;
}

ls_status ls_parameter_names_list(ls_arena *arena, const ls_model_config *config,
                                  const ls_graph *graph, ls_parameter_names **made,
                                  ls_error *error) {
  ls_weight_plan plan;
  LS_TRY(ls_weights_plan(arena, config, graph, &plan, error));
  ls_parameter_names *f = *made = LS_NEW(arena, ls_parameter_names);
  f->arena = arena;
  f->count = graph->parameters.count;
  f->names = LS_NEW_ARRAY(arena, char *, NAMES * f->count + 1);
  for (int p = 0; p < f->count; p++)
    f->names[NAMES * p] = ls_arena_strdup(arena, graph->parameters.items[p].about.name);
  for (int t = 0; t < plan.count; t++)
    for (int i = 0; i < plan.tensors[t].pieces.count; i++) {
      char **of = &f->names[NAMES * plan.tensors[t].pieces.items[i].parameter];
      if (of[1]) { /* of several tensors: what their names share */
        keep_shared(of[1], plan.tensors[t].name);
        keep_shared(of[2], plan.tensors[t].plain);
        continue;
      }
      of[1] = ls_arena_strdup(arena, plan.tensors[t].name);
      of[2] = ls_arena_strdup(arena, plan.tensors[t].plain);
    }
  return LS_OK;
}

/* Whether a name may be left off here: at a point, or before the number that ends a word. */
static bool is_end(const char *name, size_t at) {
  if (name[at] == 0 || name[at] == '.') return true;
  if (!isalpha((unsigned char)name[at - 1])) return false;
  const size_t number = strspn(name + at, digits);
  return number > 0 && (name[at + number] == 0 || name[at + number] == '.');
}

static bool covers(const char *pattern, char *name) {
  const size_t length = name ? strlen(name) : 0;
  bool found = false;
  for (size_t at = 1; at <= length && !found; at++) {
    if (!is_end(name, at)) continue;
    const char behind = name[at];
    name[at] = 0;
    found = fnmatch(pattern, name, 0) == 0;
    name[at] = behind;
  }
  return found;
}

/* Of all names, whole or up to a point. */
static const char *nearest(const ls_parameter_names *f, const char *pattern) {
  LS_LIST(const char *) names = {0};
  for (int n = 0; n < NAMES * f->count; n++)
    for (const char *at = f->names[n]; at && *at; at++)
      if (at[1] == 0 || at[1] == '.')
        *LS_APPEND(f->arena, &names) =
            ls_arena_printf(f->arena, "%.*s", (int)(at + 1 - f->names[n]), f->names[n]);
  return ls_nearest(pattern, names.items, names.count);
}

/* `given`: the pattern as the user has it, of which this is one number. */
static ls_status cover_one(const ls_parameter_names *f, const char *pattern, const char *given,
                           bool *covered, ls_error *error) {
  bool any = false;
  for (int n = 0; n < NAMES * f->count; n++) {
    if (!covers(pattern, f->names[n])) continue;
    covered[n / NAMES] = true;
    any = true;
  }
  if (any) return LS_OK;
  const char *near = nearest(f, pattern);
  const bool one_of_many = strcmp(pattern, given) != 0;
  return ls_fail(error, LS_INPUT, "no parameter is called %s%s%s%s; %s%s", pattern,
                 one_of_many ? " (of " : "", one_of_many ? given : "", one_of_many ? ")" : "",
                 near ? "the nearest is " : "expected names such as ",
                 near ? near : "embedding, layers.0-3, *.norm or head");
}

/* "0-3" between points: where it begins and ends, and its two numbers. */
static bool find_range(const char *pattern, size_t range[2], long numbers[2]) {
  for (size_t at = 0; pattern[at]; at++) {
    if (at > 0 && pattern[at - 1] != '.') continue;
    const size_t first = strspn(pattern + at, digits);
    if (first == 0 || pattern[at + first] != '-') continue;
    const char *second = pattern + at + first + 1;
    const size_t last = strspn(second, digits);
    if (last == 0 || (second[last] != 0 && second[last] != '.')) continue;
    range[0] = at;
    range[1] = at + first + 1 + last;
    numbers[0] = strtol(pattern + at, NULL, 10);
    numbers[1] = strtol(second, NULL, 10);
    return true;
  }
  return false;
}

ls_status ls_parameter_names_cover(const ls_parameter_names *f, const char *given, bool *covered,
                                   ls_error *error) {
  size_t range[2];
  long numbers[2];
  if (!find_range(given, range, numbers)) return cover_one(f, given, given, covered, error);
  if (numbers[0] > numbers[1])
    return ls_fail(error, LS_INPUT, "found %s; expected the lower number first", given);
  for (long number = numbers[0]; number <= numbers[1]; number++)
    LS_TRY(cover_one(
        f, ls_arena_printf(f->arena, "%.*s%ld%s", (int)range[0], given, number, given + range[1]),
        given, covered, error));
  return LS_OK;
}
