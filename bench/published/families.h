/* What software the published rows were measured with, and what of it matters to time and memory:
 * for predicting them only. The catalog's own model is of Lockstep's program. */
#ifndef BENCH_PUBLISHED_FAMILIES_H
#define BENCH_PUBLISHED_FAMILIES_H

#include "cost/performance.h"
#include "lower/training.h"
#include "published/rows.h"

enum { PUBLISHED_CONSTANTS = 3 };

/* Bytes that a parameter has, and what is counted as memory. */
typedef struct published_accounting {
  double weights, gradients, optimizer; /* bytes of a parameter */
  double logits;                        /* bytes of a logit of one microbatch */
  double fixed;                         /* GiB that every device has beside tensors */
  double reserved;                      /* over what is allocated, where that is what was told */
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
  bool checkpoints;      /* recomputes all where a row does not say */
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

/* GiB of the fullest device as the family accounts for it. */
double published_memory(const published_table *of, const published_row *row,
                        const published_case *is, const published_family *family);

#endif
