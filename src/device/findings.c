/* What is said of devices: the CPU's instructions and library, and the GPUs. */
#include <stdlib.h>
#include <string.h>

#include "device/cuda/gpu_findings.h"
#include "device/facts.h"
#include "device/gpus.h"

static void find_cpu(ls_findings *all) {
  const ls_device_facts *facts = ls_device_facts_here();
  const char *limit = getenv("ONEDNN_MAX_CPU_ISA");
  all->about = "CPU";
  if (strcmp(facts->set, "plain") != 0)
    ls_find(
        all, LS_VERDICT_OK, "instructions", NULL, "%s%s (%s)", facts->set,
        ls_device_multiplies(facts, LS_BF16) ? ", multiplies bf16" : ", bf16 is widened to fp32",
        facts->effective);
  else
    ls_find(all, LS_VERDICT_WARNING, "instructions",
            limit ? "unset ONEDNN_MAX_CPU_ISA" : "a processor with AVX2 or newer",
            "%s: there are no vector kernels for it", facts->set);
  if (limit)
    ls_find(all, LS_VERDICT_WARNING, "ONEDNN_MAX_CPU_ISA", "unset it unless it is meant",
            "\"%.40s\": newer instructions are not used", limit);
  ls_find(all, LS_VERDICT_OK, "library", NULL, "%s", facts->library ? facts->library : "unknown");
}

void ls_device_findings(ls_findings *all, const char *root, const char *folder) {
  const ls_cuda_places places = folder ? (ls_cuda_places){.folders = &folder, .folder_count = 1}
                                       : ls_cuda_places_usual(all->arena);
  find_cpu(all);
  ls_cuda_findings(all, root, &places);
}

const char *ls_gpus_unused(ls_arena *arena) {
  char name[96];
  const ls_cuda_places places = ls_cuda_places_usual(arena);
  const int count = ls_cuda_visible(&places, name);
  if (!count) return NULL;
  return ls_arena_printf(arena,
                         "%d GPU%s (%s) %s visible and not used: this version trains on the CPU",
                         count, count == 1 ? "" : "s", name, count == 1 ? "is" : "are");
}
