#include "store/write_behind.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

typedef struct buffer {
  char *memory;
  int descriptor;
  uint64_t offset;
  size_t bytes; /* 0: free */
} buffer;

struct ls_write_behind {
  buffer buffers[LS_BEHIND_BUFFERS];
  int put, taken; /* buffers so far; those between are full */
  int reason;
  bool stop;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
};

static int write_whole(const buffer *from) {
  const char *at = from->memory;
  uint64_t offset = from->offset;
  for (size_t left = from->bytes; left > 0;) {
    const ssize_t done = pwrite(from->descriptor, at, left, (off_t)offset);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return done < 0 ? errno : ENOSPC;
    at += done;
    left -= (size_t)done;
    offset += (uint64_t)done;
  }
  return 0;
}

static void *run(void *argument) {
  ls_write_behind *behind = argument;
  pthread_mutex_lock(&behind->lock);
  while (!behind->stop || behind->taken < behind->put) {
    if (behind->taken == behind->put) {
      pthread_cond_wait(&behind->changed, &behind->lock);
      continue;
    }
    buffer *from = &behind->buffers[behind->taken % LS_BEHIND_BUFFERS];
    pthread_mutex_unlock(&behind->lock);
    const int reason = write_whole(from);
    pthread_mutex_lock(&behind->lock);
    if (!behind->reason) behind->reason = reason;
    behind->taken++;
    pthread_cond_broadcast(&behind->changed);
  }
  pthread_mutex_unlock(&behind->lock);
  return NULL;
}

void *ls_direct_memory(ls_arena *arena, size_t bytes, size_t block) {
  const uintptr_t place = (uintptr_t)ls_arena_alloc(arena, bytes + block);
  return (void *)((place + block - 1) / block * block);
}

ls_write_behind *ls_write_behind_create(ls_arena *arena) {
  ls_write_behind *behind = LS_NEW(arena, ls_write_behind);
  for (int i = 0; i < LS_BEHIND_BUFFERS; i++)
    behind->buffers[i].memory = ls_direct_memory(arena, LS_BEHIND_BYTES, LS_DIRECT_BLOCK);
  pthread_mutex_init(&behind->lock, NULL);
  pthread_cond_init(&behind->changed, NULL);
  return pthread_create(&behind->thread, NULL, run, behind) == 0 ? behind : NULL;
}

void ls_write_behind_destroy(ls_write_behind **behind) {
  ls_write_behind *self = *behind;
  if (!self) return;
  pthread_mutex_lock(&self->lock);
  self->stop = true;
  pthread_cond_broadcast(&self->changed);
  pthread_mutex_unlock(&self->lock);
  pthread_join(self->thread, NULL);
  pthread_mutex_destroy(&self->lock);
  pthread_cond_destroy(&self->changed);
  *behind = NULL;
}

void ls_write_behind_put(ls_write_behind *behind, int descriptor, uint64_t offset, const void *data,
                         size_t bytes) {
  const char *at = data;
  while (bytes > 0) {
    const size_t some = bytes < LS_BEHIND_BYTES ? bytes : LS_BEHIND_BYTES;
    pthread_mutex_lock(&behind->lock);
    while (behind->put - behind->taken == LS_BEHIND_BUFFERS)
      pthread_cond_wait(&behind->changed, &behind->lock);
    pthread_mutex_unlock(&behind->lock);
    buffer *to = &behind->buffers[behind->put % LS_BEHIND_BUFFERS];
    memcpy(to->memory, at, some);
    to->descriptor = descriptor;
    to->offset = offset;
    to->bytes = some;
    pthread_mutex_lock(&behind->lock);
    behind->put++;
    pthread_cond_broadcast(&behind->changed);
    pthread_mutex_unlock(&behind->lock);
    at += some;
    offset += some;
    bytes -= some;
  }
}

int ls_write_behind_wait(ls_write_behind *behind) {
  pthread_mutex_lock(&behind->lock);
  while (behind->taken < behind->put) pthread_cond_wait(&behind->changed, &behind->lock);
  const int reason = behind->reason;
  behind->reason = 0;
  pthread_mutex_unlock(&behind->lock);
  return reason;
}
