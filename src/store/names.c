#include "store/names_table.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Whether `name` is `pattern` with a number for its "*", if any; *layer takes the number. */
static bool matches(const char *pattern, const char *name, int *layer) {
  const char *star = strchr(pattern, '*');
  if (!star) return strcmp(pattern, name) == 0;
  const size_t before = (size_t)(star - pattern);
  if (strncmp(pattern, name, before) != 0 || !isdigit((unsigned char)name[before])) return false;
  char *after;
  const long number = strtol(name + before, &after, 10);
  *layer = (int)number;
  return strcmp(star + 1, after) == 0;
}

static const char *substitute(ls_arena *arena, const char *pattern, int layer) {
  const char *star = strchr(pattern, '*');
  if (!star) return pattern;
  return ls_arena_printf(arena, "%.*s%d%s", (int)(star - pattern), pattern, layer, star + 1);
}

/* Pieces of one tensor stand close together: between two there are fewer tensors than this. */
enum { NEAR = 32 };

static ls_stored_layout *find_layout(ls_weight_plan *plan, const char *name) {
  for (int i = plan->count - 1; i >= 0 && i >= plan->count - NEAR; i--)
    if (strcmp(plan->tensors[i].name, name) == 0) return &plan->tensors[i];
  return NULL;
}

static ls_stored_layout *add_layout(ls_arena *arena, ls_weight_plan *plan) {
  if (plan->count == plan->room) {
    plan->room = 2 * plan->room + 16;
    ls_stored_layout *more = LS_NEW_ARRAY(arena, ls_stored_layout, plan->room);
    if (plan->count) memcpy(more, plan->tensors, sizeof *more * (size_t)plan->count);
    plan->tensors = more;
  }
  return &plan->tensors[plan->count++];
}

/* `groups`: how many blocks the piece lies in, side by side with those of its siblings. */
static void add_piece(ls_arena *arena, ls_weight_plan *plan, const char *name, const char *plain,
                      bool transposed, int64_t groups, const ls_parameter *about, int parameter) {
  ls_stored_layout *layout = find_layout(plan, name);
  if (!layout) {
    layout = add_layout(arena, plan);
    *layout = (ls_stored_layout){.name = name,
                                 .plain = plain,
                                 .part = LS_PART_MASTER,
                                 .ndim = about->ndim,
                                 .transposed = transposed};
    if (about->ndim == 2) layout->dims[!transposed] = about->dims[1];
  }
  int64_t *out = &layout->dims[transposed];
  LS_ASSERT(layout->ndim == about->ndim && about->dims[0] % groups == 0);
  LS_ASSERT(about->ndim == 1 || layout->dims[!transposed] == about->dims[1]);
  *LS_APPEND(arena, &layout->pieces) = (ls_weight_piece){.parameter = parameter,
                                                         .offset = *out / groups,
                                                         .rows = about->dims[0],
                                                         .block = about->dims[0] / groups};
  *out += about->dims[0];
  for (int i = 0; i < layout->pieces.count; i++) layout->pieces.items[i].period = *out / groups;
}

/* Under the name that PEFT has for it: of its product's weight. Of several products that are one
 * tensor the first adapter is one, too, and the second has pieces as the weight has. */
static bool add_adapter(ls_arena *arena, const ls_family_tensors *family, const ls_name_rule *rules,
                        int64_t kv_heads, const ls_parameter *about, int parameter,
                        ls_weight_plan *plan) {
  const char *ends = strstr(about->name, ".lora_");
  LS_ASSERT(ends);
  const char *beside =
      ls_arena_printf(arena, "%.*s.weight", (int)(ends - about->name), about->name);
  for (const ls_name_rule *rule = rules; rule->ours; rule++) {
    int layer = 0;
    if (!matches(rule->ours, beside, &layer)) continue;
    const char *plain = substitute(arena, rule->theirs, layer);
    const int length = (int)(strlen(plain) - strlen(".weight"));
    const char *name =
        ls_arena_printf(arena, LS_ADAPTERS_PREFIX "%s%.*s%s", family->prefix, length, plain, ends);
    const bool by_head = rule->form == LS_NAME_BY_HEAD && strncmp(ends, ".lora_B", 7) == 0;
    add_piece(arena, plan, name, name, false, by_head ? kv_heads : 1, about, parameter);
    find_layout(plan, name)->adapter = true;
    return true;
  }
  return false;
}

/* The rows of each expert, in a tensor of their own. */
static void add_experts(ls_arena *arena, ls_weight_plan *plan, const char *prefix,
                        const char *plain, bool transposed, int64_t experts,
                        const ls_parameter *about, int parameter) {
  const char *number = strchr(plain, '#');
  const int64_t rows = about->dims[0] / experts;
  LS_ASSERT(number && about->ndim == 2 && about->dims[0] % experts == 0);
  for (int64_t e = 0; e < experts; e++) {
    ls_stored_layout *layout = add_layout(arena, plan);
    const char *name = ls_arena_printf(arena, "%.*s%lld%s", (int)(number - plain), plain,
                                       (long long)e, number + 1);
    *layout = (ls_stored_layout){.name = ls_arena_printf(arena, "%s%s", prefix, name),
                                 .plain = name,
                                 .part = LS_PART_MASTER,
                                 .ndim = 2,
                                 .transposed = transposed};
    layout->dims[transposed] = rows;
    layout->dims[!transposed] = about->dims[1];
    *LS_APPEND(arena, &layout->pieces) = (ls_weight_piece){
        .parameter = parameter, .first = e * rows, .rows = rows, .block = rows, .period = rows};
  }
}

/* A matrix for each expert, one after another in one tensor: transposed ones are a piece each. */
static void add_stack(ls_arena *arena, ls_weight_plan *plan, const char *name, const char *plain,
                      bool transposed, int64_t experts, const ls_parameter *about, int parameter) {
  const int64_t rows = about->dims[0] / experts, together = transposed ? rows : about->dims[0];
  ls_stored_layout *layout = add_layout(arena, plan);
  LS_ASSERT(about->ndim == 2 && about->dims[0] % experts == 0);
  *layout = (ls_stored_layout){.name = name,
                               .plain = plain,
                               .part = LS_PART_MASTER,
                               .ndim = 2,
                               .stack = experts,
                               .transposed = transposed};
  layout->dims[transposed] = rows;
  layout->dims[!transposed] = about->dims[1];
  for (int64_t first = 0; first < about->dims[0]; first += together)
    *LS_APPEND(arena, &layout->pieces) = (ls_weight_piece){.parameter = parameter,
                                                           .first = first,
                                                           .rows = together,
                                                           .block = together,
                                                           .period = together};
}

/* Files have numbers where a parameter is stored as blocks of them. */
static ls_parameter in_numbers(const ls_parameter *about) {
  ls_parameter made = *about;
  if (made.ndim == 2) made.dims[1] *= ls_precision_numbers(about->precision);
  return made;
}

static bool add_parameter(ls_arena *arena, const ls_family_tensors *family,
                          const ls_name_rule *rules, const ls_model_config *config,
                          const ls_graph *graph, int parameter, ls_weight_plan *plan) {
  ls_parameter whole = in_numbers(&graph->parameters.items[parameter].about);
  const ls_parameter *about = &whole;
  if (config->teacher) whole.name += strlen("teacher.");
  if (about->adapter)
    return add_adapter(arena, family, rules, config->kv_heads, about, parameter, plan);
  for (const ls_name_rule *rule = rules; rule->ours; rule++) {
    int layer = 0;
    if (!matches(rule->ours, about->name, &layer)) continue;
    const char *plain = substitute(arena, rule->theirs, layer);
    if (plain[0] == '/') { /* without the prefix */
      add_piece(arena, plan, plain + 1, plain + 1, false, 1, about, parameter);
      return true;
    }
    if (rule->form == LS_NAME_EXPERT || rule->form == LS_NAME_EXPERT_TRANSPOSED) {
      add_experts(arena, plan, family->prefix, plain, rule->form == LS_NAME_EXPERT_TRANSPOSED,
                  config->experts, about, parameter);
      return true;
    }
    const char *name = ls_arena_printf(arena, "%s%s", family->prefix, plain);
    if (rule->form == LS_NAME_STACK || rule->form == LS_NAME_STACK_TRANSPOSED) {
      add_stack(arena, plan, name, plain, rule->form == LS_NAME_STACK_TRANSPOSED, config->experts,
                about, parameter);
      return true;
    }
    add_piece(arena, plan, name, plain, rule->form == LS_NAME_TRANSPOSED,
              rule->form == LS_NAME_BY_HEAD ? config->kv_heads : 1, about, parameter);
    return true;
  }
  if (strncmp(about->name, "head.", 5) != 0) return false;
  const char *name = ls_arena_printf(arena, "%s.%s", family->head, about->name + 5);
  add_piece(arena, plan, name, name, false, 1, about, parameter);
  return true;
}

/* A form of the same table: its rows, but those of another in place of theirs. */
static const ls_name_rule *replace_rules(ls_arena *arena, const ls_name_rule *usual,
                                         const ls_name_rule *other) {
  if (!other) return usual;
  int first = 0, second = 0;
  while (usual[first].ours) first++;
  while (other[second].ours) second++;
  ls_name_rule *rules = LS_NEW_ARRAY(arena, ls_name_rule, first + second + 1);
  memcpy(rules, other, sizeof *rules * (size_t)second);
  memcpy(rules + second, usual, sizeof *rules * (size_t)first);
  return rules;
}

/* What is in the file of adapters as it is in that of the weights: PEFT's modules_to_save. */
static void keep_module(ls_arena *arena, const ls_model_config *config, int module,
                        ls_stored_layout *layout) {
  layout->module = module;
  if (!(module & config->lora_modules)) return;
  layout->adapter = true;
  layout->name = ls_arena_printf(arena, LS_ADAPTERS_PREFIX "%s", layout->name);
}

static const char *const *list_other_heads(ls_arena *arena, const ls_family_tensors *family,
                                           const ls_class_head *head) {
  if (head->others) return head->others;
  const char **made = LS_NEW_ARRAY(arena, const char *, 2);
  made[0] = family->head;
  return made;
}

bool ls_weights_other_form(const ls_model_config *config) {
  const ls_family_tensors *family = ls_family_tensors_find(config->family);
  return family && family->other;
}

ls_status ls_weights_plan(ls_arena *arena, const ls_model_config *config, const ls_graph *graph,
                          ls_weight_plan *plan, ls_error *error) {
  return ls_weights_plan_form(arena, config, graph, false, plan, error);
}

ls_status ls_weights_plan_form(ls_arena *arena, const ls_model_config *config,
                               const ls_graph *graph, bool other, ls_weight_plan *plan,
                               ls_error *error) {
  const ls_family_tensors *family = ls_family_tensors_find(config->family);
  if (!family)
    return ls_fail(error, LS_INTERNAL, "%s: no names of tensors for the family %s", config->source,
                   config->family);
  const ls_class_head head = ls_class_head_of(config);
  *plan = (ls_weight_plan){.family = family->family,
                           .prefix = family->prefix,
                           .ignored = family->ignored,
                           .tied_head = config->tied && !config->classes && !config->vectors
                                            ? ls_arena_printf(arena, "%s.weight", family->head)
                                            : NULL,
                           .other_heads = config->classes || config->vectors
                                              ? list_other_heads(arena, family, &head)
                                              : NULL};
  const bool variant = (config->parallel && !config->shared_norm) ||
                       (config->latent && !config->query_latent) || config->skipped_positions;
  const ls_name_rule *rules = replace_rules(arena, family->rules,
                                            other     ? family->other
                                            : variant ? family->variant
                                                      : NULL);
  if (config->classes) rules = replace_rules(arena, rules, head.rules);
  for (int i = 0; i < graph->parameters.count; i++) {
    const ls_parameter *about = &graph->parameters.items[i].about;
    if (about->teacher != config->teacher || about->precision == LS_SCALES) continue;
    if (!add_parameter(arena, family, rules, config, graph, i, plan))
      return ls_fail(error, LS_INTERNAL, "%s: no name for the parameter %s", family->family,
                     about->name);
    if (about->module) keep_module(arena, config, about->module, &plan->tensors[plan->count - 1]);
  }
  /* What a tied head is compared with. */
  LS_ASSERT(strcmp(graph->parameters.items[plan->tensors[0].pieces.items[0].parameter].about.name,
                   config->teacher ? "teacher.embedding.token" : "embedding.token") == 0);
  return LS_OK;
}

ls_status ls_weights_settle_scales(ls_model_config *config, ls_error *error) {
  const ls_build_options one = {.mode = LS_MODEL_FORWARD, .tokens = 1, .sequence = 1};
  if (!ls_precision_is_double(config->blocks)) return LS_OK;
  ls_arena *scratch = ls_arena_create();
  ls_graph *graph;
  ls_weight_plan plan;
  ls_status status = ls_model_build(scratch, config, &one, &graph, error);
  if (status == LS_OK) status = ls_weights_plan(scratch, config, graph, &plan, error);
  bool together = false;
  for (int t = 0; status == LS_OK && t < plan.count && !together; t++) {
    const int first = plan.tensors[t].pieces.items[0].parameter;
    together = plan.tensors[t].pieces.count > 1 &&
               ls_precision_is_double(graph->parameters.items[first].about.precision);
  }
  if (together) config->blocks = ls_precision_single(config->blocks);
  ls_arena_destroy(&scratch);
  return status;
}

bool ls_weight_ignored(const ls_weight_plan *plan, const char *name) {
  const size_t prefix = strlen(plan->prefix);
  if (strncmp(name, plan->prefix, prefix) == 0) name += prefix;
  int layer;
  for (const char *const *pattern = plan->ignored; *pattern; pattern++)
    if (matches(*pattern, name, &layer)) return true;
  return false;
}

int64_t ls_weight_piece_place(const ls_weight_piece *piece, int64_t row) {
  row -= piece->first;
  return piece->offset + row / piece->block * piece->period + row % piece->block;
}

ls_box ls_weight_piece_box(const ls_weight_piece *piece, const ls_box *box) {
  const int64_t first = box->row > piece->first ? box->row : piece->first;
  const int64_t end = box->row + box->rows, last = piece->first + piece->rows;
  const int64_t rows = (end < last ? end : last) - first;
  return rows > 0 ? (ls_box){first, rows, box->column, box->columns} : (ls_box){0};
}
