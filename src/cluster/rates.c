#include "cluster/rates.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/random.h"
#include "cluster/rates_form.h"
#include "text/json.h"

enum { LARGE = 512 };

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

static json_t *transfer_json(const ls_rates *rates) {
  json_t *list = json_array();
  for (int i = 0; i < rates->transfer.count; i++) {
    const ls_transfer_rate *each = &rates->transfer.items[i];
    json_array_append_new(
        list,
        json_pack("{s:s, s:i, s:i, s:I, s:o}", "collective", ls_collective_name(each->collective),
                  "ranks", each->ranks, "world", each->world, "bytes", (json_int_t)each->bytes,
                  "bytes_per_s", rate_json(each->rate)));
  }
  return list;
}

static json_t *ops_json(const ls_rates *rates) {
  json_t *list = json_array();
  for (int i = 0; i < rates->ops.count; i++) {
    const ls_op_time *each = &rates->ops.items[i];
    json_array_append_new(
        list, json_pack("{s:s, s:s, s:i, s:b, s:f, s:[f, f, f], s:f}", "op", ls_op_name(each->kind),
                        "dtype", ls_dtype_name(each->dtype), "threads", each->threads, "adds",
                        (int)each->adds, "work", each->work, "sizes", each->sizes[0],
                        each->sizes[1], each->sizes[2], "seconds", each->seconds));
  }
  return list;
}

static json_t *residuals_json(const ls_rates *rates) {
  json_t *list = json_array();
  for (int i = 0; i < rates->residuals.count; i++) {
    const ls_residual *each = &rates->residuals.items[i];
    json_t *ratios = json_array();
    for (int r = 0; r < each->ratios.count; r++)
      json_array_append_new(ratios, json_real(each->ratios.items[r]));
    json_array_append_new(list, json_pack("{s:s, s:o}", "kind", each->kind, "ratios", ratios));
  }
  return list;
}

/* Everything but the checksum. */
static json_t *rates_json(const ls_rates *rates) {
  const ls_rates_key *key = &rates->key;
  json_t *root = json_pack("{s:i, s:s, s:i, s:s, s:s, s:I, s:f, s:o, s:I, s:o, s:o}", "form",
                           LS_RATES_FORM, "processor", key->processor, "cores", key->cores,
                           "instructions", key->instructions, "library", key->library, "measured_s",
                           (json_int_t)rates->measured_s, "seconds", rates->seconds, "matmul",
                           matmul_json(rates), "memory_bytes", (json_int_t)rates->memory_bytes,
                           "memory", memory_json(rates), "transfers", transfer_json(rates));
  const ls_disk_rate *disk = &rates->disk;
  if (disk->folder)
    json_object_set_new(
        root, "disk",
        json_pack("{s:s, s:s, s:I, s:o, s:o}", "folder", disk->folder, "how", disk->how, "bytes",
                  (json_int_t)disk->bytes, "write_bytes_per_s", rate_json(disk->write),
                  "read_bytes_per_s", rate_json(disk->read)));
  json_object_set_new(root, "slice_s", json_real(rates->slice_s));
  json_object_set_new(root, "ops", ops_json(rates));
  json_object_set_new(root, "residuals", residuals_json(rates));
  return root;
}

static const char *compact(ls_arena *arena, const json_t *json) {
  char *text = json_dumps(json, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
  const char *kept = ls_arena_strdup(arena, text ? text : "null");
  free(text);
  return kept;
}

uint64_t ls_rates_checksum(const char *text, size_t bytes) {
  ls_arena *scratch = ls_arena_create();
  char *part = ls_arena_alloc(scratch, bytes + 1);
  memcpy(part, text, bytes);
  const uint64_t number = ls_random_stream(part);
  ls_arena_destroy(&scratch);
  return number;
}

typedef LS_LIST(const char *) text_list;

static const char *join(ls_arena *arena, const text_list *of) {
  size_t bytes = 0;
  for (int i = 0; i < of->count; i++) bytes += strlen(of->items[i]);
  char *text = ls_arena_alloc(arena, bytes + 1), *end = text;
  for (int i = 0; i < of->count; i++) {
    const size_t length = strlen(of->items[i]);
    memcpy(end, of->items[i], length);
    end += length;
  }
  return text;
}

/* JSON is YAML of one style: a line for each key, and of a list for each item. */
const char *ls_rates_text(ls_arena *arena, const ls_rates *rates) {
  json_t *root = rates_json(rates), *value;
  text_list made = {0};
  const char *key;
  json_object_foreach(root, key, value) {
    const size_t items = json_array_size(value);
    const char *before = made.count ? ",\n" : "{\n";
    *LS_APPEND(arena, &made) = ls_arena_printf(arena, "%s\"%s\": ", before, key);
    if (!items) *LS_APPEND(arena, &made) = compact(arena, value);
    for (size_t i = 0; i < items; i++)
      *LS_APPEND(arena, &made) =
          ls_arena_printf(arena, "%s\n  %s%s", i ? "," : "[",
                          compact(arena, json_array_get(value, i)), i + 1 < items ? "" : "]");
  }
  json_decref(root);
  *LS_APPEND(arena, &made) = ",\n";
  const char *text = join(arena, &made);
  return ls_arena_printf(arena, "%s\"checksum\": \"%016" PRIx64 "\"\n}\n", text,
                         ls_rates_checksum(text, strlen(text)));
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

static ls_residual *find_residual(const ls_rates *rates, const char *kind) {
  for (int i = 0; i < rates->residuals.count; i++)
    if (strcmp(rates->residuals.items[i].kind, kind) == 0) return &rates->residuals.items[i];
  return NULL;
}

static int by_size(const void *a, const void *b) {
  const double left = *(const double *)a, right = *(const double *)b;
  return (left > right) - (left < right);
}

double ls_rates_residual(const ls_rates *rates, const char *kind) {
  const ls_residual *found = find_residual(rates, kind);
  if (!found || !found->ratios.count) return 1;
  double sorted[LS_RESIDUAL_RUNS];
  const int all = found->ratios.count, count = all < LS_RESIDUAL_RUNS ? all : LS_RESIDUAL_RUNS;
  memcpy(sorted, found->ratios.items + all - count, sizeof *sorted * (size_t)count);
  qsort(sorted, (size_t)count, sizeof *sorted, by_size);
  return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

void ls_rates_learn(ls_arena *arena, ls_rates *rates, const char *kind, double ratio) {
  ls_residual *of = find_residual(rates, kind);
  if (!of) {
    of = LS_APPEND(arena, &rates->residuals);
    of->kind = ls_arena_strdup(arena, kind);
  }
  if (of->ratios.count == LS_RESIDUAL_RUNS)
    memmove(of->ratios.items, of->ratios.items + 1, sizeof(double) * (size_t)--of->ratios.count);
  *LS_APPEND(arena, &of->ratios) = ratio;
}
