/* How fast all goes that is under way. What a transfer takes of its actor's kernels is known as it
 * goes; where it goes over its links alone, so is its rate. Rates of several that go over one link,
 * and of all that share a CPU's cores, are shared out anew where one of them begins or ends. */
#include <math.h>

#include "sim/world.h"

/* An actor computes at this rate from now on. */
static void pace_actor(ls_sim_world *w, int a, double rate) {
  ls_sim_actor *at = &w->actors[a];
  if (isinf(w->computed[a]) || rate == at->rate) return;
  at->remaining = fmax(at->remaining - (w->now - at->paced) * at->rate, 0);
  at->paced = w->now;
  at->rate = rate;
  w->computed[a] = w->now + at->remaining / rate;
}

static void pace_transfer(ls_sim_world *w, ls_sim_running *running, double rate) {
  ls_sim_transfer *head = running->head;
  if (rate == head->rate) return;
  head->remaining -= (w->now - head->paced) * head->rate;
  head->paced = w->now;
  head->rate = rate;
  running->end = w->now + fmax(head->remaining, 0) / rate;
}

static double rate_of(const ls_sim_actor *at, double part) {
  return at->speed * part * (1 - at->taken);
}

void ls_sim_rates_compute(ls_sim_world *w, int a, double seconds) {
  ls_sim_actor *at = &w->actors[a];
  at->paced = w->now;
  at->rate = rate_of(at, 1);
  at->remaining = seconds;
  w->computed[a] = seconds > 0 ? w->now + seconds / at->rate : INFINITY;
}

/* What transfers take of the kernels beside which they run, of each kind of link alike. */
static void find_taken(ls_sim_world *w, int a) {
  ls_sim_actor *at = &w->actors[a];
  double taken = 0;
  for (int k = 0; k < LS_LINK_KINDS; k++)
    if (at->beside[k]) taken += w->performance->interference[k];
  at->taken = fmin(taken, 0.9);
  if (!w->performance->cores) pace_actor(w, a, rate_of(at, 1));
}

void ls_sim_rates_go(ls_sim_world *w, ls_sim_running *running) {
  ls_sim_transfer *head = running->head;
  for (const ls_sim_transfer *t = head; t; t = t->with)
    if (!w->actors[t->actor].beside[t->time.link]++) find_taken(w, t->actor);
  running->end = INFINITY;
  head->paced = w->now;
  if (ls_sim_links_take(w, head))
    pace_transfer(w, running, ls_sim_links_alone(w, head));
  else
    w->shared = true;
}

void ls_sim_rates_stop(ls_sim_world *w, const ls_sim_transfer *head) {
  if (!(head->rate > 0)) return;
  for (const ls_sim_transfer *t = head; t; t = t->with)
    if (!--w->actors[t->actor].beside[t->time.link]) find_taken(w, t->actor);
  w->shared |= !ls_sim_links_leave(w, head);
}

double ls_sim_rates_cores(const ls_sim_world *w) {
  const ls_performance *on = w->performance;
  double threads = 0;
  if (!on->cores) return 0;
  for (int a = 0; a < w->classes.count; a++)
    if (!isinf(w->computed[a])) threads += (double)w->classes.ranks[a] * on->threads;
  for (int r = 0; r < w->running.count; r++) {
    const ls_sim_transfer *t = w->running.items[r].head;
    /* On a CPU what moves between tiers is copied by a thread, too. */
    if (ls_collective_moves(t->instruction->collective)) threads += w->classes.ranks[t->actor];
  }
  return threads / on->cores;
}

/* It moves between tiers and no drive has part in it. */
static bool is_copy(const ls_sim_transfer *t) {
  return ls_collective_moves(t->instruction->collective) && t->time.link != LS_LINK_DRIVE;
}

/* The levels of copies between tiers on a CPU, whose cores all that compute want, too, and which go
 * over one memory. */
static void share_memory(ls_sim_world *w, double wanted) {
  double copies = 0;
  for (int r = 0; r < w->running.count; r++)
    if (is_copy(w->running.items[r].head))
      copies += w->classes.ranks[w->running.items[r].head->actor];
  double part = wanted > 1 ? 1 / wanted : 1;
  if (w->performance->copies > 0 && copies > w->performance->copies)
    part = fmin(part, w->performance->copies / copies);
  for (int r = 0; r < w->running.count; r++)
    if (is_copy(w->running.items[r].head)) w->running.items[r].head->level *= part;
}

/* Where cores are fewer than those that compute, each has its part of them. */
static void share_cores(ls_sim_world *w, double wanted) {
  const double part = wanted > 1 ? 1 / wanted : 1;
  for (int a = 0; a < w->classes.count; a++) pace_actor(w, a, rate_of(&w->actors[a], part));
}

void ls_sim_rates_share(ls_sim_world *w) {
  const bool counts = w->performance->cores > 0;
  if (!w->shared && !counts) return;
  ls_sim_links_share(w);
  if (counts) {
    const double wanted = ls_sim_rates_cores(w);
    share_cores(w, wanted);
    share_memory(w, wanted);
  }
  for (int r = 0; r < w->running.count; r++)
    if (w->running.items[r].head->level > 0)
      pace_transfer(w, &w->running.items[r], w->running.items[r].head->level);
  w->shared = false;
}
