/* How fast a device and its links are: seconds of an op, a collective, a message, a copy between
 * tiers.
 *
 *   ls_performance performance;
 *   LS_TRY(ls_performance_of(facts, cluster, &performance, error));
 *   double seconds = ls_instruction_seconds(&performance, program, rank, instruction, first);
 *
 * An op takes the longer of its flops and its bytes, and never less than a kernel does. A product
 * is done in tiles, and tiles in waves over the processors of a device, so its time has steps
 * (NVIDIA, Matrix Multiplication Background User's Guide). Constants have their source beside them.
 * Values only, and rates that are borrowed; thread-safe. */
#ifndef LS_COST_PERFORMANCE_H
#define LS_COST_PERFORMANCE_H

#include "cluster/cluster.h"
#include "cluster/rates.h"
#include "cost/cost.h"

/* What a transfer goes over, and shares with others that go over it at the same time. */
typedef enum ls_link_kind {
  LS_LINK_PEER = 0, /* between devices of a host */
  LS_LINK_NETWORK,  /* between hosts */
  LS_LINK_TO_HOST,  /* from a device to its host */
  LS_LINK_FROM_HOST,
  LS_LINK_DRIVE,
  LS_LINK_KINDS
} ls_link_kind;

/* How kernels of other software differ from ours, for predicting what was measured with it. All 0:
 * they are ours. */
typedef struct ls_kernel_traits {
  double elementwise; /* bytes of ops that are neither product nor attention, times; 0: 1 */
  /* Of attention that keeps its scores: bytes moved for one score, forward and backward. */
  double score_bytes[2];
  int score_kernels[2]; /* that it is made of; 0: 1 */
  double narrow;        /* rate of the layers' products over flops_per_s, in fp8 or fp4; 0: 1 */
  double cast_bytes;    /* moved for each element that such a product reads, to make it narrow */
  int64_t wide;         /* columns of products that stay wide: the vocabulary */
  int pieces; /* collectives in which a unit is gathered or reduced over data ranks; 0: 1 */
} ls_kernel_traits;

/* Rates are what is reached at best, per second; shares are of these. */
typedef struct ls_performance {
  const char *name;
  double flops_per_s[LS_DTYPE_COUNT]; /* of products whose operands have this dtype; 0: none */
  double fp8_flops_per_s;             /* of operands rounded to fp8; 0: as their dtype's */
  bool fp8_pass;                      /* scales of tokens are a pass over what they give */
  double bytes_per_s;                 /* of memory */
  double attention_share;             /* of flops_per_s, of ops that are no product */
  double kernel_s;                    /* the least that a kernel takes on the device */
  double launch_s;                    /* that the host takes to begin one */
  int processors;                     /* that tiles are dealt to; 0: products have no tiles */
  double interference[LS_LINK_KINDS]; /* share of compute that such a transfer beside it takes */
  double peer_per_s, beyond_per_s;    /* a device, each way; beyond: past peer_devices */
  int peer_devices, per_host;
  double network_per_s; /* a device's share of its host's NICs, each way */
  int nic_devices; /* that have a NIC between them: one may have it all while others are still */
  bool one_port;   /* peers are reached over the device's link to its host */
  const ls_queues *queues; /* of transfers between ranks; NULL: NCCL's */
  double host_per_s, drive_read_per_s, drive_write_per_s;
  double peer_latency_s, network_latency_s;  /* of a step of a collective, of a message */
  double host_flops_per_s, host_bytes_per_s; /* of the host's own updates */
  int cores, threads;   /* CPU: of the host, that all ranks share; of a rank; else 0 */
  double copies;        /* CPU: between tiers, that its memory carries at host_per_s; 0: any */
  double slice_s;       /* CPU: for which a core is given to one thread where there are more */
  const ls_rates *here; /* what ops and transfers took on the CPU that is simulated; else NULL */
  ls_kernel_traits traits;
  bool protocols; /* collectives go by NCCL's protocols; else in a ring at a link's own rate */
  bool waits;     /* collectives end where they begin: nothing runs beside */
} ls_performance;

/* Of a device of the catalog in a cluster. LS_INPUT: the row lacks what is needed, with its key. */
LS_CHECKED ls_status ls_performance_of(const ls_device_facts *facts, const ls_cluster *cluster,
                                       ls_performance *performance, ls_error *error);

/* Of this machine's CPU, as `lockstep bench` measured it, where so many ranks share its cores. */
ls_performance ls_performance_here(const ls_rates *rates, const ls_device_facts *facts, int cores,
                                   int ranks);

/* Seconds of an op on operands of these shapes. */
double ls_op_seconds(const ls_performance *performance, ls_op_kind kind,
                     const ls_attributes *attributes, const ls_work_operand *in, int inputs,
                     const ls_work_operand *out, int outputs);

/* The same of an op that a program has. `first` as of ls_instruction_work. */
double ls_instruction_seconds(const ls_performance *performance, const ls_program *program,
                              int rank, const ls_instruction *instruction, bool first);

/* What an op's time depends on, its seconds left open. */
ls_op_time ls_op_time_of(ls_op_kind kind, const ls_attributes *attributes,
                         const ls_work_operand *in, int inputs, const ls_work_operand *out,
                         int outputs, int threads);

/* Seconds of such an op by what was measured of its kind; of a kind that was not, its bytes at the
 * rate of memory. */
double ls_op_seconds_here(const ls_rates *rates, const ls_op_time *asked);

/* A transfer alone on its link: latency, then seconds of bytes. A collective over hosts goes over
 * peers' links and the network at once: `link` is the slower of the two. */
typedef struct ls_transfer_time {
  ls_link_kind link;
  double latency_s, seconds;
  double beside_s; /* of its bytes over the other of the two, alone there; 0: none */
} ls_transfer_time;

/* Members of a group, and how many of them one host has. */
typedef struct ls_group_shape {
  int ranks, per_host;
} ls_group_shape;

ls_group_shape ls_group_shape_of(const ls_mesh *mesh, int rank, ls_axes axes, int per_host);

/* Of a collective of `whole` bytes over a group: the fastest of NCCL's rings and trees in each of
 * its protocols; without them a ring. */
ls_transfer_time ls_collective_time(const ls_performance *performance, ls_collective collective,
                                    double whole, const ls_group_shape *group);

/* Seconds of a collective of `bytes` in all in groups like this one of `world` ranks that share the
 * machine, or of a message; -1: nothing like it was measured. */
double ls_transfer_seconds_here(const ls_rates *rates, ls_collective collective, double bytes,
                                const ls_group_shape *group, int world);

/* Of an instruction that is a collective, a message or a move. */
ls_transfer_time ls_instruction_transfer(const ls_performance *performance,
                                         const ls_program *program, int rank,
                                         const ls_instruction *instruction);

#endif
