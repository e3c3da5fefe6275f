/* Fuzz target of the CSV schedules: the first three bytes are stages, chunks and microbatches (0:
 * from the file), the rest is the text. What is accepted must pass the check without places, have
 * times that add up, and read back from its written form. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/pipeline.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void read_again(ls_arena *arena, const ls_pipeline *pipeline) {
  char *text = NULL;
  size_t bytes = 0;
  ls_pipeline *again;
  ls_error error = {0};
  FILE *stream = open_memstream(&text, &bytes);
  LS_ASSERT(stream);
  ls_pipeline_write_csv(pipeline, stream);
  fclose(stream);
  LS_ASSERT(ls_pipeline_parse_csv(arena, "fuzz", text, bytes, pipeline->stages, pipeline->chunks,
                                  pipeline->microbatches, &again, &error) == LS_OK);
  for (int s = 0; s < pipeline->stages; s++) {
    LS_ASSERT(again->lists[s].count == pipeline->lists[s].count);
    LS_ASSERT(!memcmp(again->lists[s].items, pipeline->lists[s].items,
                      sizeof *again->lists[s].items * (size_t)again->lists[s].count));
  }
  free(text);
}

static void use(ls_arena *arena, const ls_pipeline *pipeline) {
  ls_error error = {0};
  ls_pipeline_times *times;
  ls_pipeline_peaks peaks;
  LS_ASSERT(ls_pipeline_check(pipeline, &error) == LS_OK);
  LS_ASSERT(ls_pipeline_times_make(arena, pipeline, &ls_pipeline_unit_costs, &times, &error) ==
            LS_OK);
  LS_ASSERT(times->makespan >= 3.0 * pipeline->chunks * pipeline->microbatches);
  LS_ASSERT(times->bubble >= 0 && times->bubble < 1 && times->steady <= times->makespan);
  ls_pipeline_peak_activations(arena, pipeline, &peaks);
  LS_ASSERT(peaks.most_until_weight > 0);
  LS_ASSERT(peaks.most_until_weight <= pipeline->chunks * pipeline->microbatches);
  char *text = NULL;
  size_t bytes = 0;
  FILE *stream = open_memstream(&text, &bytes);
  LS_ASSERT(stream);
  ls_pipeline_print(pipeline, times, 80, stream);
  fclose(stream);
  LS_ASSERT(bytes > 0);
  free(text);
  read_again(arena, pipeline);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  if (bytes < 3) return 0;
  ls_arena *arena = ls_arena_create();
  ls_pipeline *pipeline;
  ls_error error = {0};
  const ls_status status =
      ls_pipeline_parse_csv(arena, "fuzz", (const char *)data + 3, bytes - 3, 1 + data[0] % 8,
                            data[1] % 4, data[2] % 8, &pipeline, &error);
  if (status == LS_OK) {
    use(arena, pipeline);
  } else {
    LS_ASSERT(status == LS_INPUT && !pipeline);
    LS_ASSERT(!strncmp(error.text, "fuzz", 4) && !strchr(error.text, '\n'));
  }
  ls_arena_destroy(&arena);
  return 0;
}
