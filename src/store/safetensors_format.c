#include "store/safetensors_format.h"

#include <stddef.h>
#include <string.h>

/* All that safetensors 0.7 knows. */
static const ls_format formats[] = {
    {"F32", 32, LS_F32},
    {"BF16", 16, LS_BF16},
    {"F16", 16, LS_F16},
    {"F64", 64, LS_F64},
    {"I32", 32, LS_I32},
    {"I64", 64, LS_I64},
    {"U8", 8, LS_U8},
    {"BOOL", 8, LS_DTYPE_COUNT},
    {"I8", 8, LS_DTYPE_COUNT},
    {"I16", 16, LS_DTYPE_COUNT},
    {"U16", 16, LS_DTYPE_COUNT},
    {"U32", 32, LS_DTYPE_COUNT},
    {"U64", 64, LS_DTYPE_COUNT},
    {"C64", 64, LS_DTYPE_COUNT},
    {"F8_E5M2", 8, LS_DTYPE_COUNT},
    {"F8_E4M3", 8, LS_DTYPE_COUNT},
    {"F8_E8M0", 8, LS_DTYPE_COUNT},
    {"F8_E4M3FNUZ", 8, LS_DTYPE_COUNT},
    {"F8_E5M2FNUZ", 8, LS_DTYPE_COUNT},
    {"F6_E2M3", 6, LS_DTYPE_COUNT},
    {"F6_E3M2", 6, LS_DTYPE_COUNT},
    {"F4", 4, LS_DTYPE_COUNT},
};

const ls_format *ls_format_find(const char *name) {
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
    if (strcmp(formats[i].name, name) == 0) return &formats[i];
  }
  return NULL;
}

const ls_format *ls_format_of(ls_dtype dtype) {
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
    if (formats[i].dtype == dtype) return &formats[i];
  }
  return NULL;
}
