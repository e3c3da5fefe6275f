/* The classes of a run whose task is to tell them apart (task=classify).
 *
 *   LS_TRY(ls_classes_settle(session, error));   // once the model is found
 *
 * A model that has a head over classes says what they are, and what the task is. Thread-safe: a
 * session is one thread's. */
#ifndef LS_SESSION_CLASSES_H
#define LS_SESSION_CLASSES_H

#include "session/session.h"

/* Gives a model without such a head one, over the names in its config.json or the labels of
 * data.text; run->classes are the model's from then on. LS_INPUT: keys that the task has no place
 * for, a model without a head that is only evaluated, or as ls_labelled_find_classes has. */
LS_CHECKED ls_status ls_classes_settle(ls_session *session, ls_error *error);

/* A set of classes where there is no text (ls_set_words): half of the classes, a function of
 * its place and the seed. */
void ls_set_of_chance(uint64_t seed, uint64_t place, int64_t classes, int32_t *set);

#endif
