#include <stdio.h>

#include "cost/cost.h"

static double mib(int64_t bytes) {
  return (double)bytes / (1024.0 * 1024.0);
}

static void print_tier(const ls_program *program, ls_tier tier, FILE *stream) {
  static const char *const names[] = {"memory of one rank", "memory of its host",
                                      "its file on nvme"};
  int64_t by_category[LS_CATEGORY_COUNT] = {0};
  const int64_t peak = ls_program_tier_peak(program, tier, by_category);
  const int64_t bytes = ls_program_tier_bytes(program, tier);
  fprintf(stream, "%s, MiB at the peak\n", names[tier]);
  for (int c = 0; c < LS_CATEGORY_COUNT; c++)
    if (by_category[c])
      fprintf(stream, "  %-20s %10.2f\n", ls_category_name((ls_category)c), mib(by_category[c]));
  fprintf(stream, "  %-20s %10.2f\n", "sum", mib(peak));
  fprintf(stream, "  %-20s %10.2f  (arena; %.2f not used at the peak)\n", "laid out", mib(bytes),
          mib(bytes - peak));
}

static void print_moved(const ls_program *program, FILE *stream) {
  for (int from = 0; from < LS_TIER_COUNT; from++)
    for (int to = 0; to < LS_TIER_COUNT; to++) {
      const int64_t bytes = ls_program_bytes_moved(program, (ls_tier)from, (ls_tier)to);
      if (bytes)
        fprintf(stream, "  moved %-6s -> %-6s %8.2f  MiB a step\n", ls_tier_name((ls_tier)from),
                ls_tier_name((ls_tier)to), mib(bytes));
    }
}

static void print_workspace(const ls_program *program, int64_t workspace, FILE *stream) {
  fprintf(stream, "  %-20s %10.2f  (of its kernels, beside the arena)\n", "workspace",
          mib(workspace));
  fprintf(stream, "  %-20s %10.2f\n", "needed",
          mib(ls_program_tier_bytes(program, LS_TIER_DEVICE) + workspace));
}

void ls_program_print_memory(const ls_program *program, int64_t workspace, FILE *stream) {
  print_tier(program, LS_TIER_DEVICE, stream);
  if (workspace) print_workspace(program, workspace, stream);
  for (int t = LS_TIER_DEVICE + 1; t < LS_TIER_COUNT; t++)
    if (ls_program_tier_bytes(program, (ls_tier)t)) print_tier(program, (ls_tier)t, stream);
  print_moved(program, stream);
  if (program->recomputed_flops > 0)
    fprintf(stream, "  %-20s %10.1f  %% of the step's work, to keep less\n", "done again",
            100 * program->recomputed_flops / program->flops);
}
