/* Seconds of ops and transfers on devices of the catalog. */
#include "cost/performance.h"

#include <math.h>
#include <string.h>

/* What the best kernels reach of an accelerator's data sheet. Products: the largest matrix product
 * that was found by a search over shapes, in bf16 (stas00/ml-engineering, MAMF, 2026-08-22: A100
 * 271 of 312, H100 794 of 989, B200 1745 of 2250 TFLOP/s), where the catalog has none of the
 * accelerator itself; of others the middle of these.
 * Attention: of a causal one's counted flops, forward and backward together (FlashAttention-2 on
 * A100 180 TFLOP/s at 8,192 tokens, Azure's AI benchmarking guide; FlashAttention-3, Shah et al.
 * 2024, on H100 550 to 650). */
typedef struct reached {
  int architecture; /* this and later ones, up to the next row */
  double product, attention;
} reached;

static const reached by_architecture[] = {
    {0, 0.80, 0.50}, {80, 0.87, 0.55}, {86, 0.85, 0.60}, {90, 0.80, 0.50}, {100, 0.78, 0.45}};

/* Of the data sheet's memory rate (SimuMax's tables, A100: 0.91; Azure: A100 1.75 of 2.04, H100
 * 3.18 of 3.35 TB/s). */
#define MEMORY_REACHED 0.90
/* The least a kernel takes on the device, and the host to begin one without a graph: 4 to 6 us
 * (planners' tables of launches). */
#define KERNEL_S 2.5e-6
#define LAUNCH_S 5e-6
/* Processors that NCCL's kernels occupy while they run beside compute. Between peers 24 blocks,
 * each a processor's (an all-gather beside a product on an H100, NVIDIA developer forum 337991:
 * 0.18 of 132; on average 0.189 of compute was lost beside collectives of 4 devices, arXiv
 * 2507.03114). Between hosts fewer channels fill the NICs; DeepSeek-V3 (2412.19437) gives 20
 * processors to both together. How many fewer nobody has published: 0.08 and 0.18 of compute differ
 * by 0.2 points in the mean error of the published rows. */
#define PEER_BLOCKS 24.0
#define NETWORK_INTERFERENCE 0.08
/* Of a link's rate, what a large message reaches: 396 of 450 GB/s over NVLink 4 (ml-engineering),
 * 48 of 50 over four EDR NICs (nccl-tests#29). */
#define LINK_REACHED 0.88
#define NETWORK_REACHED 0.92
#define NETWORK_LATENCY_S                                                                      \
  2.7e-6                       /* of a small message between hosts, where the catalog has none \
                                */
#define HOST_LINK_REACHED 0.82 /* 51 of 63 GB/s pinned, gen 5; 26 of 31.5, gen 4 (Azure) */

static const reached *reached_by(int architecture) {
  const reached *found = by_architecture;
  for (size_t i = 0; i < sizeof by_architecture / sizeof *by_architecture; i++)
    if (by_architecture[i].architecture <= architecture) found = &by_architecture[i];
  return found;
}

/* Bytes per second each way that a device reaches over a link in a collective. */
static double link_rate(const ls_link *link, double per_device, double share) {
  if (!link) return 0;
  const double rate = per_device > 0 ? per_device : link->bytes_per_s;
  const bool own = fabs(rate / link->bytes_per_s - 1) < 0.02;
  if (own && link->reduced_per_s > 0 && link->nics == 1) return link->reduced_per_s;
  return rate * share;
}

/* Whether devices reach their peers over the port to their host, by the name that the peers' link
 * has from the host's: pcie4-x16-no-p2p goes over pcie4-x16. */
static bool same_port(const ls_cluster *cluster) {
  return cluster->peer && cluster->host_link &&
         strncmp(cluster->peer->id, cluster->host_link->id, strlen(cluster->host_link->id)) == 0;
}

/* How many times less than its NICs a host may send. Over rails NCCL sends between NICs of one
 * place alone: what is for another place goes over its peers' links first (PXN: K. Jamieson, J.
 * Romero, S. Jeaugey, "Doubling all2all Performance with NVIDIA Collective Communication Library
 * 2.12", 2022), which takes peer access. */
static double oversubscription_of(const ls_cluster *cluster) {
  const bool aligned = cluster->rails && (cluster->peer_access || cluster->per_host == 1);
  return aligned ? 1 : cluster->oversubscription;
}

static ls_status set_links(const ls_cluster *cluster, ls_performance *made, ls_error *error) {
  made->per_host = cluster->per_host;
  made->peer_devices = cluster->peer_devices ? cluster->peer_devices : cluster->per_host;
  made->peer_per_s = link_rate(cluster->peer, cluster->peer_bytes_per_s, LINK_REACHED);
  if (cluster->reached.peer_bytes > 0) made->peer_per_s = cluster->reached.peer_bytes;
  made->beyond_per_s =
      cluster->beyond ? link_rate(cluster->beyond, 0, LINK_REACHED) : made->peer_per_s;
  made->peer_latency_s =
      cluster->peer && cluster->peer->latency_s > 0 ? cluster->peer->latency_s : 1e-6;
  made->host_per_s = cluster->reached.host_bytes > 0
                         ? cluster->reached.host_bytes
                         : cluster->host_bytes_per_s * HOST_LINK_REACHED;
  made->one_port = same_port(cluster);
  /* Copy engines take no processor, but what they read and write of the device's memory. */
  made->interference[LS_LINK_TO_HOST] = made->interference[LS_LINK_FROM_HOST] =
      made->interference[LS_LINK_DRIVE] = made->host_per_s / made->bytes_per_s;
  made->drive_read_per_s = cluster->drive_read_per_s;
  made->drive_write_per_s = cluster->drive_write_per_s;
  if (cluster->network) {
    made->network_per_s = cluster->network->bytes_per_s * NETWORK_REACHED * cluster->nics /
                          cluster->per_host / oversubscription_of(cluster);
    made->nic_devices = cluster->nics > 0 ? cluster->per_host / cluster->nics : 1;
    made->network_latency_s =
        cluster->network->latency_s > 0 ? cluster->network->latency_s : NETWORK_LATENCY_S;
  }
  if (cluster->per_host > 1 && !(made->peer_per_s > 0))
    return ls_fail(error, LS_INPUT,
                   "%s: the catalog has no link between devices of a host; give peer.link in a "
                   "cluster's file",
                   cluster->accelerator->id);
  if (cluster->devices > cluster->per_host && !(made->network_per_s > 0))
    return ls_fail(error, LS_INPUT,
                   "%s: the catalog has no network between its hosts of %d; give network.link in a "
                   "cluster's file, or hosts.network in ~/.config/lockstep/machines.yaml",
                   cluster->accelerator->id, cluster->per_host);
  return LS_OK;
}

/* What was measured goes before what is said of such accelerators. */
static void set_reached(const ls_reached *most, ls_performance *made) {
  const double sheet = made->flops_per_s[LS_BF16];
  if (most->bf16_flops > 0) {
    made->flops_per_s[LS_BF16] = most->bf16_flops;
    made->fp8_flops_per_s *= most->bf16_flops / sheet;
  }
  if (most->fp16_flops > 0) made->flops_per_s[LS_F16] = most->fp16_flops;
  if (most->fp32_flops > 0) made->flops_per_s[LS_F32] = most->fp32_flops;
  if (most->memory_bytes > 0) made->bytes_per_s = most->memory_bytes;
}

static double peer_interference(const ls_accelerator *of) {
  return of->processors > 0 ? fmin(PEER_BLOCKS / (double)of->processors, 0.5) : PEER_BLOCKS / 132;
}

ls_status ls_performance_of(const ls_device_facts *facts, const ls_cluster *cluster,
                            ls_performance *made, ls_error *error) {
  const ls_accelerator *of = cluster->accelerator;
  reached share = *reached_by(facts->architecture);
  if (of->reached_per_s > 0 && of->flops_per_s[LS_CATALOG_BF16] > 0)
    share.product = of->reached_per_s / of->flops_per_s[LS_CATALOG_BF16];
  *made = (ls_performance){
      .name = of->id,
      .bytes_per_s = of->memory_bytes_per_s * MEMORY_REACHED,
      .attention_share = share.attention / share.product,
      .kernel_s = KERNEL_S,
      .launch_s = LAUNCH_S,
      .processors = (int)of->processors,
      .interference =
          {[LS_LINK_PEER] = peer_interference(of), [LS_LINK_NETWORK] = NETWORK_INTERFERENCE},
      .queues = facts->queues,
      .protocols = true,
      .host_flops_per_s = 100e9,
      .host_bytes_per_s = 50e9};
  const double *flops = of->flops_per_s;
  const double half = flops[LS_CATALOG_BF16] > 0 ? flops[LS_CATALOG_BF16] : 0;
  made->flops_per_s[LS_BF16] = half * share.product;
  made->flops_per_s[LS_F16] =
      (flops[LS_CATALOG_FP16] > 0 ? flops[LS_CATALOG_FP16] : half) * share.product;
  if (facts->fp8 && flops[LS_CATALOG_FP8] > 0)
    made->fp8_flops_per_s = flops[LS_CATALOG_FP8] * share.product;
  made->fp8_pass = facts->fp8 == LS_FP8_BY_PASS;
  made->flops_per_s[LS_F32] = flops[LS_CATALOG_FP32] * share.product;
  made->flops_per_s[LS_F64] = flops[LS_CATALOG_FP32] * share.product / 2;
  if (!(half > 0) || !(of->memory_bytes_per_s > 0))
    return ls_fail(error, LS_INPUT,
                   "%s: the catalog lacks %s; give it in ~/.config/lockstep/machines.yaml", of->id,
                   half > 0 ? "memory.gb_per_s" : "tflops.bf16");
  set_reached(&cluster->reached, made);
  return set_links(cluster, made, error);
}

/* Tiles that libraries have, with what they reach of the best: small ones read more bytes for each
 * flop. */
static const struct {
  int rows, columns;
  double share;
} tiles[] = {{256, 128, 1}, {128, 256, 1}, {128, 128, 0.94}, {128, 64, 0.82}, {64, 64, 0.64}};

/* A product of rows x depth by depth x columns: the best of tiles, and of parts of the depth that
 * run beside each other where there are too few tiles. */
static double product_seconds(const ls_performance *performance, double rows, double columns,
                              double depth, double flops_per_s) {
  if (!performance->processors) return 2 * rows * columns * depth / flops_per_s;
  const double each = flops_per_s / performance->processors;
  double best = INFINITY;
  for (size_t t = 0; t < sizeof tiles / sizeof *tiles; t++) {
    const double count = ceil(rows / tiles[t].rows) * ceil(columns / tiles[t].columns);
    const double work = 2.0 * tiles[t].rows * tiles[t].columns / (each * tiles[t].share);
    for (int parts = 1; parts == 1 || (parts <= 8 && count * parts <= performance->processors &&
                                       depth / parts >= 512);
         parts *= 2) {
      const double waves = ceil(count * parts / performance->processors);
      const double seconds = waves * work * depth / parts * (parts > 1 ? 1.05 : 1);
      if (seconds < best) best = seconds;
    }
  }
  return best;
}

/* The dtype that products of an op are done in: its first floating input's of two bytes or more. */
static double flops_rate(const ls_performance *performance, const ls_work_operand *in, int inputs) {
  for (int i = 0; i < inputs; i++)
    if (performance->flops_per_s[in[i].dtype] > 0) return performance->flops_per_s[in[i].dtype];
  return performance->flops_per_s[LS_F32];
}

/* Whether a product is done at the rate of fp8: that of a weight's gradient sums over tokens, each
 * with a scale of its own, and so is one of wider numbers; libraries take rows of 16. */
static bool rounded_rate(const ls_performance *performance, ls_op_kind kind,
                         const ls_attributes *attributes, const ls_work_operand *out) {
  return performance->fp8_flops_per_s > 0 && attributes->fp8 && ls_op_row(kind)->product &&
         kind != LS_OP_LINEAR_DW && out->dims[out->ndim - 1] % 16 == 0;
}

/* Kernels around a product of codes: each operand is read, again from near by where its scale has
 * been found, and its codes are written; a weight that is turned is read twice. And the pass over
 * what the product gives. */
static double codes_seconds(const ls_performance *performance, ls_op_kind kind,
                            const ls_work_operand *in, const ls_work_operand *out) {
  const double moved[] = {ls_work_operand_bytes(&in[0]) * 1.5,
                          ls_work_operand_bytes(&in[1]) * (kind == LS_OP_LINEAR ? 1.5 : 2.5),
                          performance->fp8_pass ? ls_work_operand_bytes(out) * 2 : 0};
  double seconds = 0;
  for (int i = 0; i < 3; i++)
    if (moved[i] > 0) seconds += fmax(moved[i] / performance->bytes_per_s, performance->kernel_s);
  return seconds;
}

/* Attention that keeps its scores: batched products over whole sequences, two forward and four
 * backward, and passes over the scores. Where a head is no multiple of 8 elements of two bytes its
 * rows are not aligned to 16 bytes, and libraries before cuBLAS 11 left the tensor cores unused
 * (NVIDIA, Matrix Multiplication Background User's Guide, section 4.1). */
static double unfused_seconds(const ls_performance *performance, bool backward,
                              const ls_attributes *attributes, const ls_work_operand *query,
                              double flops_per_s) {
  const double head = (double)attributes->head_dim;
  const double scores =
      (double)query->dims[0] * (double)query->dims[1] / head * (double)attributes->sequence;
  const double rate =
      attributes->head_dim % 8 == 0 ? flops_per_s : performance->flops_per_s[LS_F32];
  return (backward ? 8 : 4) * scores * head / rate +
         scores * performance->traits.score_bytes[backward] / performance->bytes_per_s;
}

/* Seconds that a product takes, and what makes its first input narrow. */
static double linear_seconds(const ls_performance *performance, double flops, ls_op_kind kind,
                             const ls_work_operand *in, const ls_work_operand *out, double rate) {
  const ls_kernel_traits *traits = &performance->traits;
  double rows = 1, columns = out->ndim ? (double)out->dims[out->ndim - 1] : 1, cast = 0;
  for (int d = 0; d + 1 < out->ndim; d++) rows *= (double)out->dims[d];
  const double depth = rows * columns > 0 ? flops / (2 * rows * columns) : 0;
  const double wide = (double)traits->wide;
  if (traits->narrow > 0 && columns != wide && depth != wide && rows != wide) {
    rate *= traits->narrow;
    if (kind != LS_OP_LINEAR_DW)
      cast = ls_work_operand_bytes(in) / (double)ls_dtype_bytes(in->dtype) * traits->cast_bytes /
             performance->bytes_per_s;
  }
  return product_seconds(performance, rows, columns, depth, rate) + cast;
}

double ls_op_seconds(const ls_performance *performance, ls_op_kind kind,
                     const ls_attributes *attributes, const ls_work_operand *in, int inputs,
                     const ls_work_operand *out, int outputs) {
  if (performance->here) {
    const ls_op_time asked =
        ls_op_time_of(kind, attributes, in, inputs, out, outputs, performance->threads);
    return ls_op_seconds_here(performance->here, &asked);
  }
  const ls_work work = ls_op_work(kind, attributes, in, inputs, out, outputs);
  const ls_kernel_traits *traits = &performance->traits;
  double seconds = work.bytes / performance->bytes_per_s, codes = 0;
  if (traits->elementwise > 0 && !(work.flops > 0)) seconds *= traits->elementwise;
  if (work.flops > 0 && outputs > 0) {
    const bool rounded = rounded_rate(performance, kind, attributes, out);
    const double rate =
        rounded ? performance->fp8_flops_per_s : flops_rate(performance, in, inputs);
    if (rounded) codes = codes_seconds(performance, kind, in, out);
    double flops_s = work.flops / (rate * performance->attention_share);
    if (ls_op_row(kind)->product)
      flops_s = linear_seconds(performance, work.flops, kind, in, out, rate);
    else if (traits->score_bytes[0] > 0 && attributes->turns == 0)
      flops_s = unfused_seconds(performance, kind == LS_OP_ATTENTION_BWD, attributes, in, rate);
    if (flops_s > seconds) seconds = flops_s;
  }
  return (seconds > performance->kernel_s ? seconds : performance->kernel_s) + codes;
}

ls_group_shape ls_group_shape_of(const ls_mesh *mesh, int rank, ls_axes axes, int per_host) {
  ls_group_shape shape = {.ranks = ls_mesh_size(mesh, axes)};
  const ls_axis_order others = ls_mesh_order(ls_mesh_all(mesh) & ~axes);
  const int group = ls_mesh_index(mesh, rank, others), first = rank / per_host * per_host;
  for (int r = first; r < first + per_host && r < ls_mesh_ranks(mesh); r++)
    shape.per_host += ls_mesh_index(mesh, r, others) == group;
  return shape;
}

/* Seconds of the bytes that a member of a group sends and receives in rings, and by which link. A
 * ring enters a host once and leaves it once; a group with several members on a host has as many
 * rings, each over another's NIC, so a member sends one in so many of its bytes over the network.
 */
static ls_transfer_time ring_time(const ls_performance *performance, const ls_group_shape *group,
                                  double sent) {
  const double within = group->per_host > performance->peer_devices ? performance->beyond_per_s
                                                                    : performance->peer_per_s;
  const double peers = within > 0 ? sent / within : 0;
  if (group->per_host >= group->ranks)
    return (ls_transfer_time){.link = LS_LINK_PEER, .seconds = peers};
  const double rate = performance->network_per_s * group->per_host;
  const double network = rate > 0 ? sent / rate : 0;
  if (group->per_host > 1 && peers > network)
    return (ls_transfer_time){.link = LS_LINK_PEER, .seconds = peers, .beside_s = network};
  return (ls_transfer_time){.link = LS_LINK_NETWORK,
                            .seconds = network,
                            .beside_s = peers * (group->per_host - 1) / group->per_host};
}

/* All of it latency: it was measured beside the others. False: nothing like it was. */
static bool transfer_here(const ls_performance *performance, ls_collective collective, double whole,
                          const ls_group_shape *group, ls_transfer_time *time) {
  const bool shifts = collective == LS_PERMUTE || ls_collective_is_message(collective);
  const bool exchanges = collective == LS_ALL_TO_ALL, deals = ls_collective_deals(collective);
  const ls_collective like = shifts ? LS_SEND : exchanges || deals ? LS_ALL_GATHER : collective;
  const double share =
      (double)(group->ranks - 1) / group->ranks; /* that others have, of a gather */
  const double measured = exchanges ? whole / group->ranks : deals ? whole / share : whole;
  time->latency_s =
      ls_transfer_seconds_here(performance->here, like, measured, group, performance->per_host);
  time->link = LS_LINK_PEER;
  return time->latency_s >= 0;
}

/* NCCL's protocols, as its own model of them says (src/graph/tuning.cc, 2026-06-11). In seconds:
 * of a beginning, with the host's; of a step over NVLink, and between hosts in a ring and in a
 * tree. `share` is of a link's rate: LL sends a flag with each 4 bytes, LL128 with each 120. */
static const struct {
  double share, begin, within, across, across_tree;
} protocols[] = {
    {0.50, 6.6e-6, 0.6e-6, 2.7e-6, 5e-6},
    {0.92, 14e-6, 1.9e-6, 4e-6, 8.5e-6},
    {1.00, 8.4e-6, 3.4e-6, 14e-6, 14e-6},
};
#define TREE_SHARE 0.92 /* of a ring's rate (the same) */

/* Seconds of steps until the first byte is everywhere, in a ring and in a tree over hosts, along
 * which only sums go. A link that is slower than NCCL's adds what it takes longer. */
static void latencies_of(const ls_performance *performance, ls_collective collective,
                         const ls_group_shape *group, int protocol, double *ring, double *tree) {
  const int hosts = (group->ranks + group->per_host - 1) / group->per_host;
  const bool sums = collective == LS_ALL_REDUCE || collective == LS_SUM_NUMBERS;
  const double turns = sums ? 2 : 1;
  const double within =
      protocols[protocol].within + fmax(0, performance->peer_latency_s - protocols[0].within);
  const double slower = fmax(0, performance->network_latency_s - protocols[0].across);
  const double across = protocols[protocol].across + slower;
  const int between = hosts > 1 ? hosts : 0;
  *ring = turns * ((group->ranks - 1 > between ? group->ranks - 1 - between : 0) * within +
                   (between ? fmin(between, group->ranks - 1) : 0) * across);
  if (collective == LS_PERMUTE) *ring = hosts > 1 ? across : within;
  *tree = turns * ((group->per_host - 1) * within +
                   ceil(log2(hosts)) * (protocols[protocol].across_tree + slower));
  if (!sums || hosts < 2) *tree = INFINITY;
}

ls_transfer_time ls_collective_time(const ls_performance *performance, ls_collective collective,
                                    double whole, const ls_group_shape *group) {
  if (group->ranks < 2) return (ls_transfer_time){0};
  ls_transfer_time best = {0};
  if (performance->here && transfer_here(performance, collective, whole, group, &best)) return best;
  const ls_transfer_time alone =
      ring_time(performance, group, ls_collective_bytes(collective, whole, group->ranks));
  best = alone;
  if (!performance->protocols) {
    const double turns = collective == LS_ALL_REDUCE || collective == LS_SUM_NUMBERS ? 2 : 1;
    const int hosts = (group->ranks + group->per_host - 1) / group->per_host;
    best.latency_s =
        performance->launch_s + turns * ((group->ranks - hosts) * performance->peer_latency_s +
                                         (hosts > 1 ? hosts * performance->network_latency_s : 0));
    return best;
  }
  for (size_t p = 0; p < sizeof protocols / sizeof *protocols; p++) {
    double ring, tree;
    latencies_of(performance, collective, group, (int)p, &ring, &tree);
    for (int t = 0; t < 2; t++) {
      const double longer = 1 / protocols[p].share / (t ? TREE_SHARE : 1);
      const double latency_s = protocols[p].begin + (t ? tree : ring);
      if ((p || t) && latency_s + alone.seconds * longer >= best.latency_s + best.seconds) continue;
      best.latency_s = latency_s;
      best.seconds = alone.seconds * longer;
      best.beside_s = alone.beside_s * longer;
    }
  }
  return best;
}

static ls_transfer_time move_time(const ls_performance *performance, const ls_program *program,
                                  const ls_instruction *instruction, double bytes) {
  const ls_tier from = ls_pool_tier(ls_program_buffer_group(program, instruction->in[0])->pool);
  const ls_tier to = ls_pool_tier(ls_program_buffer_group(program, instruction->out[0])->pool);
  const bool drive = from == LS_TIER_NVME || to == LS_TIER_NVME;
  const double rate = !drive                 ? performance->host_per_s
                      : from == LS_TIER_NVME ? performance->drive_read_per_s
                                             : performance->drive_write_per_s;
  return (ls_transfer_time){.link = drive                  ? LS_LINK_DRIVE
                                    : to == LS_TIER_DEVICE ? LS_LINK_FROM_HOST
                                                           : LS_LINK_TO_HOST,
                            .latency_s = performance->launch_s,
                            .seconds = rate > 0 ? bytes / rate : 0};
}

/* A message goes to the same place on another stage. */
static ls_transfer_time message_time(const ls_performance *performance, const ls_program *program,
                                     int rank, const ls_instruction *instruction, double bytes) {
  const ls_group_shape pair = {2, 2};
  ls_transfer_time time = {0};
  if (performance->here && transfer_here(performance, LS_SEND, bytes, &pair, &time)) return time;
  const int stage_ranks = ls_mesh_stage_ranks(&program->mesh);
  const int other = rank % stage_ranks + instruction->peer * stage_ranks;
  const bool near = rank / performance->per_host == other / performance->per_host;
  const bool joined = rank % performance->per_host / performance->peer_devices ==
                      other % performance->per_host / performance->peer_devices;
  const double rate = !near    ? performance->network_per_s
                      : joined ? performance->peer_per_s
                               : performance->beyond_per_s;
  return (ls_transfer_time){
      .link = near ? LS_LINK_PEER : LS_LINK_NETWORK,
      .latency_s = performance->launch_s +
                   (near ? performance->peer_latency_s : performance->network_latency_s),
      .seconds = rate > 0 ? bytes / rate : 0};
}

ls_transfer_time ls_instruction_transfer(const ls_performance *performance,
                                         const ls_program *program, int rank,
                                         const ls_instruction *instruction) {
  if (!instruction->inputs && !instruction->outputs) return (ls_transfer_time){0};
  const int value = instruction->inputs ? instruction->in[0] : instruction->out[0];
  const double whole =
      (double)instruction->count * (double)ls_dtype_bytes(program->values.items[value].dtype);
  if (ls_collective_moves(instruction->collective))
    return move_time(performance, program, instruction, whole);
  if (ls_collective_is_message(instruction->collective))
    return message_time(performance, program, rank, instruction, whole);
  if (instruction->peer >= 0) {
    const int stage_ranks = ls_mesh_stage_ranks(&program->mesh);
    const int other = rank % stage_ranks + instruction->peer * stage_ranks;
    const ls_group_shape pair = {
        2, 1 + (rank / performance->per_host == other / performance->per_host)};
    return ls_collective_time(performance, instruction->collective, whole, &pair);
  }
  const ls_axes axes =
      instruction->collective == LS_SUM_NUMBERS ? ls_mesh_all(&program->mesh) : instruction->axes;
  const ls_group_shape group = ls_group_shape_of(&program->mesh, rank, axes, performance->per_host);
  const bool data = !(axes & ~ls_mesh_data(&program->mesh));
  const double pieces = data && performance->traits.pieces ? performance->traits.pieces : 1;
  ls_transfer_time time =
      ls_collective_time(performance, instruction->collective, whole / pieces, &group);
  time.latency_s *= pieces;
  time.seconds *= pieces;
  time.beside_s *= pieces;
  return time;
}

double ls_instruction_seconds(const ls_performance *performance, const ls_program *program,
                              int rank, const ls_instruction *instruction, bool first) {
  ls_work_operand in[LS_MAX_INPUTS], out[LS_MAX_OUTPUTS];
  const int inputs = ls_instruction_operands(program, rank, instruction, first, in, out);
  if (instruction->outputs > 0 && !performance->here &&
      ls_pool_tier(ls_program_buffer_group(program, instruction->out[0])->pool) != LS_TIER_DEVICE) {
    const ls_work work = ls_op_work(instruction->kind, &instruction->attributes, in, inputs, out,
                                    instruction->outputs);
    return fmax(work.flops / performance->host_flops_per_s,
                work.bytes / performance->host_bytes_per_s);
  }
  return ls_op_seconds(performance, instruction->kind, &instruction->attributes, in, inputs, out,
                       instruction->outputs);
}
