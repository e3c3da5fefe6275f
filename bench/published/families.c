/* What software the published rows were measured with. */
#include "published/families.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Constants: `build/bench/published ROWS.csv --fit` prints them. Attention: FlashAttention-1, which
 * MPT's Triton kernel is, reaches 25 to 40 % of an A100 (Dao 2023, 2307.08691) and is no faster on
 * Hopper; FlashAttention-2 35 % of an H100 (Shah et al. 2024, 2407.08608). Bytes of a parameter:
 * Megatron's documentation (18 and 20; 20 with DeepSpeed's BF16 optimizer, which keeps
 * gradients twice), ZeRO's paper (16), FSDP2 with fp32 shards (16), llmq in bf16 (8); torchtune's
 * recipes for one device step in backward with paged 8-bit moments and recompute where nobody says
 * otherwise (2).
 * Logits: two bytes, four in fp32 and four of what a loss makes of them out of place; six where it
 * works in place (Megatron Core's unfused loss), twelve where log-softmax, its gradient and that of
 * the loss are there at once (PyTorch's cross entropy), two where the loss is fused. DeepSpeed's
 * fp16 optimizer has gradients of two bytes, and beside master weights and moments those gradients
 * in fp32 and a flat copy of weights. nanotron frees 16-bit gradients as it adds them up.
 * Beside tensors: a context of 1,573 MiB where nvidia-smi was read (BLOOM's log) and three
 * communicators of 688 (NVIDIA/nccl#964). Reserved over allocated: 8 % (Mist). Megatron's tests log
 * on the last rank, nanotron on the first. */
published_family published_families[] = {
    {.name = "Megatron-DeepSpeed of vTrain",
     .sources = "|vTrain-single|vTrain-multi|",
     .constants = {0.85, 1.25, 4e-05},
     .vocabulary = 51200,
     .beside = true,
     .accounting = {2, 4, 12, 10, 1.55, 1.08}},
    {.name = "Megatron-LM of its papers and of BLOOM",
     .sources = "|BLOOM-prequel|BigScience-V100|Megatron-SC21|Megatron-SC21-Table2|"
                "Selective-recompute|Megatron-LM-README-2020|MT-NLG|ColossalAI-README|",
     .constants = {0.99, 5.25, 160e-06},
     .sequence_parallel = 2,
     .repeated = true,
     .scores_again = true,
     .vocabulary = 51200,
     .masks = true,
     .outputs = true,
     .accounting = {2, 6, 12, 10, 3.55, 1.08, {2, 18}}},
    {.name = "DeepSpeed, ZeRO-3",
     .sources = "|Megatron-SC21-Table2 zero 3|DeepSpeed-Azure|DeepSpeed-autotuning|",
     .constants = {0.72, 10, 8e-05},
     .repeated = true,
     .vocabulary = 51200,
     .beside = true,
     .pieces = 12,
     .prefetched = 5e8, /* stage3_prefetch_bucket_size */
     .accounting = {2, 2, 12, 10, 0.5, 1.08}},
    {.name = "Megatron Core, tuned by NVIDIA",
     .sources = "|Megatron-Bridge|DGXC-benchmarking|NeMo-docs|NeMo-docs-longseq|MLPerf-training|"
                "MegaScale|Megatron-Bridge-recompute|Megatron-MoE-Zoo|Megatron-LM-README-H100|"
                "Llama3-paper|",
     .constants = {0.77, 1, 8e-05},
     .sequence_parallel = 1,
     .tuned = true,
     .scores_again = true,
     .vocabulary = 51200,
     .beside = true,
     .accounting = {2, 4, 12, 10, 0.3, 1}},
    {.name = "Megatron Core as it comes",
     .sources = "|SimuMax-B200|",
     .constants = {0.56, 2.5, 4e-05},
     .sequence_parallel = 1,
     .scores_again = true,
     .vocabulary = 51200,
     .beside = true,
     .accounting = {2, 4, 12, 10, 0, 1}},
    {.name = "Megatron Core's functional tests",
     .sources = "|Megatron-golden|",
     .constants = {0.56, 2.5, 4e-05},
     .masks = true,
     .scores_again = true,
     .deterministic = true,
     .vocabulary = 50304,
     .beside = true,
     .accounting = {2, 4, 12, 6, 0, 1, .teller = PUBLISHED_LAST_STAGE}},
    {.name = "FSDP, Composer",
     .sources = "|llm-foundry|fms-fsdp|FSDP-paper|",
     .constants = {0.98, 3.25, 8e-05},
     .attention = {0.33, 0.2},
     .vocabulary = 50368,
     .beside = true,
     .accounting = {4, 4, 8, 10, 0.5, 1.08}},
    {.name = "FSDP2, torchtitan",
     .sources = "|torchtitan|AWS-torchtitan|OLMo-core|",
     .gathers_keys = true, /* its rotate_method is "allgather" unless one asks for another */
     .constants = {0.79, 6.5, 4e-05},
     .sequence_parallel = 1,
     .attention = {0.55, 0.35},
     .vocabulary = 128256,
     .beside = true,
     .accounting = {4, 4, 8, 12, 0.5, 1.08}},
    {.name = "torchtune",
     .sources = "|torchtune|",
     .constants = {0.94, 1, 160e-06},
     .vocabulary = 128256,
     .fits = true,
     .beside = true,
     .eager = true,
     .plain = true,
     .late = true,
     .accounting = {2, 2, 4, 6, 0, 1}},
    {.name = "nanotron",
     .sources = "|nanotron-benchmark|nanotron-tp-scaling|",
     .constants = {0.87, 3, 160e-06},
     .sequence_parallel = 1,
     .attention = {0.55, 0.35},
     .vocabulary = 131072,
     .beside = true,
     .eager = true,
     .pieces = 6,
     .gathered = true,
     .balanced = true,
     .accounting = {2, 4, 12, 10, 0.5, 1.08, .teller = PUBLISHED_FIRST_STAGE}},
    {.name = "C and CUDA",
     .sources = "|llmq|llm.c|",
     .constants = {1, 1, 4e-05},
     .vocabulary = 50304,
     .beside = true,
     .accounting = {2, 2, 4, 2, 0.5, 1}},
    {.name = "Surogate, LoRA",
     .sources = "|surogate|",
     .constants = {0.79, 3.5, 8e-05},
     .adapters = true,
     .vocabulary = 151936,
     .beside = true,
     .accounting = {2, 0, 0, 2, 0.5, 1}},
    {.name = "Unsloth, LoRA",
     .sources = "|surogate Unsloth|",
     .constants = {0.5, 2, 160e-06},
     .adapters = true,
     .vocabulary = 151936,
     .beside = true,
     .accounting = {2, 0, 0, 2, 0.5, 1}},
};
const int published_family_count = sizeof published_families / sizeof *published_families;

published_family *published_family_of(const published_table *of, const published_row *row) {
  char name[128];
  const char *source = published_cell(of, row, "source"), *gpu = published_cell(of, row, "gpu");
  const char *program = "";
  /* The table compares Megatron-LM with DeepSpeed. */
  if (strcmp(source, "Megatron-SC21-Table2") == 0 &&
      published_number(of, row, "zero_stage", 0) == 3)
    program = " zero 3";
  /* Surogate's page compares itself with Unsloth; of these cards it has Unsloth alone. */
  if (strcmp(source, "surogate") == 0 && (strncmp(gpu, "H200", 4) == 0 || strcmp(gpu, "B200") == 0))
    program = " Unsloth";
  snprintf(name, sizeof name, "|%s%s|", source, program);
  for (int f = 0; f < published_family_count; f++)
    if (strstr(published_families[f].sources, name)) return &published_families[f];
  return &published_families[published_family_count - 1];
}

/* The catalog's id of a row's GPU. */
static const char *accelerator_of(const char *gpu) {
  static const struct {
    const char *gpu, *id;
  } known[] = {{"H100-80GB", "h100-sxm-80"},
               {"H100-96GB", "h100-sxm-80"},
               {"A100-80GB", "a100-sxm-80"},
               {"A100-40GB", "a100-sxm-40"},
               {"A100", "a100-sxm-80"},
               {"GB200", "gb200-186"},
               {"GB300", "gb300-288"},
               {"B200", "b200-sxm-180"},
               {"B300", "b300-sxm-288"},
               {"H200-141GB", "h200-sxm-141"},
               {"H800-80GB", "h800-sxm-80"},
               {"RTX 4090", "rtx4090"},
               {"RTX 5090", "rtx5090"},
               {"RTX 5060 Ti", "rtx5060ti-16"},
               {"RTX PRO 6000", "rtxpro6000-bw"},
               {"L40S", "l40s"},
               {"A6000", "rtx-a6000"},
               {"V100", "v100-sxm2-32"},
               {"V100-32GB", "v100-sxm2-32"},
               {"V100-16GB", "v100-sxm2-16"}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcasecmp(known[i].gpu, gpu) == 0) return known[i].id;
  return NULL;
}

/* GPT, MPT and Nemotron have two matrices in an MLP, the others that rows name have three. */
static bool is_gated(const char *model, double ffn, double hidden) {
  if (ffn != 4 * hidden) return true;
  return strstr(model, "lama") || strstr(model, "qwen") || strstr(model, "mistral");
}

/* nanotron's models are named by their parameters: by these its tables of words are one or two, and
 * layers are as many as make them. */
static const char counted[] = "llama-like-";

static void count_layers(double parameters, published_case *made) {
  ls_model_config *model = &made->model;
  const double layer = published_layer(made), table = (double)(model->vocabulary * model->width);
  const double one = (parameters - table) / layer, two = (parameters - 2 * table) / layer;
  model->tied = fabs(one - (double)model->layers) < fabs(two - (double)model->layers);
  model->layers = (int64_t)(model->tied ? one + 0.5 : two + 0.5);
}

/* The registry's own shape where experts are shared out: rows tell nothing of experts. Of the
 * published layers there are as many as the row says, the first ones. */
static ls_status read_mixture(ls_arena *arena, const published_table *of, const published_row *row,
                              published_case *made, ls_error *error) {
  const char *name = published_cell(of, row, "model"), *metric = published_cell(of, row, "metric");
  if (ls_model_find(arena, name, &made->model, NULL) != LS_OK || !made->model.experts)
    return ls_fail(error, LS_INPUT, "experts of a model that is not in the registry");
  if (published_kind_of(of, row) == PUBLISHED_MEMORY)
    return ls_fail(error, LS_INPUT, "memory of experts");
  if (strcmp(metric, "step_time_s") != 0 && strcmp(metric, "tokens_per_s_per_gpu") != 0)
    return ls_fail(error, LS_INPUT, "flops of experts");
  made->gated = made->mixture = true;
  made->model.layers = (int64_t)published_number(of, row, "layers", (double)made->model.layers);
  made->model.positions = (int64_t)published_number(of, row, "seq_len", 0);
  return LS_OK;
}

static ls_status read_model(ls_arena *arena, const published_table *of, const published_row *row,
                            const published_family *family, published_case *made, ls_error *error) {
  const double hidden = published_number(of, row, "hidden", 0);
  const double ffn = published_number(of, row, "ffn_hidden", 4 * hidden);
  const char *name = published_cell(of, row, "model");
  ls_model_config *model = &made->model;
  if (published_number(of, row, "ep", 1) > 1) return read_mixture(arena, of, row, made, error);
  made->gated = is_gated(name, ffn, hidden);
  /* MLPerf's Llama 2 task is LoRA. */
  made->adapters =
      family->adapters || (strcmp(published_cell(of, row, "source"), "MLPerf-training") == 0 &&
                           strncmp(name, "llama2", 6) == 0);
  const double heads = published_number(of, row, "heads", 0);
  /* Fewer heads of keys than of queries, and two matrices: Nemotron, which is StarCoder2's order
   * without biases. */
  const bool shared = published_number(of, row, "kv_heads", heads) < heads;
  LS_TRY(ls_model_find(arena, made->gated || shared ? "llama3-8b" : "gpt2-124m", model, error));
  if (shared && !made->gated) model->family = "starcoder2", model->activation = LS_GELU_TANH;
  model->width = (int64_t)hidden;
  model->layers = (int64_t)published_number(of, row, "layers", 0);
  model->heads = (int64_t)published_number(of, row, "heads", 0);
  model->kv_heads = (int64_t)published_number(of, row, "kv_heads", (double)model->heads);
  model->head_dim = model->heads ? model->width / model->heads : 0;
  if (strncmp(name, "qwen3", 5) == 0) model->head_dim = 128;
  model->mlp_width = (int64_t)ffn;
  double vocabulary = (double)family->vocabulary;
  if (strncmp(name, "nemotron4", 9) == 0) vocabulary = 256000;
  if (strncmp(name, "gpt/gpt3_7b", 11) == 0) vocabulary = 131072; /* its model_config.yaml */
  /* Of Megatron's tests those of memory and speed repeat nothing, so attention keeps no scores. */
  made->scores = strcmp(published_cell(of, row, "flash_attn"), "no") == 0 ||
                 (family->deterministic && !strstr(name, "memory_speed"));
  model->vocabulary = (int64_t)published_number(of, row, "vocab", vocabulary);
  model->positions = (int64_t)published_number(of, row, "seq_len", 0);
  model->layer_kinds = NULL;
  if (strncmp(name, "llama3.2", 8) == 0) model->tied = true;
  if (strncmp(name, counted, sizeof counted - 1) == 0)
    count_layers(strtod(name + sizeof counted - 1, NULL) * 1e9, made);
  return LS_OK;
}

static ls_status read_layout(const published_table *of, const published_row *row,
                             const published_family *family, published_case *made,
                             ls_error *error) {
  const int devices = (int)published_number(of, row, "n_gpus", 0);
  ls_layout *layout = &made->layout;
  *layout = ls_layout_default();
  layout->tp = (int)published_number(of, row, "tp", 1);
  layout->pp = (int)published_number(of, row, "pp", 1);
  layout->cp = (int)published_number(of, row, "cp", 1);
  layout->ep = (int)published_number(of, row, "ep", 1);
  if (layout->tp < 1 || layout->pp < 1 || layout->cp < 1 || layout->ep < 1)
    return ls_fail(error, LS_INPUT, "mesh is not told");
  const int data =
      (int)published_number(of, row, "dp", devices / layout->tp / layout->pp / layout->cp);
  layout->zero = (int)published_number(of, row, "zero_stage", data > 1 && !made->adapters);
  const bool shards = layout->zero || layout->ep > 1;
  ls_layout_set_data_ranks(layout, shards ? 1 : data, shards ? data : 1);
  layout->context = family->gathers_keys ? LS_CONTEXT_GATHER : LS_CONTEXT_RING;
  /* Rows are sent to the ranks of their experts, as many to each: routing was balanced. */
  layout->exchange = LS_EXCHANGE_ALL_TO_ALL;
  layout->expert_bound = 100;
  made->batch = (int64_t)published_number(of, row, "global_batch_seqs", 0);
  const double micro = published_number(of, row, "micro_batch", 1);
  layout->microbatches = data ? (int)((double)made->batch / data / micro + 0.5) : 0;
  const char *recompute = published_cell(of, row, "recompute");
  const bool selective = made->selective = strcmp(recompute, "selective") == 0;
  /* More ranks of experts than of data: those of tp have whole experts of their own. */
  layout->whole_experts = layout->tp > 1 && layout->ep > data * layout->cp;
  layout->sequence_parallel =
      layout->tp > 1 && (layout->whole_experts || family->sequence_parallel == 1 ||
                         (family->sequence_parallel == 2 && selective));
  const int layers = (int)(made->model.layers / (layout->pp > 0 ? layout->pp : 1));
  const bool even = layout->pp > 1 && made->model.layers % layout->pp == 0 &&
                    layout->microbatches % layout->pp == 0;
  /* NVIDIA's recipes interleave wherever they have stages, mostly a layer a chunk. */
  layout->chunks = (int)published_number(of, row, "vpp", family->tuned && even ? layers : 1);
  layout->schedule = layout->chunks > 1 ? "interleaved" : "1f1b";
  const char *precision = published_cell(of, row, "precision");
  /* Frozen weights are kept as products read them: fp4 with a scale of a byte for 16. */
  made->frozen_bytes = 2;
  if (strcasestr(precision, "fp8")) made->frozen_bytes = 1;
  if (strcasestr(precision, "fp4")) made->frozen_bytes = 0.5 + 1.0 / 16;
  layout->compute =
      strcasestr(precision, "fp16") && !strcasestr(precision, "bf16") ? LS_F16 : LS_BF16;
  made->full = strcmp(recompute, "full") == 0;
  if (made->full || strcmp(recompute, "block") == 0) layout->recompute = (ls_op_set)LS_EVERY_OP;
  if (selective && family->scores_again) layout->recompute.has[LS_OP_ATTENTION] = true;
  if (selective && !family->scores_again) layout->recompute = ls_op_set_cheap();
  layout->logits_rows = INT64_MAX; /* nobody cuts the product of the head */
  layout->prefetch = !family->prefetched || published_layer(made) <= family->prefetched;
  if (layout->microbatches < 1 || made->batch < 1 ||
      layout->tp * layout->pp * layout->cp * data != devices)
    return ls_fail(error, LS_INPUT, "batch or mesh is not told");
  return LS_OK;
}

/* Bytes per second of a host's NICs as a row tells them: "8x400Gbps IB", "800 Gbps/node",
 * "400Gbps/GPU"; 0: it does not. */
static double told_network(const char *text, int per_host) {
  if (strstr(text, "NVL72")) return 400e9 / 8 * per_host; /* a ConnectX-7 beside each */
  if (strstr(text, "p5.48xlarge")) return 3200e9 / 8;
  const char *unit = strstr(text, "Gbps");
  if (!unit) return 0;
  const char *at = unit;
  while (at > text && (at[-1] == ' ' || (at[-1] >= '0' && at[-1] <= '9'))) at--;
  const double each = strtod(at, NULL);
  double count = strncmp(unit, "Gbps/GPU", 8) == 0 ? per_host : 1;
  if (at > text + 1 && at[-1] == 'x' && at[-2] >= '0' && at[-2] <= '9')
    count = strtod(at - 2, NULL);
  return each * count * 1e9 / 8;
}

/* Devices of a host: of a rack of 72, as many as let hosts be filled evenly. */
static int host_devices(const published_table *of, const published_row *row, int devices) {
  int most = (int)published_number(of, row, "gpus_per_node", 8);
  if (most > devices) most = devices;
  while (most > 1 && devices % most) most--;
  return most;
}

static ls_status read_machine(ls_catalog *catalog, const published_table *of,
                              const published_row *row, published_case *made, ls_error *error) {
  char text[128];
  const char *gpu = published_cell(of, row, "gpu"), *id = accelerator_of(gpu);
  const int devices = (int)published_number(of, row, "n_gpus", 0);
  if (!id || devices < 1) return ls_fail(error, LS_INPUT, "its GPU is not known");
  snprintf(text, sizeof text, "%dx%s:%d", devices, id, host_devices(of, row, devices));
  LS_TRY(
      ls_cluster_read(catalog, ls_arena_printf(catalog->arena, "%s", text), &made->cluster, error));
  ls_accelerator *is = &made->accelerator;
  *is = *made->cluster->accelerator;
  /* torchtitan's: HBM2e (its benchmarks' README). */
  if (strcmp(gpu, "H100-96GB") == 0) is->memory_bytes_per_s = 2.4e12, is->memory_mib = 96 << 10;
  if (is->architecture < 80) { /* recipes begin with the A100; no bf16 before it */
    is->architecture = 80;
    is->flops_per_s[LS_CATALOG_BF16] = is->flops_per_s[LS_CATALOG_FP16];
  }
  made->cluster->accelerator = is;
  if (!ls_device_facts_of(is, &made->facts))
    return ls_fail(error, LS_INPUT, "no recipe for the device");
  LS_TRY(ls_performance_of(&made->facts, made->cluster, &made->performance, error));
  const double network =
      told_network(published_cell(of, row, "interconnect"), made->cluster->per_host);
  if (network > 0) made->performance.network_per_s = network * 0.92 / made->cluster->per_host;
  return LS_OK;
}

/* Narrow products: rate of the best of them over that of bf16's best (ml-engineering, MAMF: fp8 on
 * H100 1,403 of 1,979 and bf16 794 of 989, on B200 3,432 of 4,500 and 1,745 of 2,250; of fp4 nobody
 * tells, so as fp8). An element is read
 * in two bytes and written in one, and once more transposed where products want that (Hopper);
 * where norms and activations write it so, it is not read. */
static void read_traits(const published_table *of, const published_row *row,
                        const published_family *family, published_case *made) {
  ls_kernel_traits *traits = &made->performance.traits;
  const char *precision = published_cell(of, row, "precision");
  const bool fp4 = strcasestr(precision, "fp4") != NULL;
  traits->wide = made->model.vocabulary / made->layout.tp;
  traits->pieces = family->pieces;
  if (fp4 || strcasestr(precision, "fp8")) {
    const double *flops = made->accelerator.flops_per_s;
    const double share = made->accelerator.architecture >= 100 ? 0.76 / 0.776 : 0.71 / 0.803;
    const double narrow =
        fp4 && flops[LS_CATALOG_FP4] > 0 ? flops[LS_CATALOG_FP4] : flops[LS_CATALOG_FP8];
    if (narrow > 0) traits->narrow = narrow * share / flops[LS_CATALOG_BF16];
    traits->cast_bytes = family->tuned ? 2 : 4;
  }
  const double attention = family->attention[made->accelerator.architecture >= 90];
  if (attention > 0)
    made->performance.attention_share = attention * made->accelerator.flops_per_s[LS_CATALOG_BF16] /
                                        made->performance.flops_per_s[LS_BF16];
  /* Of a ring exchange in tp parts beside the product's parts, the first is not hidden
   * (Transformer Engine's user buffers; Wang et al. 2023). */
  if (family->tuned && made->layout.tp > 1) made->performance.peer_per_s *= made->layout.tp;
  /* Bytes of a score. Forward: product 2, softmax 2 + 2, dropout 2 + 2 + 1, product 2; backward:
   * products 2 + 2 + 2 + 2, dropout 2 + 1 + 2, softmax 2 + 2 + 2 (Megatron-LM's kernels). */
  if (!made->scores) return;
  traits->score_bytes[0] = 13, traits->score_bytes[1] = 19;
  /* Forward as above, and copies before and after; backward one more for each that has two inputs.
   */
  traits->score_kernels[0] = 6, traits->score_kernels[1] = 10;
}

/* Settles what a row leaves open by what fits: it ran. A recipe that saves memory where it must
 * does without moments, then recomputes; who trains what cannot be held trains adapters. */
static void settle(const published_table *of, const published_row *row,
                   const published_family *family, published_case *made) {
  const double room = (double)made->accelerator.memory_mib / 1024;
  const bool held = made->mixture || published_state(made, family) <= room;
  ls_layout *layout = &made->layout;
  made->frugal = family->fits && !held;
  if (family->fits && !*published_cell(of, row, "recompute"))
    made->full = published_memory(made, family) > room;
  if (made->full) layout->recompute = (ls_op_set)LS_EVERY_OP;
  if (!family->tuned || held || layout->zero > 1 || published_kind_of(of, row) == PUBLISHED_MEMORY)
    return;
  made->adapters = true;
  ls_layout_set_data_ranks(layout, ls_layout_data_ranks(layout), 1);
  layout->zero = 0;
}

ls_status published_case_make(ls_catalog *catalog, const published_table *of,
                              const published_row *row, published_case *made, ls_error *error) {
  const published_family *family = published_family_of(of, row);
  *made = (published_case){0};
  LS_TRY(read_machine(catalog, of, row, made, error));
  LS_TRY(read_model(catalog->arena, of, row, family, made, error));
  LS_TRY(read_layout(of, row, family, made, error));
  settle(of, row, family, made);
  read_traits(of, row, family, made);
  return LS_OK;
}

ls_performance published_performance(const published_case *of, const published_family *family) {
  ls_performance made = of->performance;
  for (int d = 0; d < LS_DTYPE_COUNT; d++) made.flops_per_s[d] *= family->constants[0];
  made.attention_share /= family->constants[0];
  made.traits.elementwise = family->constants[1];
  /* PyTorch has a stream for each group (ProcessGroupNCCL); BLOOM's Megatron waits for each. */
  static const ls_queues one = {"NCCL, in turns", LS_QUEUE_A_PEER_AND_DIRECTION, .holds = true};
  if (!family->beside) made.queues = &one;
  made.launch_s = family->constants[2];
  return made;
}
