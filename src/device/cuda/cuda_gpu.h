/* The GPUs of this process, and what a rank's thread has of one. Private to device/cuda.
 *
 * A process opens the libraries once and keeps them. A GPU's context and module are there while a
 * rank has entered it. */
#ifndef LS_DEVICE_CUDA_CUDA_GPU_H
#define LS_DEVICE_CUDA_CUDA_GPU_H

#include "device/cuda/discover.h"
#include "device/cuda/kernels/cuda_launch.h"
#include "device/device.h"

enum { LS_CUDA_MOST_GPUS = 16, LS_CUDA_KERNEL_SLOTS = 512 };

typedef struct ls_cuda_context {
  ls_cuda_gpu gpu;
  int users; /* ranks that have entered it */
  CUcontext context;
  CUlibrary modules[LS_CUDA_MOST_MODULES]; /* of the embedded kernels */
  int module_count;
} ls_cuda_context;

/* A kernel by its name, found once. */
typedef struct ls_cuda_found {
  char name[56];
  CUkernel kernel;
  CUfunction function;
  uint32_t shared; /* most dynamic shared memory that was asked for */
} ls_cuda_found;

typedef struct ls_cuda_products ls_cuda_products;
typedef struct ls_cuda_staging ls_cuda_staging;
typedef struct ls_cuda_plans ls_cuda_plans;

/* What the queue of a rank points to. */
typedef struct ls_cuda_stream {
  ls_cuda_context *on, *before; /* before: what the thread had entered already; NULL: nothing */
  CUstream compute;
  ls_cuda_products *products;
  ls_cuda_staging *staging;
  ls_cuda_plans *plans;                      /* NULL: cuDNN cannot be used */
  ls_cuda_found found[LS_CUDA_KERNEL_SLOTS]; /* by a hash of the name */
} ls_cuda_stream;

/* The libraries, open. */
const ls_cuda_libraries *ls_cuda_opened(void);

/* "580.65.05", where NVML says it; else the CUDA that the driver runs. */
const char *ls_cuda_driver_version(void);

/* The GPU that the calling thread has entered; NULL: none. */
ls_cuda_context *ls_cuda_here(void);

/* The visible GPUs of this process. */
int ls_cuda_gpu_count(void);
ls_cuda_context *ls_cuda_gpu_at(int ordinal);

/* As ls_cuda_did, of a call for this GPU. */
LS_CHECKED ls_status ls_cuda_gpu_did(const ls_cuda_context *on, CUresult result, const char *call,
                                     ls_error *error);

/* Arenas by virtual memory, which other GPUs and processes can be given. */
extern const ls_memory_calls ls_cuda_memory;

/* The GPU of a rank. LS_INPUT: there is none for it. */
LS_CHECKED ls_status ls_cuda_choose_gpu(const ls_device_place *rank, ls_cuda_context **on,
                                        ls_error *error);

/* Streams for transfers beside that of the kernels. */
extern const ls_transfer_calls ls_cuda_transfers;

/* Words of the host's memory that streams write and await (cuda_words.c), as in ls_transfer_calls.
 */
LS_CHECKED ls_status ls_cuda_try_words(const ls_device_queue *queue, ls_error *error);
LS_CHECKED ls_status ls_cuda_share_words(const ls_device_queue *queue, void *base, size_t bytes,
                                         void **at, ls_error *error);
void ls_cuda_unshare_words(void *base);
LS_CHECKED ls_status ls_cuda_write_word(const ls_device_queue *queue, void *at, uint32_t value,
                                        ls_error *error);
LS_CHECKED ls_status ls_cuda_await_word(const ls_device_queue *queue, void *at, uint32_t value,
                                        ls_error *error);

/* NCCL's communicators, where its library is open. */
extern const ls_communicator_calls ls_cuda_communicators;

/* Puts the launches on the stream. */
LS_CHECKED ls_status ls_cuda_launch_all(ls_cuda_stream *stream, ls_cuda_launches *launches,
                                        ls_error *error);

/* What the queue's stream does behind its kernels, and the pinned memory that it takes. */
extern const ls_queue_calls ls_cuda_queue_calls;
LS_CHECKED ls_status ls_cuda_staging_create(ls_cuda_stream *stream, ls_error *error);
void ls_cuda_staging_destroy(ls_cuda_stream *stream);

/* The table whose kernels are launched on the queue's stream. */
void ls_cuda_fill_kernels(ls_kernel_table *table);

/* Products by cuBLASLt: what it needs is made once for each shape. */
LS_CHECKED ls_status ls_cuda_products_create(ls_cuda_products **products, ls_error *error);
void ls_cuda_products_destroy(ls_cuda_products **products);
LS_CHECKED ls_status ls_cuda_multiply(ls_op_kind kind, const ls_kernel_args *args, ls_error *error);
LS_CHECKED ls_status ls_cuda_multiply_blocks(ls_op_kind kind, const ls_kernel_args *args,
                                             ls_error *error);

/* Attention by cuDNN, where its library is: *plans stays NULL where it is not, or
 * where it gives no handle, which is said. A plan is made once
 * for each shape and GPU, and kept in the user's cache. */
LS_CHECKED ls_status ls_cuda_plans_create(CUstream stream, ls_cuda_plans **plans, ls_error *error);
void ls_cuda_plans_destroy(ls_cuda_plans **plans);

/* Makes the plan of a call before it is made; the bytes of workspace that it takes. 0: it is our
 * own kernel's, or none of attention. */
size_t ls_cuda_attention_wants(ls_op_kind kind, const ls_kernel_args *args);

/* Puts a call on its queue's stream; *done is false where our own kernel is to run it: it is not
 * cuDNN's by the recipe, or the library is not here or has no plan, which is said once. */
LS_CHECKED ls_status ls_cuda_attend(ls_op_kind kind, const ls_kernel_args *args, bool *done,
                                    ls_error *error);

#endif
