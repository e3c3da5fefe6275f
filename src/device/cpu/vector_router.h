/* Kernels of vector_router.c that those of vector_experts.c are, where a router is not a softmax
 * over experts in one group. Thread-safe, but for the kernels' operands. */
#ifndef LS_DEVICE_CPU_VECTOR_ROUTER_H
#define LS_DEVICE_CPU_VECTOR_ROUTER_H

#include "device/cpu/vector_kernels.h"

/* Whether it is such a one. */
bool LS_VECTOR(ls_router_is_other)(const ls_attributes *attributes);

/* Of ROUTE: chooses, -1 - expert for each of a token's rows; and, when rows have their places,
 * gives weights. */
void LS_VECTOR(ls_router_choose)(const ls_kernel_args *args);
void LS_VECTOR(ls_router_weigh)(const ls_kernel_args *args);

/* ROUTE_BWD. */
void LS_VECTOR(ls_router_slopes)(const ls_kernel_args *args);

void LS_VECTOR(ls_fill_router)(ls_kernel_table *table);

#endif
