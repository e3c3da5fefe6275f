/* cuBLASLt, cuDNN and NCCL: their versions alone. Settings: cublaslt, cublaslt_cuda, cudnn,
 * cudnn_cuda, nccl. Compiled into all three; each is asked for its own. */
#include "support/stand_in/stand_in.h"

size_t cublasLtGetVersion(void);
size_t cublasLtGetCudartVersion(void);
const char *cublasLtGetStatusString(unsigned status);
size_t cudnnGetVersion(void);
size_t cudnnGetCudartVersion(void);
const char *cudnnGetErrorString(unsigned status);
void cudnnGetLastErrorString(char *text, size_t bytes);
unsigned ncclGetVersion(int *version);
const char *ncclGetErrorString(unsigned result);
const char *ncclGetLastError(void *comm);

void stand_in_reset(void) {}

size_t cublasLtGetVersion(void) {
  return (size_t)stand_in_number("cublaslt", STAND_IN_MAJOR == 12 ? 120900 : 130100);
}

size_t cublasLtGetCudartVersion(void) {
  return (size_t)stand_in_number("cublaslt_cuda", STAND_IN_MAJOR == 12 ? 12090 : 13000);
}

const char *cublasLtGetStatusString(unsigned status) {
  return status ? "a status of the stand-in" : "CUBLAS_STATUS_SUCCESS";
}

size_t cudnnGetVersion(void) {
  return (size_t)stand_in_number("cudnn", 91900);
}

size_t cudnnGetCudartVersion(void) {
  return (size_t)stand_in_number("cudnn_cuda", 13000);
}

const char *cudnnGetErrorString(unsigned status) {
  return status ? "a status of the stand-in" : "CUDNN_STATUS_SUCCESS";
}

void cudnnGetLastErrorString(char *text, size_t bytes) {
  if (bytes) *text = 0;
}

unsigned ncclGetVersion(int *version) {
  if (stand_in_fails("nccl_fail", __func__)) return 3; /* ncclInternalError */
  *version = (int)stand_in_number("nccl", 22809);
  return 0;
}

const char *ncclGetErrorString(unsigned result) {
  return result ? "internal error" : "no error";
}

const char *ncclGetLastError(void *comm) {
  (void)comm;
  return "";
}
