/* Clusters as people name them, and as files. */
#include "cluster/cluster.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "support/test_catalog.h"

static ls_cluster *read_cluster(const char *text) {
  ls_cluster *cluster;
  ls_error error = {0};
  if (ls_cluster_read(catalog, text, &cluster, &error) != LS_OK) fail_msg("%s", error.text);
  return cluster;
}

static void test_words(void **state) {
  (void)state;
  static const struct {
    const char *text, *id;
    int devices, per_host;
  } known[] = {{"64xH100-SXM", "h100-sxm-80", 64, 8},
               {"64xH100-SXM:4", "h100-sxm-80", 64, 4},
               {"2xRTX4090", "rtx4090", 2, 2},
               {"h100-sxm-80", "h100-sxm-80", 0, 8},
               {"3Xl4:3", "l4", 3, 3},
               {"16384xH100-SXM", "h100-sxm-80", 16384, 8}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    const ls_cluster *cluster = read_cluster(known[i].text);
    assert_string_equal(cluster->accelerator->id, known[i].id);
    assert_int_equal(cluster->devices, known[i].devices);
    assert_int_equal(cluster->per_host, known[i].per_host);
  }
  const ls_cluster *h100 = read_cluster("64xH100-SXM");
  assert_true(h100->peer_bytes_per_s == 450e9 && h100->network->bytes_per_s == 50e9);
  assert_int_equal(h100->nics, 8);
  assert_true(h100->hour == 2.95 && strcmp(h100->currency, "USD") == 0);
  assert_int_equal(h100->assumed.count, 4);              /* hosts, network, memory, price */
  assert_int_equal(read_cluster("144xGB200")->nics, 72); /* one a device of a rack */
  const ls_cluster *pair = read_cluster("2xRTX4090");
  assert_false(pair->peer_access);
  assert_int_equal(pair->assumed.count, 2);
  ls_cluster *open = read_cluster("h100-sxm-80");
  assert_int_equal(open->assumed.count, 2); /* memory, price: one host */
  assert_int_equal(ls_cluster_resize(open, 64, NULL), LS_OK);
  assert_int_equal(open->assumed.count, 4);
  const ls_cluster *bridged = read_cluster("4xRTX3090");
  assert_int_equal(bridged->peer_devices, 2);
  assert_string_equal(bridged->beyond->id, "pcie4-x16-no-p2p");
}

/* What bench writes of a machine is read as it was. */
static void test_text(void **state) {
  (void)state;
  ls_cluster *made = read_cluster("4xRTX4090"), *again = read_cluster("4xRTX4090");
  made->host_cores = 16;
  made->reached = (ls_reached){150e12, 151e12, 70e12, 0.9e12, 24e9, 21e9};
  const char *text = ls_cluster_text(made, "made by hand");
  static const char begins[] = "# made by hand\naccelerator: rtx4090\ndevices: 4\nper_host: 4\n";
  assert_memory_equal(text, begins, sizeof begins - 1);
  assert_true(ls_cluster_take_reached(again, text));
  assert_memory_equal(&again->reached, &made->reached, sizeof made->reached);
  assert_false(ls_cluster_take_reached(again, "reached: {bf16_flops: 3}\n"));
  assert_false(ls_cluster_take_reached(again, "reached: {"));
  const char *path = "cluster-text.yaml";
  ls_error error = {0};
  assert_int_equal(ls_file_write(path, text, strlen(text), &error), LS_OK);
  const ls_cluster *file = read_cluster(path);
  assert_int_equal(unlink(path), 0);
  assert_string_equal(file->accelerator->id, "rtx4090");
  assert_true(file->devices == 4 && file->per_host == 4 && file->host_cores == 16);
  assert_false(file->peer_access);
  assert_memory_equal(&file->reached, &made->reached, sizeof made->reached);
}

static void test_refused_words(void **state) {
  (void)state;
  static const char *const wrong[][2] = {
      {"0xl40", "expected a count and an accelerator"},
      {"-3xl4", "no such accelerator"},
      {"99999999999999999999xl4", "expected a count and an accelerator"},
      {"8x", "expected a count and an accelerator"},
      {"8xl4:0", "expected a count and an accelerator"},
      {"8xl4:x", "expected a count and an accelerator"},
      {"", "expected a count and an accelerator"},
      {"12xH100-SXM", "no whole number of hosts of 8; expected 8 or 16"},
      {"nosuch.yaml", "nosuch.yaml"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    ls_cluster *cluster;
    ls_error error = {0};
    assert_true(ls_cluster_read(catalog, wrong[i][0], &cluster, &error) != LS_OK);
    if (!strstr(error.text, wrong[i][1])) fail_msg("%s: %s", wrong[i][0], error.text);
  }
}

static ls_status read_text(const char *text, ls_cluster **cluster, ls_error *error) {
  char path[] = "cluster_XXXXXX.yaml";
  const int file = mkstemps(path, 5);
  assert_true(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text));
  assert_int_equal(close(file), 0);
  const ls_status status = ls_cluster_read(catalog, path, cluster, error);
  assert_int_equal(unlink(path), 0);
  return status;
}

static void test_files(void **state) {
  (void)state;
  ls_cluster *cluster;
  ls_error error = {0};
  if (read_text("accelerator: a100-sxm-80\ndevices: 32\nper_host: 4\n"
                "peer: {gb_per_s: 200, access: false}\n"
                "network: {link: roce-100, nics: 2, oversubscription: 3, rails: true}\n"
                "host: {memory_gib: 512, cores: 64, gb_per_s: 20}\n"
                "drive: {read_gb_per_s: 3}\nprice: {hour: 1.5, currency: EUR}\n",
                &cluster, &error) != LS_OK)
    fail_msg("%s", error.text);
  assert_int_equal(cluster->per_host, 4);
  assert_int_equal(cluster->nics, 2);
  assert_true(cluster->peer_bytes_per_s == 200e9 && !cluster->peer_access);
  assert_true(cluster->rails);
  assert_true(cluster->oversubscription == 3 && cluster->host_bytes_per_s == 20e9);
  assert_true(cluster->drive_read_per_s == 3e9 && cluster->drive_write_per_s == 0);
  assert_true(cluster->hour == 1.5 && strcmp(cluster->currency, "EUR") == 0);
  assert_int_equal(cluster->assumed.count, 0);

  static const char *const wrong[][2] = {
      {"devices: 8\n", "accelerator is not given"},
      {"accelerator: l4\nper_hosts: 8\n", ":2: per_hosts: no such key; the nearest is per_host"},
      {"accelerator: l4\ndevices: 0\n", "found 0; expected a whole number of 1 or more"},
      {"accelerator: l4\nnetwork: {link: tin-cans}\n",
       ":2: network.link: found tin-cans; expected a link that"},
      {"accelerator: l4\nnetwork: {oversubscription: 0.5}\n",
       ":2: network.oversubscription: found 0.5; expected 1, where all hosts may send"},
      {"accelerator: l4\npeer: {link: string}\n", ":2: peer.link: found string; expected a link"},
      {"devices: 2\naccelerator: l5\n", ":2: accelerator: l5: no such accelerator; the nearest"},
      {"accelerator: l4\nprice: {region: mars}\n",
       ":2: price.region: l4: it has no price of region mars; expected typical, lowest"},
      {"accelerator: l4\ndevices: 99999999999\n", "at most"},
      {"- l4\n", "expected keys and values"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    error = (ls_error){0};
    assert_int_equal(read_text(wrong[i][0], &cluster, &error), LS_INPUT);
    if (!strstr(error.text, wrong[i][1])) fail_msg("%s: %s", wrong[i][0], error.text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_words),
                                     cmocka_unit_test(test_refused_words),
                                     cmocka_unit_test(test_files), cmocka_unit_test(test_text)};
  return cmocka_run_group_tests(tests, open_catalog, close_catalog);
}
