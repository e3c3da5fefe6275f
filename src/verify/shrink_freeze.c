/* Which parameters of the small model are frozen: each of its layers stands for one of the large
 * one's. */
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

static bool is_trainable(const ls_graph *large, int layer, const char *rest) {
  const char *other;
  for (int p = 0; p < large->parameters.count; p++) {
    const ls_parameter_record *record = &large->parameters.items[p];
    if (layer_of(record->about.name, &other) == layer && strcmp(other, rest) == 0)
      return record->trainable;
  }
  return true;
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

void ls_shrink_freeze(const ls_graph *large, ls_graph *small) {
  if (!large || !ls_graph_frozen(large)) return;
  const int *stands_for =
      choose_layers(small->arena, large, count_layers(large), count_layers(small));
  for (int p = 0; p < small->parameters.count; p++) {
    const char *rest;
    const int layer = layer_of(small->parameters.items[p].about.name, &rest);
    small->parameters.items[p].trainable =
        is_trainable(large, layer < 0 ? -1 : stands_for[layer], rest);
  }
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
  return LS_OK;
}
