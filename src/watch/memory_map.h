/* The memory of one device through a program, as a picture: what lives when, at which address.
 *
 *   ls_memory_map_svg(program, "llama-8m: zero-3", stream);
 *
 * From left to right the actions in order, from bottom to top the addresses of the work region, to
 * scale; what lives as long as the program is one labelled band per category below it, not to
 * scale. Above, the bytes alive, and the peak. Every box has a tooltip. Thread-safe. */
#ifndef LS_WATCH_MEMORY_MAP_H
#define LS_WATCH_MEMORY_MAP_H

#include <stdio.h>

#include "ir/program.h"

void ls_memory_map_svg(const ls_program *program, const char *title, FILE *stream);

#endif
