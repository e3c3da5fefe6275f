#include "store/names.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* "*" stands for the layer's number, which is the same on both sides. Rules with the same name of
 * theirs are its pieces, in their order. */
typedef struct name_rule {
  const char *ours, *theirs;
  bool transposed;
} name_rule;

typedef struct family_names {
  const char *family;
  const char *prefix; /* of all but the head */
  const char *head;
  const name_rule *rules; /* up to one whose name is NULL */
  const char *const *ignored;
} family_names;

static const name_rule gpt2_rules[] = {
    {"embedding.token", "wte.weight", false},
    {"embedding.position", "wpe.weight", false},
    {"layers.*.norm1.weight", "h.*.ln_1.weight", false},
    {"layers.*.norm1.bias", "h.*.ln_1.bias", false},
    {"layers.*.attention.query.weight", "h.*.attn.c_attn.weight", true},
    {"layers.*.attention.key.weight", "h.*.attn.c_attn.weight", true},
    {"layers.*.attention.value.weight", "h.*.attn.c_attn.weight", true},
    {"layers.*.attention.query.bias", "h.*.attn.c_attn.bias", false},
    {"layers.*.attention.key.bias", "h.*.attn.c_attn.bias", false},
    {"layers.*.attention.value.bias", "h.*.attn.c_attn.bias", false},
    {"layers.*.attention.output.weight", "h.*.attn.c_proj.weight", true},
    {"layers.*.attention.output.bias", "h.*.attn.c_proj.bias", false},
    {"layers.*.norm2.weight", "h.*.ln_2.weight", false},
    {"layers.*.norm2.bias", "h.*.ln_2.bias", false},
    {"layers.*.mlp.up.weight", "h.*.mlp.c_fc.weight", true},
    {"layers.*.mlp.up.bias", "h.*.mlp.c_fc.bias", false},
    {"layers.*.mlp.down.weight", "h.*.mlp.c_proj.weight", true},
    {"layers.*.mlp.down.bias", "h.*.mlp.c_proj.bias", false},
    {"head.norm.weight", "ln_f.weight", false},
    {"head.norm.bias", "ln_f.bias", false},
    {0}};

static const char *const gpt2_ignored[] = {"h.*.attn.bias", "h.*.attn.masked_bias", NULL};

static const name_rule llama_rules[] = {
    {"embedding.token", "embed_tokens.weight", false},
    {"layers.*.norm1.weight", "layers.*.input_layernorm.weight", false},
    {"layers.*.attention.query.weight", "layers.*.self_attn.q_proj.weight", false},
    {"layers.*.attention.query.bias", "layers.*.self_attn.q_proj.bias", false},
    {"layers.*.attention.key.weight", "layers.*.self_attn.k_proj.weight", false},
    {"layers.*.attention.key.bias", "layers.*.self_attn.k_proj.bias", false},
    {"layers.*.attention.value.weight", "layers.*.self_attn.v_proj.weight", false},
    {"layers.*.attention.value.bias", "layers.*.self_attn.v_proj.bias", false},
    {"layers.*.attention.output.weight", "layers.*.self_attn.o_proj.weight", false},
    {"layers.*.attention.output.bias", "layers.*.self_attn.o_proj.bias", false},
    {"layers.*.norm2.weight", "layers.*.post_attention_layernorm.weight", false},
    {"layers.*.mlp.gate.weight", "layers.*.mlp.gate_proj.weight", false},
    {"layers.*.mlp.gate.bias", "layers.*.mlp.gate_proj.bias", false},
    {"layers.*.mlp.up.weight", "layers.*.mlp.up_proj.weight", false},
    {"layers.*.mlp.up.bias", "layers.*.mlp.up_proj.bias", false},
    {"layers.*.mlp.down.weight", "layers.*.mlp.down_proj.weight", false},
    {"layers.*.mlp.down.bias", "layers.*.mlp.down_proj.bias", false},
    {"head.norm.weight", "norm.weight", false},
    {0}};

static const char *const llama_ignored[] = {"layers.*.self_attn.rotary_emb.inv_freq",
                                            "rotary_emb.inv_freq", NULL};

static const family_names families[] = {
    {"gpt2", "transformer.", "lm_head.weight", gpt2_rules, gpt2_ignored},
    {"llama", "model.", "lm_head.weight", llama_rules, llama_ignored},
};

static const family_names *find_family(const char *name) {
  for (size_t i = 0; i < sizeof families / sizeof *families; i++)
    if (strcmp(families[i].family, name) == 0) return &families[i];
  return NULL;
}

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

static ls_stored_layout *find_layout(ls_weight_plan *plan, const char *name) {
  /* Pieces of one tensor stand close together, so that the last ones are looked at first. */
  for (int i = plan->count - 1; i >= 0; i--)
    if (strcmp(plan->tensors[i].name, name) == 0) return &plan->tensors[i];
  return NULL;
}

static void add_piece(ls_arena *arena, ls_weight_plan *plan, const char *name, const char *plain,
                      bool transposed, const ls_parameter *about, int parameter) {
  ls_stored_layout *layout = find_layout(plan, name);
  if (!layout) {
    layout = &plan->tensors[plan->count++];
    *layout = (ls_stored_layout){
        .name = name, .plain = plain, .ndim = about->ndim, .transposed = transposed};
    if (about->ndim == 2) layout->dims[!transposed] = about->dims[1];
  }
  int64_t *out = &layout->dims[transposed];
  LS_ASSERT(layout->ndim == about->ndim);
  LS_ASSERT(about->ndim == 1 || layout->dims[!transposed] == about->dims[1]);
  *LS_APPEND(arena, &layout->pieces) = (ls_weight_piece){parameter, *out, about->dims[0]};
  *out += about->dims[0];
}

static bool add_parameter(ls_arena *arena, const family_names *family, const ls_graph *graph,
                          int parameter, ls_weight_plan *plan) {
  const ls_parameter *about = &graph->parameters.items[parameter].about;
  if (strcmp(about->name, "head.weight") == 0) {
    add_piece(arena, plan, family->head, family->head, false, about, parameter);
    return true;
  }
  for (const name_rule *rule = family->rules; rule->ours; rule++) {
    int layer = 0;
    if (!matches(rule->ours, about->name, &layer)) continue;
    const char *plain = substitute(arena, rule->theirs, layer);
    const char *name = ls_arena_printf(arena, "%s%s", family->prefix, plain);
    add_piece(arena, plan, name, plain, rule->transposed, about, parameter);
    return true;
  }
  return false;
}

ls_status ls_weights_plan(ls_arena *arena, const ls_model_config *config, const ls_graph *graph,
                          ls_weight_plan *plan, ls_error *error) {
  const family_names *family = find_family(config->family);
  if (!family)
    return ls_fail(error, LS_INTERNAL, "%s: no names of tensors for the family %s", config->source,
                   config->family);
  *plan = (ls_weight_plan){.family = family->family,
                           .prefix = family->prefix,
                           .ignored = family->ignored,
                           .tied_head = config->tied ? family->head : NULL};
  plan->tensors = LS_NEW_ARRAY(arena, ls_stored_layout, graph->parameters.count);
  for (int i = 0; i < graph->parameters.count; i++)
    if (!add_parameter(arena, family, graph, i, plan))
      return ls_fail(error, LS_INTERNAL, "%s: no name for the parameter %s", family->family,
                     graph->parameters.items[i].about.name);
  /* What a tied head is compared with. */
  LS_ASSERT(strcmp(graph->parameters.items[plan->tensors[0].pieces.items[0].parameter].about.name,
                   "embedding.token") == 0);
  return LS_OK;
}

bool ls_weight_ignored(const ls_weight_plan *plan, const char *name) {
  const size_t prefix = strlen(plan->prefix);
  if (strncmp(name, plan->prefix, prefix) == 0) name += prefix;
  int layer;
  for (const char *const *pattern = plan->ignored; *pattern; pattern++)
    if (matches(*pattern, name, &layer)) return true;
  return false;
}

/* Rows of the stored tensor that come from one piece, where out is its first dimension. */
static void fill_rows(const ls_weight_piece *piece, const char *from, size_t row_bytes,
                      int64_t first, int64_t rows, char *target) {
  const int64_t begin = first > piece->offset ? first : piece->offset;
  const int64_t last = piece->offset + piece->rows;
  const int64_t end = first + rows < last ? first + rows : last;
  if (begin >= end) return;
  memcpy(target + (size_t)(begin - first) * row_bytes,
         from + (size_t)(begin - piece->offset) * row_bytes, (size_t)(end - begin) * row_bytes);
}

/* Rows of a stored [in, out] tensor: columns of the piece. */
static void fill_transposed(const ls_stored_layout *layout, const ls_weight_piece *piece,
                            const char *from, size_t element, int64_t first, int64_t rows,
                            char *target) {
  const int64_t in = layout->dims[0], out = layout->dims[1];
  for (int64_t r = 0; r < rows; r++) {
    char *to = target + (size_t)(r * out + piece->offset) * element;
    const char *column = from + (size_t)(first + r) * element;
    for (int64_t o = 0; o < piece->rows; o++)
      memcpy(to + (size_t)o * element, column + (size_t)(o * in) * element, element);
  }
}

void ls_stored_layout_fill(const ls_stored_layout *layout, const void *const *pieces,
                           ls_dtype dtype, int64_t first, int64_t rows, void *target) {
  const size_t element = ls_dtype_bytes(dtype);
  LS_ASSERT(first >= 0 && rows >= 0 && first + rows <= layout->dims[0]);
  for (int i = 0; i < layout->pieces.count; i++) {
    const ls_weight_piece *piece = &layout->pieces.items[i];
    if (layout->transposed) {
      fill_transposed(layout, piece, pieces[i], element, first, rows, target);
      continue;
    }
    const size_t columns = layout->ndim == 2 ? (size_t)layout->dims[1] : 1;
    fill_rows(piece, pieces[i], columns * element, first, rows, target);
  }
}
