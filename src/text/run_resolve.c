/* Values of the run file that follow from others: the open axis of the mesh, the cut of the
 * batch. */
#include <math.h>
#include <string.h>

#include "text/run_keys.h"

enum { AXES = 5, DP_REPLICATE = 1, DP_SHARD = 2 };

typedef struct run_axis {
  const char *key;
  int64_t *size;
} run_axis;

static void axes_of(ls_run_mesh *mesh, run_axis axes[AXES]) {
  axes[0] = (run_axis){"mesh.pp", &mesh->pp};
  axes[DP_REPLICATE] = (run_axis){"mesh.dp_replicate", &mesh->dp_replicate};
  axes[DP_SHARD] = (run_axis){"mesh.dp_shard", &mesh->dp_shard};
  axes[3] = (run_axis){"mesh.cp", &mesh->cp};
  axes[4] = (run_axis){"mesh.tp", &mesh->tp};
}

/* The product of the closed axes, INT64_MAX where it does not fit. */
static int64_t product_of(const run_axis axes[AXES]) {
  int64_t product = 1;
  for (int i = 0; i < AXES; i++) {
    if (*axes[i].size < 0) continue;
    if (__builtin_mul_overflow(product, *axes[i].size, &product)) return INT64_MAX;
  }
  return product;
}

/* "dp_replicate 2 x tp 3": the closed axes above 1. */
static const char *axes_text(ls_arena *arena, const run_axis axes[AXES]) {
  const char *text = "";
  for (int i = 0; i < AXES; i++) {
    if (*axes[i].size <= 1) continue;
    text = ls_arena_printf(arena, "%s%s%s %lld", text, text[0] ? " x " : "",
                           axes[i].key + sizeof "mesh." - 1, (long long)*axes[i].size);
  }
  return text[0] ? text : "one device";
}

int64_t ls_run_file_mesh_devices(const ls_run_file *run) {
  run_axis axes[AXES];
  ls_run_mesh mesh = run->mesh;
  axes_of(&mesh, axes);
  return product_of(axes);
}

int64_t ls_run_file_mesh_size(const ls_run_file *run, const char *axis) {
  run_axis axes[AXES];
  ls_run_mesh mesh = run->mesh;
  axes_of(&mesh, axes);
  int a = 0;
  while (strcmp(axes[a].key + sizeof "mesh." - 1, axis) != 0) a++;
  return *axes[a].size;
}

int64_t ls_run_file_data_ranks(const ls_run_file *run) {
  return run->mesh.dp_replicate * run->mesh.dp_shard;
}

/* That there are not too many, of the mesh or of -n. */
static ls_status check_product(const ls_run_file *run, ls_error *error) {
  run_axis axes[AXES];
  ls_run_mesh mesh = run->mesh;
  axes_of(&mesh, axes);
  const int64_t product = product_of(axes);
  if (product <= LS_RUN_MOST_DEVICES) return LS_OK;
  const char *devices =
      product == INT64_MAX ? "" : ls_arena_printf(run->arena, " = %lld", (long long)product);
  return ls_fail(error, LS_INPUT, "mesh: found %s%s devices; expected at most %d",
                 axes_text(run->arena, axes), devices, LS_RUN_MOST_DEVICES);
}

ls_status ls_run_file_count_devices(const ls_run_file *run, int64_t given, int *devices,
                                    ls_error *error) {
  if (given < 0 || given > LS_RUN_MOST_DEVICES)
    return ls_fail(error, LS_INPUT, "-n: found %lld devices; expected 1 to %d", (long long)given,
                   LS_RUN_MOST_DEVICES);
  LS_TRY(check_product(run, error));
  *devices = (int)(given ? given : ls_run_file_mesh_devices(run));
  return LS_OK;
}

/* The first open axis, -1 for none. dp_shard is open by default and yields to one that was opened
 * by name. */
static ls_status find_open(ls_run_file *run, run_axis axes[AXES], int *open, ls_error *error) {
  *open = -1;
  for (int i = 0; i < AXES; i++) {
    if (*axes[i].size >= 0) continue;
    if (*open >= 0) {
      return ls_fail(error, LS_INPUT, "%s: found -1, as for %s; expected one axis at most to be -1",
                     ls_run_file_where(run, axes[i].key), axes[*open].key);
    }
    *open = i;
  }
  return LS_OK;
}

static bool is_standard(const ls_run_file *run, const char *key) {
  return run->origins[ls_run_key_find(key) - ls_run_keys].source == LS_RUN_DEFAULT;
}

static void close_standard(ls_run_file *run, run_axis axes[AXES]) {
  if (*axes[DP_SHARD].size >= 0 || !is_standard(run, axes[DP_SHARD].key)) return;
  for (int i = 0; i < AXES; i++) {
    if (i == DP_SHARD || *axes[i].size >= 0) continue;
    *axes[DP_SHARD].size = 1;
    ls_run_file_mark_resolved(run, axes[DP_SHARD].key);
    return;
  }
}

static bool is_given_beside(const ls_run_file *run, const char *key) {
  return run->origins[ls_run_key_find(key) - ls_run_keys].source == LS_RUN_COMMAND_LINE;
}

/* The mesh of a run that goes on with another number of devices, where its data axis can have it.
 */
static void follow_devices(ls_run_file *run, run_axis axes[AXES], int64_t devices) {
  ls_run_train *train = &run->train;
  for (int i = 0; i < AXES; i++)
    if (is_given_beside(run, axes[i].key)) return;
  const bool replicates = *axes[DP_SHARD].size == 1 && *axes[DP_REPLICATE].size > 1;
  const run_axis *data = &axes[replicates ? DP_REPLICATE : DP_SHARD];
  const int64_t others = product_of(axes) / *data->size;
  if (devices % others) return;
  *data->size = devices / others;
  ls_run_file_mark_resolved(run, data->key);
  if (is_given_beside(run, "train.micro_batch") || is_given_beside(run, "train.microbatches"))
    return;
  const int64_t ranks = ls_run_file_data_ranks(run);
  train->microbatches = 0;
  if (train->micro_batch > 0 && train->batch % (ranks * train->micro_batch)) train->micro_batch = 0;
}

/* "6 or 8": the multiples of `of` next to `wanted` on both sides. */
static const char *near_multiples(ls_arena *arena, int64_t of, int64_t wanted) {
  const int64_t below = wanted / of * of, above = below + of;
  if (below == 0) return ls_arena_printf(arena, "%lld", (long long)above);
  return ls_arena_printf(arena, "%lld or %lld", (long long)below, (long long)above);
}

ls_status ls_run_file_resolve_mesh(ls_run_file *run, int64_t devices, ls_error *error) {
  run_axis axes[AXES];
  int open;
  int count;
  LS_TRY(ls_run_file_count_devices(run, devices, &count, error));
  LS_ASSERT(devices > 0);
  axes_of(&run->mesh, axes);
  close_standard(run, axes);
  LS_TRY(find_open(run, axes, &open, error));
  if (open < 0 && run->of_folder && product_of(axes) != devices) follow_devices(run, axes, devices);
  const int64_t product = product_of(axes);
  const char *text = axes_text(run->arena, axes);
  if (open < 0 && product != devices) {
    return ls_fail(error, LS_INPUT,
                   "mesh: found %s = %lld devices; expected %lld (-n): change -n, or make one "
                   "axis -1",
                   text, (long long)product, (long long)devices);
  }
  if (open < 0) return LS_OK;
  if (product > devices || devices % product) {
    return ls_fail(error, LS_INPUT,
                   "mesh: found %s = %lld, which does not divide %lld devices (-n); use -n %s, or "
                   "another mesh",
                   text, (long long)product, (long long)devices,
                   near_multiples(run->arena, product, devices));
  }
  *axes[open].size = devices / product;
  ls_run_file_mark_resolved(run, axes[open].key);
  return LS_OK;
}

/* The least divisor of `whole` that is at least `least`, which is at most `whole`. */
static int64_t divisor_from(int64_t whole, int64_t least) {
  int64_t found = whole;
  for (int64_t low = 1; low <= whole / low; low++) {
    if (whole % low) continue;
    if (low >= least && low < found) found = low;
    if (whole / low >= least && whole / low < found) found = whole / low;
  }
  return found;
}

/* "4 or 8": the divisors of `whole` next to `wanted` on both sides. */
static const char *near_divisors(ls_arena *arena, int64_t whole, int64_t wanted) {
  const int64_t above = divisor_from(whole, wanted < whole ? wanted : whole);
  const int64_t below =
      wanted < whole ? whole / divisor_from(whole, (whole - 1) / wanted + 1) : whole;
  if (above == below) return ls_arena_printf(arena, "%lld", (long long)below);
  return ls_arena_printf(arena, "%lld or %lld", (long long)below, (long long)above);
}

/* Cuts the sequences of one data-parallel rank into microbatches. */
static ls_status cut(ls_run_file *run, const char *key, int64_t whole, int64_t part,
                     const char *what, ls_error *error) {
  if (whole % part == 0) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: found %lld %s, which do not divide the %lld sequences of each data-parallel "
                 "rank; use %s",
                 ls_run_file_where(run, key), (long long)part, what, (long long)whole,
                 near_divisors(run->arena, whole, part));
}

/* Four for each stage of a pipeline keep its bubble below a fifth; more, where that does not divide
 * the batch, and as many as there are sequences at most. */
static int64_t usual_microbatches(int64_t whole, int64_t stages) {
  if (stages < 2) return 1;
  return divisor_from(whole, 4 * stages < whole ? 4 * stages : whole);
}

/* Whether so many microbatches have whole groups of sequences each, of vectors of texts. */
static bool holds_groups(const ls_run_file *run, int64_t microbatches) {
  const int64_t group = run->task == LS_RUN_EMBED ? run->embed.group : 1;
  return run->train.batch / microbatches % group == 0;
}

/* All of a step's sequences are one group where nobody says otherwise. */
static ls_status resolve_group(ls_run_file *run, ls_error *error) {
  const int64_t batch = run->train.batch;
  if (run->task != LS_RUN_EMBED) return LS_OK;
  if (run->embed.group == 0) {
    run->embed.group = batch;
    ls_run_file_mark_resolved(run, "embed.group");
  }
  if (batch % run->embed.group == 0) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: found %lld sequences, which do not divide the %lld of a step (train.batch); "
                 "use %s",
                 ls_run_file_where(run, "embed.group"), (long long)run->embed.group,
                 (long long)batch, near_divisors(run->arena, batch, run->embed.group));
}

static ls_status check_groups(const ls_run_file *run, const char *key, ls_error *error) {
  const ls_run_train *train = &run->train;
  int64_t fewer = train->microbatches;
  if (holds_groups(run, fewer)) return LS_OK;
  const int64_t whole = train->batch / ls_run_file_data_ranks(run);
  while (whole % fewer || !holds_groups(run, fewer)) fewer--;
  return ls_fail(error, LS_INPUT,
                 "%s: %lld sequences at a time, over all ranks, are no whole groups of %lld "
                 "(embed.group), among whose answers texts find their own; use "
                 "train.microbatches=%lld, or a smaller embed.group",
                 ls_run_file_where(run, key), (long long)(train->batch / train->microbatches),
                 (long long)run->embed.group, (long long)fewer);
}

ls_status ls_run_file_resolve_groups(ls_run_file *run, ls_error *error) {
  LS_TRY(resolve_group(run, error));
  return run->train.microbatches > 0 ? check_groups(run, "train.microbatches", error) : LS_OK;
}

ls_status ls_run_file_resolve_batch(ls_run_file *run, ls_error *error) {
  ls_run_train *train = &run->train;
  const ls_run_mesh *mesh = &run->mesh;
  LS_ASSERT(mesh->dp_replicate > 0 && mesh->dp_shard > 0);
  const int64_t ranks = ls_run_file_data_ranks(run);
  if (train->batch % ranks) {
    return ls_fail(error, LS_INPUT,
                   "%s: found %lld sequences, which do not divide evenly over %lld data-parallel "
                   "ranks (dp_replicate %lld x dp_shard %lld); use %s",
                   ls_run_file_where(run, "train.batch"), (long long)train->batch, (long long)ranks,
                   (long long)mesh->dp_replicate, (long long)mesh->dp_shard,
                   near_multiples(run->arena, ranks, train->batch));
  }
  const int64_t whole = train->batch / ranks;
  LS_TRY(resolve_group(run, error));
  if (train->micro_batch > 0) {
    LS_TRY(cut(run, "train.micro_batch", whole, train->micro_batch, "sequences at a time", error));
    train->microbatches = whole / train->micro_batch;
    ls_run_file_mark_resolved(run, "train.microbatches");
    return check_groups(run, "train.micro_batch", error);
  }
  if (train->microbatches > 0) {
    LS_TRY(cut(run, "train.microbatches", whole, train->microbatches, "microbatches", error));
    LS_TRY(check_groups(run, "train.microbatches", error));
  } else {
    train->microbatches = usual_microbatches(whole, mesh->pp);
    while (whole % train->microbatches || !holds_groups(run, train->microbatches))
      train->microbatches--;
    ls_run_file_mark_resolved(run, "train.microbatches");
  }
  train->micro_batch = whole / train->microbatches;
  ls_run_file_mark_resolved(run, "train.micro_batch");
  return LS_OK;
}

void ls_run_file_resolve_steps(ls_run_file *run, int64_t sequences) {
  ls_run_train *train = &run->train;
  LS_ASSERT(sequences > 0);
  if (train->epochs == 0) return;
  const double steps = ceil(train->epochs * (double)sequences / (double)train->batch - 1e-9);
  train->steps = steps < 1 ? 1 : steps > 0x1p53 ? (int64_t)0x1p53 : (int64_t)steps;
  train->epochs = 0;
  ls_run_file_mark_resolved(run, "train.steps");
}
