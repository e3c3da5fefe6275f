/* What a device can do, as data: no library is linked for it and no kernel asked, so a program is
 * compiled and proved for devices that are not there.
 *
 *   const ls_device_facts *facts = ls_device_facts_here();
 *   args.workspace_bytes = ls_device_workspace(facts, LS_OP_LINEAR, &args);
 *
 * A recipe is a function of the op, its attributes and the dimensions and dtypes of its operands on
 * one device. */
#ifndef LS_DEVICE_FACTS_H
#define LS_DEVICE_FACTS_H

#include "cluster/catalog.h"
#include "device/kernel.h"
#include "ir/queues.h"

/* Memory that a device has taken beside arena and workspace. */
typedef struct ls_overhead {
  const char *name;
  int64_t bytes;
  bool of_group; /* for each group of ranks that the programs communicate in; else once */
  const char *source;
} ls_overhead;

enum { LS_MAX_OVERHEADS = 4 };

/* How products of operands that were rounded to fp8 are done: of the numbers as they are held, or
 * of codes of 8 bits, with scales of rows in the product or by a pass over what it gives. */
typedef enum ls_fp8_products {
  LS_FP8_EMULATED = 0,
  LS_FP8_BY_PASS,
  LS_FP8_IN_PRODUCT
} ls_fp8_products;

struct ls_device_facts {
  const char *name;     /* "cpu", "h100-sxm-80" */
  const char *set;      /* of instructions: "avx512_bf16", "sm_90" */
  int architecture;     /* CUDA: 90 for sm_90; else 0 */
  int64_t memory_bytes; /* 0: its host's, which facts do not say */
  const char *memory_source;
  bool memory_reported; /* by its driver; else the data sheet's, which may be more */
  int64_t alignment;    /* that its kernels want of operands */
  int64_t logits_bytes, logits_multiple; /* that it makes at once, and of a row: ls_layout */
  unsigned formats;                      /* bit d: multiplies ls_dtype d natively */
  unsigned bf16_gradients; /* bit d: adds products of ls_dtype d to gradients in bf16 */
  int lanes;               /* CPU: fp32 numbers of a vector; else 0 */
  bool pairs;              /* CPU: our kernels multiply pairs of bf16 */
  const char *library;     /* CPU: behind its kernels, with its version; NULL: it was not asked */
  const char *effective;   /* CPU: instructions that the library says it uses */
  int threads;             /* CPU: for each kernel */
  bool exact;              /* kernels' results do not depend on how many */
  int processors;          /* CUDA: streaming multiprocessors; else 0 */
  const ls_queues *queues; /* how transfers queue in the engine that moves its data */
  const ls_queues *also;   /* of another that may be taken as ranks meet; NULL: none */
  const char *engine;      /* the one that is asked for; NULL: the first that can */
  bool overlaps;           /* transfers run beside kernels, on queues of their own */
  bool places;             /* its attention takes tokens in an order of their own */
  ls_fp8_products fp8;
  const char *fp8_why; /* it is not done in a better way; NULL: there is nothing to say */
  /* Whether a product is one of codes; data pointers are not read. NULL: none is. */
  bool (*takes_codes)(const ls_device_facts *facts, ls_op_kind kind, const ls_kernel_args *args);
  /* Upper bound of a call's workspace; data pointers are not read. */
  size_t (*workspace)(const ls_device_facts *facts, ls_op_kind kind, const ls_kernel_args *args);
  const char *workspace_source;
  /* By which one choice is held against another: matrix products, memory, links to other devices.
   * Of the kind, not of one machine: layouts do not change between machines. */
  double flops_per_s, bytes_per_s, sent_per_s;
  ls_overhead overheads[LS_MAX_OVERHEADS];
  int overhead_count;
};

/* A host of two cores. */
#define LS_HOST_RATES .flops_per_s = 200e9, .bytes_per_s = 14e9, .sent_per_s = 3e9

/* This machine's CPU, by the instructions that its library reports as effective. A type
 * that is not among its formats is widened to fp32 before it is multiplied. */
const ls_device_facts *ls_device_facts_here(void);

/* A CPU with one of these sets: "plain", "avx2", "avx512", "avx512_bf16", "avx512_amx". NULL: there
 * is no such set. */
const ls_device_facts *ls_device_facts_cpu(const char *set);

/* A CUDA device that need not be here. False: no recipe for it is known; CUDA devices have one from
 * sm_80 on, the first that multiply bf16. */
bool ls_device_facts_of(const ls_accelerator *of, ls_device_facts *facts);

static inline bool ls_device_multiplies(const ls_device_facts *facts, ls_dtype dtype) {
  return facts->formats >> dtype & 1;
}

static inline size_t ls_device_workspace(const ls_device_facts *facts, ls_op_kind kind,
                                         const ls_kernel_args *args) {
  return facts->workspace(facts, kind, args);
}

#endif
