#include "shard/shard.h"

#include <math.h>
#include <string.h>

#include "shard/resolve.h"

/* What a node does on one axis: cut a label, cut nothing, let partial inputs flow through, or keep
 * rows of zeros. */
enum { CUT_NOTHING = '.', FLOW_THROUGH = '~', KEEP_MASK = '^', MAX_CHOICES = 8 };

typedef struct cached_conversion {
  int from, to; /* values */
} cached_conversion;

typedef LS_LIST(cached_conversion) conversions;

/* What was chosen for a node, and of what. */
typedef struct asked {
  char choice[LS_MAX_AXES];
  int home[LS_MAX_INPUTS];
  int converted; /* conversions that its body had before it */
  bool adds;     /* a gradient of it had been made before, by a node of another use */
} asked;

typedef struct sharder {
  ls_sharded *out;
  const ls_graph *graph;
  bool cuts_stream;                 /* sequence parallelism */
  int *home;                        /* by tensor: its value as made; -1: not made yet */
  conversions cache, cache_before;  /* of the body being laid, and of the one before it */
  int first, first_before, segment; /* nodes that these begin with */
  bool backward;
  asked *asked; /* by node */
} sharder;

typedef struct node_context {
  const ls_node *node;
  const ls_op *row;
  const ls_op_labels *labels;
  const ls_mesh *mesh;
  const ls_axis *axes; /* of the mesh */
  char choice[LS_MAX_AXES];
  int shift[LS_MAX_AXES]; /* of tokens, where their shards have gone round */
} node_context;

static size_t element_bytes(const sharder *s, const ls_tensor *tensor) {
  return ls_dtype_bytes(ls_layout_dtype(&s->out->layout, tensor->precision));
}

static int add_value(sharder *s, ls_tensor_id tensor, const ls_placement *placement) {
  ls_shard_value *value = LS_APPEND(s->out->arena, &s->out->values);
  value->tensor = tensor;
  value->placement = *placement;
  return s->out->values.count - 1;
}

/* An axis of the context divides tokens for the whole step, as the other data axes do, but for what
 * the row says of attention. So sums over it go home at once, in shards: each rank does its own
 * tokens' work and no other's. What has no tokens is the same on all. */
static int list_context_choices(const node_context *context, const ls_axis *axis,
                                char choices[MAX_CHOICES]) {
  int count = 0;
  for (int r = 0; r < LS_MAX_LABEL_RULES; r++)
    if (context->row->only[r].axes & axis->shares & ~(unsigned)LS_SHARES_ANY_EXPERTS)
      choices[count++] = context->row->only[r].label;
  if (ls_op_takes_rows(context->row)) choices[count++] = 'n';
  if (count == 0) choices[count++] = CUT_NOTHING;
  return count;
}

static bool is_mask(ls_place place) {
  return place.kind == LS_PARTIAL && place.reduce == LS_MASK;
}

/* An axis of experts divides tokens as other data axes do, but that each rank routes the tokens of
 * all, and of routed rows has those of its experts. So there is one choice: 0 where it is that of
 * any axis that divides tokens, or on a tensor axis any, since experts take there the tokens of the
 * residual stream that a rank has, and nothing else is done otherwise. */
static char expert_choice(const sharder *s, const node_context *context, int axis) {
  const ls_op *row = context->row;
  bool masked = false;
  for (int r = 0; r < LS_MAX_LABEL_RULES; r++)
    if (row->only[r].axes & context->axes[axis].shares & LS_SHARES_ANY_EXPERTS)
      return row->only[r].label;
  for (int i = 0; i < context->node->inputs; i++) {
    const int home = s->home[context->node->in[i].index];
    masked |= is_mask(s->out->values.items[home].placement.on[axis]);
  }
  if (masked) return row->masked ? KEEP_MASK : FLOW_THROUGH;
  for (int r = 0; r < LS_MAX_LABEL_RULES; r++)
    if (row->only[r].axes & context->axes[axis].shares & LS_SHARES_STREAM)
      return row->only[r].label;
  return 0;
}

static int list_choices(const sharder *s, const node_context *context, const ls_axis *axis,
                        char choices[MAX_CHOICES]) {
  int count = 0;
  choices[count++] = CUT_NOTHING;
  if (axis->size < 2) return count;
  const int a = (int)(axis - context->axes);
  const char only = axis->shares & LS_SHARES_ANY_EXPERTS ? expert_choice(s, context, a) : 0;
  if (only) {
    choices[0] = only;
    return 1;
  }
  if ((ls_mesh_context(context->mesh) | ls_mesh_experts(context->mesh)) >> a & 1 &&
      axis->role != LS_MESH_TENSOR)
    return list_context_choices(context, axis, choices);
  if (context->row->linear) choices[count++] = FLOW_THROUGH;
  for (int r = 0; r < LS_MAX_LABEL_RULES; r++)
    if (context->row->only[r].axes & axis->shares) choices[count++] = context->row->only[r].label;
  for (const char *label = context->row->shardable; label && *label; label++) {
    LS_ASSERT(count < MAX_CHOICES);
    choices[count++] = *label;
  }
  return count;
}

/* A dimension of the operand cut where the label is; experts as tokens are, which come to them. */
static ls_place cut_place(const node_context *context, const ls_axis *axis,
                          const ls_operand_labels *operand, char label, int dim) {
  const bool tokens = ls_label_has_tokens(label);
  ls_place place =
      ls_place_sharded(axis, tokens || label == 'x' ? LS_CUT_TOKENS : LS_CUT_FEATURES, dim);
  const int shift = ls_operand_shift(operand, label, &context->node->attributes);
  if (axis->size > 1 && tokens)
    place.shift = (short)((context->shift[axis - context->axes] + shift) % axis->size);
  return place;
}

/* Rows of zeros on the ranks that do not have a routed row's expert. */
static ls_place mask_on(const ls_axis *axis) {
  return (ls_place){
      .kind = LS_PARTIAL, .reduce = LS_MASK, .order = (short)axis->order[LS_CUT_TOKENS]};
}

/* Whether the choice is to shard experts, to which each rank brings all rows. */
static bool cuts_experts(const node_context *context, const ls_axis *axis, char choice) {
  for (int r = 0; r < LS_MAX_LABEL_RULES; r++)
    if (context->row->only[r].axes & axis->shares & LS_SHARES_EXPERTS)
      return choice != CUT_NOTHING && choice == context->row->only[r].label;
  return false;
}

/* The dimension of the operand that the choice cuts: rows are with experts only where they are sent
 * to them. -1: none. */
static int dim_of(const node_context *context, const ls_axis *axis,
                  const ls_operand_labels *operand, char choice) {
  return cuts_experts(context, axis, choice) ? ls_operand_own_dim(operand, choice)
                                             : ls_operand_dim(operand, choice);
}

/* Whether an input that is masked may stay so. */
static bool takes_mask(const node_context *context, const ls_axis *axis, int input, char choice) {
  const bool keeps = choice == KEEP_MASK || cuts_experts(context, axis, choice);
  const char *of = keeps                    ? context->row->masked
                   : choice == FLOW_THROUGH ? context->row->linear
                                            : "";
  return strchr(of, '0' + input);
}

static ls_place input_place(const node_context *context, const ls_axis *axis, int input,
                            char choice, ls_place now) {
  if (is_mask(now) && takes_mask(context, axis, input, choice)) return now;
  if (choice == FLOW_THROUGH && strchr(context->row->linear, '0' + input))
    return (ls_place){.kind = LS_PARTIAL};
  const int dim = dim_of(context, axis, &context->labels->in[input], choice);
  return dim < 0 ? (ls_place){0}
                 : cut_place(context, axis, &context->labels->in[input], choice, dim);
}

static ls_place output_place(const node_context *context, const ls_axis *axis, int output,
                             char choice) {
  if (choice == CUT_NOTHING) return (ls_place){0};
  if (choice == FLOW_THROUGH) return (ls_place){.kind = LS_PARTIAL};
  if (choice == KEEP_MASK) return mask_on(axis);
  const int dim = dim_of(context, axis, &context->labels->out[output], choice);
  if (dim < 0 && cuts_experts(context, axis, choice)) return mask_on(axis);
  if (dim < 0) return (ls_place){.kind = LS_PARTIAL, .reduce = context->row->reduce};
  return cut_place(context, axis, &context->labels->out[output], choice, dim);
}

/* The placement an operand needs under the choices made for the axes of `family`; on other axes it
 * stays as it is. */
static ls_placement with_choices(const node_context *context, int operand, bool is_input,
                                 const ls_placement *now, ls_axes family) {
  const ls_axis *axes = context->axes;
  ls_placement placement = *now;
  for (int a = 0; family >> a; a++)
    if (family >> a & 1)
      placement.on[a] =
          is_input ? input_place(context, &axes[a], operand, context->choice[a], now->on[a])
                   : output_place(context, &axes[a], operand, context->choice[a]);
  return placement;
}

static int find_cached(const sharder *s, int value, const ls_placement *placement) {
  for (int i = 0; i < s->cache.count; i++) {
    const int to = s->cache.items[i].to;
    if (s->cache.items[i].from == value &&
        ls_placement_equal(&s->out->mesh, &s->out->values.items[to].placement, placement,
                           ls_mesh_all(&s->out->mesh)))
      return to;
  }
  return -1;
}

/* Whether parts of one axis go different ways from partial: some to replicated, some to rows. That
 * sends little, but nothing leads from there to the whole of the residual stream's rows. */
static bool parts_ways(const ls_mesh *mesh, const ls_placement *now, const ls_placement *target,
                       ls_axes family) {
  bool reduces = false, scatters = false;
  for (int a = 0; a < mesh->count; a++) {
    if (!(family >> a & 1) || mesh->axes[a].size < 2 || now->on[a].kind != LS_PARTIAL) continue;
    reduces |= target->on[a].kind == LS_REPLICATED;
    scatters |= target->on[a].kind == LS_SHARDED;
  }
  return reduces && scatters;
}

/* What is kept between programs lies as its first use has it. */
static bool is_free(const sharder *s, ls_tensor_id id) {
  return ls_graph_tensor(s->graph, id)->role == LS_ROLE_STATE && s->home[id.index] < 0;
}

/* A parameter, or one that was stored as blocks: it lies as its row says. */
static bool is_weights(const sharder *s, const ls_tensor *tensor) {
  if (tensor->role == LS_ROLE_PARAMETER) return true;
  return tensor->producer >= 0 &&
         ls_op_row(s->graph->nodes.items[tensor->producer].kind)->again == LS_AGAIN_ALWAYS;
}

/* Those of the family on which the two are not the same. */
static ls_axes moved_axes(const sharder *s, const ls_placement *now, const ls_placement *target,
                          ls_axes family) {
  ls_axes moved = 0;
  for (int a = 0; family >> a; a++)
    if (family >> a & 1 && !ls_placement_equal(&s->out->mesh, now, target, 1u << a))
      moved |= 1u << a;
  return moved;
}

/* Bytes to bring input `i` where the choices want it; negative: impossible. Parameters never move:
 * only stored -> used converts them, and that is the schedule's. The data axes divide the batch for
 * the whole step: of it nothing moves over those that divide it by whole sequences, but what the
 * row says is of all of them. */
static double input_cost(const sharder *s, const node_context *context, int i, ls_axes family) {
  const ls_tensor_id id = context->node->in[i];
  const ls_tensor *tensor = ls_graph_tensor(s->graph, id);
  const int home = s->home[id.index];
  if (is_free(s, id)) return 0;
  const ls_placement *now = &s->out->values.items[home].placement;
  const ls_placement target = with_choices(context, i, true, now, family);
  if (ls_placement_equal(&s->out->mesh, now, &target, family)) return 0;
  const bool moves =
      !is_weights(s, tensor) && tensor->role != LS_ROLE_CELL && tensor->role != LS_ROLE_STATE;
  if (!moves) return -1;
  if (moved_axes(s, now, &target, family) & ls_mesh_data(&s->out->mesh) &
          ~ls_mesh_context(&s->out->mesh) & ~ls_mesh_experts(&s->out->mesh) &&
      !ls_op_reads_whole(context->row, i))
    return -1;
  if (parts_ways(&s->out->mesh, now, &target, family)) return -1;
  if (find_cached(s, home, &target) >= 0) return 0;
  return ls_resolve_bytes(&s->out->mesh, now, &target, tensor, element_bytes(s, tensor));
}

/* A gradient must come out as its parameter is used, partial where the parameter is replicated; the
 * reduction it then needs is part of the price. */
static double gradient_cost(const sharder *s, const ls_tensor *tensor, const ls_placement *made,
                            ls_axes family) {
  const ls_mesh *mesh = &s->out->mesh;
  const int earlier = s->out->gradient_value[tensor->parameter];
  if (earlier >= 0 &&
      !ls_placement_equal(mesh, made, &s->out->values.items[earlier].placement, family))
    return -1;
  const ls_placement used =
      ls_parameter_placement(mesh, s->graph->parameters.items[tensor->parameter].about.sharding);
  ls_axes partial = 0;
  for (int a = 0; a < mesh->count; a++) {
    if (!(family >> a & 1) || mesh->axes[a].size < 2) continue;
    if (used.on[a].kind == LS_SHARDED && !ls_place_equal(used.on[a], made->on[a])) return -1;
    if (used.on[a].kind == LS_REPLICATED && made->on[a].kind == LS_SHARDED) return -1;
    if (made->on[a].kind == LS_PARTIAL) partial |= 1u << a;
  }
  if (!partial || family & ls_mesh_data(mesh)) return 0;
  const double ranks = ls_mesh_size(mesh, partial);
  return 2 * (double)ls_placement_elements(mesh, made, tensor) * (double)element_bytes(s, tensor) *
         (ranks - 1) / ranks;
}

/* Where the row pins the residual stream on these axes; its tokens are shared out over those of
 * experts. */
static ls_placement pinned(const sharder *s, const ls_placement *made, ls_axes pins) {
  ls_placement placement = *made;
  for (int a = 0; a < s->out->mesh.count; a++) {
    const ls_axis *axis = &s->out->mesh.axes[a];
    if (pins >> a & 1)
      placement.on[a] = axis->shares & LS_SHARES_ANY_EXPERTS
                            ? ls_place_sharded(axis, LS_CUT_TOKENS, 0)
                            : ls_stream_place(s->cuts_stream, axis);
  }
  return placement;
}

static double output_cost(const sharder *s, const node_context *context, int o, ls_axes family) {
  const ls_tensor *tensor = ls_graph_tensor(s->graph, context->node->out[o]);
  const ls_placement made = with_choices(context, o, false, &(ls_placement){0}, family);
  if (tensor->role == LS_ROLE_GRADIENT) return gradient_cost(s, tensor, &made, family);
  const ls_axes pins = family & ls_mesh_axes(&s->out->mesh, LS_MESH_TENSOR);
  if (!tensor->stream || !pins) return 0;
  const ls_placement target = pinned(s, &made, pins);
  return ls_resolve_bytes(&s->out->mesh, &made, &target, tensor, element_bytes(s, tensor));
}

/* Whether a scaled dimension is cut into whole elements, so that what each stands for lies with it.
 */
static bool cuts_evenly(const sharder *s, const node_context *context, int operand, bool is_input,
                        ls_axes family) {
  const ls_operand_labels *labels =
      is_input ? &context->labels->in[operand] : &context->labels->out[operand];
  bool scaled = false;
  for (int d = 0; d < labels->ndim; d++) scaled |= labels->rule[d].divisor != 1;
  if (!scaled) return true;
  const ls_tensor_id id = is_input ? context->node->in[operand] : context->node->out[operand];
  const ls_placement placement =
      with_choices(context, operand, is_input, &(ls_placement){0}, family);
  for (int d = 0; d < labels->ndim; d++) {
    if (ls_operand_divisor(labels, d, &context->node->attributes) == 1) continue;
    const ls_axes axes = ls_placement_axes(&s->out->mesh, &placement, LS_SHARDED, d);
    if (ls_graph_tensor(s->graph, id)->dims[d] % ls_mesh_size(&s->out->mesh, axes)) return false;
  }
  return true;
}

/* Bytes that the choices send; negative: impossible. From `most` on the rest is not looked at. */
static double choice_cost(const sharder *s, const node_context *context, ls_axes family,
                          double most) {
  double total = 0;
  for (int i = 0; i < context->node->inputs && total < most; i++) {
    const double cost = input_cost(s, context, i, family);
    if (cost < 0 || !cuts_evenly(s, context, i, true, family)) return -1;
    total += cost;
  }
  for (int o = 0; o < context->node->outputs && total < most; o++) {
    const double cost = output_cost(s, context, o, family);
    if (cost < 0 || !cuts_evenly(s, context, o, false, family)) return -1;
    total += cost;
  }
  return total;
}

/* The choices on the axes of a family that together send the fewest bytes; of equals the first,
 * outer axes slowest. */
static ls_status choose(const sharder *s, node_context *context, ls_axes family, ls_error *error) {
  const ls_mesh *mesh = &s->out->mesh;
  char choices[LS_MAX_AXES][MAX_CHOICES], chosen[LS_MAX_AXES] = {0};
  int counts[LS_MAX_AXES], at[LS_MAX_AXES] = {0};
  for (int a = 0; a < mesh->count; a++)
    if (family >> a & 1) counts[a] = list_choices(s, context, &mesh->axes[a], choices[a]);
  double best = INFINITY;
  for (bool more = true; more;) {
    for (int a = 0; a < mesh->count; a++)
      if (family >> a & 1) context->choice[a] = choices[a][at[a]];
    const double cost = choice_cost(s, context, family, best);
    if (cost >= 0 && cost < best) {
      best = cost;
      memcpy(chosen, context->choice, sizeof chosen);
    }
    more = false;
    for (int a = mesh->count - 1; a >= 0 && !more; a--) {
      if (!(family >> a & 1)) continue;
      more = ++at[a] < counts[a];
      if (!more) at[a] = 0;
    }
  }
  if (isinf(best))
    return ls_fail(error, LS_INTERNAL, "no placement on %s for %s (%s)",
                   ls_axes_print(s->out->arena, mesh, family), ls_op_name(context->node->kind),
                   ls_graph_tensor(s->graph, context->node->out[0])->name);
  memcpy(context->choice, chosen, sizeof chosen);
  return LS_OK;
}

/* A data axis has nothing to do with others, so each is chosen for by itself; the parts of a user's
 * tensor axis or context together, as one collective may be over several; and all where something
 * is of all sequences. So the work grows with the number of axes, and exponentially only with the
 * parts of one, but for the few ops of the last kind. */
static ls_status choose_all(const sharder *s, node_context *context, ls_error *error) {
  const ls_mesh *mesh = &s->out->mesh;
  memset(context->choice, CUT_NOTHING, sizeof context->choice);
  ls_axes left = ls_mesh_active(mesh, ls_mesh_inside(mesh)); /* on others there is no choice */
  for (int a = 0; a < mesh->count; a++) {
    if (!(left >> a & 1)) continue;
    char only[MAX_CHOICES];
    if (mesh->axes[a].shares & LS_SHARES_ANY_EXPERTS && !context->row->whole &&
        list_choices(s, context, &mesh->axes[a], only) == 1) {
      context->choice[a] = only[0]; /* what it moves may need other axes to move too */
      continue;
    }
    ls_axes family = 1u << a;
    const ls_axes together = ls_mesh_axes(mesh, LS_MESH_TENSOR) | ls_mesh_context(mesh);
    for (int b = a + 1; b < mesh->count && together >> a & 1; b++)
      if (left >> b & 1 && strcmp(mesh->axes[b].part, mesh->axes[a].part) == 0) family |= 1u << b;
    if (context->row->whole) family = left;
    left &= ~family;
    LS_TRY(choose(s, context, family, error));
  }
  return LS_OK;
}

/* Whether what is looked at of a tensor is the same of another. */
static bool tensors_alike(const sharder *s, ls_tensor_id one, ls_tensor_id other) {
  const ls_tensor *a = ls_graph_tensor(s->graph, one), *b = ls_graph_tensor(s->graph, other);
  const ls_parameter_record *parameters = s->graph->parameters.items;
  return a->role == b->role && a->stream == b->stream && a->precision == b->precision &&
         a->ndim == b->ndim && memcmp(a->dims, b->dims, sizeof a->dims) == 0 &&
         is_weights(s, a) == is_weights(s, b) &&
         (a->role != LS_ROLE_GRADIENT ||
          parameters[a->parameter].about.sharding == parameters[b->parameter].about.sharding);
}

static bool places_alike(const sharder *s, int a, int b) {
  const ls_shard_value *values = s->out->values.items;
  return memcmp(&values[a].placement, &values[b].placement, sizeof(ls_placement)) == 0;
}

/* The next conversion of a value from the i-th of `count` on. */
static int next_of(const conversions *all, int i, int count, int value) {
  while (i < count && all->items[i].from != value) i++;
  return i;
}

/* Whether a value of this body lies as one of the body before, and was converted as that had been.
 */
static bool values_alike(const sharder *s, int value, int before, int converted) {
  if (value < 0 || before < 0 || !places_alike(s, value, before)) return false;
  const conversions *now = &s->cache, *then = &s->cache_before;
  int i = next_of(now, 0, now->count, value), j = next_of(then, 0, converted, before);
  while (i < now->count && j < converted) {
    if (!places_alike(s, now->items[i].to, then->items[j].to)) return false;
    i = next_of(now, i + 1, now->count, value);
    j = next_of(then, j + 1, converted, before);
  }
  return i == now->count && j == converted;
}

/* Layers are alike: the node at this node's place in the body before, where all that a choice is
 * made by is the same of both, so that the choice is too; NULL: there is none. */
static const asked *find_asked(const sharder *s, const ls_node *node) {
  const int n = (int)(node - s->graph->nodes.items), m = n - s->first + s->first_before;
  if (m >= s->first) return NULL;
  const ls_node *before = &s->graph->nodes.items[m];
  const asked *found = &s->asked[m], *made = &s->asked[n];
  if (node->kind != before->kind || node->inputs != before->inputs ||
      node->outputs != before->outputs || made->adds || found->adds ||
      memcmp(&node->attributes, &before->attributes, sizeof node->attributes) != 0)
    return NULL;
  for (int o = 0; o < node->outputs; o++)
    if (!tensors_alike(s, node->out[o], before->out[o])) return NULL;
  for (int i = 0; i < node->inputs; i++)
    if (!tensors_alike(s, node->in[i], before->in[i]) ||
        !values_alike(s, s->home[node->in[i].index], found->home[i], found->converted))
      return NULL;
  return found;
}

/* Takes note of what the node finds, and chooses. */
static ls_status choose_or_repeat(sharder *s, node_context *context, ls_error *error) {
  const ls_node *node = context->node;
  asked *made = &s->asked[node - s->graph->nodes.items];
  for (int i = 0; i < node->inputs; i++) made->home[i] = s->home[node->in[i].index];
  made->converted = s->cache.count;
  for (int o = 0; o < node->outputs; o++) {
    const ls_tensor *tensor = ls_graph_tensor(s->graph, node->out[o]);
    made->adds |=
        tensor->role == LS_ROLE_GRADIENT && s->out->gradient_value[tensor->parameter] >= 0;
  }
  const asked *alike = find_asked(s, node);
  if (alike)
    memcpy(context->choice, alike->choice, sizeof context->choice);
  else
    LS_TRY(choose_all(s, context, error));
  memcpy(made->choice, context->choice, sizeof made->choice);
  return LS_OK;
}

/* Where a value that is to go round has come to last. */
static int find_nearest(const sharder *s, int value, const ls_placement *target) {
  const ls_mesh *mesh = &s->out->mesh;
  for (int i = s->cache.count - 1; i >= 0; i--) {
    const int to = s->cache.items[i].to;
    ls_placement moved = s->out->values.items[to].placement;
    for (int a = 0; a < mesh->count; a++) moved.on[a].shift = target->on[a].shift;
    if (s->cache.items[i].from == value &&
        ls_placement_equal(mesh, &moved, target, ls_mesh_all(mesh)))
      return to;
  }
  return value;
}

/* Adds the collectives that bring `value` to `target`; returns the converted value. */
static int convert(sharder *s, int value, const ls_placement *target, const char *consumer) {
  const int cached = find_cached(s, value, target);
  if (cached >= 0) return cached;
  static const ls_attributes none;
  ls_arena *arena = s->out->arena;
  const ls_tensor_id id = s->out->values.items[value].tensor;
  const char *name = ls_graph_tensor(s->graph, id)->name;
  ls_resolve_step steps[LS_MAX_RESOLVE_STEPS];
  int now = find_nearest(s, value, target);
  const int count = ls_resolve(&s->out->mesh, &s->out->values.items[now].placement, target, steps);
  LS_ASSERT(count > 0);
  for (int i = 0; i < count; i++) {
    const char *reason = ls_resolve_reason(arena, &s->out->mesh, name, &steps[i]);
    const int next = add_value(s, id, &steps[i].after);
    *LS_APPEND(arena, &s->out->nodes) =
        (ls_shard_node){.collective = steps[i].collective,
                        .kind = LS_OP_COPY,
                        .attributes = &none,
                        .node = -1,
                        .axes = steps[i].axes,
                        .reduce = steps[i].from.kind == LS_PARTIAL ? steps[i].from.reduce : LS_SUM,
                        .segment = s->segment,
                        .backward = s->backward,
                        .inputs = 1,
                        .outputs = 1,
                        .in = {now},
                        .out = {next},
                        .reason = ls_arena_printf(arena, "%s for %s", reason, consumer)};
    now = next;
  }
  *LS_APPEND(arena, &s->cache) = (cached_conversion){value, now};
  return now;
}

static int place_gradient(sharder *s, const ls_tensor *tensor, ls_tensor_id id,
                          const ls_placement *placement) {
  int *value = &s->out->gradient_value[tensor->parameter];
  if (*value < 0) *value = add_value(s, id, placement);
  return *value;
}

/* The value that the node reads as its input. */
static int take_input(sharder *s, const node_context *context, int input) {
  const ls_axes all = ls_mesh_all(&s->out->mesh);
  const ls_tensor_id id = context->node->in[input];
  if (is_free(s, id)) {
    const ls_placement wanted = with_choices(context, input, true, &(ls_placement){0}, all);
    return s->home[id.index] = add_value(s, id, &wanted);
  }
  const int home = s->home[id.index];
  const ls_placement *now = &s->out->values.items[home].placement;
  const ls_placement target = with_choices(context, input, true, now, all);
  if (ls_placement_equal(&s->out->mesh, now, &target, all)) return home;
  return convert(s, home, &target, ls_op_name(context->node->kind));
}

/* Of an op that takes blocks of a ring, begins to bring the next one's before this one's are used:
 * that of the next node like it which reads the same. */
static void take_next(sharder *s, const node_context *context) {
  const ls_node *node = context->node, *next = node + 1;
  const ls_node *end = s->graph->nodes.items + s->graph->nodes.count;
  if (!ls_op_labels_turn(context->labels)) return;
  while (next < end && next->kind != node->kind) next++;
  if (next >= end || next->segment != node->segment || next->backward != node->backward) return;
  node_context of = *context;
  of.node = next;
  for (int i = 0; i < node->inputs; i++) {
    const bool turns = context->labels->in[i].rule[0].turned;
    if (turns && next->in[i].index == node->in[i].index) take_input(s, &of, i);
  }
}

static void emit(sharder *s, const node_context *context) {
  const ls_node *node = context->node;
  const ls_axes all = ls_mesh_all(&s->out->mesh);
  const ls_axes pins = ls_mesh_axes(&s->out->mesh, LS_MESH_TENSOR) | ls_mesh_experts(&s->out->mesh);
  ls_shard_node made = {.node = (int)(node - s->graph->nodes.items),
                        .kind = node->kind,
                        .attributes = &node->attributes,
                        .segment = node->segment,
                        .backward = node->backward,
                        .inputs = node->inputs,
                        .outputs = node->outputs};
  for (int i = 0; i < node->inputs; i++) made.in[i] = take_input(s, context, i);
  take_next(s, context);
  for (int o = 0; o < node->outputs; o++) {
    const ls_tensor *tensor = ls_graph_tensor(s->graph, node->out[o]);
    const ls_placement placement = with_choices(context, o, false, &(ls_placement){0}, all);
    made.out[o] = tensor->role == LS_ROLE_GRADIENT
                      ? place_gradient(s, tensor, node->out[o], &placement)
                      : add_value(s, node->out[o], &placement);
    s->home[node->out[o].index] = made.out[o];
  }
  *LS_APPEND(s->out->arena, &s->out->nodes) = made;
  for (int o = 0; o < node->outputs; o++) {
    const ls_tensor *tensor = ls_graph_tensor(s->graph, node->out[o]);
    if (!tensor->stream) continue;
    const ls_placement *now = &s->out->values.items[made.out[o]].placement;
    const ls_placement target = pinned(s, now, pins);
    if (!ls_placement_equal(&s->out->mesh, now, &target, pins))
      s->home[node->out[o].index] = convert(s, made.out[o], &target, "the residual stream");
  }
}

/* Inputs are cut over the data axes by whole sequences; parameters lie as they are used. */
static void place_sources(sharder *s) {
  const ls_graph *graph = s->graph;
  const ls_mesh *mesh = &s->out->mesh;
  for (int t = 0; t < graph->tensors.count; t++) {
    const ls_tensor *tensor = &graph->tensors.items[t];
    s->home[t] = -1;
    if (tensor->producer >= 0 || tensor->role == LS_ROLE_STATE) continue;
    ls_placement placement = {0};
    if (tensor->role == LS_ROLE_INPUT && !tensor->whole) {
      for (int a = 0; a < mesh->count; a++)
        if (ls_mesh_data(mesh) >> a & 1)
          placement.on[a] = ls_place_sharded(&mesh->axes[a], LS_CUT_TOKENS, 0);
    } else if (tensor->role == LS_ROLE_PARAMETER) {
      placement =
          ls_parameter_placement(mesh, graph->parameters.items[tensor->parameter].about.sharding);
    }
    s->home[t] = add_value(s, (ls_tensor_id){t}, &placement);
    if (tensor->role == LS_ROLE_PARAMETER) s->out->parameter_value[tensor->parameter] = s->home[t];
  }
}

static bool makes(const ls_shard_node *node, int value) {
  for (int o = 0; o < node->outputs; o++)
    if (node->out[o] == value) return true;
  return false;
}

static bool is_exchange(const ls_shard_node *node) {
  return node->collective == LS_ALL_TO_ALL || node->collective == LS_PERMUTE;
}

/* What an op has made is sent on right behind it, so that ops which do not read it run meanwhile.
 * What has come from another rank goes on no earlier than it did: a ring holds two blocks, not all
 * of them. */
static void exchange_early(ls_sharded *sharded) {
  ls_shard_node *nodes = sharded->nodes.items;
  for (int n = 0; n < sharded->nodes.count; n++) {
    const ls_shard_node node = nodes[n];
    if (!is_exchange(&node)) continue;
    int at = n;
    while (at > 0 && nodes[at - 1].segment == node.segment &&
           nodes[at - 1].backward == node.backward && !makes(&nodes[at - 1], node.in[0]))
      at--;
    if (at == 0 || !makes(&nodes[at - 1], node.in[0]) ||
        nodes[at - 1].collective != LS_COLLECTIVE_NONE || nodes[at - 1].segment != node.segment)
      continue;
    while (at < n && is_exchange(&nodes[at])) at++;
    memmove(&nodes[at + 1], &nodes[at], (size_t)(n - at) * sizeof *nodes);
    nodes[at] = node;
  }
}

/* The half of the backward pass that no earlier layer waits for: ops that make nothing but
 * gradients of parameters, and what is converted for them alone. */
static void find_weight_nodes(ls_sharded *sharded) {
  bool *needed = LS_NEW_ARRAY(sharded->arena, bool, sharded->values.count + 1);
  for (int n = sharded->nodes.count - 1; n >= 0; n--) {
    ls_shard_node *node = &sharded->nodes.items[n];
    node->weight = node->backward;
    const bool converts = node->collective != LS_COLLECTIVE_NONE || node->kind == LS_OP_COPY;
    for (int o = 0; o < node->outputs; o++) {
      const ls_tensor_id tensor = sharded->values.items[node->out[o]].tensor;
      const bool gradient = ls_graph_tensor(sharded->graph, tensor)->role == LS_ROLE_GRADIENT;
      if (!gradient && (!converts || needed[node->out[o]])) node->weight = false;
    }
    for (int i = 0; i < node->inputs && !node->weight; i++) needed[node->in[i]] = true;
  }
}

/* Sums of what has gone round are made where the newest of them is; of all else tokens are at
 * home. */
static void find_shifts(const sharder *s, node_context *context) {
  const ls_node *node = context->node;
  const ls_axes axes = ls_mesh_active(context->mesh, ls_mesh_context(context->mesh));
  int last = node->inputs - 1;
  while (last >= 0 && ls_operand_dim(&context->labels->in[last], 'n') < 0) last--;
  if (last < 0) return;
  const ls_placement *now = &s->out->values.items[s->home[node->in[last].index]].placement;
  for (int a = 0; a < context->mesh->count; a++)
    if (axes >> a & 1) context->shift[a] = now->on[a].shift;
}

static void begin_body(sharder *s, const ls_node *first) {
  const conversions before = s->cache_before;
  s->cache_before = s->cache;
  s->cache = before;
  s->cache.count = 0;
  s->first_before = s->first;
  s->first = (int)(first - s->graph->nodes.items);
  s->segment = first->segment;
  s->backward = first->backward;
}

ls_status ls_shard(const ls_graph *graph, const ls_layout *layout, ls_sharded **sharded,
                   ls_error *error) {
  ls_sharded *out = LS_NEW(graph->arena, ls_sharded);
  *out = (ls_sharded){.arena = graph->arena, .graph = graph, .layout = *layout};
  LS_TRY(ls_layout_mesh(layout, graph, &out->mesh, error));
  const int parameters = graph->parameters.count;
  out->parameter_value = LS_NEW_ARRAY(graph->arena, int, parameters + 1);
  out->gradient_value = LS_NEW_ARRAY(graph->arena, int, parameters + 1);
  for (int p = 0; p < parameters; p++) out->gradient_value[p] = -1;
  sharder s = {.out = out,
               .graph = graph,
               .cuts_stream = layout->sequence_parallel && layout->tp > 1,
               .home = LS_NEW_ARRAY(graph->arena, int, graph->tensors.count),
               .asked = LS_NEW_ARRAY(graph->arena, asked, graph->nodes.count + 1)};
  LS_RESERVE(graph->arena, &out->values, 3 * graph->tensors.count / 2);
  LS_RESERVE(graph->arena, &out->nodes, 3 * graph->nodes.count / 2);
  place_sources(&s);
  for (int n = 0; n < graph->nodes.count; n++) {
    const ls_node *node = &graph->nodes.items[n];
    if (node->segment != s.segment || node->backward != s.backward) begin_body(&s, node);
    node_context context = {.node = node,
                            .row = ls_op_row(node->kind),
                            .labels = &graph->op_labels[node->kind],
                            .mesh = &out->mesh,
                            .axes = out->mesh.axes};
    find_shifts(&s, &context);
    LS_TRY(choose_or_repeat(&s, &context, error));
    emit(&s, &context);
  }
  exchange_early(out);
  find_weight_nodes(out);
  *sharded = out;
  return LS_OK;
}
