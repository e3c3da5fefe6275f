#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "cluster/machine.h"
#include "run/measure.h"
#include "session/rounds.h"
#include "session/session.h"

enum { MOST_CALLS = 1000 };

/* A square matrix product large enough to reach the device's rate, small enough to be quick: small
 * ones do not fill a GPU, and large ones would take minutes of what only stands in for one. */
static const struct product_size {
  int64_t side;
  double seconds; /* that it is repeated for */
  double enough;  /* flops by the second from which the next one is measured as well */
} sizes[] = {{192, 0.005, 5e9}, {768, 0.08, 5e12 /* no CPU */}, {4096, 0.08, INFINITY}};

static int by_size(const void *a, const void *b) {
  const double left = *(const double *)a, right = *(const double *)b;
  return (left > right) - (left < right);
}

static ls_view square(char *data, ls_dtype dtype, int64_t side) {
  return (ls_view){
      .data = data, .dtype = dtype, .ndim = 2, .dims = {side, side}, .valid = {side, side}};
}

static ls_status time_products(const ls_device *device, const ls_kernel_args *args,
                               double measured_s, ls_products *made, ls_error *error) {
  const ls_kernel linear = device->kernels[LS_TIER_DEVICE].kernel[LS_OP_LINEAR];
  LS_TRY(linear(args, error)); /* makes the primitive */
  LS_TRY(device->wait(args->queue, error));
  const double side = (double)args->in[0].dims[0], flops = 2 * side * side * side;
  const double begin = ls_now_s();
  double rates[MOST_CALLS];
  int calls = 0;
  for (double last = begin; calls < MOST_CALLS && last - begin < measured_s;) {
    LS_TRY(linear(args, error));
    LS_TRY(device->wait(args->queue, error));
    const double now = ls_now_s();
    rates[calls++] = flops / (now - last);
    last = now;
  }
  made->flops = calls * flops;
  made->seconds = ls_now_s() - begin;
  qsort(rates, (size_t)calls, sizeof *rates, by_size);
  made->best = rates[calls - 1];
  made->usual = rates[calls / 2];
  return LS_OK;
}

/* With operands and workspace of its own, so that nothing of it stays with the thread. */
static ls_status measure_of(const ls_session *session, const struct product_size *of,
                            ls_products *made, ls_error *error) {
  const ls_device *device = &session->device;
  const ls_dtype dtype = session->layout.compute;
  const int64_t side = of->side;
  const size_t matrix_bytes = (size_t)(side * side) * ls_dtype_bytes(dtype);
  const ls_attributes attributes = {0};
  ls_kernel_args args = {.attributes = &attributes,
                         .inputs = 2,
                         .outputs = 1,
                         .in = {square(NULL, dtype, side), square(NULL, dtype, side)},
                         .out = {square(NULL, dtype, side)}};
  args.workspace_bytes = ls_device_workspace(&device->facts, LS_OP_LINEAR, &args);
  const size_t bytes = 3 * matrix_bytes + args.workspace_bytes;
  int none;
  ls_device_queue queues[LS_DEVICE_QUEUES];
  LS_TRY(device->enter(device, &(ls_device_place){0, 0}, queues, error));
  char *memory = device->memory->reserve(bytes, false, &none);
  ls_status status = LS_OK;
  if (memory) {
    args.queue = &queues[LS_TIER_DEVICE];
    args.in[0].data = memory;
    args.in[1].data = memory + matrix_bytes;
    args.out[0].data = memory + 2 * matrix_bytes;
    args.workspace = memory + 3 * matrix_bytes;
    for (int i = 0; i < 2 && status == LS_OK; i++)
      status = ls_measure_fill(device->memory, &args.in[i], error);
    if (status == LS_OK) status = time_products(device, &args, of->seconds, made, error);
  } else {
    status = ls_fail(error, LS_FAILED, "out of memory for %zu bytes of products", bytes);
  }
  device->memory->release(memory, bytes);
  device->leave(queues);
  return status;
}

static ls_status measure(const ls_session *session, ls_products *made, ls_error *error) {
  const struct product_size *of = sizes;
  LS_TRY(measure_of(session, of, made, error));
  while (made->best >= of->enough) LS_TRY(measure_of(session, ++of, made, error));
  return LS_OK;
}

ls_session_limits ls_session_limits_of(const ls_session *session, const ls_rates *rates) {
  const int ranks_sharing_cores =
      session->ranks_sharing_cores > 0 ? session->ranks_sharing_cores : 1;
  const int threads = ranks_sharing_cores * session->device.facts.threads;
  return (ls_session_limits){
      .flops_per_s = ls_rates_matmul(rates, session->layout.compute, threads) / ranks_sharing_cores,
      .bytes_per_s = ls_rates_memory(rates, threads) / ranks_sharing_cores};
}

/* This rank's share of what is kept of its machine; 0: nothing is. */
static double kept_rate(const ls_session *session) {
  ls_arena *arena = ls_arena_create();
  const ls_rates_key key = ls_measure_key(arena);
  const char *why;
  const ls_rates *rates = ls_rates_read(arena, &key, &why);
  const double rate = rates ? ls_session_limits_of(session, rates).flops_per_s : 0;
  ls_arena_destroy(&arena);
  return rate;
}

enum { NUMBERS = sizeof(ls_products) / sizeof(int64_t) };
_Static_assert(sizeof(double) == sizeof(int64_t), "rates go to all ranks as numbers");

typedef struct asking {
  const ls_session *session;
  ls_products own, *every;
} asking;

static ls_status read_kept(void *context, ls_round_message *message, ls_error *error) {
  (void)message, (void)error;
  asking *on = context;
  const ls_session *session = on->session;
  on->own.kept = kept_rate(session);
  on->own.takes_turns =
      session->ranks_sharing_cores * session->device.facts.threads > ls_machine_cores();
  return LS_OK;
}

static ls_status time_own(void *context, ls_round_message *message, ls_error *error) {
  (void)message;
  asking *on = context;
  return measure(on->session, &on->own, error);
}

static ls_status share_rates(void *context, ls_round_message *message, ls_error *error) {
  (void)error;
  asking *on = context;
  *message = (ls_round_message){.own = &on->own, .every = on->every, .count = NUMBERS};
  return LS_OK;
}

/* What is kept may have been measured beside other work: the machine can do what it did once. */
ls_peak ls_peak_of(const ls_products *every, int ranks) {
  double seconds = 0;
  for (int r = 0; r < ranks; r++)
    if (every[r].seconds > seconds) seconds = every[r].seconds;
  ls_peak peak = {0};
  for (int r = 0; r < ranks; r++) {
    const ls_products *of = &every[r];
    const double best = of->takes_turns > 0 ? of->flops / seconds : of->best;
    peak.flops_per_s += best > of->kept ? best : of->kept;
    peak.measured_now += best > of->kept;
    peak.usual += of->takes_turns > 0 ? best : of->usual;
  }
  return peak;
}

ls_status ls_session_peak(const ls_session *session, ls_rank *rank, ls_peak *peak,
                          ls_error *error) {
  static ls_round_work *const work[LS_PEAK_ROUND_COUNT] = {
      [LS_PEAK_KEPT] = read_kept, [LS_PEAK_PRODUCTS] = time_own, [LS_PEAK_SHARE] = share_rates};
  const int ranks = ls_group_size(ls_rank_world_group(rank));
  ls_arena *arena = ls_arena_create();
  asking on = {.session = session, .every = LS_NEW_ARRAY(arena, ls_products, ranks)};
  const ls_status status = ls_rounds_run(rank, &ls_peak_rounds, work, &on, error);
  if (status == LS_OK) *peak = ls_peak_of(on.every, ranks);
  if (session->device.sheet_flops_per_s > 0) {
    peak->of_sheet = true;
    peak->flops_per_s = ranks * session->device.sheet_flops_per_s;
  }
  ls_arena_destroy(&arena);
  return status;
}

double ls_peak_share(ls_peak *peak, double flops_per_s) {
  if (peak->of_sheet)
    return flops_per_s > peak->flops_per_s ? NAN : flops_per_s / peak->flops_per_s;
  if (peak->flops_per_s < flops_per_s) peak->flops_per_s = flops_per_s;
  return peak->flops_per_s > 0 ? flops_per_s / peak->flops_per_s : NAN;
}
