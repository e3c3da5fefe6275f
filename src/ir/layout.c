#include "ir/layout.h"

#include <stddef.h>

#include "graph/graph.h"

static const struct axis_key {
  const char *name;
  size_t offset;
} axis_keys[LS_LAYOUT_AXES] = {
    {"pp", offsetof(ls_layout, pp)},
    {"dp_replicate", offsetof(ls_layout, dp_replicate)},
    {"dp_shard", offsetof(ls_layout, dp_shard)},
    {"cp", offsetof(ls_layout, cp)},
    {"tp", offsetof(ls_layout, tp)},
};

const char *ls_layout_axis(int axis) {
  return axis_keys[axis].name;
}

int ls_layout_size(const ls_layout *layout, int axis) {
  return *(const int *)((const char *)layout + axis_keys[axis].offset);
}

void ls_layout_set_size(ls_layout *layout, int axis, int size) {
  *(int *)((char *)layout + axis_keys[axis].offset) = size;
}

int ls_layout_ranks(const ls_layout *layout) {
  return layout->pp * ls_layout_data_ranks(layout) * layout->cp * layout->tp;
}

int ls_layout_data_ranks(const ls_layout *layout) {
  return layout->dp_replicate * layout->dp_shard;
}

int ls_layout_shards(const ls_layout *layout) {
  return layout->dp_shard;
}

int ls_layout_state_ranks(const ls_layout *layout) {
  return ls_layout_shards(layout) * layout->cp;
}

int ls_layout_senders(const ls_layout *layout) {
  return layout->exchange == LS_EXCHANGE_ALL_TO_ALL && layout->ep > 1 ? layout->ep : 0;
}

int ls_layout_expert_ranks_inside(const ls_layout *layout) {
  return layout->cp * (layout->whole_experts ? layout->tp : 1);
}

int ls_layout_expert_cuts(const ls_layout *layout) {
  return layout->whole_experts ? layout->ep / layout->tp : layout->ep;
}

int ls_layout_token_ranks(const ls_layout *layout) {
  return ls_layout_data_ranks(layout) * layout->cp;
}

int ls_layout_routing_ranks(const ls_layout *layout) {
  return ls_layout_data_ranks(layout) * ls_layout_expert_ranks_inside(layout);
}

int ls_layout_head_ranks(const ls_layout *layout) {
  if (layout->cp > 1 && layout->context == LS_CONTEXT_ULYSSES) return layout->cp;
  return layout->cp > 1 && layout->context == LS_CONTEXT_HYBRID ? layout->ulysses : 1;
}

bool ls_layout_once_a_step(const ls_layout *layout, ls_when when) {
  return when == LS_WHEN_STEP || (when == LS_WHEN_AUTO && layout->pp > 1);
}

int ls_layout_turns(const ls_layout *layout) {
  const bool ring = layout->context == LS_CONTEXT_RING || layout->context == LS_CONTEXT_HYBRID;
  return layout->cp > 1 && ring ? layout->cp / ls_layout_head_ranks(layout) : 0;
}

void ls_layout_set_data_ranks(ls_layout *layout, int replicas, int shards) {
  layout->dp_replicate = replicas;
  layout->dp_shard = shards;
}

ls_layout ls_layout_default(void) {
  return (ls_layout){
      .pp = 1,
      .dp_replicate = 1,
      .dp_shard = 1,
      .cp = 1,
      .tp = 1,
      .ep = 1,
      .ulysses = 1,
      .zero = 3,
      .microbatches = 1,
      .layers_per_unit = 1,
      .compute = LS_F32,
      .grad_dtype = LS_F32,
      .optimizer = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .clip = 1.0},
      .offload = {.optimizer_fraction = 1},
  };
}

ls_dtype ls_layout_dtype(const ls_layout *layout, ls_precision precision) {
  switch (precision) {
    case LS_COMPUTE: return layout->compute;
    case LS_ACCUMULATE: return layout->compute == LS_F64 ? LS_F64 : LS_F32;
    case LS_INDEX: return LS_I32;
    case LS_BLOCKS_NF4:
    case LS_BLOCKS_INT8:
    case LS_BLOCKS_FP4:
    case LS_BLOCKS_NF4_DOUBLE:
    case LS_BLOCKS_FP4_DOUBLE: return ls_precision_blocks(precision);
    case LS_SCALES: return LS_F32;
    case LS_DOUBLE:
    case LS_PRECISION_COUNT: break;
  }
  return LS_F64;
}

const char *ls_zero_name(int zero) {
#define LS_STRATEGY_NAME(name, parameters, gradients, state) name,
  static const char *const names[] = {LS_DATA_STRATEGIES(LS_STRATEGY_NAME)};
#undef LS_STRATEGY_NAME
  LS_ASSERT(zero >= 0 && zero < LS_DATA_STRATEGY_COUNT);
  return names[zero];
}

const char *ls_tier_name(ls_tier tier) {
  static const char *const names[] = {"device", "host", "nvme"};
  return names[tier];
}

static const char *print_offload(ls_arena *arena, const ls_offload *offload) {
  const char *text = "";
  if (offload->optimizer)
    text = ls_arena_printf(arena, ", optimizer on %s", ls_tier_name(offload->optimizer));
  if (offload->optimizer && offload->optimizer_fraction < 1)
    text = ls_arena_printf(arena, "%s (%g %%)", text, 100 * offload->optimizer_fraction);
  if (offload->parameters)
    text = ls_arena_printf(arena, "%s, parameters on %s", text, ls_tier_name(offload->parameters));
  if (offload->activations)
    text =
        ls_arena_printf(arena, "%s, activations on %s", text, ls_tier_name(offload->activations));
  return text;
}

const char *ls_context_name(ls_context context) {
  static const char *const names[LS_CONTEXT_COUNT] = {"gather", "ring", "ulysses", "hybrid"};
  return names[context];
}

const char *ls_layout_print_context(ls_arena *arena, const ls_layout *layout) {
  if (layout->cp == 1) return "";
  if (layout->context == LS_CONTEXT_GATHER) return ls_arena_printf(arena, "cp %d, ", layout->cp);
  return layout->context == LS_CONTEXT_HYBRID
             ? ls_arena_printf(arena, "cp %d (ring of ulysses %d), ", layout->cp, layout->ulysses)
             : ls_arena_printf(arena, "cp %d (%s), ", layout->cp, ls_context_name(layout->context));
}

const char *ls_layout_print_experts(ls_arena *arena, const ls_layout *layout) {
  if (layout->ep == 1) return "";
  return ls_arena_printf(arena, "ep %d%s%s, ", layout->ep, layout->whole_experts ? " over tp" : "",
                         ls_layout_senders(layout) ? " (all-to-all)" : "");
}

const char *ls_layout_print(ls_arena *arena, const ls_layout *layout) {
  const char *pipeline = "";
  if (layout->pp > 1)
    pipeline = ls_arena_printf(arena, "pp %d (%s), ", layout->pp,
                               layout->schedule ? layout->schedule : "1f1b");
  return ls_arena_printf(arena, "%sdp_replicate %d, dp_shard %d, %stp %d, %s%s%s", pipeline,
                         layout->dp_replicate, layout->dp_shard,
                         ls_layout_print_context(arena, layout), layout->tp,
                         ls_layout_print_experts(arena, layout), ls_zero_name(layout->zero),
                         print_offload(arena, &layout->offload));
}
