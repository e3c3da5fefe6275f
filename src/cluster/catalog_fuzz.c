/* Fuzz target of machines.yaml and of a cluster's file: first byte even, the one, else the other.
 * What is read is finite and can be used; what is not is refused in one line. */
#include <math.h>

#include "cluster/cluster.h"
#include "support/fuzz_folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void use_catalog(const ls_catalog *catalog) {
  for (int i = 0; i < catalog->accelerators.count; i++) {
    const ls_accelerator *a = catalog->accelerators.items[i];
    LS_ASSERT(a->memory_mib > 0 && isfinite(a->memory_bytes_per_s) && isfinite(a->watts));
    for (int p = 0; p < a->prices.count; p++) LS_ASSERT(a->prices.items[p].hour > 0);
  }
  for (int i = 0; i < catalog->links.count; i++)
    LS_ASSERT(catalog->links.items[i]->bytes_per_s > 0 && catalog->links.items[i]->nics > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  if (!bytes) return 0;
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  ls_catalog *catalog;
  ls_cluster *cluster;
  fuzz_folder_write("given.yaml", data + 1, bytes - 1);
  const char *path = ls_arena_printf(arena, "%s/given.yaml", fuzz_folder());
  ls_status status = ls_catalog_read(arena, *data % 2 ? NULL : path, &catalog, &error);
  if (status == LS_OK) use_catalog(catalog);
  if (status == LS_OK && *data % 2) {
    status = ls_cluster_read(catalog, path, &cluster, &error);
    if (status == LS_OK) LS_ASSERT(cluster->accelerator && cluster->per_host > 0);
  }
  LS_ASSERT(status == LS_OK || (error.text[0] && !strchr(error.text, '\n')));
  ls_arena_destroy(&arena);
  return 0;
}
