/* What is said of devices: the CPU's instructions and library, and the GPUs. */
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_kept.h"
#include "device/cuda/gpu_findings.h"
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

ls_status ls_gpus_here(ls_arena *arena, ls_gpus *gpus, ls_error *error) {
  ls_device device;
  LS_TRY(ls_device_open(&(ls_device_options){.kind = "cuda", .compute = LS_BF16}, &device, error));
  LS_TRY(ls_cuda_device_try(error));
  ls_cuda_device_tell(arena, gpus);
  return LS_OK;
}

/* Of another version of ours rates may be others. */
static const char *key_of(ls_arena *arena, const ls_gpus *gpus) {
  return ls_arena_printf(arena, "lockstep bench %s, %s", LS_VERSION, gpus->stands_on);
}

const char *ls_gpus_kept(ls_arena *arena, const ls_gpus *gpus) {
  char *data;
  size_t bytes;
  if (!ls_cuda_kept_read(arena, key_of(arena, gpus), &data, &bytes)) return NULL;
  return ls_arena_printf(arena, "%.*s", (int)bytes, data);
}

void ls_gpus_keep(ls_arena *arena, const ls_gpus *gpus, const char *text) {
  ls_cuda_kept_write(arena, key_of(arena, gpus), text, strlen(text));
}

/* Why none is visible where a person may think that there are some: the driver cannot be used, or
 * CUDA_VISIBLE_DEVICES hides what it has, or GPUs are on the bus. NULL: there are none. */
static const char *none_visible(ls_arena *arena, ls_error *why) {
  static const char key[] = "device.kind: ";
  const bool driver = why->status == LS_OK;
  const bool absent =
      driver ? !getenv("CUDA_VISIBLE_DEVICES") : strstr(why->text, "found no") != NULL;
  if (absent && !ls_cuda_count_on_bus(arena, "")) return NULL;
  if (driver) (void)!ls_cuda_none_visible(why);
  const bool has_key = strncmp(why->text, key, sizeof key - 1) == 0;
  return ls_arena_printf(arena, "no GPU is used, the CPU is: %s",
                         why->text + (has_key ? sizeof key - 1 : 0));
}

const char *ls_gpus_choose(ls_arena *arena, ls_dtype compute, bool *taken) {
  char name[96];
  ls_device device;
  ls_error error = {0};
  const ls_device_options options = {.kind = "cuda", .compute = compute};
  const ls_cuda_places places = ls_cuda_places_usual(arena);
  const int count = ls_cuda_visible(&places, name, &error);
  *taken = false;
  if (!count) return none_visible(arena, &error);
  *taken =
      ls_device_open(&options, &device, &error) == LS_OK && ls_cuda_device_try(&error) == LS_OK;
  const char *plural = count == 1 ? "" : "s", *are = count == 1 ? "is" : "are";
  if (*taken)
    return ls_arena_printf(arena, "%d GPU%s (%s) %s visible and taken; device.kind=cpu leaves %s",
                           count, plural, name, are, count == 1 ? "it" : "them");
  return ls_arena_printf(arena, "%d GPU%s (%s) %s visible and not used, the CPU is: %s", count,
                         plural, name, are, error.text);
}
