/* How the CPU makes the products of a weight, and the scratch that takes: what cpu_linear.c does
 * and what the recipe says are one plan.
 *
 * Every product joins three matrices: n x k (x or dx), n x m (y or dy) and m x k (weight or its
 * gradient). Few rows are multiplied by our own kernel. Where the CPU multiplies the operands as
 * they are stored, oneDNN does, whole or in parts; else they are copied as fp32. */
#ifndef LS_DEVICE_CPU_LINEAR_PLAN_H
#define LS_DEVICE_CPU_LINEAR_PLAN_H

#include <stdatomic.h>

#include "device/cpu/onednn.h"
#include "device/facts.h"

typedef struct ls_linear {
  ls_op_kind kind;
  const ls_view *nk, *nm, *mk;
  int64_t n, m, k;
  bool add;
} ls_linear;

/* Reads the three views of `kind` from `args`, as many of their entries as `whole` says: those
 * stored, or those valid. A product of blocks is read as one of weights, of which mk has the
 * blocks. */
ls_linear ls_linear_read(ls_op_kind kind, const ls_kernel_args *args, bool whole);

/* A grouped product: of which kind the product of one expert's rows is, and whether it makes the
 * weight's gradient. */
typedef struct ls_grouped {
  ls_op_kind product;
  bool gradient;
} ls_grouped;

ls_grouped ls_grouped_of(ls_op_kind kind);

/* A matrix product: target[rows, columns] from depth. */
typedef struct ls_product {
  ls_matrix target, left, right;
  int64_t rows, columns, depth;
} ls_product;

ls_product ls_product_of(ls_op_kind kind, const ls_view *nk, const ls_view *nm, const ls_view *mk,
                         int64_t n, int64_t m, int64_t k);

/* The part of a product that makes these rows and columns of the target. */
ls_product ls_product_part(const ls_product *whole, int64_t row, int64_t rows, int64_t column,
                           int64_t columns);

/* The matrix from (row, column) on; of one without data, whose scratch is asked for, the shape. */
ls_matrix ls_matrix_from(const ls_matrix *whole, int64_t row, int64_t column);

/* Scratch that oneDNN may have for a product; one that wants more is made in parts. */
size_t ls_product_scratch(const ls_product *product, int threads);

/* Few rows of x: what memory gives of the weights is all there is to have, so they are read once,
 * as they are stored. Each sum is one thread's, so this is exact as well. */
bool ls_linear_is_few_rows(const ls_linear *l);
size_t ls_few_rows_bytes(const ls_linear *l);

/* Scratch of the kernel for gradients of bf16 with few rows or columns, some tokens after others;
 * 0: it is none. */
enum { LS_FEW_SUMS_TOKENS = 8192 };
size_t ls_few_sums_bytes(const ls_linear *l);

/* A product of many rows and weights in blocks: a panel of weights, from which so many columns of
 * the target are made, is restored as a matrix, to be multiplied while it is in the caches. */
typedef struct ls_panel {
  ls_linear l;             /* with `weights` as mk, and `target` in the place of nm or nk */
  ls_view weights, target; /* weights without data */
} ls_panel;

bool ls_linear_has_blocks(const ls_linear *l);
int64_t ls_linear_columns(const ls_linear *l); /* of the target */
int64_t ls_panel_columns(const ls_device_facts *facts, const ls_linear *l);
void ls_panel_make(const ls_linear *l, int64_t first, int64_t columns, ls_panel *panel);
size_t ls_panel_bytes(const ls_panel *panel);

/* Scratch of all panels' products beside the panel. */
size_t ls_panel_scratch(const ls_device_facts *facts, const ls_linear *l);

/* Whether the CPU multiplies these operands as they are stored, and fast. */
bool ls_linear_is_direct(const ls_device_facts *facts, const ls_linear *l);

/* 16-bit products are left to oneDNN's threads, unless the order of sums must not depend on them.
 * But it turns an operand slowly where that is dense: for parts of it it takes its gemm, which over
 * shapes of dw is 5 to 35 % faster. */
bool ls_product_splits(const ls_device_facts *facts, const ls_product *product);

/* A product of operands as they are stored, in parts of its target that threads make by
 * themselves. oneDNN's own division takes up to 10 % longer, and half as long again for few rows;
 * and with as many parts whatever the threads, the order of sums does not depend on them. */
typedef struct ls_split_product {
  const ls_product *whole;
  bool add;
  int parts, down, across;      /* of the target: down * across parts */
  const ls_device_queue *alone; /* of one thread, which a part is */
  char *scratch;
  size_t part_bytes;
  atomic_bool *failed;
} ls_split_product;

enum { LS_TURNED_ROWS = 512, LS_TURNED_DEPTH = 256 /* of a turned operand at a time */ };

/* Whether a turned left operand is copied; in 16 bits oneDNN copies the operand itself. */
bool ls_product_is_copied(const ls_product *product);
ls_split_product ls_product_split(const ls_device_facts *facts, const ls_product *whole, bool add);
ls_product ls_split_part(const ls_split_product *split, int part);

/* A product by way of fp32 copies. m is gone through in ranges, so that the copy of a vocabulary's
 * weights stays small, and n in chunks of rows that a thread widens, multiplies by itself and
 * narrows while they are in its cache. A gradient that is stored in fp32 is its own copy. */
typedef struct ls_widening {
  const ls_linear *l;
  int64_t range, rows;   /* of m, and of n, at a time */
  int64_t part_floats;   /* of each thread's chunk: rows of nk and of nm */
  float *nk, *mk, *part; /* copies: all of dx where ranges add up to it; a range; the chunks */
  int64_t m0, count;     /* the range at hand */
  atomic_bool *failed;
} ls_widening;

ls_widening ls_widening_of(const ls_linear *l);
bool ls_widening_copies_nk(const ls_linear *l);
bool ls_widening_copies_mk(const ls_linear *l);
size_t ls_widening_bytes(const ls_widening *w, int parts);

/* Floats of a row of a copy: not a multiple of 2 KB, where rows would evict each other. */
static inline int64_t ls_dense_stride(int64_t columns) {
  return columns % 512 == 0 ? columns + 16 : columns;
}

/* Floats of a copy, so that the next one begins on a cache line. */
static inline int64_t ls_dense_floats(int64_t rows, int64_t columns) {
  return (rows * ls_dense_stride(columns) + 15) / 16 * 16;
}

/* The recipe: scratch for the entries that are stored or valid, whichever takes more. */
size_t ls_linear_recipe(const ls_device_facts *facts, ls_op_kind kind, const ls_kernel_args *args);

/* The experts whose matrices a grouped product has. */
ls_held_experts ls_grouped_experts(const ls_grouped *grouped, const ls_kernel_args *args);

/* The same of a grouped product, however its rows are shared out: of an expert that has all of
 * them, in as many parts as there may be. */
size_t ls_grouped_recipe(const ls_device_facts *facts, ls_op_kind kind, const ls_kernel_args *args);

#endif
