/* What the files of the driver's stand-in share, and what the stand-ins of libraries that compute
 * ask of it. */
#ifndef LS_STAND_IN_DRIVER_H
#define LS_STAND_IN_DRIVER_H

#include <stdbool.h>

#include "device/cuda/driver_calls.h"

/* Bytes of a GPU's L2. */
enum { STAND_IN_CACHE = 1 << 18 };

/* Begins a call: what it must answer at once, else CUDA_SUCCESS. */
CUresult stand_in_driver_enter(const char *call);

/* Whether the calling thread has a context that is there. */
bool stand_in_has_context(void);

/* Its number from 1 on; 0: none. */
int stand_in_context(void);

/* Whether all of the bytes are pinned memory of the host. */
bool stand_in_is_pinned(const void *at, size_t bytes);

/* The word of the host's pinned memory that a GPU sees there; NULL: there is none. */
void *stand_in_word(CUdeviceptr seen);

/* What a call that may not be made while the calling thread captures answers then: the capture is
 * of no use any more. *spoiled: what is set by it from now on; NULL: nothing is captured. */
CUresult stand_in_spoils_capture(void);
void stand_in_captures(int *spoiled);

/* Notes that work has begun whose memory is gone: ls_stand_in_left says so. */
void stand_in_works_on_nothing(void);

/* Whether all of the bytes are mapped and accessible to the device of the calling thread. */
bool stand_in_is_reached(CUdeviceptr at, size_t bytes);

/* Whether all of the bytes are mapped and accessible to a device. */
bool stand_in_is_mapped(CUdeviceptr at, size_t bytes);

#define STAND_IN_ENTER()                                      \
  do {                                                        \
    const CUresult entered = stand_in_driver_enter(__func__); \
    if (entered) return entered;                              \
  } while (0)

#define STAND_IN_CONTEXT()                                          \
  do {                                                              \
    STAND_IN_ENTER();                                               \
    if (!stand_in_has_context()) return CUDA_ERROR_INVALID_CONTEXT; \
  } while (0)

#define STAND_IN_NOT_CAPTURED()                          \
  do {                                                   \
    const CUresult captured = stand_in_spoils_capture(); \
    if (captured) return captured;                       \
  } while (0)

/* Work of a stream, done when its turn comes. */
typedef CUresult (*stand_in_work)(void *data);

/* Whether it may begin: asked, with the streams' lock held, when all before it on its stream has
 * ended, until it says so. Work that waits for other processes has one. */
typedef int (*stand_in_ready)(void *data);

/* As stand_in_enqueue. From the first such work on a thread does what streams have, since others
 * may wait for it while nobody here waits for a stream. */
CUresult stand_in_enqueue_when(CUstream stream, stand_in_ready ready, stand_in_work run,
                               const void *data, size_t bytes);

/* Of memory of a GPU: the file that it lies in, for other processes. False: it is none. */
bool stand_in_file_of(const void *at, size_t bytes, int *file, size_t *offset);

/* The GPU of the calling thread, by its number in the machine. */
int stand_in_gpu(void);

/* Puts work on a stream, with a copy of its data. */
CUresult stand_in_enqueue(CUstream stream, stand_in_work run, const void *data, size_t bytes);

/* Called by work as it is done: how long it takes, of the time that events tell. Milliseconds; a
 * microsecond where nothing is said. */
void stand_in_lasts(double milliseconds);

/* Whether as much as the cache of the GPU was cleared since this was asked last, of this GPU. */
bool stand_in_is_cold(void);

void stand_in_reset_streams(void);
int stand_in_streams_left(void);

#endif
