/* What was found out on a GPU and is kept for later processes: cuDNN's plans, what lockstep bench
 * measured. A file each in the user's cache, gpu-HASH.kept, named by its key: a line that says what
 * it is of and all that it depends on, the GPU and the library's version among it.
 *
 *   if (!ls_cuda_kept_read(arena, key, &data, &bytes)) {
 *     ... find it out ...
 *     ls_cuda_kept_write(arena, key, data, bytes);
 *   }
 *
 * Thread-safe. Without a cache's folder nothing is kept. */
#ifndef LS_DEVICE_CUDA_CUDA_KEPT_H
#define LS_DEVICE_CUDA_CUDA_KEPT_H

#include <stdbool.h>

#include "base/arena.h"

/* False: nothing is kept by that key, or what is was damaged, which is said in one line. In the
 * arena. */
bool ls_cuda_kept_read(ls_arena *arena, const char *key, char **data, size_t *bytes);

/* What cannot be written is said in one line, and found out again next time. */
void ls_cuda_kept_write(ls_arena *arena, const char *key, const void *data, size_t bytes);

#endif
