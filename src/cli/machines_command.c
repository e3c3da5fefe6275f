#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/bench.h"
#include "cli/command.h"
#include "cli/hardware.h"
#include "cluster/cluster.h"
#include "device/facts.h"
#include "device/gpus.h"

static const char help[] =
    "usage: lockstep machines [WORD] [--json]\n"
    "       lockstep machines NAME | COUNTxNAME[:PER_HOST] | FILE.yaml [--json]\n"
    "       lockstep machines links [WORD] [--json]\n"
    "       lockstep machines here [--json]\n\n"
    "The accelerators and links that --on can name, with where each figure comes from. Without a\n"
    "word, all; with one, those whose id has it; a whole id, or a cluster, in full. here is this\n"
    "machine, as lockstep bench measured it: its GPUs, where runs take these, else the "
    "processor's\n"
    "rates, how old they are, and what plan --learn corrected.\n\n"
    "  --json  for programs\n"
    "  --help  this text\n\n"
    "Rows of your own, and prices, go in ~/.config/lockstep/machines.yaml ($XDG_CONFIG_HOME). It\n"
    "has the form of the built-in catalog; what a row does not name stays as it is there:\n\n"
    "    accelerators:\n"
    "      h100-sxm-80:\n"
    "        prices: [{region: eu-north, hour: 2.10, currency: EUR, date: 2026-11-20}]\n"
    "      our-chip: {memory: {mib: 65536, gb_per_s: 2000}, tflops: {bf16: 400}}\n"
    "    links:\n"
    "      our-fabric: {between: hosts, gb_per_s: 25, nics: 4, latency_us: 3}\n\n"
    "A cluster that COUNTxNAME cannot say is a file, as in --on ours.yaml:\n\n" LS_CLUSTER_HELP
    "\nexamples:\n"
    "  lockstep machines\n"
    "  lockstep machines rtx\n"
    "  lockstep machines h100-sxm-80\n"
    "  lockstep machines 64xH100-SXM:8\n"
    "  lockstep machines links nvlink\n"
    "  lockstep machines here\n";

static bool has_word(const char *id, const char *word) {
  return !word || strcasestr(id, word) != NULL;
}

/* "989.5", or "-" where it is not known. */
static const char *figure(ls_arena *arena, double value, double unit) {
  return value > 0 ? ls_arena_printf(arena, "%.5g", value / unit) : "-";
}

static double typical_hour(const ls_accelerator *a) {
  return a->prices.count ? a->prices.items[0].hour : 0;
}

/* Of bf16, or of fp16 where there is none. */
static double half_rate(const ls_accelerator *a) {
  const double *flops = a->flops_per_s;
  return flops[LS_CATALOG_BF16] > 0 ? flops[LS_CATALOG_BF16] : flops[LS_CATALOG_FP16];
}

static double peer_rate(const ls_catalog *catalog, const ls_accelerator *a) {
  const ls_link *link = ls_catalog_link(catalog, a->peer);
  return a->peer_bytes_per_s > 0 ? a->peer_bytes_per_s : link ? link->bytes_per_s : 0;
}

static int list_accelerators(const ls_catalog *catalog, const char *word) {
  ls_arena *arena = catalog->arena;
  int listed = 0;
  for (int i = 0; i < catalog->accelerators.count; i++) {
    const ls_accelerator *a = catalog->accelerators.items[i];
    if (!has_word(a->id, word)) continue;
    if (!listed++)
      printf("%-15s %9s %8s %9s %9s %8s %6s %7s\n", "", "memory", "GB/s", "16 bits", "fp8", "peer",
             "", "USD an");
    if (listed == 1)
      printf("%-15s %9s %8s %9s %9s %8s %6s %7s\n", "accelerator", "GiB", "", "TFLOP/s", "TFLOP/s",
             "GB/s", "watts", "hour");
    printf("%-15s %9.1f %8s %9s %9s %8s %6s %7s\n", a->id, (double)a->memory_mib / 1024,
           figure(arena, a->memory_bytes_per_s, 1e9), figure(arena, half_rate(a), 1e12),
           figure(arena, a->flops_per_s[LS_CATALOG_FP8], 1e12),
           figure(arena, peer_rate(catalog, a), 1e9), figure(arena, a->watts, 1),
           figure(arena, typical_hour(a), 1));
  }
  return listed;
}

static int list_links(const ls_catalog *catalog, const char *word) {
  ls_arena *arena = catalog->arena;
  int listed = 0;
  for (int i = 0; i < catalog->links.count; i++) {
    const ls_link *l = catalog->links.items[i];
    if (!has_word(l->id, word)) continue;
    if (!listed++)
      printf("%-22s %-8s %8s %5s %8s %10s  %s\n", "link", "between", "GB/s", "NICs", "us",
             "all-reduce", "what");
    printf("%-22s %-8s %8s %5d %8s %10s  %s\n", l->id, l->between,
           figure(arena, l->bytes_per_s, 1e9), (int)l->nics, figure(arena, l->latency_s, 1e-6),
           figure(arena, l->reduced_per_s, 1e9), l->name);
  }
  return listed;
}

static void print_line(const char *what, const char *value, const char *source) {
  if (strcmp(value, "-") != 0)
    printf("  %-26s %s%s%s\n", what, value, source ? "  " : "", source ? source : "");
}

static void print_link(const ls_catalog *catalog, const char *what, const char *id, double rate) {
  const ls_link *l = ls_catalog_link(catalog, id);
  if (!l) return;
  ls_arena *arena = catalog->arena;
  printf("  %-26s %s, %s GB/s each way", what, l->name,
         figure(arena, rate > 0 ? rate : l->bytes_per_s, 1e9));
  if (l->nics > 1) printf(" and NIC, %d NICs", (int)l->nics);
  if (l->latency_s > 0) printf(", %s us", figure(arena, l->latency_s, 1e-6));
  if (l->reduced_per_s > 0)
    printf("; all-reduce measured %s GB/s", figure(arena, l->reduced_per_s, 1e9));
  printf("\n  %-26s   %s\n", "", l->source);
}

static void print_prices(ls_arena *arena, const ls_accelerator *a) {
  for (int p = 0; p < a->prices.count; p++) {
    const ls_price *price = &a->prices.items[p];
    printf("  %-26s %.4g %s%s%s%s%s\n", ls_arena_printf(arena, "an hour, %s", price->region),
           price->hour, price->currency ? price->currency : "USD", price->date ? ", " : "",
           price->date ? price->date : "", price->source ? "  " : "",
           price->source ? price->source : "");
  }
  print_line("to buy, USD", figure(arena, a->buy, 1), NULL);
  if (a->price_source) printf("  %-26s   %s\n", "", a->price_source);
}

static void print_accelerator(const ls_catalog *catalog, const ls_accelerator *a) {
  ls_arena *arena = catalog->arena;
  printf("%s: %s\n", a->id, a->name);
  printf("  %-26s %.1f GiB %s\n", "memory", (double)a->memory_mib / 1024,
         a->reported ? "as its driver reports it" : "by its data sheet");
  print_line("memory, GB/s", figure(arena, a->memory_bytes_per_s, 1e9), NULL);
  for (int f = 0; f < LS_CATALOG_FORMAT_COUNT; f++)
    print_line(ls_arena_printf(arena, "%s, TFLOP/s", ls_catalog_format_name(f)),
               figure(arena, a->flops_per_s[f], 1e12), NULL);
  print_line("bf16 reached, TFLOP/s", figure(arena, a->reached_per_s, 1e12), a->reached_source);
  print_line("processors", figure(arena, (double)a->processors, 1), NULL);
  print_line("second-level cache, MiB", figure(arena, a->l2_bytes, 1048576), NULL);
  print_line("watts", figure(arena, a->watts, 1), NULL);
  if (a->source)
    printf("  %-26s   %s (data sheet; confidence: %s)\n", "", a->source,
           a->confidence ? a->confidence : "yours");
  print_link(catalog, "link to its host", a->host_link, a->host_bytes_per_s);
  print_link(catalog, "link to its peers", a->peer, a->peer_bytes_per_s);
  if (a->peer_devices > 1) printf("  %-26s   joins %d devices\n", "", (int)a->peer_devices);
  print_link(catalog, "and beyond those", a->peer_beyond, 0);
  if (a->peer)
    printf("  %-26s %s\n", "peer access", a->peer_access ? "yes" : "no: through the host");
  printf("  %-26s %d devices, %s GiB (assumed where --on does not say)\n", "host",
         (int)a->host_devices, figure(arena, a->host_memory_bytes, 1073741824.0));
  print_link(catalog, "network (assumed)", a->network, 0);
  print_prices(arena, a);
  ls_device_facts facts;
  printf("  %-26s %s\n", "can be compiled for", ls_device_facts_of(a, &facts) ? facts.set : "no");
  if (a->notes) printf("  %-26s %s\n", "notes", a->notes);
}

static void print_cluster(const ls_catalog *catalog, const ls_cluster *c) {
  printf("%s: %d devices on %d host%s of %d\n", c->name, c->devices,
         (c->devices + c->per_host - 1) / c->per_host, c->devices > c->per_host ? "s" : "",
         c->per_host);
  if (c->peer) print_link(catalog, "within a host", c->peer->id, c->peer_bytes_per_s);
  if (c->devices > c->per_host && c->network) {
    print_link(catalog, "between hosts", c->network->id, 0);
    printf("  %-26s %d, oversubscribed %g times%s\n", "NICs a host", c->nics, c->oversubscription,
           c->rails ? " but for rails" : "");
  }
  if (c->hour > 0)
    printf("  %-26s %.2f %s (%.4g for a device, %s)\n", "an hour of all", c->hour * c->devices,
           c->currency, c->hour, c->region);
  const ls_reached *reached = &c->reached;
  ls_arena *arena = c->arena;
  print_line("reached, bf16, TFLOP/s", figure(arena, reached->bf16_flops, 1e12), NULL);
  print_line("reached, fp16, TFLOP/s", figure(arena, reached->fp16_flops, 1e12), NULL);
  print_line("reached, fp32, TFLOP/s", figure(arena, reached->fp32_flops, 1e12), NULL);
  print_line("reached, memory, GB/s", figure(arena, reached->memory_bytes, 1e9), NULL);
  print_line("reached, host, GB/s", figure(arena, reached->host_bytes, 1e9), NULL);
  print_line("reached, peers, GB/s", figure(arena, reached->peer_bytes, 1e9), NULL);
  for (int i = 0; i < c->assumed.count; i++)
    print_line(i ? "" : "assumed", c->assumed.items[i], NULL);
  printf("\n");
}

static void set_text(json_t *row, const char *key, const char *text) {
  if (text) json_object_set_new(row, key, json_string(text));
}

static void set_number(json_t *row, const char *key, double value) {
  if (value > 0) json_object_set_new(row, key, json_real(value));
}

static json_t *accelerator_json(const ls_catalog *catalog, const ls_accelerator *a) {
  json_t *row = json_object(), *flops = json_object(), *prices = json_array();
  set_text(row, "id", a->id);
  set_text(row, "name", a->name);
  set_number(row, "memory_bytes", (double)a->memory_mib * 1048576);
  set_number(row, "memory_bytes_per_s", a->memory_bytes_per_s);
  for (int f = 0; f < LS_CATALOG_FORMAT_COUNT; f++)
    set_number(flops, ls_catalog_format_name(f), a->flops_per_s[f]);
  json_object_set_new(row, "flops_per_s", flops);
  set_number(row, "reached_per_s", a->reached_per_s);
  set_text(row, "peer_link", a->peer);
  set_number(row, "peer_bytes_per_s", peer_rate(catalog, a));
  set_text(row, "network", a->network);
  set_number(row, "watts", a->watts);
  for (int p = 0; p < a->prices.count; p++) {
    json_t *price = json_object();
    set_text(price, "region", a->prices.items[p].region);
    set_number(price, "hour", a->prices.items[p].hour);
    set_text(price, "currency", a->prices.items[p].currency ? a->prices.items[p].currency : "USD");
    set_text(price, "date", a->prices.items[p].date);
    json_array_append_new(prices, price);
  }
  json_object_set_new(row, "prices", prices);
  set_text(row, "price_source", a->price_source);
  set_text(row, "source", a->source);
  set_text(row, "confidence", a->confidence);
  set_text(row, "notes", a->notes);
  return row;
}

static json_t *link_json(const ls_link *l) {
  json_t *row = json_object();
  set_text(row, "id", l->id);
  set_text(row, "name", l->name);
  set_text(row, "between", l->between);
  set_number(row, "bytes_per_s", l->bytes_per_s);
  set_number(row, "nics", (double)l->nics);
  set_number(row, "latency_s", l->latency_s);
  set_number(row, "all_reduce_bytes_per_s", l->reduced_per_s);
  set_text(row, "source", l->source);
  set_text(row, "notes", l->notes);
  return row;
}

static void print_json(const ls_catalog *catalog, bool links, const char *word) {
  json_t *rows = json_array();
  for (int i = 0; links && i < catalog->links.count; i++)
    if (has_word(catalog->links.items[i]->id, word))
      json_array_append_new(rows, link_json(catalog->links.items[i]));
  for (int i = 0; !links && i < catalog->accelerators.count; i++)
    if (has_word(catalog->accelerators.items[i]->id, word))
      json_array_append_new(rows, accelerator_json(catalog, catalog->accelerators.items[i]));
  char *text = json_dumps(rows, JSON_INDENT(2));
  printf("%s\n", text ? text : "[]");
  free(text);
  json_decref(rows);
}

/* One in full: an id, or a cluster. */
static ls_status print_one(ls_catalog *catalog, const char *word, ls_error *error) {
  ls_cluster *cluster;
  LS_TRY(ls_cluster_read(catalog, word, &cluster, error));
  if (cluster->devices) print_cluster(catalog, cluster);
  print_accelerator(catalog, cluster->accelerator);
  return LS_OK;
}

static bool names_one(const ls_catalog *catalog, const char *word) {
  if (strpbrk(word, ":.")) return true;
  for (int i = 0; i < catalog->accelerators.count; i++)
    if (strcasecmp(catalog->accelerators.items[i]->id, word) == 0) return true;
  const size_t digits = strspn(word, "0123456789");
  return digits && (word[digits] == 'x' || word[digits] == 'X');
}

/* The GPUs of this machine, which runs take. */
static ls_status show_gpus(ls_arena *arena, ls_error *error) {
  ls_cluster *cluster;
  ls_catalog *catalog;
  LS_TRY(ls_catalog_open(arena, &catalog, error));
  LS_TRY(ls_hardware_gpus_here(arena, &cluster, error));
  print_cluster(catalog, cluster);
  print_accelerator(catalog, cluster->accelerator);
  return LS_OK;
}

/* This machine, whose rates are those that bench has kept; --json: of its processor. */
static ls_status show_here(ls_arena *arena, bool json, ls_error *error) {
  bool gpus = false;
  if (!json) (void)ls_gpus_choose(arena, LS_F32, &gpus);
  if (gpus) return show_gpus(arena, error);
  const ls_rates_key key = ls_measure_key(arena);
  const char *why;
  const ls_rates *rates = ls_rates_read(arena, &key, &why);
  if (!rates)
    return ls_fail(error, LS_REFUTED,
                   "nothing is kept of this machine: %s; lockstep bench "
                   "measures it",
                   why);
  if (json)
    fputs(ls_rates_text(arena, rates), stdout);
  else
    ls_bench_print(rates, stdout);
  return LS_OK;
}

static ls_status machines(ls_arena *arena, const ls_words *words, void *asked, ls_error *error) {
  const bool json = *(bool *)asked;
  if (words->key_count)
    return ls_fail(error, LS_INPUT, "%s: machines takes no keys of a run file", words->keys[0]);
  const bool links = words->positional_count && strcmp(words->positional[0], "links") == 0;
  if (words->positional_count > 1 + links)
    return ls_fail(error, LS_INPUT, "%s: expected one word", words->positional[1 + links]);
  const char *word = words->positional_count > links ? words->positional[links] : NULL;
  ls_catalog *catalog;
  if (word && !links && strcmp(word, "here") == 0) return show_here(arena, json, error);
  LS_TRY(ls_catalog_open(arena, &catalog, error));
  if (word && !links && !json && names_one(catalog, word)) return print_one(catalog, word, error);
  if (json) {
    print_json(catalog, links, word);
    return LS_OK;
  }
  const int listed = links ? list_links(catalog, word) : list_accelerators(catalog, word);
  const ls_accelerator *none;
  if (!listed && links)
    return ls_fail(error, LS_INPUT, "%s: no such link; `lockstep machines links` lists them", word);
  if (!listed) return ls_catalog_find(catalog, word, &none, error);
  if (!word)
    printf(
        "\nData sheets' figures, dense, with fp32 sums; prices as published (`lockstep machines "
        "NAME` has the sources).\n%s%s\n",
        catalog->own ? "With rows of " : "Rows and prices of your own: ",
        catalog->own ? catalog->own : "lockstep machines --help");
  return LS_OK;
}

int ls_command_machines(int count, char **words) {
  bool json = false;
  const ls_command_flag flags[] = {{"--json", NULL, &json}};
  return ls_command_run(
      &(ls_command){"machines", help, false, flags, sizeof flags / sizeof *flags, machines, &json},
      count, words);
}
