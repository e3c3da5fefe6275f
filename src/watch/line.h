/* A line of text, made part by part: what does not fit is left out.
 *
 *   char line[LS_SHOWN_BYTES] = "";
 *   ls_line_append(line, "step %d", 3);
 *   ls_line_append(line, "  loss %.4f", 2.5);
 *
 * Thread-safe: no state. */
#ifndef LS_WATCH_LINE_H
#define LS_WATCH_LINE_H

#include "lockstep/status.h"

enum { LS_SHOWN_BYTES = 256 };

/* Appends to a line, as far as it has room. */
void ls_line_append(char line[LS_SHOWN_BYTES], const char *format, ...) LS_PRINTF(2, 3);

#endif
