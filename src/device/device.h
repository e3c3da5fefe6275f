/* A device as an object: what it can do, and the functions that reach it.
 *
 *   ls_device device;
 *   LS_TRY(ls_device_open(&(ls_device_options){.compute = LS_BF16, .threads = 2}, &device, error));
 *   ... on the thread of a rank:
 *   ls_device_queue queues[LS_DEVICE_QUEUES];
 *   LS_TRY(device.enter(&device, &(ls_device_place){0, 0}, queues, error));
 *   LS_TRY(device.memory->write(at, values, bytes, error));
 *   args.queue = &queues[LS_TIER_DEVICE];
 *   LS_TRY(device.kernels[LS_TIER_DEVICE].kernel[LS_OP_LINEAR](&args, error));
 *   LS_TRY(device.wait(args.queue, error));
 *   device.leave(queues);
 *
 * A device is a value, constant once opened: the ranks of a process share it. Nobody but its
 * kernels, its memory's functions and the engine that moves its data follows an address in its
 * memory. */
#ifndef LS_DEVICE_DEVICE_H
#define LS_DEVICE_DEVICE_H

#include "device/facts.h"
#include "ir/layout.h"

/* The device that has some memory, told alike in all processes. */
typedef struct ls_memory_owner {
  int64_t words[2];
} ls_memory_owner;

/* How memory of a kind of device is had and reached. */
typedef struct ls_memory_calls {
  bool addressable; /* the host reads and writes it as its own */
  /* Zeroed, 4096-aligned. With `exported` *handle is a file that another process imports it by,
   * where the device has such, else -1; it is closed with close(). NULL: errno says why. */
  void *(*reserve)(size_t bytes, bool exported, int *handle);
  /* Memory that another process of this host has exported, for all devices that threads of this one
   * have entered. The file stays the caller's. NULL: the error says why not. */
  void *(*import)(int file, size_t bytes, const ls_memory_owner *owner, ls_error *error);
  void (*release)(void *base, size_t bytes); /* of either; NULL base: nothing */
  /* The host's bytes to the device and back, from a place on the device to another, and zeros. They
   * have ended when the call returns. */
  ls_status (*write)(void *to, const void *from, size_t bytes, ls_error *error);
  ls_status (*read)(void *to, const void *from, size_t bytes, ls_error *error);
  ls_status (*copy)(void *to, const void *from, size_t bytes, ls_error *error);
  ls_status (*clear)(void *to, size_t bytes, ls_error *error);
  /* Pins memory of the host, so that the device copies from and to it with no buffer in between;
   * unpinned before it goes. NULL: the device has no use for it. */
  ls_status (*pin)(void *base, size_t bytes, ls_error *error);
  void (*unpin)(void *base);
  /* Bytes in use of the device that the calling thread has entered, whoever uses them; -1: not
   * known. NULL: it is the host's memory. */
  int64_t (*used)(void);
  /* Who has what the calling thread reserves. NULL: the host itself. */
  ls_status (*owner)(ls_memory_owner *owner, ls_error *error);
} ls_memory_calls;

/* The memory of a host, which is that of its CPU devices. */
extern const ls_memory_calls ls_host_memory;

/* Reads of a queue that may be under way at once, each in a slot, and what each may be of. */
enum { LS_QUEUE_READS = 2, LS_QUEUE_READ_BYTES = 4096 };

/* What a queue of a device does in its order, behind its kernels, while the host goes on. What
 * fails later is said by what waits. */
typedef struct ls_queue_calls {
  /* The host's bytes to the device, which are taken before it returns, and zeros. */
  ls_status (*put)(const ls_device_queue *queue, void *to, const void *from, size_t bytes,
                   ls_error *error);
  ls_status (*clear)(const ls_device_queue *queue, void *to, size_t bytes, ls_error *error);
  /* The device's bytes as the work before has left them. The end waits for that read alone. */
  ls_status (*read_begin)(const ls_device_queue *queue, int slot, const void *from, size_t bytes,
                          ls_error *error);
  ls_status (*read_end)(const ls_device_queue *queue, int slot, void *to, size_t bytes,
                        ls_error *error);
  /* Kernels that are put on the queue between the two are not done but kept, with their operands'
   * addresses, as a graph that is replayed any number of times. Each must have been put on the
   * queue before, so that libraries have made what they need. The end ends it also where something
   * failed in between, and then there is no graph. */
  ls_status (*begin_capture)(const ls_device_queue *queue, ls_error *error);
  ls_status (*end_capture)(const ls_device_queue *queue, void **graph, ls_error *error);
  ls_status (*replay)(const ls_device_queue *queue, void *graph, ls_error *error);
  void (*drop)(const ls_device_queue *queue, void *graph);
} ls_queue_calls;

/* Tiers that have kernels. */
enum { LS_DEVICE_QUEUES = LS_TIER_HOST + 1 };

/* A rank's number among those of its host, and among those of its process. */
typedef struct ls_device_place {
  int of_host, of_process;
} ls_device_place;

/* Bytes in `rows` rows of `width`, which lie `to_stride` and `from_stride` apart. */
typedef struct ls_device_copy {
  void *to;
  const void *from;
  size_t width, rows, to_stride, from_stride;
} ls_device_copy;

/* target[i] is the sum, or the largest, of sources[0][i] to sources[ranks - 1][i], added in that
 * order and rounded once, as ls_all_reduce has it. `accumulate`: and of what the target held. The
 * target may be one of the sources. */
typedef struct ls_device_sum {
  void *target;
  const void *const *sources;
  int ranks;
  int64_t count;
  ls_dtype dtype;
  bool largest, accumulate;
} ls_device_sum;

typedef struct ls_device_event ls_device_event;

/* A device's own queues for transfers, whose work an engine puts there: nothing here waits for it.
 * The calling thread has entered the device; errors of the work itself surface at waits. */
typedef struct ls_transfer_calls {
  /* Whether work on the queue reads and writes the memory of the rank there, which is one of this
   * process. */
  bool (*reaches)(const ls_device_queue *queue, const ls_device_place *rank);
  /* A queue for transfers beside that of kernels; closing waits for what is on it. */
  ls_status (*open)(const ls_device_queue *beside, ls_device_queue *made, ls_error *error);
  void (*close)(ls_device_queue *queue);
  /* A point in the work of a queue. It is recorded on queues of the GPU that it was made for, and
   * awaited on any of the process: what is put there later begins after all that was on the other
   * when the event was recorded last. */
  ls_status (*make_event)(const ls_device_queue *queue, ls_device_event **made, ls_error *error);
  void (*free_event)(ls_device_event *event);
  ls_status (*record)(const ls_device_queue *queue, ls_device_event *event, ls_error *error);
  ls_status (*await)(const ls_device_queue *queue, ls_device_event *event, ls_error *error);
  /* Whether all that was before it when it was recorded last has ended. */
  ls_status (*passed)(ls_device_event *event, bool *passed, ls_error *error);
  ls_status (*copy)(const ls_device_queue *queue, const ls_device_copy *of, ls_error *error);
  ls_status (*sum)(const ls_device_queue *queue, const ls_device_sum *of, ls_error *error);
  /* The calling thread works for the queue's device from now on. */
  ls_status (*visit)(const ls_device_queue *queue, ls_error *error);
  /* Whether queues write and await words of the host's memory. */
  ls_status (*try_words)(const ls_device_queue *queue, ls_error *error);
  /* The device sees the host's memory at *at from now on. Several ranks of a process may share the
   * same; each unshares it once. */
  ls_status (*share_words)(const ls_device_queue *queue, void *base, size_t bytes, void **at,
                           ls_error *error);
  void (*unshare_words)(void *base);
  /* Writes a word, for all who see the memory, when all that was put on the queue before has ended
   * and is seen by them too. */
  ls_status (*write_word)(const ls_device_queue *queue, void *at, uint32_t value, ls_error *error);
  /* What is put later begins when the word has come to the value, or past it modulo 2^32. It has no
   * end else: who waits for other processes has somebody else write the word where they fail. */
  ls_status (*await_word)(const ls_device_queue *queue, void *at, uint32_t value, ls_error *error);
} ls_transfer_calls;

/* One rank's part in a set of ranks that a library carries data between, wherever they are. */
typedef struct ls_communicator ls_communicator;

typedef struct ls_communicator_id {
  int64_t words[16];
} ls_communicator_id;

typedef enum ls_communicator_kind {
  LS_TOGETHER_ALL_REDUCE = 0, /* count elements of each rank */
  LS_TOGETHER_REDUCE,         /* to the peer alone */
  LS_TOGETHER_REDUCE_SCATTER, /* count elements to each rank */
  LS_TOGETHER_ALL_GATHER,     /* count elements of each rank */
  LS_TOGETHER_BROADCAST,      /* from the peer */
  LS_TOGETHER_SEND,
  LS_TOGETHER_RECEIVE
} ls_communicator_kind;

typedef struct ls_communicator_work {
  ls_communicator_kind kind;
  const void *source;
  void *target;
  int64_t count;
  ls_dtype dtype;
  bool largest; /* of reductions: not the sum */
  int peer;
} ls_communicator_work;

/* The library's calls. None of them waits: what has begun is asked after by `poll`, and until it
 * has ended nothing else is asked of that communicator but to abort it. A communicator is one
 * thread's at a time. */
typedef struct ls_communicator_calls {
  const char *(*version)(void); /* "NCCL 2.28.9" */
  /* Whether the rank there, one of this process, has the queue's GPU as well. */
  bool (*shares)(const ls_device_queue *queue, const ls_device_place *rank);
  /* One rank makes it and all are given it. */
  ls_status (*make_id)(ls_communicator_id *id, ls_error *error);
  /* `blocks`: most multiprocessors that its work takes. Collective: all ranks. */
  ls_status (*create)(const ls_device_queue *queue, const ls_communicator_id *id, int ranks,
                      int rank, int blocks, ls_communicator **made, ls_error *error);
  /* One for all ranks with this color, in the order of their keys. Color below 0: none, and *made
   * stays NULL. *made may be used once both have ended. Collective: all ranks of `from`. */
  ls_status (*split)(ls_communicator *from, int color, int key, int blocks, ls_communicator **made,
                     ls_error *error);
  /* Whether what was begun is still under way. LS_FAILED also where work failed on the device or
   * at another rank. */
  ls_status (*poll)(ls_communicator *of, bool *busy, ls_error *error);
  /* Memory that transfers read and write, made known once; forgotten before it goes. */
  ls_status (*keep)(ls_communicator *of, void *base, size_t bytes, void **kept, ls_error *error);
  void (*forget)(ls_communicator *of, void *kept);
  /* What is put between the two is one: its parts wait for no order among each other. */
  ls_status (*open_group)(ls_communicator *of, ls_error *error);
  ls_status (*close_group)(ls_communicator *of, ls_error *error);
  /* Behind what is on the queue, which is the only one that the communicator is used on. */
  ls_status (*put)(ls_communicator *of, const ls_device_queue *queue,
                   const ls_communicator_work *work, ls_error *error);
  /* Begins its end; then it is destroyed. Collective: all its ranks. */
  ls_status (*finish)(ls_communicator *of, ls_error *error);
  void (*destroy)(ls_communicator *of);
  /* Ends it in any state, and its work on the device. */
  void (*abort)(ls_communicator *of);
} ls_communicator_calls;

/* Work that a library of the device has several ways for, as the loaded programs ask for it. */
typedef struct ls_tuned {
  uint64_t key;         /* of the work and its kind: who has the same takes the same way */
  uint64_t kind;        /* of the device and its library */
  int ways;             /* fewer than 2: there is nothing to choose */
  double work;          /* what trying them takes, to others: floating-point operations */
  size_t bytes, beside; /* of its operands, and of what is written before each to take the cache */
} ls_tuned;

/* A way, as all devices of the kind know it. All zeros: the library's own first guess. */
enum { LS_WAY_WORDS = 12 };
typedef struct ls_way {
  int64_t words[LS_WAY_WORDS];
} ls_way;

/* Memory of the device to try ways in, whose numbers are lost, and a workspace of kernels. */
typedef struct ls_tuning_room {
  void *memory, *workspace;
  size_t bytes, workspace_bytes;
} ls_tuning_room;

/* What was found: whether it is another way than the first guess, and the times of both. */
typedef struct ls_tuning_gain {
  bool other;
  double seconds, first_seconds;
} ls_tuning_gain;

/* Of the work that was prepared on a queue (ls_kernel_table.prepare), by number from 0 on. Before a
 * step, and outside of captures: they wait and allocate. */
typedef struct ls_tuning_calls {
  int (*count)(const ls_device_queue *queue);
  void (*about)(const ls_device_queue *queue, int item, ls_tuned *of);
  /* From the user's cache; what is damaged there is said and counts as not there. */
  bool (*kept)(const ls_device_queue *queue, int item, ls_way *choice);
  /* Times all ways in room of at least its bytes. LS_FAILED: none runs, or the device fails. */
  ls_status (*try_all)(const ls_device_queue *queue, int item, const ls_tuning_room *room,
                       ls_way *fastest, ls_error *error);
  /* LS_FAILED: there is no such way here. */
  ls_status (*take)(const ls_device_queue *queue, int item, const ls_way *choice, ls_error *error);
  void (*keep)(const ls_device_queue *queue, int item, const ls_way *choice);
  ls_tuning_gain (*gain)(const ls_way *choice);
} ls_tuning_calls;

typedef struct ls_device ls_device;
struct ls_device {
  const char *kind;
  ls_device_facts facts, host; /* of the device, and of the host that computes beside it */
  ls_dtype compute;
  /* Dense products of the compute type by the data sheet of one device; 0: not known. */
  double sheet_flops_per_s;
  const ls_memory_calls *memory;
  const ls_transfer_calls *transfers;         /* NULL: its queues have kernels alone */
  const ls_communicator_calls *communicators; /* NULL: there is no such library */
  const ls_queue_calls *calls; /* of the device's own queue; NULL: work has ended when it is put */
  const ls_tuning_calls *tuning; /* NULL: there is one way for everything */
  bool graphs; /* what is run again is captured and replayed, where it has calls */
  ls_kernel_table kernels[LS_DEVICE_QUEUES]; /* by tier: the host where an operand lies there */
  /* The calling thread works for the device from now on, through queues for the kernels of each
   * tier, until it leaves them. The device stays where it is that long. The place says which of a
   * host's devices it is; memory is reserved by threads that have entered one. */
  ls_status (*enter)(const ls_device *device, const ls_device_place *place,
                     ls_device_queue queues[LS_DEVICE_QUEUES], ls_error *error);
  void (*leave)(ls_device_queue queues[LS_DEVICE_QUEUES]);
  /* Until all that was put on the queue has ended; says what failed. */
  ls_status (*wait)(const ls_device_queue *queue, ls_error *error);
};

typedef struct ls_device_options {
  /* "cpu", "cuda" or "reference"; NULL: cpu, but reference for fp64, which only it has */
  const char *kind;
  ls_dtype compute;
  int threads; /* 0: 1 */
  bool exact;
  bool loopback;      /* ranks of a process share a GPU where it has fewer */
  const char *engine; /* by which data goes between ranks; NULL: the first that can */
} ls_device_options;

/* LS_INPUT where the device does not compute in that type, or is not here. */
LS_CHECKED ls_status ls_device_open(const ls_device_options *options, ls_device *device,
                                    ls_error *error);

/* Threads of the host that a loop has where nobody says how many. */
int ls_host_threads(void);

/* Hands the turns [0, count) of a loop to at most `threads` threads of the host, `at_once` at a
 * time, each as one asks for more; `thread` is which it is. What fails first is returned; the other
 * turns may or may not have run. */
typedef ls_status (*ls_turn)(void *work, int thread, int64_t turn, ls_error *error);
LS_CHECKED ls_status ls_host_share(int threads, int at_once, int64_t count, ls_turn turn,
                                   void *work, ls_error *error);

/* The turns [begin, end) of a loop, which are the part'th part of them; `work` is what
 * ls_host_split was given. */
typedef void (*ls_host_turns)(const void *work, int part, int64_t begin, int64_t end);

/* Most parts that kernels split their work in, so that partial sums fit an array. */
enum { LS_HOST_PARTS = 256 };

/* Shares the turns [0, count) of a loop in `parts` ranges, in order, among at most `threads`; a
 * range may be empty. One thread is the caller, without OpenMP, which allocates a team even for
 * one. */
void ls_host_split(int threads, int parts, int64_t count, ls_host_turns turns, const void *work);

#endif
