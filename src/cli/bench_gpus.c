/* `bench` where there are GPUs: measured, printed, kept as a cluster's file says it. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "cli/bench.h"
#include "cli/hardware.h"
#include "device/gpus.h"
#include "text/number.h"

/* The best product of a type. */
static double best_of(const ls_gpu_rates *rates, ls_dtype dtype) {
  double best = 0;
  for (int p = 0; p < rates->products.count; p++) {
    const ls_matmul_rate *each = &rates->products.items[p];
    if (each->dtype == dtype && each->rate.best > best) best = each->rate.best;
  }
  return best;
}

static ls_reached reached_of(const ls_gpu_rates *rates) {
  return (ls_reached){.bf16_flops = best_of(rates, LS_BF16),
                      .fp16_flops = best_of(rates, LS_F16),
                      .fp32_flops = best_of(rates, LS_F32),
                      .memory_bytes = rates->memory,
                      .host_bytes = rates->host,
                      .peer_bytes = rates->peer};
}

static double sheet_of(const ls_accelerator *of, ls_dtype dtype) {
  return of->flops_per_s[dtype == LS_BF16  ? LS_CATALOG_BF16
                         : dtype == LS_F16 ? LS_CATALOG_FP16
                                           : LS_CATALOG_FP32];
}

static void print_share(double rate, double sheet) {
  if (sheet > 0) printf("%9.0f %%", 100 * rate / sheet);
  printf("\n");
}

static void print_rates(const ls_gpus *gpus, const ls_gpu_rates *rates,
                        const ls_accelerator *sheet) {
  printf("%s; %d GPU%s, %s\n", gpus->stands_on, gpus->count, gpus->count == 1 ? "" : "s",
         sheet ? sheet->id : "which the catalog does not know");
  printf("\n%-28s%10s %9s  %9s\n", "products, TFLOP/s", "best", "median", "of sheet");
  for (int p = 0; p < rates->products.count; p++) {
    const ls_matmul_rate *each = &rates->products.items[p];
    char shape[64], line[96];
    snprintf(shape, sizeof shape, "%lldx%lldx%lld", (long long)each->rows, (long long)each->columns,
             (long long)each->depth);
    snprintf(line, sizeof line, "  %s %s", ls_dtype_name(each->dtype), shape);
    printf("%-28s%10.3f %9.3f", line, 1e-12 * each->rate.best, 1e-12 * each->rate.median);
    print_share(each->rate.best, sheet ? sheet_of(sheet, each->dtype) : 0);
  }
  printf("\n%-28s%10s %9s  %9s\n", "memory and links, GB/s", "best", "median", "of sheet");
  for (int w = 0; w < rates->ways.count; w++) {
    const ls_gpu_way *each = &rates->ways.items[w];
    char size[LS_NUMBER_BYTES], line[96];
    ls_size_write(size, each->bytes);
    snprintf(line, sizeof line, "  %s, %s", each->name, size);
    printf("%-28s%10.2f %9.2f", line, 1e-9 * each->rate.best, 1e-9 * each->rate.median);
    print_share(each->rate.best,
                sheet && strcmp(each->name, "add") == 0 ? sheet->memory_bytes_per_s : 0);
  }
}

static json_t *rate_json(const char *name, ls_rate rate) {
  return json_pack("{s:s, s:f, s:f}", "name", name, "best", rate.best, "median", rate.median);
}

static void print_json(ls_arena *arena, const ls_gpus *gpus, const ls_gpu_rates *rates,
                       const ls_accelerator *sheet) {
  json_t *products = json_array(), *ways = json_array();
  for (int p = 0; p < rates->products.count; p++) {
    const ls_matmul_rate *each = &rates->products.items[p];
    const char *name =
        ls_arena_printf(arena, "%s %lldx%lldx%lld", ls_dtype_name(each->dtype),
                        (long long)each->rows, (long long)each->columns, (long long)each->depth);
    json_array_append_new(products, rate_json(name, each->rate));
  }
  for (int w = 0; w < rates->ways.count; w++)
    json_array_append_new(ways, rate_json(rates->ways.items[w].name, rates->ways.items[w].rate));
  json_t *root = json_pack("{s:s, s:i, s:s?, s:o, s:o}", "of", gpus->stands_on, "gpus", gpus->count,
                           "accelerator", sheet ? sheet->id : NULL, "flops_per_s", products,
                           "bytes_per_s", ways);
  char *text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(7));
  printf("%s\n", text ? text : "{}");
  free(text);
  json_decref(root);
}

/* "NVIDIA H200, driver 580.65.05, cuBLASLt 13.1.0; measured 2026-11-27 by lockstep 0.1.0" */
static const char *head_of(ls_arena *arena, const ls_gpus *gpus) {
  char date[16] = "";
  const time_t now = time(NULL);
  struct tm parts;
  if (localtime_r(&now, &parts)) strftime(date, sizeof date, "%Y-%m-%d", &parts);
  return ls_arena_printf(arena, "%s; measured %s by lockstep " LS_VERSION, gpus->stands_on, date);
}

static ls_status measure(ls_arena *arena, const ls_gpus *gpus, ls_gpu_rates *rates,
                         ls_error *error) {
  ls_bench_teller told = {.arena = arena};
  const ls_measure_options options = {.progress = ls_bench_tell, .context = &told};
  const ls_status status = ls_measure_gpus(arena, &options, gpus->count, rates, error);
  if (status != LS_OK && told.progress) ls_progress_end(told.progress);
  return status;
}

static ls_status print_kept(ls_arena *arena, const ls_gpus *gpus, const ls_bench_flags *flags,
                            ls_error *error) {
  const char *kept = ls_gpus_kept(arena, gpus);
  if (!kept)
    return ls_fail(error, LS_REFUTED, "nothing is kept of %s: lockstep bench measures it",
                   gpus->stands_on);
  if (flags->output) return ls_file_write(flags->output, kept, strlen(kept), error);
  fputs(kept, stdout);
  return LS_OK;
}

ls_status ls_bench_gpus(ls_arena *arena, const ls_bench_flags *flags, ls_error *error) {
  ls_gpus gpus;
  ls_gpu_rates rates;
  ls_cluster *cluster = NULL;
  ls_error unknown = {0};
  if (flags->folder)
    return ls_fail(error, LS_INPUT,
                   "--folder without --cpu, where there are GPUs: drives are measured with the "
                   "processor");
  LS_TRY(ls_gpus_here(arena, &gpus, error));
  if (flags->kept) return print_kept(arena, &gpus, flags, error);
  const ls_status known = ls_hardware_gpus_here(arena, &cluster, &unknown);
  if (known != LS_OK && flags->output) return ls_fail(error, known, "-o: %s", unknown.text);
  ls_warn(
      "measuring GPUs has run on stand-ins alone so far: hold its rates against the data sheet");
  LS_TRY(measure(arena, &gpus, &rates, error));
  const ls_accelerator *sheet = cluster ? cluster->accelerator : NULL;
  if (flags->json)
    print_json(arena, &gpus, &rates, sheet);
  else
    print_rates(&gpus, &rates, sheet);
  if (!cluster) {
    fprintf(stderr, "not kept: %s\n", unknown.text);
    return LS_OK;
  }
  cluster->reached = reached_of(&rates);
  const char *text = ls_cluster_text(cluster, head_of(arena, &gpus));
  ls_gpus_keep(arena, &gpus, text);
  if (!flags->json) printf("\nkept: lockstep bench --kept prints it, simulate and plan go by it\n");
  return flags->output ? ls_file_write(flags->output, text, strlen(text), error) : LS_OK;
}
