/* The CPU's facts and recipes: data, with no library behind it. */
#include <string.h>

#include "device/cpu/attention_scratch.h"
#include "device/cpu/cpu.h"
#include "device/cpu/linear_plan.h"

static size_t parts_of(const ls_device_facts *facts) {
  return (size_t)ls_cpu_parts(facts, INT64_MAX);
}

/* Of a part's sums of columns, twice where there is a bias, in whole cache lines. */
static size_t column_sums(const ls_device_facts *facts, const ls_kernel_args *args) {
  return parts_of(facts) * 2 * sizeof(float) * (size_t)(args->in[1].dims[1] + 16);
}

/* Lists of the tokens of each row, where the gradient is not added up as it is stored. */
static size_t token_lists(const ls_kernel_args *args) {
  if (args->out[0].dtype == LS_F32) return 0;
  return sizeof(int32_t) * (size_t)(args->out[0].dims[0] + args->in[0].dims[0]);
}

/* Whether attention multiplies pairs of bf16. */
static bool in_pairs(const ls_device_facts *facts, const ls_kernel_args *args) {
  bool pairs = facts->pairs;
  for (int i = 0; i < 3; i++) pairs = pairs && args->in[i].dtype == LS_BF16;
  return pairs;
}

static size_t attention(const ls_device_facts *facts, ls_op_kind kind, const ls_kernel_args *args) {
  const int64_t width = ls_whole_blocks(args->attributes->head_dim, facts->lanes);
  const int64_t sequence = args->attributes->sequence;
  int64_t floats = ls_attention_floats(width, sequence, in_pairs(facts, args));
  if (kind == LS_OP_ATTENTION_BWD) floats = ls_attention_bwd_floats(width, sequence);
  if (kind == LS_OP_CACHED_ATTENTION || kind == LS_OP_CACHED_PART)
    floats = ls_cached_attention_floats(width);
  return (size_t)ls_whole_blocks(floats, 16) * parts_of(facts) * sizeof(float);
}

/* A ring's block has a share of each sequence. */
static size_t ring(const ls_device_facts *facts, ls_op_kind kind, const ls_kernel_args *args) {
  const int64_t width = ls_whole_blocks(args->attributes->head_dim, facts->lanes);
  const int64_t rows = ls_ring_rows(args->attributes->sequence / args->attributes->turns);
  const int64_t floats = kind == LS_OP_RING_ATTENTION
                             ? ls_attention_floats(width, rows, in_pairs(facts, args))
                             : ls_attention_bwd_floats(width, rows);
  return (size_t)ls_whole_blocks(floats, 16) * parts_of(facts) * sizeof(float);
}

/* Of each token its row, and numbers of each sequence and of each expert. */
static size_t capacity(const ls_kernel_args *args) {
  const int64_t tokens = args->in[0].dims[0], sequences = tokens / args->attributes->sequence;
  return sizeof(int32_t) * (size_t)(tokens + sequences + args->attributes->experts);
}

static size_t recipe(const ls_device_facts *facts, ls_op_kind kind, const ls_kernel_args *args) {
  size_t bytes = 0;
  switch (kind) {
    case LS_OP_LINEAR:
    case LS_OP_LINEAR_DX:
    case LS_OP_LINEAR_BLOCKS:
    case LS_OP_LINEAR_BLOCKS_DX:
    case LS_OP_LINEAR_DW: bytes = ls_linear_recipe(facts, kind, args); break;
    case LS_OP_GROUPED_UP:
    case LS_OP_GROUPED_UP_DX:
    case LS_OP_GROUPED_UP_DW:
    case LS_OP_GROUPED_DOWN:
    case LS_OP_GROUPED_DOWN_DX:
    case LS_OP_GROUPED_DOWN_DW: bytes = ls_grouped_recipe(facts, kind, args); break;
    case LS_OP_ROUTE: bytes = sizeof(int32_t) * (size_t)args->in[0].dims[1]; break;
    case LS_OP_SLOTS: bytes = sizeof(int32_t) * (size_t)(args->out[1].dims[0] + 1); break;
    case LS_OP_CAPACITY: bytes = capacity(args); break;
    case LS_OP_KEEP:
    case LS_OP_ARRIVALS: bytes = sizeof(int32_t) * (size_t)(args->attributes->experts + 1); break;
    case LS_OP_LAYERNORM_BWD:
    case LS_OP_RMSNORM_BWD:
    case LS_OP_HEADNORM_BWD: /* of a head's columns, which are fewer */
    case LS_OP_ROW_SCALE_BWD: bytes = column_sums(facts, args); break;
    case LS_OP_EMBEDDING_DW: bytes = token_lists(args); break;
    case LS_OP_ATTENTION:
    case LS_OP_SINK_ATTENTION:
    case LS_OP_ATTENTION_BWD:
    case LS_OP_CACHED_PART:
    case LS_OP_CACHED_ATTENTION: bytes = attention(facts, kind, args); break;
    case LS_OP_RING_ATTENTION:
    case LS_OP_RING_BWD: bytes = ring(facts, kind, args); break;
    default: break;
  }
  return bytes ? bytes + 64 : 0; /* room to align it */
}

#define LS_CPU(NAME, LANES, FORMATS, ...)                                                         \
  {                                                                                               \
    .name = "cpu", .set = NAME, .alignment = 64, .formats = 1u << LS_F32 | (FORMATS),             \
    .bf16_gradients = 1u << LS_F32 | 1u << LS_BF16 | 1u << LS_F16, LS_HOST_RATES, .lanes = LANES, \
    .threads = 1, .queues = &ls_queues_in_process, .places = true, .workspace = recipe,           \
    .workspace_source = "the scratch of its kernels", __VA_ARGS__                                 \
  }

static const ls_device_facts sets[] = {
    LS_CPU("plain", 4, 0),
    LS_CPU("avx2", 8, 0),
    LS_CPU("avx512", 16, 0),
    LS_CPU("avx512_bf16", 16, 1u << LS_BF16, .pairs = true),
    LS_CPU("avx512_amx", 16, 1u << LS_BF16, .pairs = true),
};

const ls_device_facts *ls_device_facts_cpu(const char *set) {
  for (size_t s = 0; s < sizeof sets / sizeof *sets; s++)
    if (strcmp(sets[s].set, set) == 0) return &sets[s];
  return NULL;
}
