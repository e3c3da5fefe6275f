#include "ir/program.h"

const char *ls_pool_name(ls_pool pool) {
  static const char *const names[] = {"state",      "cell",      "input",      "work",
                                      "host_state", "host_work", "file_state", "file_work"};
  return names[pool];
}

ls_tier ls_pool_tier(ls_pool pool) {
  if (pool >= LS_POOL_FILE_STATE) return LS_TIER_NVME;
  return pool >= LS_POOL_HOST_STATE ? LS_TIER_HOST : LS_TIER_DEVICE;
}

bool ls_pool_works(ls_pool pool) {
  return pool == LS_POOL_WORK || pool == LS_POOL_HOST_WORK || pool == LS_POOL_FILE_WORK;
}
