#include "base/stop.h"

#include <stddef.h>

static const volatile sig_atomic_t *asked;

const volatile sig_atomic_t *ls_stop_listen(const volatile sig_atomic_t *flag) {
  return __atomic_exchange_n(&asked, flag, __ATOMIC_ACQ_REL);
}

bool ls_stop_asked(void) {
  const volatile sig_atomic_t *flag = __atomic_load_n(&asked, __ATOMIC_ACQUIRE);
  return flag && __atomic_load_n(flag, __ATOMIC_RELAXED); /* any thread may have set it */
}

ls_status ls_stop_check(const char *what, ls_error *error) {
  return ls_stop_asked() ? ls_fail(error, LS_STOPPED, "stopped while %s", what) : LS_OK;
}
