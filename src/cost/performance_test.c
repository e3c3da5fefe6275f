/* Seconds of ops and transfers: what follows from the rates given, by hand. */
#include "cost/performance.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "support/test_catalog.h"

static ls_status read_performance(const char *text, ls_performance *made, ls_error *error) {
  ls_cluster *cluster;
  ls_device_facts facts;
  LS_TRY(ls_cluster_read(catalog, text, &cluster, error));
  if (!ls_device_facts_of(cluster->accelerator, &facts)) return LS_INPUT;
  return ls_performance_of(&facts, cluster, made, error);
}

static ls_performance performance_of(const char *text) {
  ls_performance made;
  ls_error error = {0};
  if (read_performance(text, &made, &error) != LS_OK) fail_msg("%s: %s", text, error.text);
  return made;
}

static double linear_seconds(const ls_performance *on, int64_t tokens, int64_t in, int64_t out) {
  const ls_attributes attributes = {0};
  const ls_work_operand operands[] = {{.dtype = LS_BF16, .ndim = 2, .dims = {tokens, in}},
                                      {.dtype = LS_BF16, .ndim = 2, .dims = {out, in}}};
  const ls_work_operand made = {.dtype = LS_BF16, .ndim = 2, .dims = {tokens, out}};
  return ls_op_seconds(on, LS_OP_LINEAR, &attributes, operands, 2, &made, 1);
}

static double attention_seconds(const ls_performance *on, ls_op_kind kind, int64_t head) {
  const ls_attributes attributes = {.sequence = 2048, .head_dim = head, .kv_heads = 16};
  const ls_work_operand rows = {.dtype = LS_BF16, .ndim = 2, .dims = {4096, 16 * head}};
  const ls_work_operand operands[] = {rows, rows, rows, rows, rows, rows};
  const ls_work_operand made[] = {rows, rows, rows};
  return ls_op_seconds(on, kind, &attributes, operands, 3 + 3 * (kind == LS_OP_ATTENTION_BWD), made,
                       1);
}

/* Scores that are kept move bytes; heads whose rows are not aligned leave the tensor cores. */
static void traits_of_other_kernels_cost_what_they_say(void **state) {
  (void)state;
  const ls_performance ours = performance_of("8xA100-SXM-80");
  ls_performance kept = ours;
  kept.traits.score_bytes[0] = 13;
  kept.traits.score_bytes[1] = 19;
  const double scores = 4096.0 * 16 * 2048;
  const double moved = 13 * scores / ours.bytes_per_s;
  const double flops = 4 * scores * 128 / ours.flops_per_s[LS_BF16];
  assert_true(fabs(attention_seconds(&kept, LS_OP_ATTENTION, 128) / (moved + flops) - 1) < 1e-12);
  assert_true(attention_seconds(&kept, LS_OP_ATTENTION_BWD, 128) >
              attention_seconds(&ours, LS_OP_ATTENTION_BWD, 128));
  assert_true(attention_seconds(&kept, LS_OP_ATTENTION, 108) >
              2 * attention_seconds(&kept, LS_OP_ATTENTION, 112));
  ls_performance narrow = ours;
  narrow.traits.narrow = 2;
  narrow.traits.wide = 8192;
  const double wide = linear_seconds(&ours, 16384, 8192, 8192);
  assert_true(linear_seconds(&narrow, 16384, 8192, 8192) == wide);
  narrow.traits.wide = 50000;
  assert_true(fabs(linear_seconds(&narrow, 16384, 8192, 8192) / wide - 0.5) < 1e-12);
  narrow.traits.cast_bytes = 4;
  assert_true(fabs(linear_seconds(&narrow, 16384, 8192, 8192) -
                   (wide / 2 + 4.0 * 16384 * 8192 / ours.bytes_per_s)) < 1e-12);
}

/* A large product reaches what the best one was measured to reach; a small one is as long as a
 * kernel; one more tile than processors takes another wave. */
static void products_have_tiles_and_waves(void **state) {
  (void)state;
  const ls_performance on = performance_of("8xH100-SXM");
  const double large = linear_seconds(&on, 16384, 8192, 8192);
  const double rate = 2.0 * 16384 * 8192 * 8192 / large;
  assert_true(rate > 0.9 * on.flops_per_s[LS_BF16] && rate <= on.flops_per_s[LS_BF16]);
  assert_true(linear_seconds(&on, 64, 64, 64) == on.kernel_s);
  /* 132 processors: 11 x 12 tiles of 128 x 256 are one wave, 11 x 13 are not. */
  const double full = linear_seconds(&on, 11 * 128, 8192, 12 * 256);
  const double more = linear_seconds(&on, 11 * 128, 8192, 13 * 256);
  assert_true(more > 1.25 * full); /* of 1.083 times the flops */
}

static void bytes_take_their_time(void **state) {
  (void)state;
  const ls_performance on = performance_of("8xA100-SXM-80");
  const ls_attributes attributes = {0};
  const ls_work_operand copied = {.dtype = LS_F32, .ndim = 1, .dims = {INT64_C(1) << 28}};
  const double seconds = ls_op_seconds(&on, LS_OP_COPY, &attributes, &copied, 1, &copied, 1);
  assert_true(fabs(seconds - 2 * 1073741824.0 / on.bytes_per_s) < 1e-9);
}

/* What was measured of a machine goes before its data sheet. */
static void measured_rates_are_taken(void **state) {
  (void)state;
  ls_cluster *cluster;
  ls_device_facts facts;
  ls_performance sheet = performance_of("8xH100-SXM"), made;
  assert_int_equal(ls_cluster_read(catalog, "8xH100-SXM", &cluster, NULL), LS_OK);
  assert_true(ls_device_facts_of(cluster->accelerator, &facts));
  cluster->reached = (ls_reached){700e12, 690e12, 50e12, 2.9e12, 54e9, 380e9};
  assert_int_equal(ls_performance_of(&facts, cluster, &made, NULL), LS_OK);
  assert_true(made.flops_per_s[LS_BF16] == 700e12 && made.flops_per_s[LS_F16] == 690e12);
  assert_true(made.flops_per_s[LS_F32] == 50e12 && made.bytes_per_s == 2.9e12);
  assert_true(made.host_per_s == 54e9 && made.peer_per_s == 380e9);
  assert_true(made.network_per_s == sheet.network_per_s);
  const double faster = 700e12 / sheet.flops_per_s[LS_BF16];
  assert_true(fabs(made.fp8_flops_per_s / sheet.fp8_flops_per_s / faster - 1) < 1e-12);
  cluster->reached = (ls_reached){.memory_bytes = 2.9e12};
  assert_int_equal(ls_performance_of(&facts, cluster, &made, NULL), LS_OK);
  assert_true(made.flops_per_s[LS_BF16] == sheet.flops_per_s[LS_BF16] &&
              made.fp8_flops_per_s == sheet.fp8_flops_per_s && made.host_per_s == sheet.host_per_s);
}

static void groups_lie_on_hosts(void **state) {
  (void)state;
  const int sizes[LS_MESH_ROWS] = {2, 4, 4, 1, 2, 1};
  const ls_mesh mesh = ls_mesh_make(sizes);
  const ls_axes shard = 1u << LS_AXIS_DP_SHARD, tensor = 1u << LS_AXIS_TP_KV,
                replicate = 1u << LS_AXIS_DP_REPLICATE;
  static const int none = 0;
  const struct {
    ls_axes axes;
    int ranks, per_host;
  } known[] = {{tensor, 2, 2},
               {shard, 4, 4},
               {shard | tensor, 8, 8},
               {replicate, 4, 1},
               {replicate | shard, 16, 4}};
  for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
    const ls_group_shape shape = ls_group_shape_of(&mesh, none, known[k].axes, 8);
    assert_int_equal(shape.ranks, known[k].ranks);
    assert_int_equal(shape.per_host, known[k].per_host);
  }
}

static void collectives_by_hand(void **state) {
  (void)state;
  const ls_performance on = performance_of("64xH100-SXM");
  const ls_group_shape host = {8, 8}, all = {64, 8}, across = {8, 1}, one = {1, 1};
  const double bytes = 1e9;
  ls_transfer_time time = ls_collective_time(&on, LS_ALL_REDUCE, bytes, &host);
  assert_int_equal(time.link, LS_LINK_PEER);
  assert_true(fabs(time.seconds - 2 * bytes * 7 / 8 / 365e9) < 1e-9); /* as measured */
  time = ls_collective_time(&on, LS_ALL_GATHER, bytes, &all);
  assert_true(fabs(time.seconds - bytes * 63 / 64 / fmin(365e9, 8 * on.network_per_s)) < 1e-9);
  time = ls_collective_time(&on, LS_REDUCE_SCATTER, bytes, &across);
  assert_int_equal(time.link, LS_LINK_NETWORK);
  assert_true(fabs(time.seconds - bytes * 7 / 8 / on.network_per_s) < 1e-9);
  assert_true(ls_collective_time(&on, LS_ALL_REDUCE, bytes, &one).seconds == 0);
  /* Small ones are all latency, which grows with the logarithm of hosts, not with their number. */
  const ls_group_shape many = {8192, 8};
  assert_true(ls_collective_time(&on, LS_ALL_REDUCE, 8, &many).latency_s <
              10 * ls_collective_time(&on, LS_ALL_REDUCE, 8, &all).latency_s);
  const ls_performance bridged = performance_of("4xRTX3090");
  const ls_group_shape pair = {2, 2}, four = {4, 4};
  assert_true(ls_collective_time(&bridged, LS_ALL_GATHER, bytes, &four).seconds >
              2 * ls_collective_time(&bridged, LS_ALL_GATHER, bytes, &pair).seconds);
}

/* Eight H100 over NVLink 4: what nccl-tests measured of an all-reduce there (NVIDIA's DGX Cloud
 * benchmarking README), within a fifth. */
static void small_collectives_are_as_measured(void **state) {
  (void)state;
  static const struct {
    double bytes, seconds;
  } measured[] = {{2048, 16e-6}, {1 << 20, 27e-6}, {16 << 20, 124e-6}};
  ls_performance on = performance_of("8xH100-SXM");
  on.peer_per_s = 480e9; /* the bus bandwidth of that machine, with sums in its switches */
  const ls_group_shape host = {8, 8};
  for (size_t m = 0; m < sizeof measured / sizeof *measured; m++) {
    const ls_transfer_time time = ls_collective_time(&on, LS_ALL_REDUCE, measured[m].bytes, &host);
    const double of = (time.latency_s + time.seconds) / measured[m].seconds;
    print_message("%.0f bytes: %.2f of what was measured\n", measured[m].bytes, of);
    assert_true(of > 0.8 && of < 1.2);
  }
  on.protocols = false;
  assert_true(ls_collective_time(&on, LS_ALL_REDUCE, 16 << 20, &host).seconds <
              ls_collective_time(&on, LS_ALL_REDUCE, 17 << 20, &host).seconds);
}

/* Products are as fast as they were measured to be, where somebody did. */
static void what_a_device_reached_counts(void **state) {
  (void)state;
  static const struct {
    const char *text;
    double reached;
  } known[] = {{"1xRTX5090", 224.3e12}, {"4xGB200", 1822e12}, {"8xH100-SXM", 794e12}};
  for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
    const ls_performance on = performance_of(known[k].text);
    assert_true(fabs(on.flops_per_s[LS_BF16] / known[k].reached - 1) < 1e-9);
  }
}

static void a_network_may_be_oversubscribed(void **state) {
  (void)state;
  ls_cluster *cluster;
  ls_device_facts facts;
  ls_performance whole, third;
  assert_int_equal(ls_cluster_read(catalog, "64xH100-SXM", &cluster, NULL), LS_OK);
  assert_true(ls_device_facts_of(cluster->accelerator, &facts));
  assert_int_equal(ls_performance_of(&facts, cluster, &whole, NULL), LS_OK);
  cluster->oversubscription = 3;
  assert_int_equal(ls_performance_of(&facts, cluster, &third, NULL), LS_OK);
  assert_true(fabs(whole.network_per_s / third.network_per_s - 3) < 1e-12);
  cluster->rails = true;
  assert_int_equal(ls_performance_of(&facts, cluster, &third, NULL), LS_OK);
  assert_true(whole.network_per_s == third.network_per_s);
  cluster->peer_access = false; /* nobody passes on what is for another NIC */
  assert_int_equal(ls_performance_of(&facts, cluster, &third, NULL), LS_OK);
  assert_true(fabs(whole.network_per_s / third.network_per_s - 3) < 1e-12);
}

static void rows_that_lack_something_are_refused(void **state) {
  (void)state;
  ls_performance made;
  ls_error error = {0};
  assert_int_equal(read_performance("8xgb10-spark", &made, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "machines.yaml"));
}

/* Between hosts whose network nobody knows nothing would take any time. */
static void hosts_without_a_network_are_refused(void **state) {
  (void)state;
  ls_cluster *cluster;
  ls_device_facts facts;
  ls_performance made;
  ls_error error = {0};
  assert_int_equal(ls_cluster_read(catalog, "16xH100-SXM", &cluster, NULL), LS_OK);
  assert_true(ls_device_facts_of(cluster->accelerator, &facts));
  cluster->network = NULL;
  assert_int_equal(ls_performance_of(&facts, cluster, &made, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "no network between its hosts of 8"));
  assert_int_equal(ls_cluster_resize(cluster, 8, NULL), LS_OK);
  assert_int_equal(ls_performance_of(&facts, cluster, &made, NULL), LS_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(products_have_tiles_and_waves),
                                     cmocka_unit_test(bytes_take_their_time),
                                     cmocka_unit_test(measured_rates_are_taken),
                                     cmocka_unit_test(traits_of_other_kernels_cost_what_they_say),
                                     cmocka_unit_test(groups_lie_on_hosts),
                                     cmocka_unit_test(collectives_by_hand),
                                     cmocka_unit_test(small_collectives_are_as_measured),
                                     cmocka_unit_test(what_a_device_reached_counts),
                                     cmocka_unit_test(a_network_may_be_oversubscribed),
                                     cmocka_unit_test(rows_that_lack_something_are_refused),
                                     cmocka_unit_test(hosts_without_a_network_are_refused)};
  return cmocka_run_group_tests(tests, open_catalog, close_catalog);
}
