#include "device/kernel.h"

#include "base/blocks.h"
#include "base/scales.h"

int64_t ls_kernel_first_scale(const ls_kernel_args *args, int64_t row) {
  const ls_view *in = &args->in[0];
  return (in->start[0] + row) * args->attributes->columns + in->start[1];
}

ls_status ls_kernel_check_scales(const ls_kernel_args *args, ls_error *error) {
  const ls_view *in = &args->in[0], *scales = &args->in[1], *out = &args->out[0];
  if (ls_blocks_single(in->dtype) == in->dtype || out->dtype != ls_blocks_single(in->dtype) ||
      scales->dtype != LS_F32 || args->accumulate[0])
    return ls_fail(error, LS_INTERNAL, "scales of %s by %s are to be those of %s",
                   ls_dtype_name(in->dtype), ls_dtype_name(scales->dtype),
                   ls_dtype_name(out->dtype));
  const int64_t most = (scales->valid[0] - 1) * LS_SCALES_TOGETHER;
  const bool within =
      out->valid[0] == 0 || ls_kernel_first_scale(args, out->valid[0] - 1) + out->valid[1] <= most;
  if (in->valid[0] == out->valid[0] && in->valid[1] == out->valid[1] && within) return LS_OK;
  return ls_fail(error, LS_INTERNAL, "%lld x %lld blocks from %lld on have %lld scales",
                 (long long)in->valid[0], (long long)in->valid[1],
                 (long long)ls_kernel_first_scale(args, 0), (long long)most);
}
