/* How the functions of NVIDIA's libraries are kept: each library is a list of calls, and a table
 * has a pointer for each by LS_CALL, as in nccl_calls.h, filled as the library is opened
 * (device/cuda/libraries.h) or by a test. Nothing is linked and no header of NVIDIA is needed.
 *
 * The lists repeat facts of an interface under its own names; tests/cuda_abi_test.sh compares them
 * with the real headers where these are found. */
#ifndef LS_DEVICE_CUDA_CALLS_H
#define LS_DEVICE_CUDA_CALLS_H

#include <stddef.h>
#include <stdint.h>

#define LS_CALL(result, name, arguments) result(*name) arguments;
#define LS_VALUE(name, value) name = value,

/* Of another library, or of the driver, by address alone. */
typedef struct CUstream_st *CUstream;
typedef struct CUgraph_st *CUgraph;

#endif
