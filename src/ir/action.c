#include "ir/action.h"

const char *ls_action_name(ls_action_kind kind) {
  static const char *const names[] = {
#define LS_ACTION_NAME(suffix, name) [LS_ACTION_##suffix] = name,
      LS_ACTIONS(LS_ACTION_NAME)
#undef LS_ACTION_NAME
  };
  return names[kind];
}
