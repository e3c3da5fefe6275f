/* Collectives between ranks: threads of one process or processes under MPI.
 *
 * A world is what one process holds of the run: all ranks when ranks are threads, one or several
 * when they are processes. Each rank calls from its own thread through its ls_comm; a collective
 * over a group is called by every member in the same order.
 *
 *   ls_world *world; ls_group *all;
 *   ls_world_create_threads(4, &world, &error);
 *   ... in thread r:  ls_comm *comm = ls_world_comm(world, r);
 *                     ls_comm_group(comm, members, 4, &all, &error);
 *                     ls_all_reduce(all, data, count, LS_F32, LS_SUM, &error);
 *
 * Reductions are direct: the owner of a shard receives all shards, sums them in rank order
 * (bf16: in fp32, rounded once), so results have the same bits on threads and on MPI and on every
 * member. Every wait has a deadline and an abort: a rank that fails calls ls_comm_abort, and every
 * wait on every rank then returns LS_FAILED with that rank's text. Waiting yields the core. */
#ifndef LS_COMM_COMM_H
#define LS_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/device.h"
#include "ir/owners.h"
#include "lockstep/dtype.h"
#include "lockstep/status.h"

typedef struct ls_world ls_world;
typedef struct ls_comm ls_comm;
typedef struct ls_group ls_group;

/* A world of `ranks` ranks that are threads of this process. Owns: caller destroys it after every
 * rank's thread has ended. */
LS_CHECKED ls_status ls_world_create_threads(int ranks, ls_world **world, ls_error *error);

/* What a world is started with (ls_world_start). */
typedef struct ls_world_options {
  int ranks;          /* of the whole run */
  int ranks_here;     /* of them threads of this process; 0: all */
  bool refuse_shared; /* use point-to-point even between processes of one host (tests) */
  double deadline_s;  /* longest wait for a peer; 0: 300 s */
} ls_world_options;

/* A world over MPI_COMM_WORLD, of as many ranks as all processes have; initialises MPI (thread
 * level: multiple). LS_INPUT where this build has no MPI. Collective: all processes. */
LS_CHECKED ls_status ls_world_create_mpi(const ls_world_options *options, ls_world **world,
                                         ls_error *error);

/* Frees the world. Under MPI collective: all processes; after an abort it waits some seconds for
 * the others to have noticed, then has MPI end those that have not. */
void ls_world_destroy(ls_world **world);

/* Longest wait for a peer from now on; 0: 300 s. After a tenth of it a warning says who waits for
 * whom. Before any rank waits, the same everywhere. */
void ls_world_set_deadline(ls_world *world, double seconds);

/* Whether the rank's waits have no deadline from now on, as for a peer that waits for a person;
 * aborts and deaths end them as ever. */
void ls_comm_set_patient(ls_comm *comm, bool patient);

/* What the rank's next transfers are of, for messages; kept by reference; NULL: not said. */
void ls_comm_about(ls_comm *comm, const char *name);

int ls_world_size(const ls_world *world);       /* ranks of the whole run */
int ls_world_first_here(const ls_world *world); /* first rank of this process */
int ls_world_count_here(const ls_world *world);
int ls_world_count_on_host(const ls_world *world); /* ranks of all processes of this host */

/* The handle of a rank of this process. Owned by the world. */
ls_comm *ls_world_comm(ls_world *world, int rank);
int ls_comm_rank(const ls_comm *comm);
int ls_comm_size(const ls_comm *comm);
ls_device_place ls_comm_place(const ls_comm *comm);

/* Memory of a device that peers can read: reserved here, imported by the others of the host;
 * zeroed, 4096-aligned, owned by the comm until the world is destroyed. At most 8 a rank. LS_FAILED
 * on every rank, naming the size, where one rank's cannot be mapped. Data outside any arena is
 * legal in every collective; between processes it is then sent by MPI. Collective: all ranks of the
 * world. `bytes` are mapped, touched on use. */
LS_CHECKED ls_status ls_comm_arena(ls_comm *comm, const ls_memory_calls *of, size_t bytes,
                                   void **base, ls_error *error);

/* A group of `count` ranks; members[i] is its rank i; this rank must be one of them. Owned by the
 * comm. Collective: all members; two ranks make the groups that they are both in, in the same
 * order. A group of one is legal and free. LS_FAILED where the groups of a host's ranks take more
 * than 512 MiB for flags: 128 bytes a member, 1.4 KB for each two members that send to each other,
 * and 16 for each two of a group that has an all-to-all. LS_INPUT where the MPI library has too few
 * tags for all groups of a pair (never with the usual ones). */
LS_CHECKED ls_status ls_comm_group(ls_comm *comm, const int *members, int count, ls_group **group,
                                   ls_error *error);
int ls_group_size(const ls_group *group);
ls_comm *ls_group_comm(const ls_group *group); /* its own rank's */
int ls_group_rank(const ls_group *group);

/* Buffers may be used again or freed as soon as a call returns, failed or not; only what failed
 * under MPI outside an arena stays allocated until the world is destroyed, which is all that can
 * be done with a world after a failure.
 * Errors: LS_FAILED after an abort, at the deadline, when a process died, or when members disagree
 * on the arguments ("rank R: why", the same on all); LS_INTERNAL for arguments that cannot be,
 * in which case the caller aborts, since the others wait.
 * Collective: all members of the group, same arguments but for pointers.
 * dtypes: LS_F32, LS_BF16, LS_F16, LS_F64, LS_I64 (LS_I32 too where nothing is reduced).
 * Counts are elements of the whole; rank r owns shard r: [r * chunk, min((r + 1) * chunk, count))
 * where chunk = ceil(count / size): the last shards may be short or empty.
 * Nothing here allocates (an MPI library may). */

/* data[count] of every rank is replaced by the reduction over ranks. */
LS_CHECKED ls_status ls_all_reduce(ls_group *group, void *data, int64_t count, ls_dtype dtype,
                                   ls_reduce op, ls_error *error);

/* source[count] is reduced; this rank's shard goes to target[0..shard). `accumulate`: adds to what
 * target holds. target may be source + rank * chunk (in place) or not overlap source at all. */
LS_CHECKED ls_status ls_reduce_scatter(ls_group *group, void *target, const void *source,
                                       int64_t count, ls_dtype dtype, bool accumulate,
                                       ls_error *error);

/* source is this rank's shard; target[count] gets all. source may be target + rank * chunk. */
LS_CHECKED ls_status ls_all_gather(ls_group *group, void *target, const void *source, int64_t count,
                                   ls_dtype dtype, ls_error *error);
LS_CHECKED ls_status ls_broadcast(ls_group *group, void *data, int64_t count, ls_dtype dtype,
                                  int root, ls_error *error);

/* Rank r sends source[sum of send_counts before i ..] (send_counts[i] elements) to each rank i and
 * receives receive_counts[i] elements from it, in rank order. Counts may differ by pair. */
LS_CHECKED ls_status ls_all_to_all(ls_group *group, void *target, const int64_t *receive_counts,
                                   const void *source, const int64_t *send_counts, ls_dtype dtype,
                                   ls_error *error);

/* A tensor whose shards lie on dimension `gathered` gets shards of dimension `cut`: a rank's part
 * before and after it. The last parts of either may be short or empty: what a part has behind its
 * end in the whole is neither sent nor written. Or any pieces, of buffers of source[0] and
 * target[0] elements: those that this rank sends, receives or keeps, which are the caller's. */
typedef struct ls_resharding {
  int ndim;
  int64_t source[LS_MAX_DIMS], target[LS_MAX_DIMS];
  int gathered, cut;
  const ls_deal_piece *pieces; /* NULL: none, shards of a tensor */
  int piece_count;
} ls_resharding;

/* The buffers do not overlap. */
LS_CHECKED ls_status ls_reshard(ls_group *group, void *target, const void *source,
                                const ls_resharding *of, ls_dtype dtype, ls_error *error);

/* What of a resharding member `from` has for member `to`, from one buffer into the other. */
void ls_reshard_block(const ls_resharding *of, int from, int to, ls_dtype dtype, void *target,
                      const void *source);

/* target[count] gets what the member `shift` behind this one in the group has, around its end. The
 * buffers do not overlap. */
LS_CHECKED ls_status ls_permute(ls_group *group, void *target, const void *source, int64_t count,
                                int shift, ls_dtype dtype, ls_error *error);

/* A message between two members, which nobody else takes part in. A send may end only when its data
 * has been taken: two members that both send first wait for each other until the deadline. */
LS_CHECKED ls_status ls_send(ls_group *group, const void *data, int64_t count, ls_dtype dtype,
                             int to, ls_error *error);
/* A send in two halves: the data stays as it is until the end, which is that of the oldest send to
 * this member. At most LS_MOST_SENDS to a member may be under way. In an arena only. */
enum { LS_MOST_SENDS = 32 };
LS_CHECKED ls_status ls_send_begin(ls_group *group, const void *data, int64_t count, ls_dtype dtype,
                                   int to, ls_error *error);
LS_CHECKED ls_status ls_send_end(ls_group *group, int to, ls_error *error);

LS_CHECKED ls_status ls_receive(ls_group *group, void *data, int64_t count, ls_dtype dtype,
                                int from, ls_error *error);
/* The sum of `count` numbers over the members in two halves: everyone says its own, and goes on; at
 * the end numbers[count] become the sum, in rank order. In between they stay as they are. One sum
 * of a group may follow another before that ends; they end in the order in which they began. Sends
 * 8 count (size - 1) bytes a rank: for few members and at most LS_MOST_NUMBERS. In an arena only.
 * Collective. */
enum { LS_MOST_NUMBERS = 8 };
LS_CHECKED ls_status ls_sum_begin(ls_group *group, const double *numbers, int count,
                                  ls_error *error);
LS_CHECKED ls_status ls_sum_end(ls_group *group, double *numbers, int count, ls_error *error);

LS_CHECKED ls_status ls_barrier(ls_group *group, ls_error *error);

/* Why devices of this host's processes do not read each other's memory, as their arenas were made;
 * NULL: they do, or there is one process. */
const char *ls_comm_apart(const ls_comm *comm);

/* Ends the run everywhere: each wait of each rank returns LS_FAILED with "rank R: text". Callable
 * from any thread, more than once (the first text stays). */
void ls_comm_abort(ls_comm *comm, const char *text);

/* Bytes this rank has sent so far by the rule of the field: all-reduce of K bytes over n ranks
 * counts 2K(n-1)/n a rank, all-gather and reduce-scatter K(n-1)/n (exact shards when uneven: what
 * others read of this rank's data). A broadcast of K bytes counts K(n-1) for its root, all-to-all
 * and send what goes to other ranks, a barrier nothing. */
int64_t ls_comm_bytes_sent(const ls_comm *comm);

#endif
