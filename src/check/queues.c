/* Queues of messages, as the engine declares them: where a message holds its queue until it is
 * matched, a send and its receive are matched once both are at the head of theirs. */
#include "check/proof.h"

static ls_message_queue *queue_of(const ls_stage *stage, int peer, bool sends) {
  const ls_queue_sharing sharing = stage->proof->queues->sharing;
  if (sharing == LS_QUEUE_FOR_ALL) return &stage->queues[0];
  return &stage->queues[2 * peer + (sharing == LS_QUEUE_A_PEER_AND_DIRECTION && sends)];
}

static const ls_posted *head_of(const ls_message_queue *queue) {
  return queue->head < queue->posted.count ? &queue->posted.items[queue->head] : NULL;
}

/* Matches what stands at the head of the queue, and then what stood behind either side of it. */
static void match(ls_stage *stage, ls_message_queue *queue) {
  for (;;) {
    const ls_posted *own = head_of(queue);
    if (!own) return;
    ls_stage *other = &stage->proof->stages[own->peer];
    ls_message_queue *theirs = queue_of(other, stage->number, !own->sends);
    const ls_posted *head = head_of(theirs);
    if (!head || head->peer != stage->number || head->sends == own->sends) return;
    const int from = own->sends ? stage->number : own->peer;
    const int to = own->sends ? own->peer : stage->number;
    stage->proof->channels[from * stage->proof->count + to].matched++;
    queue->head++;
    theirs->head++;
    match(other, theirs);
  }
}

void ls_post_message(ls_stage *stage, int peer, bool sends) {
  if (!stage->proof->queues->holds) return;
  ls_message_queue *queue = queue_of(stage, peer, sends);
  *LS_APPEND(stage->proof->arena, &queue->posted) = (ls_posted){peer, sends};
  match(stage, queue);
}

ls_posted ls_message_in_front(const ls_stage *stage, int peer, bool sends) {
  const ls_posted *head = head_of(queue_of(stage, peer, sends));
  return head ? *head : (ls_posted){peer, sends};
}
