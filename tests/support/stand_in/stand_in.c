/* What the stand-ins share: their settings, and one call that fails. Compiled into each. */
#include "support/stand_in/stand_in.h"

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

int stand_in_fails(const char *key, const char *call) {
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
