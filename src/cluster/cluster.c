#include "cluster/cluster.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "text/fields.h"

enum { MOST_DEVICES = 1 << 24 };

/* What a cluster's file may say. */
typedef struct cluster_file {
  const char *accelerator, *peer, *network, *region, *currency;
  int64_t devices, per_host, nics, cores;
  double peer_bytes_per_s, oversubscription, host_memory, host_rate, read, write, hour;
  bool access, rails;
  ls_reached reached;
} cluster_file;

#define OF(key, kind, member, unit) LS_FIELD(cluster_file, key, kind, member, unit)
static const ls_field file_fields[] = {
    OF("accelerator", TEXT, accelerator, 1),
    OF("devices", COUNT, devices, 1),
    OF("per_host", COUNT, per_host, 1),
    OF("peer.link", TEXT, peer, 1),
    OF("peer.gb_per_s", NUMBER, peer_bytes_per_s, 1e9),
    OF("peer.access", BOOL, access, 1),
    OF("network.link", TEXT, network, 1),
    OF("network.nics", COUNT, nics, 1),
    OF("network.oversubscription", NUMBER, oversubscription, 1),
    OF("network.rails", BOOL, rails, 1),
    OF("host.memory_gib", NUMBER, host_memory, 1073741824.0),
    OF("host.cores", COUNT, cores, 1),
    OF("host.gb_per_s", NUMBER, host_rate, 1e9),
    OF("drive.read_gb_per_s", NUMBER, read, 1e9),
    OF("drive.write_gb_per_s", NUMBER, write, 1e9),
    OF("price.hour", NUMBER, hour, 1),
    OF("price.region", TEXT, region, 1),
    OF("price.currency", TEXT, currency, 1),
    OF("reached.bf16_tflops", NUMBER, reached.bf16_flops, 1e12),
    OF("reached.fp16_tflops", NUMBER, reached.fp16_flops, 1e12),
    OF("reached.fp32_tflops", NUMBER, reached.fp32_flops, 1e12),
    OF("reached.memory_gb_per_s", NUMBER, reached.memory_bytes, 1e9),
    OF("reached.host_gb_per_s", NUMBER, reached.host_bytes, 1e9),
    OF("reached.peer_gb_per_s", NUMBER, reached.peer_bytes, 1e9),
};

static void assume(ls_cluster *cluster, const char *line) {
  *LS_APPEND(cluster->arena, &cluster->assumed) = line;
}

static const ls_price *price_of(const ls_accelerator *accelerator, const char *region) {
  for (int p = 0; p < accelerator->prices.count; p++)
    if (strcasecmp(accelerator->prices.items[p].region, region) == 0)
      return &accelerator->prices.items[p];
  return NULL;
}

static void take_price(ls_cluster *cluster, const ls_price *price) {
  cluster->hour = price->hour;
  cluster->region = price->region;
  cluster->currency = price->currency ? price->currency : "USD";
}

ls_status ls_cluster_price_in(ls_catalog *catalog, ls_cluster *cluster, const char *region,
                              ls_error *error) {
  const ls_accelerator *of = cluster->accelerator;
  const ls_price *price = price_of(of, region);
  if (price) {
    take_price(cluster, price);
    return LS_OK;
  }
  const char *known = "";
  for (int p = 0; p < of->prices.count; p++)
    known =
        ls_arena_printf(catalog->arena, "%s%s%s", known, p ? ", " : "", of->prices.items[p].region);
  return ls_fail(error, LS_INPUT, "%s: it has no price of region %s; expected %s", of->id, region,
                 *known ? known : "one in machines.yaml first");
}

/* What the catalog says of hosts of this accelerator. */
static void take_row(ls_catalog *catalog, ls_cluster *cluster) {
  const ls_accelerator *of = cluster->accelerator;
  cluster->per_host = of->host_devices ? (int)of->host_devices : 1;
  cluster->host_link = ls_catalog_link(catalog, of->host_link);
  cluster->host_bytes_per_s = of->host_bytes_per_s;
  if (!(cluster->host_bytes_per_s > 0) && cluster->host_link)
    cluster->host_bytes_per_s = cluster->host_link->bytes_per_s;
  cluster->peer = ls_catalog_link(catalog, of->peer);
  cluster->beyond = ls_catalog_link(catalog, of->peer_beyond);
  cluster->peer_bytes_per_s = of->peer_bytes_per_s;
  cluster->peer_devices = (int)of->peer_devices;
  cluster->peer_access = of->peer_access;
  cluster->network = ls_catalog_link(catalog, of->network);
  if (cluster->network)
    cluster->nics = (int)(of->host_nics ? of->host_nics : cluster->network->nics);
  cluster->oversubscription = 1;
  cluster->host_memory_bytes = of->host_memory_bytes;
  const ls_price *price = price_of(of, "typical");
  if (!price && of->prices.count) price = &of->prices.items[0];
  if (price) take_price(cluster, price);
}

/* Says which of the catalog's conventions an answer stands on. */
static void tell_assumed(ls_cluster *cluster) {
  const ls_accelerator *of = cluster->accelerator;
  ls_arena *arena = cluster->arena;
  const int hosts = cluster->devices > cluster->per_host ? cluster->devices / cluster->per_host : 1;
  cluster->assumed.count = 0;
  if (!cluster->said.per_host && hosts > 1)
    assume(cluster, ls_arena_printf(arena, "%d device%s a host", cluster->per_host,
                                    cluster->per_host == 1 ? "" : "s"));
  if (!cluster->said.network && hosts > 1 && cluster->network)
    assume(cluster, ls_arena_printf(arena, "hosts joined by %s", cluster->network->name));
  if (!cluster->said.host_memory && of->host_memory_bytes > 0)
    assume(cluster, ls_arena_printf(arena, "%.0f GiB of memory a host",
                                    of->host_memory_bytes / 1073741824.0));
  if (cluster->here && !(cluster->reached.bf16_flops > 0))
    assume(cluster, "rates of its data sheet, as lockstep bench has not measured this machine");
  if (!cluster->said.price && cluster->hour > 0)
    assume(cluster, ls_arena_printf(arena, "%.2f %s an hour for a device (%s price)", cluster->hour,
                                    cluster->currency, cluster->region));
  if (strcmp(of->confidence ? of->confidence : "high", "high") != 0)
    assume(cluster, ls_arena_printf(arena, "what is published of the %s is of %s confidence",
                                    of->name, of->confidence));
}

ls_status ls_cluster_resize(ls_cluster *cluster, int devices, ls_error *error) {
  if (devices < 1 || devices > MOST_DEVICES)
    return ls_fail(error, LS_INPUT, "%s: %d devices; expected 1 to %d", cluster->name, devices,
                   MOST_DEVICES);
  if (devices > cluster->per_host && devices % cluster->per_host != 0)
    return ls_fail(error, LS_INPUT,
                   "%s: %d devices are no whole number of hosts of %d; expected %d or %d, or "
                   "another count of a host, as in %dx%s:%d",
                   cluster->name, devices, cluster->per_host,
                   devices / cluster->per_host * cluster->per_host,
                   (devices / cluster->per_host + 1) * cluster->per_host, devices,
                   cluster->accelerator->id, devices % 2 ? 1 : 2);
  cluster->devices = devices;
  tell_assumed(cluster);
  return LS_OK;
}

/* The link that the file names under `group`. */
static ls_status link_named(const ls_catalog *catalog, const ls_yaml *root, const char *group,
                            const char *id, const ls_link **link, ls_error *error) {
  if (!id) return LS_OK;
  *link = ls_catalog_link(catalog, id);
  return *link ? LS_OK
               : ls_yaml_fail(ls_yaml_get(ls_yaml_get(root, group), "link"),
                              "a link that `lockstep machines links` lists", error);
}

/* The line and key before what is wrong with the value; no node: of words, which have none. */
static ls_status prefix_place(const ls_yaml *node, ls_error *error) {
  return node ? ls_error_prefix(error, "%s:%d: %s", node->file, node->line, node->path) : LS_INPUT;
}

/* What is said goes before the catalog. */
static ls_status take_said(ls_catalog *catalog, ls_cluster *cluster, const ls_yaml *root,
                           const cluster_file *said, ls_error *error) {
  LS_TRY(link_named(catalog, root, "peer", said->peer, &cluster->peer, error));
  if (said->peer) cluster->beyond = NULL, cluster->peer_devices = 0, cluster->peer_bytes_per_s = 0;
  if (said->peer_bytes_per_s > 0) cluster->peer_bytes_per_s = said->peer_bytes_per_s;
  if (!(cluster->peer_bytes_per_s > 0) && cluster->peer)
    cluster->peer_bytes_per_s = cluster->peer->bytes_per_s;
  cluster->peer_access = said->access;
  LS_TRY(link_named(catalog, root, "network", said->network, &cluster->network, error));
  if (said->network) cluster->nics = (int)cluster->network->nics;
  if (said->nics) cluster->nics = (int)said->nics;
  const ls_yaml *network = ls_yaml_get(root, "network");
  if (said->oversubscription && !(said->oversubscription >= 1))
    return ls_yaml_fail(ls_yaml_get(network, "oversubscription"),
                        "1, where all hosts may send at once, or more", error);
  if (said->oversubscription > 0) cluster->oversubscription = said->oversubscription;
  cluster->rails = said->rails;
  if (said->host_memory > 0) cluster->host_memory_bytes = said->host_memory;
  if (said->host_rate > 0) cluster->host_bytes_per_s = said->host_rate;
  cluster->host_cores = (int)said->cores;
  cluster->drive_read_per_s = said->read;
  cluster->drive_write_per_s = said->write;
  cluster->reached = said->reached;
  if (said->hour > 0)
    take_price(cluster, &(ls_price){.region = said->region ? said->region : "given",
                                    .hour = said->hour,
                                    .currency = said->currency});
  else if (said->region && ls_cluster_price_in(catalog, cluster, said->region, error) != LS_OK)
    return prefix_place(ls_yaml_get(ls_yaml_get(root, "price"), "region"), error);
  if (said->per_host) cluster->per_host = (int)said->per_host;
  if (said->devices && !said->per_host && said->devices < cluster->per_host)
    cluster->per_host = (int)said->devices;
  return said->devices ? ls_cluster_resize(cluster, (int)said->devices, error) : LS_OK;
}

/* A whole number up to MOST_DEVICES at *text, which then is behind it; 0: there is none. */
static int64_t read_count(const char **text) {
  if (!isdigit((unsigned char)**text)) return 0;
  char *end;
  const long value = strtol(*text, &end, 10);
  *text = end;
  return value > MOST_DEVICES ? 0 : value;
}

/* "64xH100-SXM:8" into what it says. */
static bool read_words(ls_catalog *catalog, const char *text, cluster_file *said) {
  const char *at = text;
  if (isdigit((unsigned char)*at)) {
    said->devices = read_count(&at);
    if (*at != 'x' && *at != 'X')
      at = text, said->devices = 0;
    else if (!said->devices)
      return false;
    else
      at++;
  }
  const char *colon = strchr(at, ':');
  if (colon) {
    const char *count = colon + 1;
    said->per_host = read_count(&count);
    if (!said->per_host || *count) return false;
  }
  said->accelerator = colon ? ls_arena_printf(catalog->arena, "%.*s", (int)(colon - at), at) : at;
  return *said->accelerator != 0;
}

static bool is_file(const char *text) {
  const char *dot = strrchr(text, '.');
  return dot && (strcasecmp(dot, ".yaml") == 0 || strcasecmp(dot, ".yml") == 0);
}

ls_status ls_cluster_read(ls_catalog *catalog, const char *text, ls_cluster **cluster,
                          ls_error *error) {
  cluster_file said = {0};
  *cluster = LS_NEW(catalog->arena, ls_cluster);
  (*cluster)->name = text;
  (*cluster)->arena = catalog->arena;
  ls_yaml *root = NULL;
  if (is_file(text)) {
    LS_TRY(ls_yaml_read(catalog->arena, text, &root, error));
    LS_TRY(ls_fields_read(root, file_fields, LS_FIELDS(file_fields), &said, error));
    if (!said.accelerator)
      return ls_fail(error, LS_INPUT,
                     "%s: accelerator is not given; `lockstep machines` lists "
                     "those there are",
                     text);
    if (said.devices > MOST_DEVICES || said.per_host > MOST_DEVICES)
      return ls_fail(error, LS_INPUT, "%s: expected at most %d devices", text, MOST_DEVICES);
  } else if (!read_words(catalog, text, &said)) {
    return ls_fail(error, LS_INPUT,
                   "%s: expected a count and an accelerator, as in 64xH100-SXM or 64xH100-SXM:8, "
                   "or a cluster's file, as in ours.yaml",
                   text);
  }
  if (ls_catalog_find(catalog, said.accelerator, &(*cluster)->accelerator, error) != LS_OK)
    return prefix_place(ls_yaml_get(root, "accelerator"), error);
  if (!ls_yaml_get(ls_yaml_get(root, "peer"), "access"))
    said.access = (*cluster)->accelerator->peer_access;
  take_row(catalog, *cluster);
  LS_TRY(take_said(catalog, *cluster, root, &said, error));
  (*cluster)->said.per_host = said.per_host > 0;
  (*cluster)->said.network = said.network != NULL;
  (*cluster)->said.host_memory = said.host_memory > 0;
  (*cluster)->said.price = said.hour > 0;
  tell_assumed(*cluster);
  return LS_OK;
}

static const char *key(const ls_cluster *cluster, const char *name, double value, double unit) {
  return value > 0 ? ls_arena_printf(cluster->arena, ", %s: %.6g", name, value / unit) : "";
}

const char *ls_cluster_text(const ls_cluster *cluster, const char *head) {
  ls_arena *arena = cluster->arena;
  const ls_reached *reached = &cluster->reached;
  const char *host = ls_arena_printf(
      arena, "%s%s", key(cluster, "memory_gib", cluster->host_memory_bytes, 1 << 30),
      key(cluster, "cores", cluster->host_cores, 1));
  const char *rates =
      ls_arena_printf(arena, "%s%s%s%s%s%s", key(cluster, "bf16_tflops", reached->bf16_flops, 1e12),
                      key(cluster, "fp16_tflops", reached->fp16_flops, 1e12),
                      key(cluster, "fp32_tflops", reached->fp32_flops, 1e12),
                      key(cluster, "memory_gb_per_s", reached->memory_bytes, 1e9),
                      key(cluster, "host_gb_per_s", reached->host_bytes, 1e9),
                      key(cluster, "peer_gb_per_s", reached->peer_bytes, 1e9));
  enum { COMMA = 2 };
  return ls_arena_printf(
      arena, "# %s\naccelerator: %s\ndevices: %d\nper_host: %d\n%s%s%s%s%s%s%s", head,
      cluster->accelerator->id, cluster->devices, cluster->per_host,
      cluster->devices > 1
          ? ls_arena_printf(arena, "peer: {access: %s}\n", cluster->peer_access ? "true" : "false")
          : "",
      *host ? "host: {" : "", *host ? host + COMMA : "", *host ? "}\n" : "",
      *rates ? "reached: {" : "", *rates ? rates + COMMA : "", *rates ? "}\n" : "");
}

bool ls_cluster_take_reached(ls_cluster *cluster, const char *text) {
  cluster_file said = {0};
  ls_yaml *root;
  ls_error unread;
  if (ls_yaml_parse(cluster->arena, "kept", text, strlen(text), &root, &unread) != LS_OK ||
      ls_fields_read(root, file_fields, LS_FIELDS(file_fields), &said, &unread) != LS_OK)
    return false;
  cluster->reached = said.reached;
  return true;
}
