#include "ir/action.h"

static const char *const kinds[] = {
#define LS_ACTION_NAME(suffix, name) [LS_ACTION_##suffix] = name,
    LS_ACTIONS(LS_ACTION_NAME)
#undef LS_ACTION_NAME
};

/* [transfer][payload][end] */
static const char *const transfers[LS_TRANSFER_COUNT][LS_PAYLOAD_COUNT][2] = {
#define LS_BOTH_NAMES(transfer, payload) \
  {"begin " transfer " of " payload, "wait for " transfer " of " payload},
#define LS_TRANSFER_NAMES(suffix, transfer)                                      \
  [LS_TRANSFER_##suffix] = {                                                     \
      LS_BOTH_NAMES(transfer, "parameters") LS_BOTH_NAMES(transfer, "gradients") \
          LS_BOTH_NAMES(transfer, "optimizer state") LS_BOTH_NAMES(transfer, "activations")},
    LS_TRANSFERS(LS_TRANSFER_NAMES)
#undef LS_TRANSFER_NAMES
#undef LS_BOTH_NAMES
};

bool ls_action_transfers(const ls_action *action) {
  return action->kind == LS_ACTION_BEGIN || action->kind == LS_ACTION_WAIT;
}

bool ls_action_is_message(const ls_action *action) {
  return ls_action_transfers(action) &&
         (action->transfer == LS_TRANSFER_SEND || action->transfer == LS_TRANSFER_RECEIVE);
}

const char *ls_action_name(const ls_action *action) {
  if (!ls_action_transfers(action)) return kinds[action->kind];
  return transfers[action->transfer][action->payload][action->kind == LS_ACTION_WAIT];
}

int ls_action_sort(const ls_action *action) {
  if (!ls_action_transfers(action)) return (int)action->kind;
  return LS_ACTION_COUNT_OF_KINDS +
         2 * ((int)action->transfer * LS_PAYLOAD_COUNT + (int)action->payload) +
         (action->kind == LS_ACTION_WAIT);
}
