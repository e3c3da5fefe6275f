/* What the stand-ins share: their settings, and one call that fails. Compiled into each. */
#include "support/stand_in/stand_in.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Atomic int calls;
static const char *failed;

static const char *find(const char *key) {
  const char *at = getenv("LS_STAND_IN");
  const size_t length = strlen(key);
  for (; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
    if (strncmp(at, key, length) == 0 && at[length] == '=') return at + length + 1;
  return NULL;
}

long stand_in_number(const char *key, long otherwise) {
  const char *value = find(key);
  return value ? strtol(value, NULL, 10) : otherwise;
}

int stand_in_is(const char *key, const char *word) {
  const char *value = find(key);
  const size_t length = strlen(word);
  return value && strncmp(value, word, length) == 0 && (!value[length] || value[length] == ',');
}

int stand_in_text(const char *key, char *text, size_t bytes) {
  const char *value = find(key);
  if (value) snprintf(text, bytes, "%.*s", (int)strcspn(value, ","), value);
  return value != NULL;
}

/* Calls by name, for a log. */
static struct {
  pthread_mutex_t lock;
  struct {
    const char *name;
    long count;
  } of[128];
} counted = {.lock = PTHREAD_MUTEX_INITIALIZER};

void stand_in_count(const char *call) {
  pthread_mutex_lock(&counted.lock);
  for (size_t c = 0; c < sizeof counted.of / sizeof *counted.of; c++) {
    if (counted.of[c].name && strcmp(counted.of[c].name, call) != 0) continue;
    counted.of[c].name = call;
    counted.of[c].count++;
    break;
  }
  pthread_mutex_unlock(&counted.lock);
}

long ls_stand_in_count(const char *call) {
  long count = 0;
  pthread_mutex_lock(&counted.lock);
  for (size_t c = 0; c < sizeof counted.of / sizeof *counted.of; c++)
    if (counted.of[c].name && strcmp(counted.of[c].name, call) == 0) count = counted.of[c].count;
  pthread_mutex_unlock(&counted.lock);
  return count;
}

/* With log=FILE the calls by name and number, of libraries that were called, as the process ends.
 */
__attribute__((destructor)) static void write_log(void) {
  char path[4096];
  if (!stand_in_text("log", path, sizeof path) || !counted.of[0].name) return;
  FILE *file = fopen(path, "a");
  for (size_t c = 0; file && c < sizeof counted.of / sizeof *counted.of; c++)
    if (counted.of[c].name) fprintf(file, "%s %ld\n", counted.of[c].name, counted.of[c].count);
  if (file) fclose(file);
}

int stand_in_fails(const char *key, const char *call) {
  stand_in_count(call);
  if (find("only") && !stand_in_is("only", call)) return 0;
  const long which = stand_in_number(key, 0);
  if (++calls != which) return 0;
  failed = call;
  return 1;
}

void ls_stand_in_begin(void) {
  calls = 0;
  failed = NULL;
  stand_in_reset();
}

const char *ls_stand_in_failed(void) {
  return failed;
}

int ls_stand_in_calls(void) {
  return calls;
}
