#include "session/quantize.h"

#include "store/names.h"

ls_status ls_quantize_apply(const ls_run_file *run, ls_model_config *config, ls_error *error) {
  static const ls_precision precisions[] = {[LS_RUN_QUANTIZE_NONE] = LS_COMPUTE,
                                            [LS_RUN_QUANTIZE_NF4] = LS_BLOCKS_NF4,
                                            [LS_RUN_QUANTIZE_INT8] = LS_BLOCKS_INT8,
                                            [LS_RUN_QUANTIZE_FP4] = LS_BLOCKS_FP4,
                                            [LS_RUN_QUANTIZE_NF4_DOUBLE] = LS_BLOCKS_NF4_DOUBLE,
                                            [LS_RUN_QUANTIZE_FP4_DOUBLE] = LS_BLOCKS_FP4_DOUBLE};
  if (run->quantize == LS_RUN_QUANTIZE_AUTO) return ls_weights_settle_scales(config, error);
  const ls_status status = ls_model_quantize(config, precisions[run->quantize], error);
  if (status == LS_OK) return LS_OK;
  return ls_error_prefix(error, "%s", ls_run_file_where(run, "quantize"));
}

ls_status ls_quantize_check_trained(const ls_run_file *run, const ls_model_config *config,
                                    ls_error *error) {
  if (config->lora_rank || !ls_precision_is_blocks(config->blocks)) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: quantised weights are not trained, but adapters beside them: give lora.rank, "
                 "as in lora.rank=16, or quantize=none",
                 ls_run_file_where(run, "quantize"));
}
