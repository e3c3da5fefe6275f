/* `lockstep show --timeline`: the schedule of the pipeline as a picture. */
#ifndef LS_CLI_SHOW_TIMELINE_H
#define LS_CLI_SHOW_TIMELINE_H

#include "base/arena.h"
#include "shard/strategy.h"

/* Prints it for the terminal and, where `path` is not "-", writes an SVG. LS_INPUT for another kind
 * of file, and where the schedule cannot be. */
LS_CHECKED ls_status ls_show_timeline(ls_arena *arena, const ls_layout *layout, const char *path,
                                      ls_error *error);

#endif
