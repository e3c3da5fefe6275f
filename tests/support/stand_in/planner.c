/* The driver as far as cuDNN asks for one while it plans for a GPU that it has only been described:
 * it compiles kernels, and wants them loaded. Handles are of nothing, answers are 0, and what NVRTC
 * asks beyond is refused. The driver that tests compute with is driver.c. */
#include <stddef.h>
#include <stdint.h>

enum { NOT_FOUND = 500 };

#define HANDLE(name)                 \
  int name(void **made) {            \
    *made = (void *)(uintptr_t)4096; \
    return 0;                        \
  }
#define NUMBER(name, value) \
  int name(int *number) {   \
    *number = value;        \
    return 0;               \
  }
#define NOTHING(name) \
  int name(void) {    \
    return 0;         \
  }
#define TEXT(name)                         \
  int name(int error, const char **text) { \
    (void)error;                           \
    *text = "an error of the stand-in";    \
    return 0;                              \
  }
#define PLANNER(handle, number, nothing, text)                                                     \
  handle(cuCtxGetCurrent) handle(cuLibraryLoadData) handle(cuLibraryLoadFromFile) handle(          \
      cuLibraryGetKernel) handle(cuLibraryGetModule) handle(cuKernelGetFunction)                   \
      handle(cuModuleLoadData) handle(cuModuleLoadDataEx) handle(cuModuleLoadFatBinary) handle(    \
          cuModuleGetFunction) number(cuDriverGetVersion, 13000) number(cuDeviceGetCount, 1)       \
          number(cuDeviceGet, 0) number(cuCtxGetDevice, 0) number(cuDeviceGetAttribute, 0) number( \
              cuKernelGetAttribute, 0) number(cuFuncGetAttribute, 0)                               \
              number(cuOccupancyMaxActiveBlocksPerMultiprocessor, 1) number(                       \
                  cuOccupancyMaxPotentialClusterSize, 1) text(cuGetErrorName)                      \
                  text(cuGetErrorString) nothing(cuInit) nothing(cuCtxPopCurrent) nothing(         \
                      cuCtxPopCurrent_v2) nothing(cuCtxPushCurrent) nothing(cuCtxPushCurrent_v2)   \
                      nothing(cuDevicePrimaryCtxRelease) nothing(cuDevicePrimaryCtxRelease_v2)     \
                          nothing(cuDevicePrimaryCtxReset) nothing(cuDevicePrimaryCtxRetain)       \
                              nothing(cuFuncSetAttribute) nothing(cuKernelSetAttribute)            \
                                  nothing(cuLaunchCooperativeKernel) nothing(cuLaunchKernel)       \
                                      nothing(cuLaunchKernelEx) nothing(cuLibraryUnload) nothing(  \
                                          cuLinkAddData) nothing(cuLinkAddData_v2)                 \
                                          nothing(cuLinkAddFile_v2) nothing(cuLinkComplete)        \
                                              nothing(cuLinkCreate) nothing(cuLinkCreate_v2)       \
                                                  nothing(cuLinkDestroy) nothing(cuMemcpyDtoH_v2)  \
                                                      nothing(cuModuleGetGlobal_v2) nothing(       \
                                                          cuModuleUnload) nothing(cuStreamGetCtx)  \
                                                          nothing(cuStreamSynchronize)             \
                                                              nothing(cuTensorMapEncodeTiled)      \
                                                                  nothing(cuTensorMapEncodeIm2col)

PLANNER(HANDLE, NUMBER, NOTHING, TEXT)

int cuCtxGetLimit(size_t *bytes, int which);
int cuCtxGetLimit(size_t *bytes, int which) {
  (void)which;
  *bytes = 0;
  return 0;
}

int cuGetExportTable(const void **table, const void *which);
int cuGetExportTable(const void **table, const void *which) {
  (void)which;
  *table = NULL;
  return NOT_FOUND;
}
