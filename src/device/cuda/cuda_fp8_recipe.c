/* Products of codes of 8 bits: on which GPUs, of which shapes, and where their codes lie. */
#include "device/cuda/cuda_recipe.h"
#include "device/cuda/kernels/cuda_launch.h"

/* cuBLASLt's FP8 kernels: dimensions, strides and addresses of 16 bytes, and A transposed where B
 * is not, so that what is summed over is contiguous (cuBLAS documentation, cublasLtMatmul). */
enum { MULTIPLE = 16, ALIGNMENT = 256 };

static int64_t up_to(int64_t count, int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

static int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static bool takes_codes(const ls_device_facts *facts, ls_op_kind kind, const ls_kernel_args *args) {
  if (!facts->fp8 || !args->attributes || !args->attributes->fp8) return false;
  if (kind != LS_OP_LINEAR && kind != LS_OP_LINEAR_DX) return false;
  const ls_view *in = args->in, *out = &args->out[0];
  if (in[0].dtype != LS_BF16 || in[1].dtype != LS_BF16 || out->dtype != LS_BF16) return false;
  if (out->dims[1] % MULTIPLE) return false;
  /* Columns up to that multiple are made, zero where nothing exists, and so their bias is. */
  if (args->inputs > 2 && args->in[2].dims[0] < out->dims[1]) return false;
  return facts->fp8 == LS_FP8_IN_PRODUCT || !args->accumulate[0];
}

void ls_cuda_set_fp8(ls_device_facts *facts, size_t version) {
  /* Release notes of CUDA 12.1 Update 1, 12.8 and 12.9. */
  enum { ADA = 120103, BLACKWELL = 120800, VECTORS = 120900 };
  const int of = facts->architecture;
  facts->fp8 = LS_FP8_EMULATED;
  facts->fp8_why = NULL;
  facts->takes_codes = takes_codes;
  if (of < 89)
    facts->fp8_why = "GPUs before sm_89 multiply no numbers of 8 bits";
  else if (of == 89 && version < ADA)
    facts->fp8_why = "cuBLASLt before 12.1.3 multiplies no numbers of 8 bits on sm_89";
  else if (of >= 100 && version < BLACKWELL)
    facts->fp8_why = "cuBLASLt before 12.8 multiplies no numbers of 8 bits on sm_100 and above";
  else
    facts->fp8 = of == 90 && version >= VECTORS ? LS_FP8_IN_PRODUCT : LS_FP8_BY_PASS;
  if (facts->fp8 == LS_FP8_BY_PASS)
    facts->fp8_why = of == 90 ? "cuBLASLt before 12.9 takes no scales of rows"
                              : "cuBLASLt takes scales of rows on sm_90 alone";
}

/* By what is stored, so that a rank's padding moves nothing. */
static size_t take(size_t *at, int64_t count, size_t each) {
  const size_t place = *at;
  *at += (size_t)up_to(count * (int64_t)each, ALIGNMENT);
  return place;
}

ls_cuda_fp8_room ls_cuda_fp8_room_of(const ls_device_facts *facts, ls_op_kind kind,
                                     const ls_kernel_args *args) {
  const bool forward = kind == LS_OP_LINEAR;
  const ls_view *in = args->in, *out = &args->out[0];
  ls_cuda_fp8_room room = {.format = forward ? LS_FP8_E4M3 : LS_FP8_E5M2};
  room.summed =
      forward ? smaller(in[0].dims[1], in[1].dims[1]) : smaller(in[0].valid[1], in[1].valid[0]);
  room.depth = up_to(room.summed, MULTIPLE);
  const int64_t made = smaller(forward ? in[1].valid[0] : in[1].dims[1], out->dims[1]);
  room.rows = smaller(up_to(made, MULTIPLE), out->dims[1]);
  const int64_t most_depth = up_to(smaller(in[0].dims[1], in[1].dims[!!forward]), MULTIPLE);
  room.codes = take(&room.bytes, in[0].dims[0] * most_depth, 1);
  room.weight_codes = take(&room.bytes, out->dims[1] * most_depth, 1);
  room.scales = take(&room.bytes, in[0].dims[0], sizeof(float));
  room.weight_scales = take(&room.bytes, out->dims[1], sizeof(float));
  room.parts = take(&room.bytes, forward ? 0 : ls_cuda_coding_parts(facts), sizeof(float));
  return room;
}
