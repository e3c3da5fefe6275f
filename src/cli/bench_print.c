#include <string.h>
#include <time.h>

#include "cli/bench.h"
#include "text/number.h"

/* The same shape and type by all cores and by one lie in one line. */
static const ls_matmul_rate *find_product(const ls_rates *rates, const ls_matmul_rate *like,
                                          int threads) {
  for (int i = 0; i < rates->matmul.count; i++) {
    const ls_matmul_rate *each = &rates->matmul.items[i];
    if (each->dtype == like->dtype && each->rows == like->rows && each->columns == like->columns &&
        each->depth == like->depth && each->threads == threads)
      return each;
  }
  return NULL;
}

static void print_pair(const ls_rate *all, const ls_rate *one, double unit, FILE *stream) {
  fprintf(stream, "%10.1f %9.1f", all->best * unit, all->median * unit);
  if (one) fprintf(stream, "   %10.1f %9.1f", one->best * unit, one->median * unit);
}

static void print_heads(const ls_rates *rates, const char *what, const char *unit, FILE *stream) {
  const int cores = rates->key.cores;
  fprintf(stream, "\n%-28s%*s%d thread%s", what, cores > 9 ? 10 : 11, "", cores,
          cores == 1 ? " " : "s");
  if (cores > 1) fprintf(stream, "   %12s1 thread", "");
  fprintf(stream, "\n%-28s%10s %9s", unit, "best", "median");
  if (cores > 1) fprintf(stream, "   %10s %9s", "best", "median");
  fputc('\n', stream);
}

static void print_matmul(const ls_rates *rates, FILE *stream) {
  const int cores = rates->key.cores;
  print_heads(rates, "matrix products", "GFLOP/s", stream);
  for (int i = 0; i < rates->matmul.count; i++) {
    const ls_matmul_rate *each = &rates->matmul.items[i];
    if (each->threads != cores) continue;
    char shape[64], line[96];
    snprintf(shape, sizeof shape, "%lldx%lldx%lld", (long long)each->rows, (long long)each->columns,
             (long long)each->depth);
    snprintf(line, sizeof line, "  %s%s %s", ls_dtype_name(each->dtype), each->native ? "" : "*",
             shape);
    fprintf(stream, "%-28s", line);
    const ls_matmul_rate *one = cores > 1 ? find_product(rates, each, 1) : NULL;
    print_pair(&each->rate, one ? &one->rate : NULL, 1e-9, stream);
    fputc('\n', stream);
  }
  for (int i = 0; i < rates->matmul.count; i++) {
    if (rates->matmul.items[i].native) continue;
    fprintf(stream, "  * not faster than fp32 on this processor: operands are widened first\n");
    break;
  }
}

static const ls_memory_rate *find_memory(const ls_rates *rates, ls_memory_way way, int threads) {
  for (int i = 0; i < rates->memory.count; i++)
    if (rates->memory.items[i].way == way && rates->memory.items[i].threads == threads)
      return &rates->memory.items[i];
  return NULL;
}

static void print_memory(const ls_rates *rates, FILE *stream) {
  static const char *const loops[LS_MEMORY_WAYS] = {"sum of a", "a = 1", "a = b", "a = b + s c"};
  const int cores = rates->key.cores;
  char size[LS_NUMBER_BYTES];
  ls_size_show(size, (double)rates->memory_bytes);
  print_heads(rates, "memory", "GB/s", stream);
  for (int w = 0; w < LS_MEMORY_WAYS; w++) {
    const ls_memory_rate *all = find_memory(rates, (ls_memory_way)w, cores);
    const ls_memory_rate *one = cores > 1 ? find_memory(rates, (ls_memory_way)w, 1) : NULL;
    if (!all) continue;
    fprintf(stream, "  %-7s %-18s", ls_memory_way_name((ls_memory_way)w), loops[w]);
    print_pair(&all->rate, one ? &one->rate : NULL, 1e-9, stream);
    fputc('\n', stream);
  }
  fprintf(stream, "  arrays of %s; an array that a loop names counts once\n", size);
}

static void print_reduce(const ls_rates *rates, FILE *stream) {
  fprintf(stream, "\n%-28s%10s %9s   %10s\n", "all-reduce, fp32, in place", "best us", "median us",
          "GB/s");
  for (int i = 0; i < rates->transfer.count; i++) {
    const ls_transfer_rate *each = &rates->transfer.items[i];
    if (each->collective != LS_ALL_REDUCE || each->ranks != each->world) continue;
    const double bytes = (double)each->bytes;
    char size[LS_NUMBER_BYTES], line[96];
    ls_size_write(size, each->bytes);
    snprintf(line, sizeof line, "  %s, %d ranks", size, each->ranks);
    fprintf(stream, "%-28s%10.1f %9.1f   %10.2f\n", line, 1e6 * bytes / each->rate.best,
            1e6 * bytes / each->rate.median, 1e-9 * each->rate.median);
  }
}

static void print_disk(const ls_disk_rate *disk, FILE *stream) {
  char size[LS_NUMBER_BYTES];
  ls_size_write(size, disk->bytes);
  fprintf(stream, "\n%-28s%10s %9s\n", "drive, MB/s", "best", "median");
  fprintf(stream, "  %-26s%10.1f %9.1f\n", "write, fdatasync", disk->write.best * 1e-6,
          disk->write.median * 1e-6);
  fprintf(stream, "  %-26s%10.1f %9.1f\n", "read", disk->read.best * 1e-6,
          disk->read.median * 1e-6);
  fprintf(stream, "  %s in %s; read: %s\n", size, disk->folder, disk->how);
}

static void print_residuals(const ls_rates *rates, FILE *stream) {
  fprintf(stream, "\n%-28s%10s %9s\n", "learned from runs", "longer by", "runs");
  for (int i = 0; i < rates->residuals.count; i++) {
    const ls_residual *each = &rates->residuals.items[i];
    fprintf(stream, "  %-26s%8.1f %% %9d\n", each->kind,
            100 * (ls_rates_residual(rates, each->kind) - 1), each->ratios.count);
  }
  fprintf(stream, "  lockstep plan --forget removes it\n");
}

/* Large products take as long each time, unless something else takes the cores away. */
static bool was_disturbed(const ls_rates *rates) {
  enum { LARGE = 512 };
  const double usual = 0.8;
  for (int i = 0; i < rates->matmul.count; i++) {
    const ls_matmul_rate *each = &rates->matmul.items[i];
    if (each->rows >= LARGE && each->rate.median < usual * each->rate.best) return true;
  }
  return false;
}

/* ", 2d03h ago"; nothing of what was measured now. */
static void print_age(const ls_rates *rates, FILE *stream) {
  const int64_t age = (int64_t)time(NULL) - rates->measured_s;
  char shown[LS_DURATION_BYTES];
  if (age < 60) return;
  ls_duration_show(shown, (double)age);
  fprintf(stream, ", %s ago", shown);
}

void ls_bench_print(const ls_rates *rates, FILE *stream) {
  char date[32] = "";
  const time_t at = (time_t)rates->measured_s;
  struct tm parts;
  if (localtime_r(&at, &parts)) strftime(date, sizeof date, "%Y-%m-%d %H:%M", &parts);
  fprintf(stream, "%s\n%d core%s; %s; %s\nmeasured %s in %.0f s", rates->key.processor,
          rates->key.cores, rates->key.cores == 1 ? "" : "s", rates->key.instructions,
          rates->key.library, date, rates->seconds);
  print_age(rates, stream);
  fprintf(stream, "; kept for %d days\n", LS_RATES_DAYS);
  print_matmul(rates, stream);
  print_memory(rates, stream);
  print_reduce(rates, stream);
  if (rates->disk.folder) print_disk(&rates->disk, stream);
  if (rates->ops.count)
    fprintf(stream, "\n%d times of ops in training steps; a slice of a core's time is %.1f ms\n",
            rates->ops.count, rates->slice_s * 1e3);
  if (rates->residuals.count) print_residuals(rates, stream);
  if (was_disturbed(rates))
    fprintf(stream,
            "\nother work ran beside it, as medians far from the best show: measure again on "
            "an idle machine\n");
}
