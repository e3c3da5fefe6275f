#include "lockstep/status.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A message is one line on a terminal, whatever names of files, keys and tensors it has in it. */
static void keep_to_one_line(char *text) {
  for (; *text; text++)
    if ((unsigned char)*text < ' ' || *text == 0x7f) *text = '?';
}

ls_status ls_fail(ls_error *error, ls_status status, const char *format, ...) {
  if (error) {
    error->status = status;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    keep_to_one_line(error->text);
  }
  return status;
}

ls_status ls_error_prefix(ls_error *error, const char *format, ...) {
  char prefix[512];
  char text[sizeof error->text];
  if (!error) return LS_FAILED;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(prefix, sizeof prefix, format, arguments);
  va_end(arguments);
  keep_to_one_line(prefix);
  memcpy(text, error->text, sizeof text);
  size_t used = strlen(prefix);
  if (used > sizeof error->text - 3) used = sizeof error->text - 3;
  memcpy(error->text, prefix, used);
  memcpy(error->text + used, ": ", 2);
  size_t room = sizeof error->text - used - 3;
  size_t length = strnlen(text, room);
  memcpy(error->text + used + 2, text, length);
  error->text[used + 2 + length] = 0;
  return error->status;
}

static struct {
  pthread_mutex_t mutex;
  void (*handler)(void *context, const char *text);
  void *context;
} warnings = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void ls_warn(const char *format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  keep_to_one_line(text);
  pthread_mutex_lock(&warnings.mutex);
  if (warnings.handler) warnings.handler(warnings.context, text);
  pthread_mutex_unlock(&warnings.mutex);
}

void ls_warnings_to(void (*handler)(void *context, const char *text), void *context) {
  pthread_mutex_lock(&warnings.mutex);
  warnings.handler = handler;
  warnings.context = context;
  pthread_mutex_unlock(&warnings.mutex);
}

int ls_exit_status(ls_status status) {
  switch (status) {
    case LS_OK: return 0;
    case LS_REFUTED: return 1;
    case LS_INPUT: return 2;
    case LS_STOPPED: return 4;
    case LS_FAILED:
    case LS_INTERNAL: break;
  }
  return 3;
}
