/* What a world is made of: for the files of this room, not for others.
 *
 * Ranks that can address a common piece of memory form a domain: all ranks of a thread world, the
 * ranks of a host whose processes share memory, or the ranks of one process. A domain has one
 * control block of flags. What a rank's peers read of its data they read in place wherever they
 * can (same process; same domain and data in an arena), else the transport carries it: the ranks of
 * a pair know from the same facts which of the two it is, so no question is ever asked.
 *
 *   control.c  the domain's memory: flags, abort, blocks of groups     wait.c    waiting
 *   comm.c     worlds and groups                                       arena.c   memory peers read
 *   collectives.c, messages.c, exchange.c   the operations             reduce.c  arithmetic
 *   files.c    files handed to other processes
 *   direct.c, staged.c, peer.c, nccl.c      engines          lanes.c   what those of queues share
 *   peer_words.c   of peer.c: how ranks of other processes are told      watch.c   who watches them
 *   nccl_channels.c                         of nccl.c: its communicators
 *   mpi.c      the only transport, and worlds of several processes
 *
 * Threads: a comm and its groups belong to one thread; what is shared by the threads of a process
 * is constant, atomic or under ls_world.lock; what is shared by processes is atomic, or written
 * before a flag is raised and read after. */
#ifndef LS_COMM_WORLD_H
#define LS_COMM_WORLD_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "comm/comm.h"

/* Arenas a rank may ask for. The program has one; tests and tiers a few more. */
enum { LS_MAX_ARENAS = 8 };

/* A word one rank raises and others wait for. It only ever grows, modulo 2^32. */
typedef struct ls_flag {
  _Atomic uint32_t value;
  _Atomic uint32_t sleepers; /* ranks asleep on `value`: it need not be woken where there is none */
} ls_flag;

/* Which operation a posting belongs to. */
typedef enum ls_call_kind {
  LS_CALL_BARRIER = 1,
  LS_CALL_ALL_REDUCE,
  LS_CALL_REDUCE_SCATTER,
  LS_CALL_ALL_GATHER,
  LS_CALL_BROADCAST,
  LS_CALL_ALL_TO_ALL,
  LS_CALL_PERMUTE,
  LS_CALL_MESSAGE,
} ls_call_kind;

/* What a rank says of the buffer that peers of its group may touch now. */
typedef struct ls_posting {
  int32_t kind; /* ls_call_kind, dtype and reduction must agree between ranks */
  int32_t dtype;
  int32_t detail; /* root, reduction */
  int32_t arena;  /* which arena of the rank holds the buffer; -1: none */
  int64_t count;
  uint64_t offset; /* in that arena */
  void *pointer;   /* for ranks of the same process */
} ls_posting;

/* A member of a group, as its domain sees it. Two cache lines, so that neighbours do not share.
 * What only some groups need of each pair of members is made at its first use, so that a group's
 * memory grows with its members and not with their square. */
typedef struct ls_slot {
  _Alignas(128) ls_flag flag;
  ls_posting posting;
  _Atomic uint64_t channels; /* offset of the newest channel to this member; 0: none */
  _Atomic uint64_t portions; /* offset of what it has for each seat; 0: no all-to-all yet */
} ls_slot;

/* One direction of a pair: `sent` and `postings` are the sender's, `taken` the receiver's. Message
 * n is posted at n % LS_MOST_SENDS. */
typedef struct ls_channel {
  _Alignas(64) ls_flag sent;
  int32_t from;  /* seat of the sender */
  uint64_t next; /* offset of another channel to the same member; 0: none */
  ls_posting postings[LS_MOST_SENDS];
  _Alignas(64) ls_flag taken;
} ls_channel;

/* Where a rank's data for one receiver lies in its buffer (all-to-all). */
typedef struct ls_portion {
  uint64_t offset, bytes;
} ls_portion;

/* Memory of some device; base NULL: none. */
typedef struct ls_memory {
  const ls_memory_calls *of;
  void *base;
  size_t bytes;
} ls_memory;

typedef struct ls_shared_arena {
  ls_memory memory;
  bool readable; /* by the other processes of the domain */
} ls_shared_arena;

typedef struct ls_control ls_control;

/* A message under way. Filled by the transport. */
typedef struct ls_request {
  _Alignas(8) unsigned char opaque[16];
  size_t bytes;
  int peer;
  bool active, receiving;
} ls_request;

/* Two streams of messages between members of a group: of LS_MESSAGES some may come between a
 * collective's beginning and its end. */
typedef enum ls_stream { LS_COLLECTIVES, LS_MESSAGES, LS_STREAMS } ls_stream;

/* Carries bytes between ranks that share no memory. Messages between two ranks under one tag
 * arrive in the order they were started. No call waits. */
typedef struct ls_transport ls_transport;
struct ls_transport {
  uint64_t tags; /* that each pair of ranks has: [0, tags) */
  ls_status (*start)(ls_transport *transport, bool receive, int from, int to, uint64_t tag,
                     void *data, size_t bytes, ls_request *request, ls_error *error);
  /* Clears request->active once it is done. */
  ls_status (*test)(ls_transport *transport, ls_request *request, ls_error *error);
  /* Gives up a message after a failure, so that its buffer is left alone where that can be had. */
  void (*cancel)(ls_transport *transport, ls_request *request);
  /* Lets messages move and takes note of a peer's abort. */
  void (*poll)(ls_transport *transport);
  /* Tells all processes of the abort; once is enough. */
  void (*announce)(ls_transport *transport);
  /* Meets the other processes a last time and frees the transport. */
  void (*destroy)(ls_transport *transport);
};

/* A process of the same host, watched so that its death is noticed. */
typedef struct ls_neighbour {
  int pid, pidfd; /* pidfd -1: the kernel has none */
  int first_rank;
} ls_neighbour;

struct ls_world {
  ls_arena *memory; /* the world itself and its tables */
  int size, first, count_here, on_host;
  int first_on_host; /* number of `first` among the ranks of this host */
  double deadline_s;
  bool crowded; /* more ranks on the host than hardware threads: who spins takes a peer's */
  int *process; /* [size] process of each rank */
  int *place;   /* [size] place of each rank in its domain if that is ours, else -1 */
  int domain_ranks;
  ls_control *control;
  ls_neighbour *neighbours;
  int neighbour_count;
  ls_transport *transport; /* NULL: one process */
  /* Messages have been sent or received here. From then on every wait lets them move: whoever has
   * got its data and goes on may still owe the sender the library's receipt. */
  _Atomic bool uses_messages;
  size_t message_bytes; /* longest single message */
  size_t staging_bytes; /* memory a rank may use for shards that arrive to be summed */
  ls_comm *comms;
  pthread_mutex_t lock; /* guards mapping of `views` */
  /* [LS_MAX_ARENAS][domain_ranks], where this process sees each rank's arenas; no base: not at all
   */
  ls_memory *views;
};

/* Messages started together. Rounds of them follow one another; two may be in flight. */
typedef struct ls_request_set {
  ls_request *requests; /* [2 * group size] for the largest group of the comm */
  int count;
} ls_request_set;

/* A part of a send that messages carry while its rank goes on. */
typedef struct ls_sending {
  ls_request request;
  ls_group *group;
  int to;
  uint32_t number; /* of the send */
} ls_sending;

enum { APART_BYTES = 192 };

struct ls_comm {
  ls_world *world;
  ls_arena *memory; /* groups: their owner's thread alone makes them */
  int rank;
  _Atomic int64_t bytes_sent;
  ls_shared_arena arenas[LS_MAX_ARENAS];
  int arena_count;
  ls_group *groups; /* newest first */
  ls_group *everyone;
  uint64_t *common; /* [world size] groups with each rank; counted where there is a transport */
  ls_request_set request_sets[2];
  int request_room;
  LS_LIST(ls_sending) sendings; /* grows where more parts are in flight than ever before */
  bool patient;                 /* its waits have no deadline */
  int next_tested;              /* of them: the piece whose end is looked for next */
  char apart[APART_BYTES];      /* why devices of processes do not read each other's memory */
  void *staging;
  struct {
    const char *name;
    int64_t count;
    const char *of;
    const char *about; /* what the numbers are; NULL: not said */
  } current_call; /* for the text of a wait: "all-reduce of 1000 fp32 (gradient of layers.0)" */
};

/* What is to go to and to come from a member as messages. */
typedef struct ls_peer_transfer {
  const char *out;
  char *in;
  size_t out_bytes, in_bytes;
} ls_peer_transfer;

struct ls_group {
  ls_comm *comm;
  ls_group *next;
  int size, rank;
  uint64_t key;
  int *members;
  int *seats; /* [size] place among the members of this domain, else -1 */
  int seat_count, seat;
  uint32_t sequence;
  ls_slot *slots;               /* [seat_count], shared */
  ls_channel **in, **out;       /* [size] channels from and to each member; NULL: not used yet */
  uint64_t *earlier;            /* [size] groups of this rank with each member that came before */
  uint32_t *sent, *taken;       /* [size] messages so far to and from each member */
  uint32_t *ended;              /* [size] sends to each member that are known to be taken */
  void **peers;                 /* [size] each member's posted buffer; NULL: the transport has it */
  const void **sources;         /* [size] scratch */
  void **targets;               /* [size] scratch */
  ls_peer_transfer *transfers;  /* [size] */
  struct ls_group_lanes *lanes; /* of the engine of queues (peer.c); NULL: it has not joined */
};

/* --- control.c ------------------------------------------------------------------------------ */

/* Bytes to map for a control block: sparse, only what is used takes memory. */
size_t ls_control_bytes(void);

/* Prepares zeroed memory as a control block; `nonce` tells it from any other. */
void ls_control_init(ls_control *control, uint64_t nonce);
uint64_t ls_control_nonce(const ls_control *control);

/* Sets the abort's rank and text unless there is one; true where this call did. */
bool ls_control_abort(ls_control *control, int rank, const char *text);

/* True once aborted; fills the error with "rank R: text". */
bool ls_control_aborted(ls_control *control, ls_error *error);

/* The abort's rank and text; false where there is none. */
bool ls_control_abort_text(ls_control *control, int *rank, char *text, size_t room);

/* Zeroed bytes of the control block, for all of the domain. LS_FAILED where it is full. */
ls_status ls_control_carve(ls_control *control, size_t bytes, uint64_t *offset, ls_error *error);
void *ls_control_at(ls_control *control, uint64_t offset);

/* The block of `bytes` registered under `key`. The one caller with `create` carves it out; the
 * others get NULL until it has. LS_FAILED where the control block is full. */
ls_status ls_control_block(ls_control *control, uint64_t key, size_t bytes, bool create,
                           void **block, ls_error *error);

/* --- wait.c --------------------------------------------------------------------------------- */

typedef struct ls_wait {
  ls_comm *comm;
  int peer;        /* rank waited for; -1: all others */
  ls_flag *flag;   /* may be slept on; NULL: the caller polls */
  uint32_t target; /* value of the flag that ends the wait */
  int turns;
  int64_t started_ns, looked_ns;
  bool told; /* that it takes long */
} ls_wait;

/* Whether the flag has come to `target`. */
bool ls_flag_reached(ls_flag *flag, uint32_t target);
void ls_flag_raise(ls_flag *flag, uint32_t value);

/* Whether the process has ended. */
bool ls_neighbour_died(const ls_neighbour *neighbour);

/* Waits a moment: spins, then yields, then sleeps. LS_FAILED on abort, on the death of a neighbour
 * and at the deadline (both end the run for everybody). */
ls_status ls_wait_turn(ls_wait *wait, ls_error *error);
/* What a wait looks for now and then: deaths of neighbours, and its deadline. */
ls_status ls_wait_look(ls_wait *wait, int64_t now, const char *doing, ls_error *error);
ls_status ls_wait_flag(ls_comm *comm, ls_flag *flag, uint32_t target, int peer, ls_error *error);

/* Ends the run with a text of this room's making; returns LS_FAILED with the text that stands. */
ls_status ls_comm_give_up(ls_comm *comm, ls_error *error, const char *format, ...) LS_PRINTF(3, 4);

/* --- comm.c --------------------------------------------------------------------------------- */

/* A world of `ranks` in all, `count_here` of them here from `first` on, without a control block. */
ls_world *ls_world_new(int ranks, int first, int count_here);

/* Readies the comms once process, place and control are known; `threads`: hardware threads that
 * the ranks of this host share. */
void ls_world_open(ls_world *world, int domain_ranks, int threads);

/* --- arena.c -------------------------------------------------------------------------------- */

/* Fills posting's arena, offset and pointer for a buffer of this rank. */
void ls_arena_locate(const ls_comm *comm, void *data, size_t bytes, ls_posting *posting);

/* Where this process sees what `rank` of the domain posted; NULL: it does not. */
void *ls_arena_view(const ls_world *world, int self, int rank, const ls_posting *posting);

/* --- files.c -------------------------------------------------------------------------------- */

/* A file of memory that another process has under this number, opened again; -1: it cannot be. */
int ls_file_open_of(int process, int number);

/* The network in which names of sockets mean the same; 0: not known. */
int64_t ls_files_network(void);

/* A socket that files are sent from and come to. */
typedef struct ls_mailbox {
  int socket; /* -1: none */
  int64_t name;
} ls_mailbox;

ls_status ls_mailbox_open(ls_mailbox *made, ls_error *error);
void ls_mailbox_close(ls_mailbox *of);

/* Each rank's file, to all other processes, of which one rank takes it. */
typedef struct ls_passing {
  const int64_t *names; /* [world size] of mailboxes that files go to; 0: it has none */
  int file;             /* this rank's */
  int *files;           /* [world size] -1, then what has come, which the caller closes */
} ls_passing;

/* Collective of all ranks, which are on one host. LS_FAILED: something has not come, or this rank's
 * has not gone. */
ls_status ls_files_pass(ls_comm *comm, const ls_mailbox *own, ls_passing *of, ls_error *error);

/* --- call.c --------------------------------------------------------------------------------- */

enum { LS_ALL_MEMBERS = -1, LS_NO_MEMBER = -2 };

/* Whether data of this count and dtype can be sent, or reduced where `reducing`. */
ls_status ls_call_check(ls_group *group, ls_call_kind kind, int64_t count, ls_dtype dtype,
                        bool reducing, ls_error *error);

/* Posts this rank's buffer of `bytes` and waits until `reads` (a member, all, none) have posted
 * theirs, the same call; fills group->peers for them. */
ls_status ls_call_begin(ls_group *group, const ls_posting *call, void *data, size_t bytes,
                        int reads, ls_error *error);

/* Says that this rank is through and, with `wait`, waits until all others are, so that buffers may
 * be used again. */
ls_status ls_call_end(ls_group *group, bool wait, ls_error *error);

/* After a failure: gives up messages under way and, since the caller may free its buffers, waits
 * until no other thread is at them. Returns `status`. */
ls_status ls_call_conclude(ls_group *group, ls_status status);

/* Waits while `member`, a thread of this process, is between left - 1 and `left`. */
void ls_call_leave(ls_group *group, int member, ls_flag *flag, uint32_t left);

/* Whether a peer's posting is of the same call; ends the run where it is not. */
ls_status ls_call_agree(ls_group *group, int member, const ls_posting *own,
                        const ls_posting *theirs, ls_error *error);

/* What this rank posted last. */
const ls_posting *ls_call_own(const ls_group *group);

void ls_count_sent(ls_comm *comm, int64_t bytes);

/* --- messages.c ------------------------------------------------------------------------------ */

/* A receive in two halves, from a member of this process: waits until the next message is posted
 * and says where it lies, which it may be copied from until it is taken. */
ls_status ls_receive_seen(ls_group *group, int64_t count, ls_dtype dtype, int from,
                          const void **theirs, ls_error *error);
void ls_receive_taken(ls_group *group, int from);

/* --- reshard.c ------------------------------------------------------------------------------- */

/* The block that member `from` has for member `to`, out of one buffer into the other, as copies of
 * rows. */
typedef ls_status (*ls_copy_rows)(void *context, const ls_device_copy *rows, ls_error *error);
ls_status ls_reshard_rows(const ls_resharding *of, int from, int to, ls_dtype dtype, void *target,
                          const void *source, ls_copy_rows copy, void *context, ls_error *error);
/* The same block between the buffer of one of them and memory where its parts lie together. */
typedef struct ls_reshard_side {
  int from, to;
  bool out; /* of `from`, out of its buffer; else of `to`, into it */
} ls_reshard_side;
ls_status ls_reshard_packed(const ls_resharding *of, const ls_reshard_side *side, ls_dtype dtype,
                            void *buffer, void *packed, ls_copy_rows copy, void *context,
                            ls_error *error);
size_t ls_reshard_bytes(const ls_resharding *of, int from, int to, ls_dtype dtype);

/* --- collectives.c --------------------------------------------------------------------------- */

/* Elements [start, start + count) of a whole. */
typedef struct ls_shard_range {
  int64_t start, count;
} ls_shard_range;

/* Those of `count` elements that belong to a member. */
ls_shard_range ls_group_shard(const ls_group *group, int64_t count, int member);

/* --- exchange.c ------------------------------------------------------------------------------ */

/* Whether `member` cannot touch what this rank posted, so that messages carry it. */
bool ls_group_needs_message(const ls_group *group, int member, const ls_posting *posting);

/* The tag of a group's messages to and from a member: no other group of the two has it. */
uint64_t ls_group_tag(const ls_group *group, ls_stream stream, int member);

/* Sends and receives all of group->transfers, in messages of bounded length. */
ls_status ls_exchange(ls_group *group, ls_stream stream, ls_error *error);

/* One round: starts a message of each transfer in a request set; waits for all of the set. */
ls_status ls_requests_start(ls_group *group, ls_stream stream, int which, ls_error *error);
ls_status ls_requests_finish(ls_group *group, int which, ls_error *error);
void ls_transfers_clear(ls_group *group);

/* Gives up what is under way after a failure; then the caller's memory is the caller's again. */
void ls_lanes_cancel(ls_comm *comm);

#endif
