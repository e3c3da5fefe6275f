/* Communicators of NCCL, which are non-blocking: no call here waits for another rank. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda_gpu.h"

struct ls_communicator {
  ncclComm_t comm; /* NULL: the split that makes it is under way, or gave none */
  const ls_cuda_context *on;
  bool busy;
};

_Static_assert(sizeof(ls_communicator_id) == sizeof(ncclUniqueId),
               "ids go to all ranks as they are");

static const ls_nccl_calls *nccl(void) {
  return &ls_cuda_opened()->nccl;
}

/* What a call has returned: also that its work goes on. */
static ls_status did(ls_communicator *of, ncclResult_t result, const char *call, ls_error *error) {
  if (result == ncclInProgress) of->busy = true;
  if (result == ncclSuccess || result == ncclInProgress) return LS_OK;
  const char *last = nccl()->ncclGetLastError(of->comm);
  return ls_fail(error, LS_FAILED, "%s of GPU %d: %s%s%.200s", call, of->on->gpu.ordinal,
                 nccl()->ncclGetErrorString(result), last && *last ? ": " : "", last ? last : "");
}

static const char *version(void) {
  static _Thread_local char text[64];
  snprintf(text, sizeof text, "NCCL %s", ls_cuda_opened()->of[LS_CUDA_NCCL].version);
  return text;
}

static bool shares(const ls_device_queue *queue, const ls_device_place *rank) {
  ls_cuda_context *other;
  if (ls_cuda_choose_gpu(rank, &other, NULL) != LS_OK) return true;
  return other == ((const ls_cuda_stream *)queue->stream)->on;
}

static ls_status make_id(ls_communicator_id *id, ls_error *error) {
  ncclUniqueId made;
  const ncclResult_t result = nccl()->ncclGetUniqueId(&made);
  if (result != ncclSuccess)
    return ls_fail(error, LS_FAILED, "ncclGetUniqueId: %s", nccl()->ncclGetErrorString(result));
  memcpy(id, &made, sizeof made);
  return LS_OK;
}

/* As of NCCL 2.18: later ones take it by its size. Siblings share nothing, so that none waits for
 * another. */
static ncclConfig_t config_of(int blocks) {
  return (ncclConfig_t){.size = sizeof(ncclConfig_t),
                        .magic = (unsigned)LS_NCCL_MAGIC,
                        .version = 21800,
                        .blocking = 0,
                        .cgaClusterSize = LS_NCCL_UNDEFINED,
                        .minCTAs = 1,
                        .maxCTAs = blocks,
                        .netName = NULL,
                        .splitShare = 0};
}

static ls_status create(const ls_device_queue *queue, const ls_communicator_id *id, int ranks,
                        int rank, int blocks, ls_communicator **made, ls_error *error) {
  ls_communicator *of = *made = calloc(1, sizeof *of);
  if (!of) return ls_fail(error, LS_FAILED, "out of memory for a communicator");
  of->on = ((const ls_cuda_stream *)queue->stream)->on;
  ncclUniqueId unique;
  memcpy(&unique, id, sizeof unique);
  ncclConfig_t config = config_of(blocks);
  of->busy = true;
  return did(of, nccl()->ncclCommInitRankConfig(&of->comm, ranks, unique, rank, &config),
             "ncclCommInitRankConfig", error);
}

static ls_status split(ls_communicator *from, int color, int key, int blocks,
                       ls_communicator **made, ls_error *error) {
  ls_communicator *of = *made = calloc(1, sizeof *of);
  if (!of) return ls_fail(error, LS_FAILED, "out of memory for a communicator");
  of->on = from->on;
  of->busy = true;
  ncclConfig_t config = config_of(blocks);
  return did(from,
             nccl()->ncclCommSplit(from->comm, color < 0 ? LS_NCCL_NO_COLOR : color, key, &of->comm,
                                   &config),
             "ncclCommSplit", error);
}

static ls_status poll(ls_communicator *of, bool *busy, ls_error *error) {
  ncclResult_t state = ncclSuccess;
  *busy = false;
  if (!of->comm) return LS_OK;
  LS_TRY(did(of, nccl()->ncclCommGetAsyncError(of->comm, &state), "ncclCommGetAsyncError", error));
  of->busy = *busy = state == ncclInProgress;
  return did(of, state, "ncclCommGetAsyncError", error);
}

static ls_status keep(ls_communicator *of, void *base, size_t bytes, void **kept, ls_error *error) {
  return did(of, nccl()->ncclCommRegister(of->comm, base, bytes, kept), "ncclCommRegister", error);
}

static void forget(ls_communicator *of, void *kept) {
  if (kept) (void)nccl()->ncclCommDeregister(of->comm, kept);
}

static ls_status open_group(ls_communicator *of, ls_error *error) {
  return did(of, nccl()->ncclGroupStart(), "ncclGroupStart", error);
}

static ls_status close_group(ls_communicator *of, ls_error *error) {
  return did(of, nccl()->ncclGroupEnd(), "ncclGroupEnd", error);
}

/* NCCL has no blocks of weights, which are moved alone: their bytes are. */
static size_t count_of(const ls_communicator_work *work) {
  const bool blocks = ls_dtype_numbers(work->dtype) > 1;
  return (size_t)work->count * (blocks ? ls_dtype_bytes(work->dtype) : 1);
}

static ncclEnum type_of(ls_dtype dtype) {
  static const ncclEnum types[LS_DTYPE_COUNT] = {
      [LS_F32] = ncclFloat32, [LS_BF16] = ncclBfloat16, [LS_F16] = ncclFloat16,
      [LS_F64] = ncclFloat64, [LS_I32] = ncclInt32,     [LS_I64] = ncclInt64,
      [LS_U8] = ncclUint8,    [LS_NF4] = ncclUint8,     [LS_INT8] = ncclUint8,
      [LS_FP4] = ncclUint8};
  return types[dtype];
}

static ls_status put(ls_communicator *of, const ls_device_queue *queue,
                     const ls_communicator_work *work, ls_error *error) {
  const ls_nccl_calls *calls = nccl();
  CUstream stream = ((const ls_cuda_stream *)queue->stream)->compute;
  const size_t count = count_of(work);
  const ncclEnum type = type_of(work->dtype), op = work->largest ? ncclMax : ncclSum;
  const void *from = work->source;
  void *to = work->target;
  switch (work->kind) {
    case LS_TOGETHER_ALL_REDUCE:
      return did(of, calls->ncclAllReduce(from, to, count, type, op, of->comm, stream),
                 "ncclAllReduce", error);
    case LS_TOGETHER_REDUCE:
      return did(of, calls->ncclReduce(from, to, count, type, op, work->peer, of->comm, stream),
                 "ncclReduce", error);
    case LS_TOGETHER_REDUCE_SCATTER:
      return did(of, calls->ncclReduceScatter(from, to, count, type, op, of->comm, stream),
                 "ncclReduceScatter", error);
    case LS_TOGETHER_ALL_GATHER:
      return did(of, calls->ncclAllGather(from, to, count, type, of->comm, stream), "ncclAllGather",
                 error);
    case LS_TOGETHER_BROADCAST:
      return did(of, calls->ncclBroadcast(from, to, count, type, work->peer, of->comm, stream),
                 "ncclBroadcast", error);
    case LS_TOGETHER_SEND:
      return did(of, calls->ncclSend(from, count, type, work->peer, of->comm, stream), "ncclSend",
                 error);
    default:
      return did(of, calls->ncclRecv(to, count, type, work->peer, of->comm, stream), "ncclRecv",
                 error);
  }
}

static ls_status finish(ls_communicator *of, ls_error *error) {
  return did(of, nccl()->ncclCommFinalize(of->comm), "ncclCommFinalize", error);
}

static void destroy(ls_communicator *of) {
  if (of && of->comm) (void)nccl()->ncclCommDestroy(of->comm);
  free(of);
}

static void give_up(ls_communicator *of) {
  if (of && of->comm) (void)nccl()->ncclCommAbort(of->comm);
  free(of);
}

const ls_communicator_calls ls_cuda_communicators = {.version = version,
                                                     .shares = shares,
                                                     .make_id = make_id,
                                                     .create = create,
                                                     .split = split,
                                                     .poll = poll,
                                                     .keep = keep,
                                                     .forget = forget,
                                                     .open_group = open_group,
                                                     .close_group = close_group,
                                                     .put = put,
                                                     .finish = finish,
                                                     .destroy = destroy,
                                                     .abort = give_up};
