/* What writing and reading a machine's rates have in common. Internal to cluster. */
#ifndef LS_CLUSTER_RATES_FORM_H
#define LS_CLUSTER_RATES_FORM_H

#include <stddef.h>
#include <stdint.h>

/* Of the file's form; another one is not read. 2: ops, transfers of all kinds, residuals. */
enum { LS_RATES_FORM = 2 };

/* FNV-1a of all that stands before the key "checksum". */
uint64_t ls_rates_checksum(const char *text, size_t bytes);

#endif
