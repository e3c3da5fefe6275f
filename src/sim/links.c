/* Links that transfers share: rates are max-min fair (Bertsekas and Gallager, Data Networks, 6.5.2:
 * all grow alike until an end of a link is full, whoever goes over it stays, the others go on). */
#include <math.h>

#include "sim/world.h"

/* Ranks of an actor among `count` from `first` on. */
static double ranks_among(const ls_sim_world *w, int actor, int first, int count) {
  const int ranks = ls_mesh_ranks(w->mesh);
  int found = 0;
  for (int r = first; r < first + count && r < ranks; r++) found += w->classes.of_rank[r] == actor;
  return found;
}

/* The end that ranks of a block share: that of an earlier actor of the block, or a new one. */
static int end_of_block(ls_sim_world *w, int actor, ls_sim_end end, int block, double capacity) {
  const ls_sim_actor *at = &w->actors[actor];
  for (int other = 0; block > 1 && other < actor; other++)
    if (w->actors[other].rank / block == at->rank / block) return w->actors[other].ends[end];
  w->capacity[w->ends] = capacity;
  return w->ends++;
}

static void open_actor(ls_sim_world *w, int actor) {
  const ls_performance *on = w->performance;
  ls_sim_actor *at = &w->actors[actor];
  for (int e = 0; e < LS_SIM_ENDS; e++) {
    const bool nic = e == LS_END_NETWORK_OUT || e == LS_END_NETWORK_IN;
    const int block = e == LS_END_DRIVE ? on->per_host : nic ? on->nic_devices : 1;
    const int shared = block > 1 ? block : 1;
    at->load[e] = shared > 1 ? ranks_among(w, actor, at->rank / shared * shared, shared) : 1;
    at->ends[e] = end_of_block(w, actor, (ls_sim_end)e, shared, nic ? shared : 1);
  }
  if (!on->one_port) return;
  at->ends[LS_END_TO_HOST] = at->ends[LS_END_PEER_OUT];
  at->ends[LS_END_FROM_HOST] = at->ends[LS_END_PEER_IN];
}

void ls_sim_links_open(ls_sim_world *w) {
  const int most = w->classes.count * LS_SIM_ENDS;
  w->capacity = LS_NEW_ARRAY(w->arena, double, most);
  w->left = LS_NEW_ARRAY(w->arena, double, most);
  w->wanted = LS_NEW_ARRAY(w->arena, double, most);
  w->users = LS_NEW_ARRAY(w->arena, int, most);
  w->looked_at = LS_NEW_ARRAY(w->arena, int64_t, most);
  for (int a = 0; a < w->classes.count; a++) open_actor(w, a);
}

static void use(const ls_sim_actor *at, ls_sim_transfer *t, ls_sim_end end, double share) {
  t->use[t->uses++] = (ls_sim_use){at->ends[end], at->load[end] * share};
}

/* Of peers' links or of the network. */
static void use_between(const ls_sim_actor *at, ls_sim_transfer *t, bool peers, double share) {
  const ls_collective kind = t->instruction->collective;
  if (kind != LS_RECEIVE) use(at, t, peers ? LS_END_PEER_OUT : LS_END_NETWORK_OUT, share);
  if (kind != LS_SEND) use(at, t, peers ? LS_END_PEER_IN : LS_END_NETWORK_IN, share);
}

static double slowed(const ls_sim_world *w, ls_link_kind link, double seconds) {
  const double factor = w->options->link_of[link];
  return seconds / (factor > 0 ? factor : 1);
}

double ls_sim_links_use(const ls_sim_world *w, ls_sim_transfer *t) {
  const ls_sim_actor *at = &w->actors[t->actor];
  const ls_link_kind link = t->time.link;
  const bool peers = link == LS_LINK_PEER;
  const double own = slowed(w, link, t->time.seconds);
  const double other = slowed(w, peers ? LS_LINK_NETWORK : LS_LINK_PEER, t->time.beside_s);
  const double seconds = fmax(own, other);
  t->uses = 0;
  switch (link) {
    case LS_LINK_TO_HOST: use(at, t, LS_END_TO_HOST, 1); break;
    case LS_LINK_FROM_HOST: use(at, t, LS_END_FROM_HOST, 1); break;
    case LS_LINK_DRIVE: use(at, t, LS_END_DRIVE, 1); break;
    default: use_between(at, t, peers, other > own ? own / seconds : 1);
  }
  if (other > 0) use_between(at, t, !peers, other / seconds);
  return seconds;
}

/* Those that run as one may share an end. */
static bool looks_again(ls_sim_world *w, int end) {
  const bool again = w->looked_at[end] == w->looks;
  w->looked_at[end] = w->looks;
  return again;
}

bool ls_sim_links_take(ls_sim_world *w, const ls_sim_transfer *head) {
  bool alone = true;
  w->looks++;
  for (const ls_sim_transfer *t = head; t; t = t->with)
    for (int u = 0; u < t->uses; u++) {
      const int end = t->use[u].end;
      if (!looks_again(w, end)) alone &= !w->users[end]++;
    }
  return alone;
}

bool ls_sim_links_leave(ls_sim_world *w, const ls_sim_transfer *head) {
  bool alone = true;
  w->looks++;
  for (const ls_sim_transfer *t = head; t; t = t->with)
    for (int u = 0; u < t->uses; u++) {
      const int end = t->use[u].end;
      if (!looks_again(w, end)) alone &= !--w->users[end];
    }
  return alone;
}

static bool goes(const ls_sim_transfer *t) {
  return !(t->latency > 0) && t->remaining > 0;
}

/* Adds what a transfer takes of its ends, `times` over. */
static void add(double *sums, const ls_sim_transfer *t, double times) {
  for (; t; t = t->with)
    for (int u = 0; u < t->uses; u++) sums[t->use[u].end] += times * t->use[u].weight;
}

/* How far all that still grow may grow together, for the ends of one. */
static double level_of(const ls_sim_world *w, const ls_sim_transfer *t) {
  double level = INFINITY;
  for (; t; t = t->with)
    for (int u = 0; u < t->uses; u++) {
      const double each = w->left[t->use[u].end] / w->wanted[t->use[u].end];
      if (each < level) level = each;
    }
  return level;
}

double ls_sim_links_alone(ls_sim_world *w, const ls_sim_transfer *head) {
  for (const ls_sim_transfer *t = head; t; t = t->with)
    for (int u = 0; u < t->uses; u++) {
      w->left[t->use[u].end] = w->capacity[t->use[u].end];
      w->wanted[t->use[u].end] = 0;
    }
  add(w->wanted, head, 1);
  return level_of(w, head);
}

void ls_sim_links_share(ls_sim_world *w) {
  int growing = 0;
  for (int e = 0; e < w->ends; e++) w->left[e] = w->capacity[e], w->wanted[e] = 0;
  for (int r = 0; r < w->running.count; r++) {
    ls_sim_transfer *t = w->running.items[r].head;
    t->level = 0;
    if (!goes(t)) continue;
    add(w->wanted, t, 1);
    growing++;
  }
  while (growing) {
    double level = INFINITY;
    for (int r = 0; r < w->running.count; r++) {
      const ls_sim_transfer *t = w->running.items[r].head;
      if (!goes(t) || t->level > 0) continue;
      const double each = level_of(w, t);
      if (each < level) level = each;
    }
    for (int r = 0; r < w->running.count; r++) {
      ls_sim_transfer *t = w->running.items[r].head;
      if (!goes(t) || t->level > 0 || level_of(w, t) > level * (1 + 1e-9)) continue;
      t->level = level;
      add(w->left, t, -level);
      add(w->wanted, t, -1);
      growing--;
    }
  }
}
