/* Queues, as the engine declares them: where a message holds its queue until it is matched, a send
 * and its receive are matched once both are at the head of theirs.
 *
 * Collectives of other axes may have other queues. That a step ends on them, too, follows from what
 * is proved: all programs were interpreted to their end, each in its own order, which gives one
 * order of all transfers that agrees with every rank's. Each queue is in a rank's order, and an
 * event waits for what is before it. So of the transfers that are not done the first stands at the
 * head of its queue on all its ranks, everything that it waits for is done, and it can go on -
 * if its kernels are given room while kernels of later ones wait on the device: as many queues as
 * can be busy at once are counted (`beside`). NCCL asks for that order of launches on all ranks of
 * whoever uses several communicators at once (its user guide, from 2.26 on with
 * NCCL_LAUNCH_ORDER_IMPLICIT, which gives them their turns by it). */
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

static bool is_between_ranks(const ls_instruction *instruction) {
  return ls_collective_is_of_group(instruction->collective) ||
         ls_collective_is_message(instruction->collective);
}

/* Whether an earlier one of those under way is in the queue. */
static bool is_counted(const ls_stage *stage, int before, int number) {
  for (int t = 0; t < before; t++)
    if (ls_queues_number(stage->proof->queues, stage->open.items[t].by) == number) return true;
  return false;
}

void ls_note_beside(ls_stage *stage) {
  const ls_instruction *now = ls_proof_instruction(stage);
  if (!is_between_ranks(now) || now->phase == LS_END) return;
  const ls_queues *queues = stage->proof->queues;
  int count = !is_counted(stage, stage->open.count, ls_queues_number(queues, now));
  for (int t = 0; t < stage->open.count; t++) {
    const ls_instruction *open = stage->open.items[t].by;
    count += is_between_ranks(open) && !is_counted(stage, t, ls_queues_number(queues, open));
  }
  if (count > stage->proof->report.beside) stage->proof->report.beside = count;
}
