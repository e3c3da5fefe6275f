#include "schedule/unit_uses.h"

static void note(ls_arena *arena, ls_units_used *list, int unit, bool reads, bool writes) {
  int at = 0;
  while (at < list->count && list->items[at].unit < unit) at++;
  if (at == list->count || list->items[at].unit != unit) {
    LS_APPEND(arena, list);
    for (int i = list->count - 1; i > at; i--) list->items[i] = list->items[i - 1];
    list->items[at] = (ls_unit_use){.unit = unit};
  }
  list->items[at].reads |= reads;
  list->items[at].writes |= writes;
}

static void note_node(const ls_sharded *sharded, const int *of_parameter, const ls_shard_node *node,
                      ls_unit_uses *made) {
  const ls_unit_uses_kind kind = !node->backward ? LS_UNIT_USES_FORWARD
                                 : node->weight  ? LS_UNIT_USES_WEIGHT
                                                 : LS_UNIT_USES_INPUT;
  made->works[kind][node->segment] = true;
  if (node->backward) made->works[LS_UNIT_USES_BACKWARD][node->segment] = true;
  for (int i = 0; i < node->inputs + node->outputs; i++) {
    const bool is_input = i < node->inputs;
    const int value = is_input ? node->in[i] : node->out[i - node->inputs];
    const ls_tensor *tensor = ls_graph_tensor(sharded->graph, sharded->values.items[value].tensor);
    const bool reads = tensor->role == LS_ROLE_PARAMETER;
    const bool writes = tensor->role == LS_ROLE_GRADIENT && !is_input;
    if (!reads && !writes) continue;
    const int unit = of_parameter[tensor->parameter];
    note(sharded->arena, &made->of[kind][node->segment], unit, reads, writes);
    if (node->backward)
      note(sharded->arena, &made->of[LS_UNIT_USES_BACKWARD][node->segment], unit, reads, writes);
  }
}

ls_unit_uses *ls_unit_uses_make(const ls_sharded *sharded, const int *of_parameter) {
  ls_unit_uses *made = LS_NEW(sharded->arena, ls_unit_uses);
  for (int k = 0; k < LS_UNIT_USES_KINDS; k++) {
    made->of[k] = LS_NEW_ARRAY(sharded->arena, ls_units_used, sharded->graph->segments.count + 1);
    made->works[k] = LS_NEW_ARRAY(sharded->arena, bool, sharded->graph->segments.count + 1);
  }
  for (int n = 0; n < sharded->nodes.count; n++)
    note_node(sharded, of_parameter, &sharded->nodes.items[n], made);
  return made;
}

const ls_units_used *ls_unit_uses_of(const ls_unit_uses *uses, ls_unit_uses_kind kind,
                                     int segment) {
  return &uses->of[kind][segment];
}

const ls_unit_use *ls_unit_uses_find(const ls_units_used *list, int unit) {
  for (int i = 0; i < list->count; i++)
    if (list->items[i].unit == unit) return &list->items[i];
  return NULL;
}
