/* Fuzz target of the safetensors reader: the input is a file. Tensors that are accepted must tile
 * the data, be found by their names, and be readable to their last byte. */
#include <stdint.h>
#include <string.h>

#include "base/arena.h"
#include "base/blocks.h"
#include "store/quantised.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Of one that stands for blocks: its scales may be no numbers. */
static void check_quantised(const ls_stored_tensor *tensor) {
  ls_error error = {0};
  ls_four_bit_block block;
  double edges[2];
  const int64_t last = tensor->count - LS_BLOCK_WEIGHTS;
  LS_ASSERT(tensor->bytes == (size_t)tensor->count / 2 && last >= 0);
  const ls_status status =
      ls_stored_tensor_read(tensor, last, LS_BLOCK_WEIGHTS, LS_NF4, &block, &error);
  LS_ASSERT(status == LS_OK || status == LS_INPUT);
  LS_ASSERT(ls_stored_tensor_read(tensor, tensor->count - 2, 2, LS_F64, edges, &error) == status);
  LS_ASSERT(!ls_quantised_is_part(tensor));
}

static void check_tensor(const ls_safetensors *opened, const ls_stored_tensor *tensor,
                         const uint8_t *data, size_t bytes) {
  LS_ASSERT(ls_safetensors_find(opened, tensor->name) == tensor);
  int64_t count = 1;
  for (int i = 0; i < tensor->ndim; i++) count *= tensor->dims[i];
  LS_ASSERT(count == tensor->count && (tensor->bytes > 0) == (tensor->data != NULL));
  if (tensor->bytes == 0) return;
  const uint8_t *first = tensor->data;
  LS_ASSERT(first >= data + 8 && tensor->bytes <= bytes &&
            (size_t)(first - data) <= bytes - tensor->bytes);
  if (tensor->dtype == LS_DTYPE_COUNT) return;
  if (tensor->quantised) {
    check_quantised(tensor);
    return;
  }
  LS_ASSERT(tensor->bytes == (size_t)tensor->count * ls_dtype_bytes(tensor->dtype));
  ls_error error = {0};
  double last;
  const bool is_float = strchr("FB", tensor->format[0]) != NULL;
  const ls_status status =
      ls_stored_tensor_read(tensor, tensor->count - 1, 1, LS_F64, &last, &error);
  LS_ASSERT(status == (is_float ? LS_OK : LS_INPUT));
  LS_ASSERT(ls_stored_tensor_read(tensor, 1, tensor->count, tensor->dtype, &last, &error) ==
            LS_INPUT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  ls_error error = {0};
  ls_safetensors *opened;
  if (ls_safetensors_parse("fuzz", bytes ? (const void *)data : "", bytes, &opened, &error) !=
      LS_OK) {
    LS_ASSERT(!opened && error.status == LS_INPUT && !strchr(error.text, '\n'));
    LS_ASSERT(strncmp(error.text, "fuzz: ", 6) == 0);
    return 0;
  }
  size_t total = 0;
  for (int i = 0; i < ls_safetensors_count(opened); i++) {
    const ls_stored_tensor *tensor = ls_safetensors_at(opened, i);
    check_tensor(opened, tensor, data, bytes);
    total += tensor->bytes;
  }
  LS_ASSERT(total <= bytes);
  ls_safetensors_metadata(opened, "format");
  ls_safetensors_close(&opened);
  return 0;
}
