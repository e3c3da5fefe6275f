/* The catalog: every row whole, names as people write them, and a user's file over it. */
#include "cluster/catalog.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/test_catalog.h"

static void test_rows(void **state) {
  (void)state;
  assert_int_equal(catalog->accelerators.count, 82);
  assert_int_equal(catalog->links.count, 66);
  int rates = 0, prices = 0;
  for (int i = 0; i < catalog->accelerators.count; i++) {
    const ls_accelerator *a = catalog->accelerators.items[i];
    assert_true(a->memory_mib >= 8192 && a->memory_mib < 1 << 20 && a->source && a->name[0]);
    for (int j = 0; j < i; j++)
      assert_true(strcasecmp(a->id, catalog->accelerators.items[j]->id) != 0);
    rates += a->flops_per_s[LS_CATALOG_BF16] > 0 && a->memory_bytes_per_s > 0;
    prices += a->prices.count > 0;
    /* What no device reaches would be a slip of units. */
    assert_true(a->memory_bytes_per_s == 0 ||
                (a->memory_bytes_per_s > 1e11 && a->memory_bytes_per_s < 3e13));
    assert_true(a->flops_per_s[LS_CATALOG_BF16] < 2e16);
    for (int p = 0; p < a->prices.count; p++)
      assert_true(a->prices.items[p].date && a->prices.items[p].source);
    const double reached = a->reached_per_s / a->flops_per_s[LS_CATALOG_BF16];
    assert_true(!a->reached_per_s || (a->reached_source && reached > 0.4 && reached < 1.2));
  }
  assert_int_equal(rates, 71);
  assert_int_equal(prices, 50);
  for (int i = 0; i < catalog->links.count; i++) {
    const ls_link *l = catalog->links.items[i];
    assert_true(l->bytes_per_s > 1e8 && l->bytes_per_s < 2e12 && l->source && l->nics >= 1);
    assert_true(l->latency_s < 1e-3);
  }
}

static void test_names(void **state) {
  (void)state;
  static const struct {
    const char *word, *id;
    int architecture, memory_mib;
  } known[] = {
      {"H100-SXM", "h100-sxm-80", 90, 81559},
      {"h200-sxm-141", "h200-sxm-141", 90, 143771},
      {"A100-SXM-80", "a100-sxm-80", 80, 81920}, /* cuDNN's description of it has the H200's */
      {"A100-80", "a100-sxm-80", 80, 81920},     /* as people say of it, and not of PCIe cards */
      {"RTX4090", "rtx4090", 89, 24564},
      {"GB200", "gb200-186", 100, 190464},
      {"l40", "l40", 89, 46068}, /* and l40s is another */
      {"rtx5090", "rtx5090", 120, 32607},
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    const ls_accelerator *found = NULL;
    ls_error error = {0};
    if (ls_catalog_find(catalog, known[i].word, &found, &error) != LS_OK)
      fail_msg("%s: %s", known[i].word, error.text);
    assert_string_equal(found->id, known[i].id);
    assert_int_equal(found->architecture, known[i].architecture);
    assert_int_equal(found->memory_mib, known[i].memory_mib);
  }
}

static void test_refusals(void **state) {
  (void)state;
  static const struct {
    const char *word, *says;
  } wrong[] = {
      {"A100", "one of a100-pcie-40, a100-sxm-40, a100-pcie-80, a100-sxm-80"},
      {"H1000", "the nearest are h100-pcie-80, h100-sxm-80, h100-nvl-94"},
      {"H100SXM", "the nearest are h100-sxm-80, "},
      {"rtx-4090", "the nearest are rtx4090, "},
      {"h", "no such accelerator"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    const ls_accelerator *found;
    ls_error error = {0};
    assert_int_equal(ls_catalog_find(catalog, wrong[i].word, &found, &error), LS_INPUT);
    if (!strstr(error.text, wrong[i].says)) fail_msg("%s: %s", wrong[i].word, error.text);
  }
}

/* Reads a user's file with this text over the catalog. */
static ls_status read_own(const char *text, ls_catalog **made, ls_error *error) {
  char path[] = "/tmp/machines_XXXXXX.yaml";
  const int file = mkstemps(path, 5);
  assert_true(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text));
  assert_int_equal(close(file), 0);
  const ls_status status = ls_catalog_read(arena, path, made, error);
  assert_int_equal(unlink(path), 0);
  return status;
}

static void test_own_rows(void **state) {
  (void)state;
  ls_catalog *own;
  ls_error error = {0};
  if (read_own("links: {ours: {gb_per_s: 12.5, between: hosts}}\n"
               "accelerators:\n"
               "  h100-sxm-80: {prices: [{region: typical, hour: 2}, {region: eu, hour: 1.8, "
               "currency: EUR, date: 2026-11-01}], hosts: {network: ours}}\n"
               "  chip: {memory: {mib: 1000, gb_per_s: 100}, tflops: {bf16: 10}}\n",
               &own, &error) != LS_OK)
    fail_msg("%s", error.text);
  const ls_accelerator *h100, *chip;
  assert_int_equal(ls_catalog_find(own, "h100-sxm-80", &h100, &error), LS_OK);
  assert_int_equal(ls_catalog_find(own, "chip", &chip, &error), LS_OK);
  const ls_price *typical = &h100->prices.items[0];
  assert_int_equal(h100->prices.count, 9);
  assert_true(typical->hour == 2 && !typical->date); /* not the catalog's, of another price */
  assert_true(h100->prices.items[8].hour == 1.8);
  assert_string_equal(h100->network, "ours");
  assert_int_equal(h100->memory_mib, 81559); /* what it does not name stays */
  assert_true(ls_catalog_link(own, "ours")->bytes_per_s == 12.5e9);
  assert_true(chip->flops_per_s[LS_CATALOG_BF16] == 10e12);
  assert_int_equal(own->accelerators.count, 83);
}

static void test_own_refusals(void **state) {
  (void)state;
  static const struct {
    const char *text, *says;
  } wrong[] = {
      {"accelerator: {}\n", ":1: accelerator: no such key; the nearest is accelerators"},
      {"accelerators:\n  chip: {tflops: {bf16: 10}}\n", ":2: accelerators.chip: memory.mib is not"},
      {"accelerators:\n  l4:\n    tflops: {bf61: 10}\n",
       ":3: accelerators.l4.tflops.bf61: no such"},
      {"accelerators:\n  l4: {watts: -1}\n", "found -1; expected a number of 0 or more"},
      {"accelerators:\n  l4: {peer: {link: string}}\n", "there is no link string"},
      {"accelerators:\n  l4: {prices: [{hour: 1}]}\n", "a region and what an hour costs there"},
      {"links: {ours: {gb_per_s: 1, between: rooms}}\n", "found rooms; expected devices or hosts"},
      {"links: {ours: {nics: 1}}\n", "gb_per_s is not given"},
      {"links: 3\n", "expected rows"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    ls_catalog *own;
    ls_error error = {0};
    assert_int_equal(read_own(wrong[i].text, &own, &error), LS_INPUT);
    if (!strstr(error.text, wrong[i].says)) fail_msg("%s: %s", wrong[i].text, error.text);
  }
}

/* As drivers name them (nvidia-smi -L), with the memory that they report. */
static void test_like_a_drivers(void **state) {
  (void)state;
  static const struct {
    ls_accelerator reported;
    const char *id;
  } cases[] = {
      {{.name = "NVIDIA H200", .architecture = 90, .processors = 132, .memory_mib = 143771},
       "h200-sxm-141"},
      {{.name = "NVIDIA H200 NVL", .architecture = 90, .processors = 132, .memory_mib = 143771},
       "h200-nvl-141"},
      {{.name = "NVIDIA H100 80GB HBM3",
        .architecture = 90,
        .processors = 132,
        .memory_mib = 81559},
       "h100-sxm-80"},
      {{.name = "NVIDIA A100-SXM4-80GB",
        .architecture = 80,
        .processors = 108,
        .memory_mib = 81920},
       "a100-sxm-80"},
      {{.name = "NVIDIA GeForce RTX 4090",
        .architecture = 89,
        .processors = 128,
        .memory_mib = 24564},
       "rtx4090"},
      {{.name = "Stand-in GPU", .architecture = 90, .processors = 7, .memory_mib = 81559}, NULL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const ls_accelerator *found = ls_catalog_like(catalog, &cases[i].reported);
    const char *id = found ? found->id : "none";
    if (strcmp(id, cases[i].id ? cases[i].id : "none") != 0)
      fail_msg("%s: found %s", cases[i].reported.name, id);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rows),     cmocka_unit_test(test_names),
      cmocka_unit_test(test_refusals), cmocka_unit_test(test_like_a_drivers),
      cmocka_unit_test(test_own_rows), cmocka_unit_test(test_own_refusals)};
  return cmocka_run_group_tests(tests, open_catalog, close_catalog);
}
