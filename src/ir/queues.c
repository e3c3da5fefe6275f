/* Queues of the engines, and which instructions share one. */
#include "ir/queues.h"

const ls_queues ls_queues_in_process = {"in process", LS_QUEUE_A_PEER_AND_DIRECTION,
                                        .most_sends = 32};
const ls_queues ls_queues_nccl = {"NCCL", LS_QUEUE_A_PEER_AND_DIRECTION, .holds = true,
                                  .groups_apart = true};

/* Messages below 0; ops and moves; then collectives, by their axes where they queue apart. */
int ls_queues_number(const ls_queues *queues, const ls_instruction *instruction) {
  if (instruction->queue != LS_QUEUE_COMMUNICATE) return (int)instruction->queue;
  if (!ls_collective_is_message(instruction->collective))
    return LS_QUEUE_COUNT + (queues->groups_apart ? (int)instruction->axes : 0);
  if (queues->sharing == LS_QUEUE_FOR_ALL) return -1;
  const bool sends =
      queues->sharing == LS_QUEUE_A_PEER_AND_DIRECTION && instruction->collective == LS_SEND;
  return -1 - 2 * instruction->peer - sends;
}

const char *ls_queues_sharing_name(const ls_queues *queues) {
  static const char *const names[] = {[LS_QUEUE_A_PEER_AND_DIRECTION] = "a peer and direction",
                                      [LS_QUEUE_A_PEER] = "a peer",
                                      [LS_QUEUE_FOR_ALL] = "for all"};
  return names[queues->sharing];
}
