/* What reader and writer of safetensors share: the names and sizes of element formats. Private to
 * this room. Thread-safe: no state. */
#ifndef LS_STORE_SAFETENSORS_FORMAT_H
#define LS_STORE_SAFETENSORS_FORMAT_H

#include "lockstep/dtype.h"

enum {
  LS_SAFETENSORS_PREFIX = 8,            /* bytes of the header's length, little-endian */
  LS_SAFETENSORS_MAX_HEADER = 100000000 /* bytes, as in the reference */
};

typedef struct ls_format {
  const char *name;
  int bits; /* of one element */
  ls_dtype dtype;
} ls_format;

/* The format of that name; NULL where there is none. */
const ls_format *ls_format_find(const char *name);

/* The format that holds our dtype. */
const ls_format *ls_format_of(ls_dtype dtype);

#endif
