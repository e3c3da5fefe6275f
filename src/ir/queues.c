#include "ir/queues.h"

const ls_queues ls_queues_in_process = {"in process", LS_QUEUE_A_PEER_AND_DIRECTION, false, 32};
const ls_queues ls_queues_nccl = {"NCCL", LS_QUEUE_A_PEER_AND_DIRECTION, true, 0};

const char *ls_queues_sharing_name(const ls_queues *queues) {
  static const char *const names[] = {[LS_QUEUE_A_PEER_AND_DIRECTION] = "a peer and direction",
                                      [LS_QUEUE_A_PEER] = "a peer",
                                      [LS_QUEUE_FOR_ALL] = "for all"};
  return names[queues->sharing];
}
