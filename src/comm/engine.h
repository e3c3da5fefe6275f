/* The engines that carry a run's transfers, as a table: a new one is a row here and a file.
 *
 *   ls_world *world;
 *   LS_TRY(ls_world_start(&device.facts, &(ls_world_options){.ranks = 4}, &world, error));
 *   ... on the thread of a rank, which has entered its device:
 *   const ls_carrier_options of = {comm, &device, &queue, room};
 *   LS_TRY(ls_engine_choose(&of, everyone, &engine, error));
 *   LS_TRY(engine->open(&of, &carrier, error));
 *   LS_TRY(engine->join(carrier, group, &use, error));
 *   LS_TRY(engine->begin(carrier, &transfer, error));
 *   ... kernels that do not touch what it reads and fills ...
 *   LS_TRY(engine->end(carrier, &transfer, error));
 *   engine->close(&carrier);
 *
 * A world is how ranks meet: as threads, or as processes under MPI. An engine is how their data
 * goes. Facts of a device say how transfers queue in the engine that moves its data; `check` proves
 * a program for these queues, and no engine that has others is chosen. */
#ifndef LS_COMM_ENGINE_H
#define LS_COMM_ENGINE_H

#include "comm/comm.h"
#include "ir/collective.h"

/* A transfer of a rank. Its beginning and its end are given the same. */
typedef struct ls_transfer {
  ls_collective kind; /* what communicates */
  ls_group *group;
  void *source, *target; /* NULL: it has none */
  int64_t count;         /* elements of the whole, as in comm.h */
  ls_dtype dtype;
  ls_reduce reduce;      /* of an all-reduce */
  bool accumulate;       /* a reduce-scatter adds to what its target holds */
  int peer;              /* the other member of a message */
  int shift;             /* of a permute */
  ls_resharding reshard; /* of an all-to-all */
} ls_transfer;

/* What the transfers of a rank's programs need where they are staged. */
typedef struct ls_transfer_room {
  size_t whole;      /* bytes of the largest transfer that is done where it begins */
  size_t lasting;    /* and of the largest that stays from its beginning to its end */
  int lasting_count; /* of these at once */
} ls_transfer_room;

/* What the transfers of a rank's programs ask of a group. */
typedef struct ls_group_use {
  bool together; /* there are some of all members */
  bool messages; /* and some to and from its other member */
  size_t beside; /* bytes of the largest that a transfer's parts or sums fill beside its operands */
} ls_group_use;

typedef struct ls_carrier_options {
  ls_comm *comm;
  const ls_device *device;
  const ls_device_queue *queue; /* of the rank's kernels */
  ls_transfer_room room;
} ls_carrier_options;

/* What an engine has of a rank; each engine's own begins with this. */
typedef struct ls_carrier {
  ls_carrier_options of;
} ls_carrier;

typedef struct ls_engine {
  const char *name;        /* "direct" */
  const char *words;       /* how data goes, for a person */
  const char *needs;       /* what it serves, for a person */
  const char *said;        /* behind the words as a run begins; NULL: nothing is said */
  const ls_queues *queues; /* how its transfers queue */
  /* Whether it can carry this rank's data. */
  bool (*serves)(const ls_carrier_options *of);
  /* In the memory of the comm; closed before the device is left, also after a failure.
   * Collective: all ranks. */
  ls_status (*open)(const ls_carrier_options *of, ls_carrier **carrier, ls_error *error);
  /* Makes ready for transfers in a group. Collective: its members; groups in one order. */
  ls_status (*join)(ls_carrier *carrier, ls_group *group, const ls_group_use *use, ls_error *error);
  /* After the last of them; NULL: nothing is to be done. Collective: all ranks, `everyone`. */
  ls_status (*ready)(ls_carrier *carrier, ls_group *everyone, ls_error *error);
  /* After the kernels that are on the queue so far; those put there after the end find it done.
   * Errors as in comm.h. Nothing here allocates. */
  ls_status (*begin)(ls_carrier *carrier, const ls_transfer *transfer, ls_error *error);
  ls_status (*end)(ls_carrier *carrier, const ls_transfer *transfer, ls_error *error);
  /* After a wait for the device: LS_FAILED where that has ended because transfers were given up.
   * NULL: they are waited for on the host. */
  ls_status (*check)(ls_carrier *carrier, ls_error *error);
  void (*close)(ls_carrier **carrier);
} ls_engine;

/* In order of preference. */
extern const ls_engine *const ls_engines[];
extern const int ls_engine_count;

/* The host addresses the memory: its threads copy and add up in rank order. */
extern const ls_engine ls_engine_direct;

/* Through memory of the host's, which the direct engine carries in the device's place. */
extern const ls_engine ls_engine_staged;

/* Queues of the devices copy and add up in rank order, each reading its peers' memory. */
extern const ls_engine ls_engine_peer;

/* A library of the device's carries and adds up, in an order of its own, between ranks of any
 * processes and hosts; each set of axes, and each peer and direction, has a communicator and a
 * queue. */
extern const ls_engine ls_engine_nccl;

/* The first that serves all ranks of the group and has the queues of the device's facts. LS_INPUT:
 * there is none. Collective: all members. */
LS_CHECKED ls_status ls_engine_choose(const ls_carrier_options *of, ls_group *everyone,
                                      const ls_engine **chosen, ls_error *error);

/* Bytes that a transfer reads and that it writes. */
typedef struct ls_transfer_bytes {
  size_t in, out;
} ls_transfer_bytes;
ls_transfer_bytes ls_transfer_bytes_of(const ls_transfer *transfer);

/* Bytes that it fills beside its operands where nobody adds to what a target holds, and where parts
 * for other members have to lie together. */
size_t ls_transfer_beside(const ls_transfer *transfer);

/* Whether what it reads is said at its beginning and used up to its end: a send, a sum of
 * numbers. */
bool ls_transfer_lasts(ls_collective kind);

/* Starts a world of threads, or of processes where not all ranks are here. LS_INPUT also where this
 * build has no engine with the queues of the facts. Owns: as ls_world_create_threads. */
LS_CHECKED ls_status ls_world_start(const ls_device_facts *facts, const ls_world_options *options,
                                    ls_world **world, ls_error *error);

#endif
