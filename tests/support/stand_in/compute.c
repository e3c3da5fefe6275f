/* cuBLASLt and cuDNN: their versions. Settings: cublaslt, cublaslt_cuda, cudnn, cudnn_cuda.
 * Compiled into both; each is asked for its own. */
#include "support/stand_in/stand_in.h"

size_t cublasLtGetVersion(void);
size_t cublasLtGetCudartVersion(void);
const char *cublasLtGetStatusString(unsigned status);
size_t cudnnGetVersion(void);
size_t cudnnGetCudartVersion(void);
const char *cudnnGetErrorString(unsigned status);
void cudnnGetLastErrorString(char *text, size_t bytes);

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
