/* What actors wait for: time in which one does is put down to the transfer and to whose side of it
 * lacks. Whose does, changes where queues change: of the actor, or of whose side lacked. */
#include "sim/world.h"

int ls_sim_cause_of(ls_sim_world *w, const ls_sim_transfer *t, int late) {
  ls_sim_stage *at = &w->made->stage[t->actor];
  const ls_collective kind = t->instruction->collective;
  const ls_axes axes = ls_collective_is_of_group(kind) ? t->instruction->axes : 0;
  const bool of_unit = w->actors[t->actor].program->actions.items[t->action].action.unit >= 0;
  for (int c = 0; c < at->causes.count; c++) {
    const ls_sim_cause *each = &at->causes.items[c];
    if (each->collective == kind && each->axes == axes && each->of_unit == of_unit &&
        each->late == late)
      return c;
  }
  *LS_APPEND(w->arena, &at->causes) =
      (ls_sim_cause){.collective = kind, .axes = axes, .of_unit = of_unit, .late = late};
  return at->causes.count - 1;
}

/* The actor that keeps another's transfer from starting: who has not begun its side, or whom that
 * one waits for; -1: nobody. */
static int blocker_of(const ls_sim_world *w, int a) {
  int found = w->missing[a];
  for (int step = 0; found >= 0 && w->missing[found] >= 0 && step < w->classes.count; step++)
    found = w->missing[found];
  return found < 0 ? -1 : found;
}

/* Puts down what was waited for until now. */
static void settle(ls_sim_world *w, int a) {
  ls_sim_actor *at = &w->actors[a];
  if (at->accused) w->made->stage[a].causes.items[at->cause].exposed += w->now - at->accused_since;
  at->accused = NULL;
}

static void accuse(ls_sim_world *w, int a, int late) {
  ls_sim_actor *at = &w->actors[a];
  if (at->accused == w->waits[a] && at->late == late) return;
  settle(w, a);
  at->cause = late < 0 ? w->waits[a]->cause : ls_sim_cause_of(w, w->waits[a], late);
  at->accused = w->waits[a];
  at->accused_since = w->now;
  at->late = late;
}

/* Whether what an actor waits for may lack another's side than it did. */
static bool may_differ(const ls_sim_world *w, int a) {
  const int missing = w->missing[a];
  return w->touched[a] == w->turn || missing == -2 ||
         (missing >= 0 && w->touched[missing] == w->turn);
}

void ls_sim_waits_account(ls_sim_world *w) {
  bool blames = w->blames, begins = false; /* someone has since then begun to wait */
  for (int a = 0; a < w->classes.count; a++) {
    if (!w->waits[a] || !may_differ(w, a)) continue;
    const int missing = ls_sim_queue_missing(w, w->waits[a]);
    blames |= missing != w->missing[a];
    begins |= w->actors[a].accused != w->waits[a];
    w->missing[a] = missing;
  }
  for (int a = 0; a < w->classes.count && (blames || begins); a++)
    if (w->waits[a] && (blames || w->actors[a].accused != w->waits[a]))
      accuse(w, a, blocker_of(w, a));
  w->blames = false;
}

void ls_sim_waits_end(ls_sim_world *w, int a) {
  settle(w, a);
  w->blames |= w->missing[a] >= 0;
  w->missing[a] = -1;
  w->waits[a] = NULL;
}
