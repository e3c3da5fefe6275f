/* Reading a machine's rates: the kept file of this one, or one that was carried here. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "cluster/rates.h"
#include "cluster/rates_form.h"
#include "text/yaml.h"

enum { DAY_S = 24 * 60 * 60 };

/* The value under a key that must be there. */
static ls_status need(const ls_yaml *mapping, const char *key, const ls_yaml **found,
                      ls_error *error) {
  *found = ls_yaml_get(mapping, key);
  if (*found) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s:%d: %s%s%s: missing", mapping->file, mapping->line,
                 mapping->path, *mapping->path ? "." : "", key);
}

static ls_status read_text(ls_arena *arena, const ls_yaml *mapping, const char *key,
                           const char **text, ls_error *error) {
  const ls_yaml *node;
  LS_TRY(need(mapping, key, &node, error));
  LS_TRY(ls_yaml_string(node, text, error));
  *text = ls_arena_strdup(arena, *text);
  return LS_OK;
}

static ls_status read_int(const ls_yaml *mapping, const char *key, int64_t least, int64_t *value,
                          ls_error *error) {
  const ls_yaml *node;
  LS_TRY(need(mapping, key, &node, error));
  LS_TRY(ls_yaml_int(node, value, error));
  return *value >= least && *value < (int64_t)1 << 53 ? LS_OK
                                                      : ls_yaml_fail(node, "a count", error);
}

static ls_status read_count(const ls_yaml *mapping, const char *key, int *value, ls_error *error) {
  int64_t wide;
  LS_TRY(read_int(mapping, key, 1, &wide, error));
  *value = wide < INT32_MAX ? (int)wide : INT32_MAX;
  return LS_OK;
}

static ls_status read_number(const ls_yaml *mapping, const char *key, double least, double *value,
                             ls_error *error) {
  const ls_yaml *node;
  LS_TRY(need(mapping, key, &node, error));
  LS_TRY(ls_yaml_number(node, value, error));
  const bool right = least > 0 ? *value >= least : *value >= 0;
  return right && *value < 1e30 ? LS_OK : ls_yaml_fail(node, "what can be measured", error);
}

static ls_status read_bool(const ls_yaml *mapping, const char *key, bool *value, ls_error *error) {
  const ls_yaml *node;
  LS_TRY(need(mapping, key, &node, error));
  return ls_yaml_bool(node, value, error);
}

/* As many numbers under a key as there is room for, none below `least`. */
static ls_status read_numbers(const ls_yaml *mapping, const char *key, double least, double *values,
                              int count, ls_error *error) {
  const ls_yaml *node;
  LS_TRY(need(mapping, key, &node, error));
  if (node->kind != LS_YAML_SEQUENCE || node->items.count != count)
    return ls_yaml_fail(node, count == 2 ? "a list of two numbers" : "a list of three numbers",
                        error);
  for (int i = 0; i < count; i++) {
    LS_TRY(ls_yaml_number(node->items.items[i], &values[i], error));
    if (!(values[i] >= least) || !(values[i] < 1e30))
      return ls_yaml_fail(node->items.items[i], "what can be measured", error);
  }
  return LS_OK;
}

static const double slowest = 1e-6; /* a second */

/* [best, median], both above 0. */
static ls_status read_rate(const ls_yaml *mapping, const char *key, ls_rate *rate,
                           ls_error *error) {
  double values[2];
  LS_TRY(read_numbers(mapping, key, slowest, values, 2, error));
  *rate = (ls_rate){values[0], values[1]};
  return LS_OK;
}

static ls_status read_word(const ls_yaml *mapping, const char *key, const char *(*name)(int),
                           int count, int *found, ls_error *error) {
  const ls_yaml *node;
  const char *text;
  LS_TRY(need(mapping, key, &node, error));
  LS_TRY(ls_yaml_string(node, &text, error));
  for (*found = 0; *found < count; ++*found)
    if (strcmp(name(*found), text) == 0) return LS_OK;
  return ls_yaml_fail(node, "a name that is known", error);
}

static const char *dtype_at(int index) {
  return ls_dtype_name((ls_dtype)index);
}

static const char *way_at(int index) {
  return ls_memory_way_name((ls_memory_way)index);
}

static const char *op_at(int index) {
  return ls_op_name((ls_op_kind)index);
}

static const char *collective_at(int index) {
  return ls_collective_name((ls_collective)index);
}

static ls_status read_matmul(ls_arena *arena, const ls_yaml *from, ls_rates *rates,
                             ls_error *error) {
  ls_matmul_rate made = {0};
  int dtype;
  double shape[3];
  LS_TRY(read_word(from, "dtype", dtype_at, LS_DTYPE_COUNT, &dtype, error));
  LS_TRY(read_bool(from, "native", &made.native, error));
  LS_TRY(read_count(from, "threads", &made.threads, error));
  LS_TRY(read_numbers(from, "shape", 1, shape, 3, error));
  LS_TRY(read_rate(from, "flops_per_s", &made.rate, error));
  made.dtype = (ls_dtype)dtype;
  made.rows = (int64_t)fmin(shape[0], INT32_MAX);
  made.columns = (int64_t)fmin(shape[1], INT32_MAX);
  made.depth = (int64_t)fmin(shape[2], INT32_MAX);
  *LS_APPEND(arena, &rates->matmul) = made;
  return LS_OK;
}

static ls_status read_memory(ls_arena *arena, const ls_yaml *from, ls_rates *rates,
                             ls_error *error) {
  ls_memory_rate made = {0};
  int way;
  LS_TRY(read_word(from, "way", way_at, LS_MEMORY_WAYS, &way, error));
  LS_TRY(read_count(from, "threads", &made.threads, error));
  LS_TRY(read_rate(from, "bytes_per_s", &made.rate, error));
  made.way = (ls_memory_way)way;
  *LS_APPEND(arena, &rates->memory) = made;
  return LS_OK;
}

static ls_status read_transfer(ls_arena *arena, const ls_yaml *from, ls_rates *rates,
                               ls_error *error) {
  ls_transfer_rate made = {0};
  int collective;
  LS_TRY(read_word(from, "collective", collective_at, LS_COLLECTIVE_COUNT, &collective, error));
  LS_TRY(read_count(from, "ranks", &made.ranks, error));
  LS_TRY(read_count(from, "world", &made.world, error));
  LS_TRY(read_int(from, "bytes", 1, &made.bytes, error));
  LS_TRY(read_rate(from, "bytes_per_s", &made.rate, error));
  made.collective = (ls_collective)collective;
  *LS_APPEND(arena, &rates->transfer) = made;
  return LS_OK;
}

static ls_status read_op(ls_arena *arena, const ls_yaml *from, ls_rates *rates, ls_error *error) {
  ls_op_time made = {0};
  int op, dtype;
  LS_TRY(read_word(from, "op", op_at, LS_OP_COUNT, &op, error));
  LS_TRY(read_word(from, "dtype", dtype_at, LS_DTYPE_COUNT, &dtype, error));
  LS_TRY(read_count(from, "threads", &made.threads, error));
  LS_TRY(read_bool(from, "adds", &made.adds, error));
  LS_TRY(read_number(from, "work", 1, &made.work, error));
  LS_TRY(read_numbers(from, "sizes", 1, made.sizes, LS_OP_SIZES, error));
  LS_TRY(read_number(from, "seconds", 1e-12, &made.seconds, error));
  made.kind = (ls_op_kind)op;
  made.dtype = (ls_dtype)dtype;
  *LS_APPEND(arena, &rates->ops) = made;
  return LS_OK;
}

static ls_status read_residual(ls_arena *arena, const ls_yaml *from, ls_rates *rates,
                               ls_error *error) {
  static const double least = 1e-6;
  const ls_yaml *list;
  const char *kind;
  LS_TRY(read_text(arena, from, "kind", &kind, error));
  LS_TRY(need(from, "ratios", &list, error));
  if (list->kind != LS_YAML_SEQUENCE || !list->items.count)
    return ls_yaml_fail(list, "a list of numbers", error);
  for (int i = 0; i < list->items.count; i++) {
    double ratio;
    LS_TRY(ls_yaml_number(list->items.items[i], &ratio, error));
    if (!(ratio >= least) || !(ratio <= 1 / least))
      return ls_yaml_fail(list->items.items[i], "what a run can have shown", error);
    ls_rates_learn(arena, rates, kind, ratio);
  }
  return LS_OK;
}

typedef ls_status item_reader(ls_arena *arena, const ls_yaml *from, ls_rates *rates,
                              ls_error *error);

static ls_status read_list(ls_arena *arena, const ls_yaml *root, const char *key, item_reader *read,
                           ls_rates *rates, ls_error *error) {
  const ls_yaml *list;
  LS_TRY(need(root, key, &list, error));
  if (list->kind != LS_YAML_SEQUENCE) return ls_yaml_fail(list, "a list", error);
  for (int i = 0; i < list->items.count; i++)
    LS_TRY(read(arena, list->items.items[i], rates, error));
  return LS_OK;
}

static ls_status read_disk(ls_arena *arena, const ls_yaml *root, ls_rates *rates, ls_error *error) {
  const ls_yaml *disk = ls_yaml_get(root, "disk");
  if (!disk) return LS_OK;
  LS_TRY(read_text(arena, disk, "folder", &rates->disk.folder, error));
  LS_TRY(read_text(arena, disk, "how", &rates->disk.how, error));
  LS_TRY(read_int(disk, "bytes", 1, &rates->disk.bytes, error));
  LS_TRY(read_rate(disk, "write_bytes_per_s", &rates->disk.write, error));
  return read_rate(disk, "read_bytes_per_s", &rates->disk.read, error);
}

/* Where there is a checksum, it is that of all before it. */
static ls_status check_sum(const char *path, const char *text, const ls_yaml *root, bool needed,
                           ls_error *error) {
  const ls_yaml *node = ls_yaml_get(root, "checksum");
  if (!node && !needed) return LS_OK;
  const char *before = NULL, *given = "";
  for (const char *at = text; (at = strstr(at, "\"checksum\"")); at++) before = at;
  if (node) LS_TRY(ls_yaml_string(node, &given, error));
  char digits[17] = "";
  if (before)
    snprintf(digits, sizeof digits, "%016" PRIx64,
             ls_rates_checksum(text, (size_t)(before - text)));
  if (before && strcmp(given, digits) == 0) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s is damaged: its checksum is another; expected a file as lockstep bench "
                 "writes it",
                 path);
}

static ls_status read_root(ls_arena *arena, const ls_yaml *root, ls_rates *rates, ls_error *error) {
  LS_TRY(read_text(arena, root, "processor", &rates->key.processor, error));
  LS_TRY(read_text(arena, root, "instructions", &rates->key.instructions, error));
  LS_TRY(read_text(arena, root, "library", &rates->key.library, error));
  LS_TRY(read_count(root, "cores", &rates->key.cores, error));
  LS_TRY(read_int(root, "measured_s", 0, &rates->measured_s, error));
  LS_TRY(read_number(root, "seconds", 0, &rates->seconds, error));
  LS_TRY(read_int(root, "memory_bytes", 0, &rates->memory_bytes, error));
  LS_TRY(read_list(arena, root, "matmul", read_matmul, rates, error));
  LS_TRY(read_list(arena, root, "memory", read_memory, rates, error));
  LS_TRY(read_list(arena, root, "transfers", read_transfer, rates, error));
  LS_TRY(read_number(root, "slice_s", 0, &rates->slice_s, error));
  LS_TRY(read_list(arena, root, "ops", read_op, rates, error));
  LS_TRY(read_list(arena, root, "residuals", read_residual, rates, error));
  return read_disk(arena, root, rates, error);
}

static ls_status read_file(ls_arena *arena, const char *path, bool whole, ls_rates *rates,
                           ls_error *error) {
  char *text;
  size_t bytes;
  ls_yaml *root;
  const ls_yaml *node;
  int64_t form;
  LS_TRY(ls_file_read(arena, path, &text, &bytes, error));
  LS_TRY(ls_yaml_parse(arena, path, text, bytes, &root, error));
  LS_TRY(need(root, "form", &node, error));
  LS_TRY(ls_yaml_int(node, &form, error));
  if (form != LS_RATES_FORM)
    return ls_fail(error, LS_INPUT,
                   "%s:%d: form: %lld is of another version; lockstep bench "
                   "writes %d",
                   path, node->line, (long long)form, LS_RATES_FORM);
  LS_TRY(check_sum(path, text, root, whole, error));
  return read_root(arena, root, rates, error);
}

ls_status ls_rates_open(ls_arena *arena, const char *path, const ls_rates **rates,
                        ls_error *error) {
  ls_rates *made = LS_NEW(arena, ls_rates);
  LS_TRY(read_file(arena, path, false, made, error));
  *rates = made;
  return LS_OK;
}

static ls_status check_key(const char *path, const ls_rates_key *found, const ls_rates_key *key,
                           ls_error *error) {
  const bool same = strcmp(found->processor, key->processor) == 0 && found->cores == key->cores &&
                    strcmp(found->instructions, key->instructions) == 0 &&
                    strcmp(found->library, key->library) == 0;
  if (same) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s is of another machine or build (%s, %s)", path,
                 found->processor, found->library);
}

static ls_status check_age(const char *path, const ls_rates *rates, ls_error *error) {
  const int64_t age = (int64_t)time(NULL) - rates->measured_s;
  if (age >= -DAY_S && age <= LS_RATES_DAYS * DAY_S) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s was written %lld days ago; expected at most %d", path,
                 (long long)(age / DAY_S), LS_RATES_DAYS);
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
  ls_error error = {0};
  ls_status status = read_file(arena, path, true, rates, &error);
  if (status == LS_OK) status = check_key(path, &rates->key, key, &error);
  if (status == LS_OK) status = check_age(path, rates, &error);
  if (status == LS_OK) return rates;
  *why = ls_arena_strdup(arena, error.text);
  return NULL;
}
