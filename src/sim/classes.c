/* Classes of ranks that do the same at the same time. Ranks of a stage differ by their speed and by
 * hosts that are not full; whoever meets such a rank in a group or over a message waits for it, and
 * so differs too: classes are refined until each rank of a class meets ranks of the same classes on
 * every axis (as in Weisfeiler and Leman 1968). */
#include <stdlib.h>
#include <string.h>

#include "sim/world.h"

typedef struct signature {
  uint64_t hash;
  int rank;
} signature;

static uint64_t mix(uint64_t x) { /* the finaliser of SplitMix64 */
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static int by_hash(const void *a, const void *b) {
  const signature *one = a, *other = b;
  if (one->hash != other->hash) return one->hash < other->hash ? -1 : 1;
  return one->rank - other->rank;
}

/* Numbers classes in the order of their first ranks; returns how many there are. */
static int number(signature *signs, int ranks, int *of_rank) {
  qsort(signs, (size_t)ranks, sizeof *signs, by_hash);
  for (int i = 0; i < ranks; i++) /* the first rank of its class, for now */
    of_rank[signs[i].rank] =
        i > 0 && signs[i].hash == signs[i - 1].hash ? of_rank[signs[i - 1].rank] : signs[i].rank;
  int count = 0;
  for (int r = 0; r < ranks; r++) of_rank[r] = of_rank[r] == r ? count++ : of_rank[of_rank[r]];
  return count;
}

/* Once more by the classes that each rank meets on each axis. */
static int refine(const ls_mesh *mesh, signature *signs, uint64_t *sums, int ranks, int *of_rank) {
  for (int r = 0; r < ranks; r++) signs[r] = (signature){mix((uint64_t)of_rank[r]), r};
  for (int a = 0; a < mesh->count; a++) {
    if (mesh->axes[a].size < 2) continue;
    const ls_axis_order axis = ls_mesh_order(1u << a);
    memset(sums, 0, sizeof *sums * (size_t)ranks);
    for (int r = 0; r < ranks; r++)
      sums[ls_mesh_member(mesh, r, axis, 0)] += mix((uint64_t)of_rank[r] + 1);
    for (int r = 0; r < ranks; r++)
      signs[r].hash = mix(signs[r].hash + sums[ls_mesh_member(mesh, r, axis, 0)]);
  }
  return number(signs, ranks, of_rank);
}

static bool are_alike(int ranks, int per_host, const double *rank_speed) {
  for (int r = 1; rank_speed && r < ranks; r++)
    if (rank_speed[r] != rank_speed[0]) return false;
  return ranks <= per_host || ranks % per_host == 0;
}

/* Of stages, speeds and hosts alone. */
static int begin(const ls_mesh *mesh, int per_host, const double *rank_speed, signature *signs,
                 int *of_rank) {
  const int ranks = ls_mesh_ranks(mesh);
  for (int r = 0; r < ranks; r++) {
    uint64_t speed = 0;
    if (rank_speed) memcpy(&speed, &rank_speed[r], sizeof speed);
    const bool in_part = r / per_host == (ranks - 1) / per_host && ranks % per_host != 0;
    signs[r] = (signature){mix(mix((uint64_t)ls_mesh_stage(mesh, r)) + speed + in_part), r};
  }
  return number(signs, ranks, of_rank);
}

ls_sim_classes ls_sim_classes_make(ls_arena *arena, const ls_mesh *mesh, int per_host,
                                   const double *rank_speed) {
  const int ranks = ls_mesh_ranks(mesh);
  ls_sim_classes made = {.count = ls_mesh_stages(mesh), .of_rank = LS_NEW_ARRAY(arena, int, ranks)};
  if (are_alike(ranks, per_host, rank_speed)) {
    for (int r = 0; r < ranks; r++) made.of_rank[r] = ls_mesh_stage(mesh, r);
  } else {
    ls_arena *scratch = ls_arena_create();
    signature *signs = LS_NEW_ARRAY(scratch, signature, ranks);
    uint64_t *sums = LS_NEW_ARRAY(scratch, uint64_t, ranks);
    made.count = begin(mesh, per_host, rank_speed, signs, made.of_rank);
    for (int before = 0; before != made.count;) {
      before = made.count;
      made.count = refine(mesh, signs, sums, ranks, made.of_rank);
    }
    ls_arena_destroy(&scratch);
  }
  made.first = LS_NEW_ARRAY(arena, int, made.count);
  made.ranks = LS_NEW_ARRAY(arena, int, made.count);
  for (int r = ranks - 1; r >= 0; r--) made.first[made.of_rank[r]] = r;
  for (int r = 0; r < ranks; r++) made.ranks[made.of_rank[r]]++;
  return made;
}
