/* The teacher of a run with task=distill: a frozen model in the same graph, out of a folder of its
 * own; or what one has said of the run's dataset, out of a file (data/top_logits.h). What is
 * evaluated alone has none. Thread-safe: no state. */
#ifndef LS_SESSION_TEACHER_H
#define LS_SESSION_TEACHER_H

#include "data/dataset.h"
#include "session/session.h"

/* Fills session->teacher, or session->told, which both stay NULL without the task. LS_INPUT names
 * the key: there is no such folder or file, it has no weights, its vocabulary is another than the
 * model's, its sequences are of other lengths, or a key says more of a teacher that there is not.
 */
LS_CHECKED ls_status ls_teacher_find(ls_session *session, ls_error *error);

/* What a file of a teacher's logits says of the dataset that it is of: its fingerprint, and whether
 * documents see themselves alone. In the arena. */
const char *ls_teacher_dataset(ls_arena *arena, const ls_dataset *dataset);

/* Where session->told there is, *dataset becomes a copy whose orders have it, in the arena.
 * LS_INPUT: it is of another dataset. */
LS_CHECKED ls_status ls_teacher_tell(ls_arena *arena, const ls_session *session,
                                     const ls_dataset **dataset, ls_error *error);

/* "teacher runs/large: 12.30 M parameters, frozen; 50% of the loss, at temperature 2"; NULL: there
 * is none. In the arena. */
const char *ls_teacher_text(ls_arena *arena, const ls_session *session);

/* As the graph is built with it. */
ls_model_teacher ls_teacher_of(const ls_session *session);

#endif
