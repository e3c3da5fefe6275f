/* Stand-ins of NVIDIA's libraries for tests: shared libraries under the real names that hold to the
 * rules of the real ones. Each reads LS_STAND_IN, which nobody else reads:
 *
 *   LS_STAND_IN="gpus=2,cc=90,memory=80,peers=none" LD_LIBRARY_PATH=build/tests/stand_in \
 *     lockstep doctor
 *
 * With log=FILE it says at the end which calls there were, each with their number. only=NAME: the
 * call that fails is a number of calls of this name. A test that has
 * the library open asks what was done (ls_stand_in_begin, _failed, _left). */
#ifndef LS_STAND_IN_H
#define LS_STAND_IN_H

#include <stddef.h>

enum { STAND_IN_GPUS = 16 };

/* The number after "key=" in LS_STAND_IN, else `otherwise`. */
long stand_in_number(const char *key, long otherwise);

/* Whether LS_STAND_IN has "key=word". */
int stand_in_is(const char *key, const char *word);

/* What is after "key=", where it is there. */
int stand_in_text(const char *key, char *text, size_t bytes);

/* Counts a call of this library by its name, and gives it no number. */
void stand_in_count(const char *call);

/* Counts a call of this library. Not 0: it is the one that `key`=N says shall fail. */
int stand_in_fails(const char *key, const char *call);

/* Reads LS_STAND_IN anew: nothing was called yet, nothing is held. */
void ls_stand_in_begin(void);

/* The call that failed as asked for; NULL: there were fewer. */
const char *ls_stand_in_failed(void);

/* Calls counted since the beginning. */
int ls_stand_in_calls(void);

/* Calls of this name since the library was opened. */
long ls_stand_in_count(const char *call);

/* What of a library's own state begins anew with it: each defines one. */
void stand_in_reset(void);

#endif
