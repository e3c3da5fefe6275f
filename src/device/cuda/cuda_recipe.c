/* What is known of CUDA devices without one: memory, formats, and bounds of the workspace that
 * libraries ask for and that our kernels are to keep to. */
#include "device/cuda/cuda_recipe.h"

#include "device/cuda/kernels/cuda_arguments.h"

/* Sums of columns by each multiprocessor, of which one kernel then takes the sum. */
static size_t column_sums(const ls_device_facts *facts, const ls_view *of, int sums) {
  const int64_t columns = of->dims[of->ndim - 1];
  return (size_t)(facts->processors * sums * columns) * sizeof(float);
}

/* Columns of all heads, each up to a whole tile of 64. */
static int64_t head_columns(const ls_view *view, int64_t head_dim) {
  return view->dims[1] / head_dim * ((head_dim + 63) / 64 * 64);
}

/* cuDNN's plans, as cudnn_plans_test asks them of the library: 17 KB forward; backward a gradient
 * of keys and one of values for each query head where heads share keys, and but on Hopper sums of
 * dQ in fp32, of lengths up to a multiple of 8. Sums of dQ and a number a row are the caller's to
 * give as well. */
static size_t attention_bwd(const ls_device_facts *facts, const ls_kernel_args *args) {
  const ls_view *q = &args->in[1];
  const int64_t columns = head_columns(q, args->attributes->head_dim);
  const int64_t heads = q->dims[1] / args->attributes->head_dim;
  const int64_t length = args->attributes->sequence, rows = q->dims[0];
  const bool shared = args->in[2].dims[1] < q->dims[1];
  const int64_t longer = facts->architecture == 90 || length <= 0
                             ? 0
                             : (rows + length - 1) / length * ((length + 7) / 8 * 8);
  const size_t key_sums = shared ? 2 * (size_t)(rows * columns) * ls_dtype_bytes(q->dtype) : 0;
  return (size_t)(rows * (columns + heads) + longer * columns) * sizeof(float) + key_sums;
}

/* Each query's keys in at most 32 shares of each part, that one kernel then joins. */
static size_t cached_attention(const ls_kernel_args *args) {
  const ls_view *q = &args->in[0];
  const int64_t heads = q->dims[1] / args->attributes->head_dim;
  const int64_t parts = args->out[0].ndim > 2 ? args->out[0].dims[0] : 1;
  return (size_t)(32 * parts * q->dims[0] * heads * (args->attributes->head_dim + 2)) *
         sizeof(float);
}

/* The least and the last place of each 64 queries and keys, where more than `plain` inputs have
 * places; where documents end, in both directions. */
static size_t place_ranges(const ls_kernel_args *args, int first, int plain) {
  enum { ROWS = 64 };
  if (args->inputs <= plain && !args->attributes->two_way) return 0;
  const ls_view *q = &args->in[first], *k = q + 1;
  const int64_t tiles = (q->dims[0] + ROWS - 1) / ROWS + (k->dims[0] + ROWS - 1) / ROWS;
  return (size_t)(2 * tiles + (args->attributes->two_way ? q->dims[0] : 0)) * sizeof(int32_t);
}

/* A weight for each choice; of each 256 choices how many are of each expert, and of all. */
static size_t route(const ls_kernel_args *args, int64_t experts) {
  enum { TILE = 256 };
  const int64_t slots = args->out[0].dims[0] * args->out[0].dims[1];
  return (size_t)(((slots + TILE - 1) / TILE + 1) * experts + slots) * sizeof(int32_t);
}

/* What each sequence drops by expert; which sequences there are, and which row has each token. */
static size_t capacity(const ls_kernel_args *args) {
  const int64_t rows = args->in[0].dims[0], length = args->attributes->sequence;
  const int64_t sequences = length > 0 ? (rows + length - 1) / length : 0;
  return (size_t)(sequences * (args->attributes->experts + 1) + rows) * sizeof(int32_t);
}

/* The experts of each choice, and for each part of a sequence how many each has. */
static size_t loads(const ls_kernel_args *args) {
  const ls_view *logits = &args->in[0];
  const int64_t counts = args->out[1].dims[0] * LS_CUDA_LOAD_PARTS * logits->dims[1];
  return (size_t)(logits->dims[0] * args->attributes->chosen + counts) * sizeof(int32_t);
}

/* Sums of each head's tokens by part. */
static size_t sinks(const ls_device_facts *facts, const ls_view *log_sums) {
  return (size_t)(facts->processors * log_sums->dims[1]) * sizeof(float);
}

/* Sums of each sequence, where operand `labels` has the tokens. */
static size_t pair_sums(const ls_kernel_args *args, int labels, int sums) {
  const int64_t length = args->attributes->sequence, tokens = args->in[labels].dims[0];
  return length <= 0 ? 0 : (size_t)((tokens + length - 1) / length * sums) * sizeof(double);
}

size_t ls_cuda_product_bytes(const ls_device_facts *facts) {
  return (size_t)(facts->architecture >= 90 ? 32 : 4) << 20;
}

size_t ls_cuda_restored_bytes(const ls_kernel_args *args) {
  enum { ALIGNMENT = 256 };
  const ls_view *blocks = &args->in[1];
  const size_t weights = (size_t)(blocks->dims[0] * blocks->dims[1] * LS_BLOCK_WEIGHTS);
  const size_t bytes = weights * ls_dtype_bytes(args->in[0].dtype);
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static size_t workspace(const ls_device_facts *facts, ls_op_kind kind, const ls_kernel_args *args) {
  enum { SMALL = 1 << 16 };
  switch (kind) {
    case LS_OP_LINEAR:
    case LS_OP_LINEAR_DX:
    case LS_OP_LINEAR_DW:
      return ls_cuda_product_bytes(facts) + (facts->takes_codes(facts, kind, args)
                                                 ? ls_cuda_fp8_room_of(facts, kind, args).bytes
                                                 : 0);
    case LS_OP_LINEAR_BLOCKS:
    case LS_OP_LINEAR_BLOCKS_DX: return ls_cuda_restored_bytes(args) + ls_cuda_product_bytes(facts);
    case LS_OP_GROUPED_UP:
    case LS_OP_GROUPED_UP_DX:
    case LS_OP_GROUPED_UP_DW:
    case LS_OP_GROUPED_DOWN:
    case LS_OP_GROUPED_DOWN_DX:
    case LS_OP_GROUPED_DOWN_DW: /* where each expert's rows begin */
      return (size_t)(args->attributes->experts + 3) * sizeof(int32_t);
    case LS_OP_ROUTE: return route(args, args->in[0].dims[1]);
    case LS_OP_KEEP:
    case LS_OP_ARRIVALS: return route(args, args->attributes->experts + 1);
    case LS_OP_CAPACITY: return capacity(args);
    case LS_OP_ROUTER_LOADS:
    case LS_OP_ROUTER_LOADS_EACH: return loads(args);
    case LS_OP_ROUTER_LOSS:
    case LS_OP_ROUTER_LOSS_EACH: return SMALL;
    case LS_OP_SINK_BWD: return sinks(facts, &args->in[2]);
    case LS_OP_TEXT_SUMS: /* where each text's tokens begin and end */
      return (size_t)(2 * args->out[0].dims[0]) * sizeof(int32_t);
    case LS_OP_PAIR_LOSS: return pair_sums(args, 3, 1);
    case LS_OP_PAIR_REWARDS: return pair_sums(args, 1, 3);
    case LS_OP_ATTENTION: return SMALL + place_ranges(args, 0, 4);
    case LS_OP_SINK_ATTENTION: return place_ranges(args, 0, 5);
    case LS_OP_RING_ATTENTION: return place_ranges(args, 0, 0);
    case LS_OP_RING_BWD: return place_ranges(args, 1, 0);
    case LS_OP_RING_END_BWD: return sinks(facts, &args->out[0]);
    case LS_OP_CACHED_PART:
    case LS_OP_CACHED_ATTENTION: return cached_attention(args);
    case LS_OP_ATTENTION_BWD: return attention_bwd(facts, args) + SMALL + place_ranges(args, 1, 7);
    case LS_OP_LAYERNORM_BWD:
    case LS_OP_RMSNORM_BWD:
    case LS_OP_HEADNORM_BWD:
    case LS_OP_ROW_SCALE_BWD: return column_sums(facts, &args->in[1], 2);
    case LS_OP_BIAS_DB: return column_sums(facts, &args->in[0], 1);
    case LS_OP_EMBEDDING_DW: /* tokens by row, so that sums have one order */
      return sizeof(int32_t) * (size_t)(args->out[0].dims[0] + 2 * args->in[0].dims[0]);
    case LS_OP_ADAFACTOR_SUMS: /* of columns, in parts of rows */
      return (size_t)(LS_CUDA_LINE_PARTS * args->attributes->columns) * sizeof(float);
    case LS_OP_ADAFACTOR_DIRECTION:
    case LS_OP_AMAX:
    case LS_OP_RANGE_AMAX:
    case LS_OP_ADAFACTOR_DIVIDE:
    case LS_OP_ORTHOGONALISE:
    case LS_OP_SQUARED_NORM: return SMALL;
    default: return 0;
  }
}

static const ls_device_facts common = {
    .alignment = 256,
    /* A slice adds to all of the head's gradient, in fp32: with 64 MiB that takes longer than its
     * products. Libraries take rows that begin at multiples of 16 bytes. */
    .logits_bytes = INT64_C(512) << 20,
    .logits_multiple = 64,
    .queues = &ls_queues_nccl,
    .bf16_gradients = 1u << LS_BF16, /* cuBLASLt's table of types, in cublasLtMatmul() */
    .overlaps = true,
    .places = true,
    .flops_per_s = 989e12, /* H100 SXM in bf16: NVIDIA's data sheet */
    .bytes_per_s = 3.35e12,
    .sent_per_s = 450e9,
    .workspace = workspace,
    .workspace_source =
        "cuBLAS documentation, cublasSetWorkspace (32 MiB from Hopper on, 4 before); "
        "cuDNN 9's plans for attention",
    .overheads = {{"CUDA context and kernels", INT64_C(512) << 20, false,
                   "300 to 500 MiB since CUDA 11.7 loads lazily: pytorch/pytorch#107667"},
                  {"NCCL communicator", INT64_C(688) << 20, true,
                   "544 of two ranks, 688 of more on A100 with NVLink: NVIDIA/nccl#964"}},
    .overhead_count = 2};

static const char *set_of(int architecture) {
  static const struct {
    int architecture;
    const char *name;
  } sets[] = {{80, "sm_80"},   {86, "sm_86"},   {89, "sm_89"},   {90, "sm_90"},
              {100, "sm_100"}, {103, "sm_103"}, {120, "sm_120"}, {121, "sm_121"}};
  for (size_t s = 0; s < sizeof sets / sizeof *sets; s++)
    if (sets[s].architecture == architecture) return sets[s].name;
  return NULL;
}

bool ls_device_facts_of(const ls_accelerator *of, ls_device_facts *facts) {
  enum { PROCESSORS = 192 }; /* more than any has, where it is not known */
  const int architecture = (int)of->architecture;
  if (!set_of(architecture)) return false;
  *facts = common;
  facts->name = of->id;
  facts->architecture = architecture;
  facts->set = set_of(architecture);
  facts->memory_bytes = of->memory_mib << 20;
  facts->memory_source = of->source;
  facts->memory_reported = of->reported;
  facts->formats = 1u << LS_F32 | 1u << LS_BF16 | 1u << LS_F16 | 1u << LS_F64;
  facts->processors = of->processors ? (int)of->processors : PROCESSORS;
  ls_cuda_set_fp8(facts, LS_CUDA_ANY_VERSION);
  return true;
}
