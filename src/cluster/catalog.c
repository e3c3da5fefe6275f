#include "cluster/catalog.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "text/distance.h"
#include "text/fields.h"

extern const unsigned char ls_catalog_yaml[];
extern const size_t ls_catalog_yaml_bytes;

#define GIGA 1e9
#define TERA 1e12
#define MIB 1048576.0
#define GIB 1073741824.0

static const ls_field link_fields[] = {
    LS_FIELD(ls_link, "name", TEXT, name, 1),
    LS_FIELD(ls_link, "between", TEXT, between, 1),
    LS_FIELD(ls_link, "gb_per_s", NUMBER, bytes_per_s, GIGA),
    LS_FIELD(ls_link, "nics", COUNT, nics, 1),
    LS_FIELD(ls_link, "latency_us", NUMBER, latency_s, 1e-6),
    LS_FIELD(ls_link, "busbw_gb_per_s", NUMBER, reduced_per_s, GIGA),
    LS_FIELD(ls_link, "source", TEXT, source, 1),
    LS_FIELD(ls_link, "notes", TEXT, notes, 1),
};

static const ls_field price_fields[] = {
    LS_FIELD(ls_price, "region", TEXT, region, 1),     LS_FIELD(ls_price, "hour", NUMBER, hour, 1),
    LS_FIELD(ls_price, "currency", TEXT, currency, 1), LS_FIELD(ls_price, "date", TEXT, date, 1),
    LS_FIELD(ls_price, "source", TEXT, source, 1),
};

#define OF(key, kind, member, unit) LS_FIELD(ls_accelerator, key, kind, member, unit)
#define FLOPS(suffix, name) OF("tflops." name, NUMBER, flops_per_s[LS_CATALOG_##suffix], TERA),

static const ls_field accelerator_fields[] = {
    OF("name", TEXT, name, 1),
    OF("also", TEXT, also, 1),
    OF("cuda", COUNT, architecture, 1),
    OF("memory.mib", COUNT, memory_mib, 1),
    OF("memory.reported", BOOL, reported, 1),
    OF("memory.gb_per_s", NUMBER, memory_bytes_per_s, GIGA),
    OF("processors", COUNT, processors, 1),
    OF("l2_mib", NUMBER, l2_bytes, MIB),
    LS_CATALOG_FORMATS(FLOPS) OF("reached.bf16", NUMBER, reached_per_s, TERA),
    OF("reached.source", TEXT, reached_source, 1),
    OF("host.link", TEXT, host_link, 1),
    OF("host.gb_per_s", NUMBER, host_bytes_per_s, GIGA),
    OF("peer.link", TEXT, peer, 1),
    OF("peer.gb_per_s", NUMBER, peer_bytes_per_s, GIGA),
    OF("peer.devices", COUNT, peer_devices, 1),
    OF("peer.beyond", TEXT, peer_beyond, 1),
    OF("peer.access", BOOL, peer_access, 1),
    OF("hosts.devices", COUNT, host_devices, 1),
    OF("hosts.network", TEXT, network, 1),
    OF("hosts.nics", COUNT, host_nics, 1),
    OF("hosts.memory_gib", NUMBER, host_memory_bytes, GIB),
    OF("watts", NUMBER, watts, 1),
    OF("buy", NUMBER, buy, 1),
    {.key = "prices", .kind = LS_FIELD_OTHER},
    OF("price_source", TEXT, price_source, 1),
    OF("source", TEXT, source, 1),
    OF("confidence", TEXT, confidence, 1),
    OF("notes", TEXT, notes, 1),
};

/* A price replaces one of the same region. */
static ls_status read_prices(ls_catalog *catalog, const ls_yaml *list, ls_accelerator *row,
                             ls_error *error) {
  if (!list) return LS_OK;
  if (list->kind != LS_YAML_SEQUENCE)
    return ls_yaml_fail(list, "a list, as [{region: typical, hour: 2.5}]", error);
  for (int i = 0; i < list->items.count; i++) {
    ls_price price = {0};
    LS_TRY(
        ls_fields_read(list->items.items[i], price_fields, LS_FIELDS(price_fields), &price, error));
    if (!price.region || !(price.hour > 0))
      return ls_yaml_fail(list->items.items[i], "a region and what an hour costs there", error);
    int at = 0;
    while (at < row->prices.count && strcasecmp(row->prices.items[at].region, price.region) != 0)
      at++;
    if (at == row->prices.count) (void)LS_APPEND(catalog->arena, &row->prices);
    row->prices.items[at] = price;
  }
  return LS_OK;
}

static ls_accelerator *accelerator_of(ls_catalog *catalog, const char *id) {
  for (int i = 0; i < catalog->accelerators.count; i++)
    if (strcasecmp(catalog->accelerators.items[i]->id, id) == 0)
      return catalog->accelerators.items[i];
  ls_accelerator *made = LS_NEW(catalog->arena, ls_accelerator);
  made->id = made->name = id;
  return *LS_APPEND(catalog->arena, &catalog->accelerators) = made;
}

static ls_status read_accelerators(ls_catalog *catalog, const ls_yaml *rows, ls_error *error) {
  for (int i = 0; i < rows->items.count; i++) {
    const ls_yaml *node = rows->items.items[i];
    ls_accelerator *row = accelerator_of(catalog, node->key);
    LS_TRY(ls_fields_read(node, accelerator_fields, LS_FIELDS(accelerator_fields), row, error));
    LS_TRY(read_prices(catalog, ls_yaml_get(node, "prices"), row, error));
    if (!row->memory_mib)
      return ls_fail(error, LS_INPUT, "%s:%d: %s: memory.mib is not given", node->file,
                     node->key_line, node->path);
    const char *const links[] = {row->host_link, row->peer, row->peer_beyond, row->network};
    for (size_t l = 0; l < sizeof links / sizeof *links; l++)
      if (links[l] && !ls_catalog_link(catalog, links[l]))
        return ls_fail(error, LS_INPUT,
                       "%s:%d: %s: there is no link %s; `lockstep machines links` "
                       "lists them",
                       node->file, node->key_line, node->path, links[l]);
  }
  return LS_OK;
}

static ls_status read_links(ls_catalog *catalog, const ls_yaml *rows, ls_error *error) {
  for (int i = 0; i < rows->items.count; i++) {
    const ls_yaml *node = rows->items.items[i];
    ls_link *row = (ls_link *)ls_catalog_link(catalog, node->key);
    if (!row) {
      row = *LS_APPEND(catalog->arena, &catalog->links) = LS_NEW(catalog->arena, ls_link);
      *row = (ls_link){.id = node->key, .name = node->key, .between = "devices", .nics = 1};
    }
    LS_TRY(ls_fields_read(node, link_fields, LS_FIELDS(link_fields), row, error));
    if (strcmp(row->between, "devices") != 0 && strcmp(row->between, "hosts") != 0)
      return ls_yaml_fail(ls_yaml_get(node, "between"), "devices or hosts", error);
    if (!(row->bytes_per_s > 0))
      return ls_fail(error, LS_INPUT, "%s:%d: %s: gb_per_s is not given", node->file,
                     node->key_line, node->path);
  }
  return LS_OK;
}

static ls_status read_tree(ls_catalog *catalog, const ls_yaml *root, ls_error *error) {
  static const ls_field sections[] = {{.key = "links"}, {.key = "accelerators"}};
  if (root->kind != LS_YAML_MAPPING)
    return ls_yaml_fail(root, "the sections links and accelerators", error);
  for (int i = 0; i < root->items.count; i++) {
    const ls_yaml *node = root->items.items[i];
    if (strcmp(node->key, "links") != 0 && strcmp(node->key, "accelerators") != 0)
      return ls_fields_refuse(node, node->key, sections, 2, error);
    if (node->kind != LS_YAML_MAPPING) return ls_yaml_fail(node, "rows, each with its id", error);
  }
  const ls_yaml *links = ls_yaml_get(root, "links"), *rows = ls_yaml_get(root, "accelerators");
  if (links) LS_TRY(read_links(catalog, links, error));
  return rows ? read_accelerators(catalog, rows, error) : LS_OK;
}

ls_status ls_catalog_read(ls_arena *arena, const char *own, ls_catalog **catalog, ls_error *error) {
  *catalog = LS_NEW(arena, ls_catalog);
  (*catalog)->arena = arena;
  (*catalog)->own = own;
  ls_yaml *root;
  LS_TRY(ls_yaml_parse(arena, "catalog.yaml", (const char *)ls_catalog_yaml, ls_catalog_yaml_bytes,
                       &root, error));
  LS_TRY(read_tree(*catalog, root, error));
  if (!own) return LS_OK;
  LS_TRY(ls_yaml_read(arena, own, &root, error));
  return read_tree(*catalog, root, error);
}

ls_status ls_catalog_open(ls_arena *arena, ls_catalog **catalog, ls_error *error) {
  const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
  const char *own = NULL;
  if (config && *config)
    own = ls_arena_printf(arena, "%s/lockstep/machines.yaml", config);
  else if (home && *home)
    own = ls_arena_printf(arena, "%s/.config/lockstep/machines.yaml", home);
  if (own && access(own, F_OK) != 0) own = NULL;
  return ls_catalog_read(arena, own, catalog, error);
}

const ls_link *ls_catalog_link(const ls_catalog *catalog, const char *id) {
  for (int i = 0; id && i < catalog->links.count; i++)
    if (strcasecmp(catalog->links.items[i]->id, id) == 0) return catalog->links.items[i];
  return NULL;
}

const char *ls_catalog_format_name(ls_catalog_format format) {
#define LS_CATALOG_NAME(suffix, name) name,
  static const char *const names[] = {LS_CATALOG_FORMATS(LS_CATALOG_NAME)};
#undef LS_CATALOG_NAME
  return names[format];
}

/* Whether an id is this word, or goes on after it with another part. */
static bool begins_with(const char *id, const char *word) {
  const size_t length = strlen(word);
  return strncasecmp(id, word, length) == 0 && (!id[length] || id[length] == '-');
}

/* "a100-pcie-40, a100-sxm-40, ...": those that begin with the word. */
static const char *list_beginning(const ls_catalog *catalog, const char *word) {
  const char *text = "";
  for (int i = 0; i < catalog->accelerators.count; i++) {
    const char *id = catalog->accelerators.items[i]->id;
    if (begins_with(id, word))
      text = ls_arena_printf(catalog->arena, "%s%s%s", text, *text ? ", " : "", id);
  }
  return text;
}

/* Letters and digits alone: where the dashes are is what is often mistaken. */
static char *squeezed(ls_arena *arena, const char *text) {
  char *made = ls_arena_strdup(arena, text), *to = made;
  for (const char *at = text; *at; at++)
    if (isalnum((unsigned char)*at)) *to++ = *at;
  *to = 0;
  return made;
}

/* The three ids that a mistyped one is nearest to. */
static const char *list_nearest(const ls_catalog *catalog, const char *mistyped) {
  const char *word = squeezed(catalog->arena, mistyped);
  const int known = catalog->accelerators.count, length = (int)strlen(word);
  bool *named = LS_NEW_ARRAY(catalog->arena, bool, known);
  const char *text = "";
  for (int n = 0; n < 3 && n < known; n++) {
    int least = -1, best = 0;
    for (int i = 0; i < known; i++) {
      if (named[i]) continue;
      const char *start =
          ls_arena_printf(catalog->arena, "%.*s", length > 3 ? length : 3,
                          squeezed(catalog->arena, catalog->accelerators.items[i]->id));
      const int distance = ls_distance(word, start);
      if (least >= 0 && distance >= least) continue;
      least = distance;
      best = i;
    }
    named[best] = true;
    text = ls_arena_printf(catalog->arena, "%s%s%s", text, n ? ", " : "",
                           catalog->accelerators.items[best]->id);
  }
  return text;
}

ls_status ls_catalog_find(const ls_catalog *catalog, const char *word, const ls_accelerator **found,
                          ls_error *error) {
  int matches = 0;
  for (int i = 0; i < catalog->accelerators.count; i++) {
    const ls_accelerator *each = catalog->accelerators.items[i];
    const bool named =
        strcasecmp(each->id, word) == 0 || (each->also && strcasecmp(each->also, word) == 0);
    if (!named && !begins_with(each->id, word)) continue;
    matches++;
    *found = each;
    if (named) return LS_OK;
  }
  if (matches == 1) return LS_OK;
  if (matches)
    return ls_fail(error, LS_INPUT, "%s: found several; expected one of %s", word,
                   list_beginning(catalog, word));
  return ls_fail(error, LS_INPUT, "%s: no such accelerator; the nearest are %s", word,
                 list_nearest(catalog, word));
}

/* Words of `name` that are in `text`. */
static int words_in(const char *name, const char *text) {
  int found = 0;
  for (size_t length; *name; name += length + (name[length] != 0)) {
    length = strcspn(name, " ");
    char word[32];
    if (length == 0 || length >= sizeof word) continue;
    memcpy(word, name, length);
    word[length] = 0;
    found += strcasestr(text, word) != NULL;
  }
  return found;
}

const ls_accelerator *ls_catalog_like(const ls_catalog *catalog, const ls_accelerator *reported) {
  const ls_accelerator *found = NULL;
  int most = -1;
  for (int i = 0; i < catalog->accelerators.count; i++) {
    const ls_accelerator *each = catalog->accelerators.items[i];
    const int64_t apart = llabs(each->memory_mib - reported->memory_mib);
    if (each->architecture != reported->architecture || each->processors != reported->processors ||
        100 * apart > 3 * reported->memory_mib)
      continue;
    const int words = words_in(each->name, reported->name);
    const bool faster =
        found && each->flops_per_s[LS_CATALOG_BF16] > found->flops_per_s[LS_CATALOG_BF16];
    if (words < most || (words == most && !faster)) continue;
    most = words;
    found = each;
  }
  return found;
}
