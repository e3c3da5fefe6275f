/* Seconds of ops and transfers on this machine's CPU, as `lockstep bench` measured it.
 *
 * No formula says how fast a kernel of a CPU is: which of its operands a cache still holds, how its
 * library cuts the work, what handing it over costs. So an op takes what ops of its kind and about
 * its size took in the steps that bench ran: their rates, and how these change with the sizes, in
 * logarithms (local linear regression; Cleveland 1979). */
#include <math.h>
#include <string.h>

#include "cost/performance.h"

/* Bytes per second that an all-reduce between threads moved, by the rule of buses. */
static double reduce_rate(const ls_rates *rates) {
  double best = 0;
  for (int i = 0; i < rates->transfer.count; i++) {
    const ls_transfer_rate *each = &rates->transfer.items[i];
    if (each->collective == LS_ALL_REDUCE && each->rate.median > best) best = each->rate.median;
  }
  return best;
}

/* Bytes per second that so many threads copy, each read once and written once. */
static double copy_rate(const ls_rates *rates, int threads) {
  double best = 0;
  for (int i = 0; i < rates->memory.count; i++) {
    const ls_memory_rate *each = &rates->memory.items[i];
    if (each->way == LS_MEMORY_COPY && each->threads == threads && each->rate.median > best)
      best = each->rate.median;
  }
  return (best > 0 ? best : ls_rates_memory(rates, threads)) / 2;
}

ls_performance ls_performance_here(const ls_rates *rates, const ls_device_facts *facts, int cores,
                                   int ranks) {
  ls_performance made = {.name = "this machine",
                         .attention_share = 0.7,
                         .kernel_s = 1e-6,
                         .cores = cores,
                         .threads = facts->threads,
                         .peer_devices = ranks,
                         .per_host = ranks,
                         .peer_latency_s = 2e-6,
                         .slice_s = rates->slice_s,
                         .here = rates,
                         .queues = facts->queues,
                         .waits = true};
  for (int d = 0; d < LS_DTYPE_COUNT; d++)
    made.flops_per_s[d] = ls_rates_matmul(rates, (ls_dtype)d, facts->threads);
  made.bytes_per_s = made.host_bytes_per_s = ls_rates_memory(rates, facts->threads);
  made.host_flops_per_s = made.flops_per_s[LS_F32];
  made.peer_per_s = made.beyond_per_s = made.network_per_s = reduce_rate(rates);
  made.host_per_s = copy_rate(rates, 1);
  if (made.host_per_s > 0)
    made.copies = fmax(copy_rate(rates, rates->key.cores) / made.host_per_s, 1);
  made.drive_read_per_s = rates->disk.read.median;
  made.drive_write_per_s = rates->disk.write.median;
  return made;
}

static double elements_of(const ls_work_operand *operand) {
  return ls_work_operand_bytes(operand) / (double)ls_dtype_bytes(operand->dtype);
}

static double columns_of(const ls_work_operand *operand) {
  return operand->ndim > 1 ? (double)operand->dims[operand->ndim - 1] : 1;
}

/* A product's rows, columns and depth; attention's queries, sequence and head; of others the bytes
 * and the length of a row. */
static void fill_sizes(const ls_attributes *attributes, const ls_work_operand *in, int inputs,
                       const ls_work_operand *out, ls_op_time *made) {
  double *sizes = made->sizes;
  const ls_op *row = ls_op_row(made->kind);
  sizes[0] = made->work;
  sizes[1] = sizes[2] = 1;
  if (row->product) {
    sizes[1] = columns_of(out);
    sizes[0] = elements_of(out) / sizes[1];
    sizes[2] = made->work / (2 * sizes[0] * sizes[1]);
  } else if (row->flops) {
    sizes[0] = elements_of(in);
    sizes[1] = (double)attributes->sequence;
    sizes[2] = (double)attributes->head_dim;
  } else {
    if (inputs) sizes[1] = columns_of(&in[0]);
    if (columns_of(out) > sizes[1]) sizes[1] = columns_of(out);
  }
  for (int s = 0; s < LS_OP_SIZES; s++)
    if (!(sizes[s] >= 1)) sizes[s] = 1;
}

ls_op_time ls_op_time_of(ls_op_kind kind, const ls_attributes *attributes,
                         const ls_work_operand *in, int inputs, const ls_work_operand *out,
                         int outputs, int threads) {
  ls_op_time made = {.kind = kind, .threads = threads, .dtype = inputs ? in[0].dtype : LS_F32};
  const ls_work work = ls_op_work(kind, attributes, in, inputs, out, outputs);
  made.work = work.flops > 0 ? work.flops : work.bytes;
  if (!(made.work >= 1)) made.work = 1;
  for (int o = 0; o < outputs; o++) made.adds = made.adds || out[o].adds;
  if (outputs) fill_sizes(attributes, in, inputs, out, &made);
  return made;
}

/* The nearest that was measured, and how near: `apart` counts doublings. */
enum { NEAR = 12 };
typedef struct neighbours {
  const ls_op_time *items[NEAR];
  double apart[NEAR];
  int count;
} neighbours;

/* Doublings of size between two; another number of threads, and adding to what is there, change an
 * op as much as some doublings do. */
static double distance(const ls_op_time *a, const ls_op_time *b) {
  double sum = 0;
  for (int s = 0; s < LS_OP_SIZES; s++) {
    const double doublings = log2(a->sizes[s] / b->sizes[s]);
    sum += doublings * doublings;
  }
  const double threads = 4 * log2((double)a->threads / b->threads);
  return sqrt(sum + threads * threads + (a->adds != b->adds) + 16 * (a->dtype != b->dtype));
}

static void find_neighbours(const ls_rates *rates, const ls_op_time *asked, neighbours *found) {
  found->count = 0;
  for (int i = 0; i < rates->ops.count; i++) {
    const ls_op_time *each = &rates->ops.items[i];
    if (each->kind != asked->kind) continue;
    const double apart = distance(each, asked);
    int at = found->count < NEAR ? found->count++ : NEAR;
    if (at == NEAR && apart >= found->apart[NEAR - 1]) continue;
    if (at == NEAR) at--;
    for (; at > 0 && found->apart[at - 1] > apart; at--) {
      found->items[at] = found->items[at - 1];
      found->apart[at] = found->apart[at - 1];
    }
    found->items[at] = each;
    found->apart[at] = apart;
  }
}

/* Solves sums x = right for x[0], the sums being positive definite. */
enum { TERMS = LS_OP_SIZES + 1 };
static double solve(double sums[TERMS][TERMS], double right[TERMS]) {
  for (int i = TERMS - 1; i > 0; i--)
    for (int j = 0; j < i; j++) {
      const double share = sums[j][i] / sums[i][i];
      for (int k = 0; k <= i; k++) sums[j][k] -= share * sums[i][k];
      right[j] -= share * right[i];
    }
  return right[0] / sums[0][0];
}

/* The logarithm of seconds for a unit of work: a plane through the neighbours, the nearer the more,
 * held to be flat as far as they do not say otherwise. */
static double seconds_of_work(const neighbours *near, const ls_op_time *asked) {
  static const double flat = 0.1, least_width = 0.5, itself = 0.05;
  double sums[TERMS][TERMS] = {{0}}, right[TERMS] = {0}, all = 0;
  const double width = fmax(near->apart[near->count / 3], least_width);
  for (int n = 0; n < near->count; n++) {
    const ls_op_time *each = near->items[n];
    const double ratio = near->apart[n] / width,
                 weight = exp(-ratio * ratio) / (near->apart[n] * near->apart[n] + itself);
    double terms[TERMS] = {1};
    for (int s = 0; s < LS_OP_SIZES; s++) terms[s + 1] = log2(each->sizes[s] / asked->sizes[s]);
    const double value = log(each->seconds / each->work);
    for (int i = 0; i < TERMS; i++) {
      right[i] += weight * terms[i] * value;
      for (int j = 0; j < TERMS; j++) sums[i][j] += weight * terms[i] * terms[j];
    }
    all += weight;
  }
  /* The plane is of what differs from the mean, so that being flat does not pull it to 0. */
  const double mean = right[0] / all;
  for (int i = 0; i < TERMS; i++) right[i] -= mean * sums[i][0];
  for (int i = 1; i < TERMS; i++) sums[i][i] += flat * all;
  return mean + solve(sums, right);
}

double ls_op_seconds_here(const ls_rates *rates, const ls_op_time *asked) {
  neighbours near;
  find_neighbours(rates, asked, &near);
  if (!near.count && ls_op_row(asked->kind)->product && asked->kind != LS_OP_LINEAR) {
    ls_op_time as = *asked; /* no product of its kind was measured */
    as.kind = LS_OP_LINEAR;
    return ls_op_seconds_here(rates, &as);
  }
  if (!near.count) {
    const double rate = ls_rates_memory(rates, asked->threads);
    return rate > 0 ? asked->work / rate : 0;
  }
  return asked->work * exp(seconds_of_work(&near, asked)) *
         ls_rates_residual(rates, ls_op_name(asked->kind));
}

/* How far a measured group is from the one asked for. */
static double group_distance(const ls_transfer_rate *each, const ls_group_shape *group, int world) {
  return fabs(log2((double)each->world / world)) +
         2 * fabs(log2((double)each->ranks / group->ranks));
}

/* Between two sizes on the line through them; below the smallest what that took, above the largest
 * its rate. */
double ls_transfer_seconds_here(const ls_rates *rates, ls_collective collective, double bytes,
                                const ls_group_shape *group, int world) {
  double nearest = INFINITY;
  const ls_transfer_rate *below = NULL, *above = NULL;
  for (int i = 0; i < rates->transfer.count; i++) {
    const ls_transfer_rate *each = &rates->transfer.items[i];
    if (each->collective != collective) continue;
    const double apart = group_distance(each, group, world);
    if (apart > nearest) continue;
    if (apart < nearest) below = above = NULL, nearest = apart;
    if ((double)each->bytes <= bytes && (!below || each->bytes > below->bytes)) below = each;
    if ((double)each->bytes > bytes && (!above || each->bytes < above->bytes)) above = each;
  }
  if (!below && !above) return -1;
  if (!below) return (double)above->bytes / above->rate.median;
  if (!above) return bytes / below->rate.median;
  const double first = (double)below->bytes / below->rate.median;
  const double last = (double)above->bytes / above->rate.median;
  return first +
         (last - first) * (bytes - (double)below->bytes) / (double)(above->bytes - below->bytes);
}
