/* A cluster: hosts of like devices, the links between them, and what an hour of them costs.
 *
 *   ls_cluster *cluster;
 *   LS_TRY(ls_cluster_read(catalog, "64xH100-SXM:8", &cluster, error));
 *   LS_TRY(ls_cluster_read(catalog, "ours.yaml", &cluster, error));
 *
 * What the text does not say is the catalog's, each as a line of `assumed`. Ranks are laid on hosts
 * in order: host h has ranks [h * per_host, (h + 1) * per_host). One thread at a time. */
#ifndef LS_CLUSTER_CLUSTER_H
#define LS_CLUSTER_CLUSTER_H

#include "cluster/catalog.h"

/* What devices were measured to reach at best, per second; 0: not measured. */
typedef struct ls_reached {
  double bf16_flops, fp16_flops, fp32_flops;   /* of products */
  double memory_bytes, host_bytes, peer_bytes; /* host: to it, or from it if that is slower */
} ls_reached;

typedef struct ls_cluster {
  ls_arena *arena;  /* the catalog's */
  const char *name; /* as it was asked for */
  const ls_accelerator *accelerator;
  int devices;                  /* of all hosts; 0: not said */
  int per_host;                 /* devices of a host */
  const ls_link *host_link;     /* from a device to its host; NULL: none is known */
  double host_bytes_per_s;      /* each way; 0: not known */
  const ls_link *peer, *beyond; /* within a host; beyond: past peer_devices. NULL: none is known */
  double peer_bytes_per_s;      /* each way */
  int peer_devices;
  bool peer_access;
  const ls_link *network;  /* between hosts */
  int nics;                /* of a host */
  double oversubscription; /* of the network above a host: 1 where all may send at once */
  bool rails; /* NICs of the same place in their hosts have switches of their own, which are not
               * oversubscribed */
  double host_memory_bytes;
  int host_cores;                             /* 0: not known */
  double drive_read_per_s, drive_write_per_s; /* bytes; 0: not known */
  ls_reached reached;                         /* goes before the accelerator's rates */
  double hour;                                /* of one device; 0: not known */
  const char *currency, *region;
  bool here; /* the devices of this machine, which bench can measure */
  struct {
    bool per_host, network, host_memory, price;
  } said;                        /* by who asked; the catalog's convention otherwise */
  LS_LIST(const char *) assumed; /* lines for people */
} ls_cluster;

/* "64xH100-SXM:8" (devices, accelerator, devices of a host), "H100-SXM", or a YAML file whose name
 * ends in .yaml or .yml. LS_INPUT: what cannot be, with what can. In the catalog's arena. */
LS_CHECKED ls_status ls_cluster_read(ls_catalog *catalog, const char *text, ls_cluster **cluster,
                                     ls_error *error);

/* Another count of the same devices on the same kind of host. */
LS_CHECKED ls_status ls_cluster_resize(ls_cluster *cluster, int devices, ls_error *error);

/* Takes the price of a region that the accelerator has one for. LS_INPUT names those it has. */
LS_CHECKED ls_status ls_cluster_price_in(ls_catalog *catalog, ls_cluster *cluster,
                                         const char *region, ls_error *error);

/* Its file, of which the first line is a comment, `head`. In the catalog's arena. */
const char *ls_cluster_text(const ls_cluster *cluster, const char *head);

/* Takes what such a text says under `reached`; false: it is none. */
bool ls_cluster_take_reached(ls_cluster *cluster, const char *text);

/* The keys of a cluster's file, for --help. */
#define LS_CLUSTER_HELP                                                                       \
  "    accelerator: h100-sxm-80      # as `lockstep machines` lists them\n"                   \
  "    devices: 64                   # of all hosts\n"                                        \
  "    per_host: 8\n"                                                                         \
  "    peer: {link: nvlink4-switch, gb_per_s: 450, access: true}   # within a host\n"         \
  "    network: {link: ib-ndr-8, nics: 8, oversubscription: 1}     # between hosts\n"         \
  "             # rails: true, where NICs of one place in hosts have switches of their own\n" \
  "    host: {memory_gib: 2048, cores: 96, gb_per_s: 55}           # gb_per_s: to a device\n" \
  "    drive: {read_gb_per_s: 9, write_gb_per_s: 8}                # of a host\n"             \
  "    price: {hour: 2.5, currency: USD, region: ours}             # of one device\n"         \
  "    reached: {bf16_tflops: 794, memory_gb_per_s: 3000}          # as bench -o writes it\n"

#endif
