/* What software the published rows were measured with, and what of it matters to time and memory:
 * for predicting them only. The catalog's own model is of Lockstep's program. */
#ifndef BENCH_PUBLISHED_FAMILIES_H
#define BENCH_PUBLISHED_FAMILIES_H

#include "cost/performance.h"
#include "lower/training.h"
#include "published/rows.h"

enum { PUBLISHED_CONSTANTS = 3 };

/* Of which device the memory is told. */
typedef enum published_teller {
  PUBLISHED_FULLEST = 0,
  PUBLISHED_FIRST_STAGE,
  PUBLISHED_LAST_STAGE
} published_teller;

/* Bytes that a parameter has, and what is counted as memory. */
typedef struct published_accounting {
  double weights, gradients, optimizer; /* bytes of a parameter */
  double logits;                        /* bytes of a logit of one microbatch at its loss */
  double fixed;                         /* GiB that every device has beside tensors */
  double reserved;                      /* over what is allocated, where that is what was told */
  double half[2];                       /* gradients and optimizer in fp16; 0: as above */
  published_teller teller;
} published_accounting;

typedef struct published_family {
  const char *name;
  const char *sources; /* each between bars: "|vTrain-single|BLOOM-prequel|" */
  /* Fitted on one half: share of the rate of our products, bytes of elementwise ops over those of
   * ours, seconds that the host takes to begin a kernel. */
  double constants[PUBLISHED_CONSTANTS];
  int sequence_parallel; /* 0: none; 1: with tp; 2: where recomputation is selective */
  bool repeated;         /* its TFLOP/s count the flops that recomputation repeats */
  bool adapters;         /* trains adapters over frozen weights */
  bool tuned;            /* tp's collectives run beside products, casts are of what comes before */
  bool scores_again;     /* selective recomputation: attention's core; else norms and activations */
  bool late;             /* gradients are made in backward and freed after the update */
  bool eager;            /* ops of an MLP are apart, and each keeps what it reads */
  bool masks;            /* of dropout, two of a layer */
  bool deterministic;    /* tests that repeat bit by bit: scores of attention are kept */
  bool plain;            /* norms keep fp32, keys and values are repeated for each head */
  bool gathered;         /* inputs that tp gathers are kept whole */
  bool outputs;          /* of a stage, kept until their gradient is there */
  bool balanced;         /* stages by their weights, the last one's table of words among them */
  int pieces;            /* collectives over data ranks for a layer: its tensors; 0: 1 */
  double prefetched;     /* elements that are gathered ahead at most; 0: a layer, however large */
  bool gathers_keys;     /* of a sequence that is cut; else they go round a ring */
  bool beside;           /* gradients are reduced while backward goes on */
  bool fits;             /* its recipes save memory only where a device needs it */
  double attention[2];   /* share of the peak of the data sheet, before and from Hopper; 0: ours */
  int64_t vocabulary;    /* where a row does not tell it */
  published_accounting accounting;
} published_family;

extern published_family published_families[];
extern const int published_family_count;

/* The family of a row's source; the last one where none names it. */
published_family *published_family_of(const published_table *of, const published_row *row);

/* A row as what is compiled and simulated. */
typedef struct published_case {
  ls_model_config model;
  bool gated, adapters, full; /* full: all is made again */
  bool mixture;               /* experts are shared out */
  bool scores, selective;     /* scores of attention are kept; recomputation is selective */
  double frozen_bytes;        /* of a weight that is not trained */
  bool frugal;                /* no state but weights and paged moments of a byte each */
  ls_layout layout;
  int64_t batch;
  ls_cluster *cluster;
  ls_accelerator accelerator; /* the cluster's, with what the row says otherwise */
  ls_device_facts facts;
  ls_performance performance; /* without the family's constants */
} published_case;

/* Reads a row. LS_INPUT: what it lacks, or what cannot be done. */
LS_CHECKED ls_status published_case_make(ls_catalog *catalog, const published_table *of,
                                         const published_row *row, published_case *made,
                                         ls_error *error);

/* The performance of a case with its family's constants. */
ls_performance published_performance(const published_case *of, const published_family *family);

/* Weights of one layer. */
double published_layer(const published_case *is);

/* GiB of the state of a device's parameters. */
double published_state(const published_case *is, const published_family *family);

/* GiB of the device whose memory the family tells, as the family accounts for it. */
double published_memory(const published_case *is, const published_family *family);

#endif
