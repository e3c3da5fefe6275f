#include "comm/lanes.h"

#include "comm/world.h"

/* Transfers of a lane that are watched until they have passed on the device; more than that are
 * where more have begun and not ended. */
enum { MOST_WATCHED = 32 };

ls_status ls_lane_borrow(const ls_transfer_calls *calls, const ls_device_queue *queue,
                         ls_lane *made, ls_error *error) {
  made->queue = *queue;
  made->borrowed = true;
  return calls->make_event(queue, &made->fence, error);
}

ls_status ls_lane_open(const ls_transfer_calls *calls, const ls_device_queue *beside, ls_lane *made,
                       ls_error *error) {
  LS_TRY(calls->open(beside, &made->queue, error));
  return calls->make_event(&made->queue, &made->fence, error);
}

void ls_lane_close(const ls_transfer_calls *calls, ls_lane *of) {
  if (!of->borrowed && of->queue.facts) calls->close(&of->queue);
  for (int e = 0; e < of->idle.count; e++) calls->free_event(of->idle.items[e]);
  calls->free_event(of->fence);
}

ls_status ls_lane_fence(const ls_transfer_calls *calls, const ls_lane *earlier,
                        const ls_lane *later, ls_error *error) {
  LS_TRY(calls->record(&earlier->queue, earlier->fence, error));
  return calls->await(&later->queue, earlier->fence, error);
}

static void free_place(ls_begun_list *all, ls_begun *of) {
  *LS_APPEND(all->memory, &of->on->idle) = of->event;
  of->event = NULL;
}

/* Transfers that have ended on the device as well make room. */
static ls_status sweep(ls_begun_list *all, ls_error *error) {
  for (int b = 0; b < all->of.count; b++) {
    ls_begun *each = &all->of.items[b];
    bool passed = false;
    if (each->event && each->ended) LS_TRY(all->calls->passed(each->event, &passed, error));
    if (passed) free_place(all, each);
  }
  return LS_OK;
}

static ls_begun *find_place(const ls_begun_list *all) {
  for (int b = 0; b < all->of.count; b++)
    if (!all->of.items[b].event) return &all->of.items[b];
  return NULL;
}

static ls_status make_event(const ls_begun_list *all, ls_lane *on, ls_device_event **made,
                            ls_error *error) {
  on->made++;
  return all->calls->make_event(&on->queue, made, error);
}

ls_status ls_begun_prepare(ls_begun_list *all, ls_lane *on, ls_error *error) {
  while (on->made < MOST_WATCHED) {
    ls_device_event *event;
    LS_TRY(make_event(all, on, &event, error));
    *LS_APPEND(all->memory, &on->idle) = event;
    *LS_APPEND(all->memory, &all->of) = (ls_begun){.event = NULL};
  }
  return LS_OK;
}

/* A lane's transfers pass in their order, so who watches looks at the oldest: where too many are
 * under way, the newest that has ended on the host is watched no longer. */
static void drop_newest(ls_begun_list *all, const ls_lane *on) {
  ls_begun *newest = NULL;
  for (int b = 0; b < all->of.count; b++) {
    ls_begun *each = &all->of.items[b];
    if (each->event && each->ended && each->on == on && (!newest || each->number > newest->number))
      newest = each;
  }
  if (newest) free_place(all, newest);
}

ls_status ls_begun_keep(ls_begun_list *all, ls_lane *on, const ls_transfer *what, ls_error *error) {
  if (all->watched && !on->idle.count) LS_TRY(sweep(all, error));
  if (all->watched && !on->idle.count && on->made >= MOST_WATCHED) drop_newest(all, on);
  ls_begun *place = find_place(all);
  if (!place) place = LS_APPEND(all->memory, &all->of);
  *place = (ls_begun){.what = *what,
                      .about = what->group->comm->current_call.about,
                      .number = all->count++,
                      .on = on};
  if (on->idle.count)
    place->event = on->idle.items[--on->idle.count];
  else
    LS_TRY(make_event(all, on, &place->event, error));
  return all->calls->record(&on->queue, place->event, error);
}

void ls_begun_end(ls_begun_list *all) {
  for (int b = 0; b < all->of.count; b++)
    if (all->of.items[b].event && all->of.items[b].number == all->count - 1)
      all->of.items[b].ended = true;
}

/* Sums of a group end in the order in which they began, wherever their numbers lie by then. */
static bool is_of(const ls_begun *each, const ls_transfer *what) {
  return each->event && !each->ended && each->what.kind == what->kind &&
         each->what.group == what->group &&
         (what->kind == LS_SUM_NUMBERS ||
          (each->what.source == what->source && each->what.target == what->target));
}

ls_status ls_begun_await(ls_begun_list *all, const ls_device_queue *queue, const ls_transfer *what,
                         ls_error *error) {
  ls_begun *oldest = NULL;
  for (int b = 0; b < all->of.count; b++) {
    ls_begun *each = &all->of.items[b];
    if (is_of(each, what) && (!oldest || each->number < oldest->number)) oldest = each;
  }
  if (!oldest) return ls_fail(error, LS_INTERNAL, "the end of a transfer that has not begun");
  LS_TRY(all->calls->await(queue, oldest->event, error));
  oldest->ended = true;
  if (!all->watched) free_place(all, oldest);
  return LS_OK;
}

void ls_begun_close(ls_begun_list *all) {
  for (int b = 0; b < all->of.count; b++) all->calls->free_event(all->of.items[b].event);
}
