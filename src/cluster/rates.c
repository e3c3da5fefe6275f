#include "cluster/rates.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/random.h"
#include "text/json.h"

/* Of the file's form; another one is not read. */
enum { FORM = 1, DAY_S = 24 * 60 * 60, LARGE = 512 };

static const char *const ways[LS_MEMORY_WAYS] = {"read", "write", "copy", "triad"};

const char *ls_memory_way_name(ls_memory_way way) {
  return ways[way];
}

static const char *key_text(ls_arena *arena, const ls_rates_key *key) {
  return ls_arena_printf(arena, "%s; %d cores; %s; %s", key->processor, key->cores,
                         key->instructions, key->library);
}

/* By the XDG base directory specification a path that is not absolute is passed over. */
const char *ls_rates_folder(ls_arena *arena) {
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  if (cache && cache[0] == '/') return ls_arena_printf(arena, "%s/lockstep", cache);
  return home && *home ? ls_arena_printf(arena, "%s/.cache/lockstep", home) : NULL;
}

const char *ls_rates_path(ls_arena *arena, const ls_rates_key *key) {
  const char *folder = ls_rates_folder(arena);
  const uint64_t number = ls_random_stream(key_text(arena, key));
  return folder ? ls_arena_printf(arena, "%s/machine-%016" PRIx64 ".json", folder, number) : NULL;
}

static json_t *rate_json(ls_rate rate) {
  return json_pack("[f, f]", rate.best, rate.median);
}

static json_t *matmul_json(const ls_rates *rates) {
  json_t *list = json_array();
  for (int i = 0; i < rates->matmul.count; i++) {
    const ls_matmul_rate *each = &rates->matmul.items[i];
    json_array_append_new(
        list, json_pack("{s:s, s:b, s:i, s:[I, I, I], s:o}", "dtype", ls_dtype_name(each->dtype),
                        "native", (int)each->native, "threads", each->threads, "shape",
                        (json_int_t)each->rows, (json_int_t)each->columns, (json_int_t)each->depth,
                        "flops_per_s", rate_json(each->rate)));
  }
  return list;
}

static json_t *memory_json(const ls_rates *rates) {
  json_t *list = json_array();
  for (int i = 0; i < rates->memory.count; i++) {
    const ls_memory_rate *each = &rates->memory.items[i];
    json_array_append_new(list, json_pack("{s:s, s:i, s:o}", "way", ways[each->way], "threads",
                                          each->threads, "bytes_per_s", rate_json(each->rate)));
  }
  return list;
}

static json_t *reduce_json(const ls_rates *rates) {
  json_t *list = json_array();
  for (int i = 0; i < rates->reduce.count; i++) {
    const ls_reduce_rate *each = &rates->reduce.items[i];
    json_array_append_new(
        list, json_pack("{s:i, s:I, s:o}", "ranks", each->ranks, "bytes", (json_int_t)each->bytes,
                        "bytes_per_s", rate_json(each->rate)));
  }
  return list;
}

/* Everything but the checksum. */
static json_t *rates_json(const ls_rates *rates) {
  const ls_rates_key *key = &rates->key;
  json_t *root = json_pack("{s:i, s:s, s:i, s:s, s:s, s:I, s:f, s:o, s:I, s:o, s:o}", "form", FORM,
                           "processor", key->processor, "cores", key->cores, "instructions",
                           key->instructions, "library", key->library, "measured_s",
                           (json_int_t)rates->measured_s, "seconds", rates->seconds, "matmul",
                           matmul_json(rates), "memory_bytes", (json_int_t)rates->memory_bytes,
                           "memory", memory_json(rates), "all_reduce", reduce_json(rates));
  const ls_disk_rate *disk = &rates->disk;
  if (disk->folder)
    json_object_set_new(
        root, "disk",
        json_pack("{s:s, s:s, s:I, s:o, s:o}", "folder", disk->folder, "how", disk->how, "bytes",
                  (json_int_t)disk->bytes, "write_bytes_per_s", rate_json(disk->write),
                  "read_bytes_per_s", rate_json(disk->read)));
  return root;
}

/* FNV-1a of the compact text of all other keys, in their order. */
static const char *checksum_of(ls_arena *arena, const json_t *root) {
  char *text = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(17));
  const uint64_t number = ls_random_stream(text ? text : "");
  free(text);
  return ls_arena_printf(arena, "%016" PRIx64, number);
}

const char *ls_rates_text(ls_arena *arena, const ls_rates *rates) {
  json_t *root = rates_json(rates);
  json_object_set_new(root, "checksum", json_string(checksum_of(arena, root)));
  char *text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
  json_decref(root);
  const char *kept = ls_arena_printf(arena, "%s\n", text ? text : "{}");
  free(text);
  return kept;
}

ls_status ls_rates_write(const ls_rates *rates, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  const char *path = ls_rates_path(arena, &rates->key);
  ls_status status = LS_OK;
  if (!path) {
    status = ls_fail(error, LS_INPUT,
                     "no place to keep rates: neither XDG_CACHE_HOME (absolute) nor HOME is set");
  } else {
    const char *text = ls_rates_text(arena, rates);
    char *folder = ls_arena_strdup(arena, path);
    *strrchr(folder, '/') = 0;
    status = ls_directory_make(folder, error);
    if (status == LS_OK) status = ls_file_write(path, text, strlen(text), error);
  }
  ls_arena_destroy(&arena);
  return status;
}

/* [best, median], both above 0. */
static ls_status read_rate(ls_arena *arena, const ls_json_object *json, const char *key,
                           ls_rate *rate, ls_error *error) {
  double *values;
  int count;
  LS_TRY(ls_json_numbers(arena, json, key, &values, &count, error));
  if (count != 2 || !(values[0] > 0) || !(values[1] > 0))
    return ls_fail(error, LS_INPUT, "%s: \"%s\" is no pair of rates", json->where, key);
  *rate = (ls_rate){values[0], values[1]};
  return LS_OK;
}

static ls_status find_name(const ls_json_object *json, const char *key, const char *(*name)(int),
                           int count, int *found, ls_error *error) {
  const char *text;
  LS_TRY(ls_json_string(json, key, &text, error));
  for (*found = 0; *found < count; ++*found)
    if (strcmp(name(*found), text) == 0) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: \"%s\" is %s", json->where, key, text);
}

static const char *dtype_at(int index) {
  return ls_dtype_name((ls_dtype)index);
}

static const char *way_at(int index) {
  return ways[index];
}

static ls_status read_matmul(ls_arena *arena, const ls_json_object *json, ls_rates *rates,
                             ls_error *error) {
  ls_matmul_rate made = {0};
  int dtype, count;
  int64_t threads, *shape;
  LS_TRY(find_name(json, "dtype", dtype_at, LS_DTYPE_COUNT, &dtype, error));
  LS_TRY(ls_json_bool(json, "native", &made.native, error));
  LS_TRY(ls_json_count(json, "threads", &threads, error));
  LS_TRY(ls_json_ints(arena, json, "shape", &shape, &count, error));
  if (count != 3) return ls_fail(error, LS_INPUT, "%s: no shape of a product", json->where);
  LS_TRY(read_rate(arena, json, "flops_per_s", &made.rate, error));
  made.dtype = (ls_dtype)dtype;
  made.threads = (int)threads;
  made.rows = shape[0], made.columns = shape[1], made.depth = shape[2];
  *LS_APPEND(arena, &rates->matmul) = made;
  return LS_OK;
}

static ls_status read_memory(ls_arena *arena, const ls_json_object *json, ls_rates *rates,
                             ls_error *error) {
  ls_memory_rate made = {0};
  int way;
  int64_t threads;
  LS_TRY(find_name(json, "way", way_at, LS_MEMORY_WAYS, &way, error));
  LS_TRY(ls_json_count(json, "threads", &threads, error));
  LS_TRY(read_rate(arena, json, "bytes_per_s", &made.rate, error));
  made.way = (ls_memory_way)way;
  made.threads = (int)threads;
  *LS_APPEND(arena, &rates->memory) = made;
  return LS_OK;
}

static ls_status read_reduce(ls_arena *arena, const ls_json_object *json, ls_rates *rates,
                             ls_error *error) {
  ls_reduce_rate made = {0};
  int64_t ranks;
  LS_TRY(ls_json_count(json, "ranks", &ranks, error));
  LS_TRY(ls_json_count(json, "bytes", &made.bytes, error));
  LS_TRY(read_rate(arena, json, "bytes_per_s", &made.rate, error));
  made.ranks = (int)ranks;
  *LS_APPEND(arena, &rates->reduce) = made;
  return LS_OK;
}

typedef ls_status item_reader(ls_arena *arena, const ls_json_object *json, ls_rates *rates,
                              ls_error *error);

static ls_status read_list(ls_arena *arena, const ls_json_object *root, const char *key,
                           item_reader *read, ls_rates *rates, ls_error *error) {
  const json_t *list = json_object_get(root->json, key);
  if (!json_is_array(list))
    return ls_fail(error, LS_INPUT, "%s: \"%s\" is no list", root->where, key);
  for (size_t i = 0; i < json_array_size(list); i++) {
    ls_json_object each;
    const char *where = ls_arena_printf(arena, "%s: %s %zu", root->where, key, i);
    LS_TRY(ls_json_root(where, json_array_get(list, i), &each, error));
    LS_TRY(read(arena, &each, rates, error));
  }
  return LS_OK;
}

static ls_status read_disk(ls_arena *arena, const ls_json_object *root, ls_rates *rates,
                           ls_error *error) {
  ls_json_object disk;
  LS_TRY(ls_json_child_or(arena, root, "disk", &disk, error));
  if (!disk.json) return LS_OK;
  const char *folder, *how;
  LS_TRY(ls_json_string(&disk, "folder", &folder, error));
  LS_TRY(ls_json_string(&disk, "how", &how, error));
  LS_TRY(ls_json_count(&disk, "bytes", &rates->disk.bytes, error));
  LS_TRY(read_rate(arena, &disk, "write_bytes_per_s", &rates->disk.write, error));
  LS_TRY(read_rate(arena, &disk, "read_bytes_per_s", &rates->disk.read, error));
  rates->disk.folder = ls_arena_strdup(arena, folder);
  rates->disk.how = ls_arena_strdup(arena, how);
  return LS_OK;
}

static ls_status check_sum(ls_arena *arena, const char *path, json_t *json, ls_error *error) {
  const char *given = json_string_value(json_object_get(json, "checksum"));
  given = given ? ls_arena_strdup(arena, given) : "";
  json_object_del(json, "checksum");
  if (strcmp(given, checksum_of(arena, json)) == 0) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s is damaged: its checksum is another", path);
}

static ls_status check_key(const ls_json_object *root, const ls_rates_key *key, ls_error *error) {
  const char *processor, *instructions, *library;
  int64_t cores;
  LS_TRY(ls_json_string(root, "processor", &processor, error));
  LS_TRY(ls_json_string(root, "instructions", &instructions, error));
  LS_TRY(ls_json_string(root, "library", &library, error));
  LS_TRY(ls_json_count(root, "cores", &cores, error));
  const bool same = strcmp(processor, key->processor) == 0 && cores == key->cores &&
                    strcmp(instructions, key->instructions) == 0 &&
                    strcmp(library, key->library) == 0;
  if (same) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s is of another machine or build (%s, %s)", root->where,
                 processor, library);
}

static ls_status check_age(const ls_json_object *root, ls_rates *rates, ls_error *error) {
  LS_TRY(ls_json_int(root, "measured_s", &rates->measured_s, error));
  const int64_t age = (int64_t)time(NULL) - rates->measured_s;
  if (age >= -DAY_S && age <= LS_RATES_DAYS * DAY_S) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s was written %lld days ago; expected at most %d", root->where,
                 (long long)(age / DAY_S), LS_RATES_DAYS);
}

static ls_status read_root(ls_arena *arena, const char *path, json_t *json, ls_rates *rates,
                           ls_error *error) {
  ls_json_object root;
  int64_t form;
  LS_TRY(ls_json_root(path, json, &root, error));
  LS_TRY(ls_json_int(&root, "form", &form, error));
  if (form != FORM) return ls_fail(error, LS_INPUT, "%s is of another version's form", path);
  LS_TRY(check_sum(arena, path, json, error));
  LS_TRY(check_key(&root, &rates->key, error));
  LS_TRY(check_age(&root, rates, error));
  LS_TRY(ls_json_number(&root, "seconds", &rates->seconds, error));
  LS_TRY(ls_json_int(&root, "memory_bytes", &rates->memory_bytes, error));
  LS_TRY(read_list(arena, &root, "matmul", read_matmul, rates, error));
  LS_TRY(read_list(arena, &root, "memory", read_memory, rates, error));
  LS_TRY(read_list(arena, &root, "all_reduce", read_reduce, rates, error));
  return read_disk(arena, &root, rates, error);
}

const ls_rates *ls_rates_read(ls_arena *arena, const ls_rates_key *key, const char **why) {
  const char *path = ls_rates_path(arena, key);
  *why = NULL;
  if (!path) {
    *why = "neither XDG_CACHE_HOME (absolute) nor HOME is set";
  } else if (!ls_file_exists(path)) {
    *why = "this machine and build were not measured yet";
  }
  if (*why) return NULL;
  ls_rates *rates = LS_NEW(arena, ls_rates);
  rates->key = (ls_rates_key){.processor = ls_arena_strdup(arena, key->processor),
                              .cores = key->cores,
                              .instructions = ls_arena_strdup(arena, key->instructions),
                              .library = ls_arena_strdup(arena, key->library)};
  json_t *json = NULL;
  ls_error error = {0};
  ls_status status = ls_json_read(path, 0, &json, &error);
  if (status == LS_OK) status = read_root(arena, path, json, rates, &error);
  json_decref(json);
  if (status == LS_OK) return rates;
  *why = ls_arena_strdup(arena, error.text);
  return NULL;
}

static double at_most(double value, double most) {
  return value < most ? value : most;
}

/* What `threads` reach where one alone reaches `one` and all cores together `all`, which is no
 * less: only what else ran beside the measurement can make it so. */
static double scaled(const ls_rates *rates, double one, double all, int threads) {
  if (all < one) all = one;
  if (threads >= rates->key.cores || one <= 0) return all;
  return at_most(one * threads, all);
}

double ls_rates_matmul(const ls_rates *rates, ls_dtype dtype, int threads) {
  double one = 0, all = 0;
  for (int i = 0; i < rates->matmul.count; i++) {
    const ls_matmul_rate *each = &rates->matmul.items[i];
    if (each->dtype != dtype || each->rows < LARGE) continue;
    if (each->threads == 1 && each->rate.best > one) one = each->rate.best;
    if (each->threads == rates->key.cores && each->rate.best > all) all = each->rate.best;
  }
  return scaled(rates, one, all, threads);
}

double ls_rates_memory(const ls_rates *rates, int threads) {
  double one = 0, all = 0;
  for (int i = 0; i < rates->memory.count; i++) {
    const ls_memory_rate *each = &rates->memory.items[i];
    if (each->threads == 1 && each->rate.best > one) one = each->rate.best;
    if (each->threads == rates->key.cores && each->rate.best > all) all = each->rate.best;
  }
  return scaled(rates, one, all, threads);
}
