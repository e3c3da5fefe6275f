/* Which parameters of the small model are frozen, and how the others are trained: each of its
 * layers stands for one of the large one's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verify/shrink_parts.h"

/* The layer that a parameter is of, -1: none; *rest: its name behind that. */
static int layer_of(const char *name, const char **rest) {
  char *end;
  *rest = name;
  if (strncmp(name, "layers.", 7) != 0) return -1;
  const long layer = strtol(name + 7, &end, 10);
  *rest = end;
  return (int)layer;
}

/* The large model's layer, of those with a parameter that is, or is not, trainable; -1: none. */
static int find_layer(const ls_graph *large, bool trainable, const int *among, int count) {
  const char *rest;
  for (int p = 0; p < large->parameters.count; p++) {
    const ls_parameter_record *record = &large->parameters.items[p];
    const int layer = layer_of(record->about.name, &rest);
    if (layer < 0 || record->trainable != trainable) continue;
    if (!among) return layer;
    for (int i = 0; i < count; i++)
      if (among[i] == layer) return layer;
  }
  return -1;
}

/* First and last stand for first and last. Where the large model has layers of a kind and none of
 * these is, the middle one stands for one that is frozen, the last for one that is trained. */
static int *choose_layers(ls_arena *arena, const ls_graph *large, int many, int few) {
  int *stands_for = LS_NEW_ARRAY(arena, int, few + 1);
  for (int l = 0; l < few; l++)
    stands_for[l] = few > 1 ? (int)((int64_t)l * (many - 1) / (few - 1)) : 0;
  for (int trainable = 0; trainable < 2; trainable++) {
    const int layer = find_layer(large, trainable, NULL, 0);
    if (layer < 0 || find_layer(large, trainable, stands_for, few) >= 0) continue;
    stands_for[trainable ? few - 1 : few / 2] = layer;
  }
  return stands_for;
}

/* NULL: the large model has no such parameter. */
static const ls_parameter_record *find(const ls_graph *large, int layer, const char *rest) {
  const char *other;
  for (int p = 0; p < large->parameters.count; p++) {
    const ls_parameter_record *record = &large->parameters.items[p];
    if (layer_of(record->about.name, &other) == layer && strcmp(other, rest) == 0) return record;
  }
  return NULL;
}

static int count_layers(const ls_graph *graph) {
  const char *rest;
  int count = 0;
  for (int p = 0; p < graph->parameters.count; p++) {
    const int layer = layer_of(graph->parameters.items[p].about.name, &rest);
    if (layer >= count) count = layer + 1;
  }
  return count;
}

static bool is_usual(const ls_parameter_settings *settings) {
  return settings->rate == 1 && settings->weight_decay < 0;
}

static bool is_plain(const ls_graph *large) {
  for (int p = 0; p < large->parameters.count; p++)
    if (!large->parameters.items[p].trainable || !is_usual(&large->parameters.items[p].settings))
      return false;
  return true;
}

void ls_shrink_freeze(const ls_graph *large, ls_graph *small) {
  if (!large || is_plain(large)) return;
  const int *stands_for =
      choose_layers(small->arena, large, count_layers(large), count_layers(small));
  for (int p = 0; p < small->parameters.count; p++) {
    const char *rest;
    ls_parameter_record *made = &small->parameters.items[p];
    const int layer = layer_of(made->about.name, &rest);
    const ls_parameter_record *as = find(large, layer < 0 ? -1 : stands_for[layer], rest);
    made->trainable = (!as || as->trainable) && !ls_precision_is_blocks(made->about.precision) &&
                      made->about.precision != LS_SCALES;
    if (as) made->settings = as->settings;
  }
}

/* Each parameter's, where one is not as usual. */
static void list_settings(ls_arena *arena, const ls_graph *small, ls_shrunk *shrunk) {
  const int count = small->parameters.count;
  ls_parameter_settings *settings = LS_NEW_ARRAY(arena, ls_parameter_settings, count + 1);
  int unusual = 0;
  for (int p = 0; p < count; p++) {
    settings[p] = small->parameters.items[p].settings;
    unusual += !is_usual(&settings[p]);
  }
  if (!unusual) return;
  shrunk->settings = settings;
  *LS_APPEND(arena, &shrunk->rows) =
      (ls_shrink_row){"optimizer.groups", "parts of the large model",
                      ls_arena_printf(arena, "%d of %d parameters", unusual, count),
                      "each layer as one that it stands for"};
}

ls_status ls_shrink_list_frozen(ls_arena *arena, const ls_graph *large, ls_shrunk *shrunk,
                                ls_error *error) {
  const ls_build_options options = {.tokens = shrunk->form.sequence,
                                    .sequence = shrunk->form.sequence};
  ls_graph *small;
  LS_TRY(ls_model_build(arena, &shrunk->config, &options, &small, error));
  bool *built = LS_NEW_ARRAY(arena, bool, small->parameters.count); /* adapters freeze all others */
  for (int p = 0; p < small->parameters.count; p++) built[p] = small->parameters.items[p].trainable;
  ls_shrink_freeze(large, small);
  for (int p = 0; p < small->parameters.count; p++)
    if (built[p] && !small->parameters.items[p].trainable)
      *LS_APPEND(arena, &shrunk->freeze) = small->parameters.items[p].about.name;
  if (shrunk->freeze.count)
    *LS_APPEND(arena, &shrunk->rows) =
        (ls_shrink_row){"train.freeze", "parts of the large model",
                        ls_arena_printf(arena, "%d of %d parameters", shrunk->freeze.count,
                                        small->parameters.count),
                        "each layer as one that it stands for"};
  list_settings(arena, small, shrunk);
  return LS_OK;
}
