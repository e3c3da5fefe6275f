/* What of a run has never run on a GPU itself, though it has on stand-ins: docs/gpu.md has what was
 * seen of one H200. */
#include <string.h>

#include "session/session.h"

static bool is_tried_family(const char *family) {
  static const char *const tried[] = {"llama", "gpt2", "gemma2", "mixtral"};
  for (size_t t = 0; t < sizeof tried / sizeof *tried; t++)
    if (strcmp(family, tried[t]) == 0) return true;
  return false;
}

static bool is_balanced(const ls_balance *of) {
  return of->aux > 0 || of->z > 0 || of->bias_rate > 0 || of->drop > 0;
}

static bool waits_on_drive(const ls_offload *of) {
  return of->optimizer == LS_TIER_NVME || of->parameters == LS_TIER_NVME ||
         of->activations == LS_TIER_NVME;
}

const char *ls_session_untried(ls_arena *arena, const ls_session *session) {
  const ls_run_file *run = session->run;
  const ls_model_config *config = &session->config;
  const ls_layout *layout = &session->layout;
  const bool exchanges = layout->cp > 1 && (layout->context == LS_CONTEXT_ULYSSES ||
                                            layout->context == LS_CONTEXT_HYBRID);
  const struct {
    bool is;
    const char *what;
  } all[] = {{session->devices > 1 && !run->device.loopback, "several GPUs together"},
             {ls_session_tunes(session), "device.tune"},
             {config->fp8, "dtype: fp8"},
             {!is_tried_family(config->family), "a model of this family"},
             {is_balanced(&config->balance), "balance or capacity of experts"},
             {ls_layout_senders(layout) > 0, "experts.exchange: all_to_all"},
             {exchanges, "heads exchanged over mesh.cp"},
             {config->lora_rank > 0, "adapters"},
             {config->blocks != LS_COMPUTE, "quantize"},
             {run->task != LS_RUN_NEXT_TOKEN, "this task"},
             {layout->optimizer.kind != LS_OPTIMIZER_ADAMW, "this optimizer"},
             {waits_on_drive(&layout->offload), "offload to a drive"}};
  const char *text = NULL;
  if (strcmp(session->device.kind, "cuda") != 0) return NULL;
  for (size_t a = 0; a < sizeof all / sizeof *all; a++)
    if (all[a].is)
      text = ls_arena_printf(arena, "%s%s%s", text ? text : "", text ? ", " : "", all[a].what);
  return text;
}
