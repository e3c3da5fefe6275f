/* Fuzz target of the metrics.jsonl that a run goes on with, and that is plotted: what is not a
 * run's is refused and stays as it is, a run's is cut to a beginning of it. */
#include "support/fuzz_folder.h"
#include "train/metrics.h"
#include "train/metrics_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  if (bytes == 0) return 0;
  fuzz_folder_write("metrics.jsonl", data + 1, bytes - 1);
  ls_error error = {0};
  ls_arena *arena = ls_arena_create();
  const char *path = ls_arena_printf(arena, "%s/metrics.jsonl", fuzz_folder());
  ls_metrics_rows rows;
  const ls_status read = ls_metrics_read(arena, path, &rows, &error);
  if (read != LS_OK) fuzz_check_refusal(read, &error);
  LS_ASSERT(read != LS_OK || rows.count > 0);
  ls_metrics *metrics;
  const ls_status status = ls_metrics_open(path, data[0], &metrics, &error);
  if (status != LS_OK) fuzz_check_refusal(status, &error);
  ls_metrics_close(&metrics);
  char *left;
  size_t left_bytes;
  LS_ASSERT(ls_file_read(arena, path, &left, &left_bytes, &error) == LS_OK);
  LS_ASSERT(left_bytes <= bytes - 1 && (status == LS_OK || left_bytes == bytes - 1));
  LS_ASSERT(left_bytes == 0 || memcmp(left, data + 1, left_bytes) == 0);
  LS_ASSERT(status != LS_OK || left_bytes == 0 || left[left_bytes - 1] == '\n');
  ls_arena_destroy(&arena);
  return 0;
}
