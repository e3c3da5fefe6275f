/* What writing and reading a machine's rates have in common. Internal to cluster. */
#ifndef LS_CLUSTER_RATES_FORM_H
#define LS_CLUSTER_RATES_FORM_H

#include <stddef.h>
#include <stdint.h>

/* Of the file's form; another one is not read. 3: transfers of ranks that share cores are what
 * these did. */
enum { LS_RATES_FORM = 3 };

/* FNV-1a of all that stands before the key "checksum". */
uint64_t ls_rates_checksum(const char *text, size_t bytes);

#endif
