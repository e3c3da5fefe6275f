/* `lockstep show --timeline`: the schedule of the pipeline as a picture. */
#ifndef LS_CLI_SHOW_TIMELINE_H
#define LS_CLI_SHOW_TIMELINE_H

#include "session/session.h"
#include "watch/timeline.h"

/* Prints it for the terminal and, where `path` is not "-", writes an SVG or, for *.json, a trace.
 * LS_INPUT for another kind of file, and where the schedule cannot be. */
LS_CHECKED ls_status ls_show_timeline(ls_arena *arena, const ls_session *session, const char *path,
                                      ls_error *error);

/* LS_INPUT: a name that ends otherwise than with .svg or .json; `otherwise`: what else is taken. */
LS_CHECKED ls_status ls_timeline_check_name(const char *path, const char *otherwise,
                                            ls_error *error);

/* A timeline into a file: an SVG where its name ends with .svg, else a trace. */
LS_CHECKED ls_status ls_timeline_write(const ls_timeline *timeline, const char *path,
                                       ls_error *error);

#endif
