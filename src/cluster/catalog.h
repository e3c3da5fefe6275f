/* The accelerators and links that a cluster may be made of, with their rates, prices and sources:
 * catalog.yaml, which is built in, and what the user's machines.yaml adds to it or overrides.
 *
 *   ls_catalog *catalog;
 *   LS_TRY(ls_catalog_open(arena, &catalog, error));
 *   LS_TRY(ls_catalog_find(catalog, "h100-sxm", &found, error));
 *
 * Rates are per second, bytes are bytes. 0 and NULL: not known. A catalog is its arena's; one
 * thread at a time. */
#ifndef LS_CLUSTER_CATALOG_H
#define LS_CLUSTER_CATALOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "lockstep/status.h"

typedef struct ls_link {
  const char *id, *name;
  const char *between;  /* "devices" of a host, or "hosts" */
  double bytes_per_s;   /* each way: of a device, or of one NIC */
  int64_t nics;         /* of a host; between devices 1 */
  double latency_s;     /* of a small message */
  double reduced_per_s; /* bus bandwidth that an all-reduce was measured to reach, all NICs */
  const char *source, *notes;
} ls_link;

/* What an hour of one device costs. */
typedef struct ls_price {
  const char *region; /* "typical", "lowest", or a place */
  double hour;
  const char *currency, *date, *source; /* NULL: USD; the accelerator's price_source */
} ls_price;

/* Number formats of products, by index of ls_accelerator.flops_per_s. */
#define LS_CATALOG_FORMATS(X) \
  X(FP32, "fp32") X(TF32, "tf32") X(FP16, "fp16") X(BF16, "bf16") X(FP8, "fp8") X(FP4, "fp4")
typedef enum ls_catalog_format {
#define LS_CATALOG_ENUM(suffix, name) LS_CATALOG_##suffix,
  LS_CATALOG_FORMATS(LS_CATALOG_ENUM)
#undef LS_CATALOG_ENUM
      LS_CATALOG_FORMAT_COUNT
} ls_catalog_format;

typedef struct ls_accelerator {
  const char *id, *name;
  const char *also;     /* another word that finds it; NULL: none */
  int64_t architecture; /* of CUDA: 90 for sm_90; 0: not CUDA's */
  int64_t memory_mib;
  bool reported; /* as its driver reports it; else by the data sheet, which may say more */
  double memory_bytes_per_s;
  int64_t processors; /* streaming multiprocessors or compute units */
  double l2_bytes;
  double flops_per_s[LS_CATALOG_FORMAT_COUNT]; /* dense, sums in fp32 */
  double reached_per_s;    /* of products in bf16, the best that was measured; 0: nobody did */
  const char *host_link;   /* id of the link to its host */
  double host_bytes_per_s; /* each way, where it is another than the link's */
  const char *peer;        /* id of the link to other devices of its host */
  double peer_bytes_per_s; /* where it is another than the link's */
  int64_t peer_devices;    /* that the link joins; 0: all of a host */
  const char *peer_beyond; /* id of the link to others of the host */
  bool peer_access;        /* devices of a host read each other's memory */
  int64_t host_devices;    /* of a host, where nobody says otherwise */
  const char *network;     /* id of the link between such hosts */
  int64_t host_nics;       /* of such a host; 0: as many as the link has */
  double host_memory_bytes;
  double watts, buy; /* buy: USD for one */
  LS_LIST(ls_price) prices;
  const char *price_source, *source, *reached_source, *confidence, *notes;
} ls_accelerator;

typedef struct ls_catalog {
  ls_arena *arena;
  LS_LIST(ls_link *) links;
  LS_LIST(ls_accelerator *) accelerators; /* of the built-in file first */
  const char *own;                        /* the user's file; NULL: there is none */
} ls_catalog;

/* Reads the built-in catalog and, over it, $XDG_CONFIG_HOME/lockstep/machines.yaml (else
 * ~/.config/lockstep/machines.yaml) where there is one. LS_INPUT: that file is not as it should be,
 * with its line and key. In the arena. */
LS_CHECKED ls_status ls_catalog_open(ls_arena *arena, ls_catalog **catalog, ls_error *error);

/* The same with the user's file at `own`; NULL: none. */
LS_CHECKED ls_status ls_catalog_read(ls_arena *arena, const char *own, ls_catalog **catalog,
                                     ls_error *error);

/* The one accelerator whose id (or `also`) is this, in upper or lower case, or begins with it at a
 * dash.
 * LS_INPUT: there is none or several; says which come nearest. */
LS_CHECKED ls_status ls_catalog_find(const ls_catalog *catalog, const char *word,
                                     const ls_accelerator **found, ls_error *error);

/* The accelerator that a driver describes so: of its architecture and number of processors, with
 * its memory to within 3 %, and of several that one whose name has most of its words in `name`.
 * NULL: none is. */
const ls_accelerator *ls_catalog_like(const ls_catalog *catalog, const ls_accelerator *reported);

/* The link of an id; NULL: there is none, or the id is NULL. */
const ls_link *ls_catalog_link(const ls_catalog *catalog, const char *id);

/* "fp32", ..., of an index of flops_per_s. */
const char *ls_catalog_format_name(ls_catalog_format format);

#endif
