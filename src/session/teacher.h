/* The teacher of a run with task=distill: a frozen model in the same graph, out of a folder of its
 * own. What is evaluated alone has none. Thread-safe: no state. */
#ifndef LS_SESSION_TEACHER_H
#define LS_SESSION_TEACHER_H

#include "session/session.h"

/* Fills session->teacher, which stays NULL without the task. LS_INPUT names the key: there is no
 * such folder, it has no weights, its vocabulary is another than the model's, or a key says more of
 * a teacher that there is not. */
LS_CHECKED ls_status ls_teacher_find(ls_session *session, ls_error *error);

/* "teacher runs/large: 12.30 M parameters, frozen; 50% of the loss, at temperature 2"; NULL: there
 * is none. In the arena. */
const char *ls_teacher_text(ls_arena *arena, const ls_session *session);

/* As the graph is built with it. */
ls_model_teacher ls_teacher_of(const ls_session *session);

#endif
