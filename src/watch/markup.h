/* Text inside SVG, HTML and their attributes.
 *
 *   ls_markup_text(title, stream);
 *
 * Thread-safe. */
#ifndef LS_WATCH_MARKUP_H
#define LS_WATCH_MARKUP_H

#include <stdbool.h>
#include <stdio.h>

#include "base/arena.h"

/* The text as UTF-8 without control characters, which XML cannot hold; in the arena. */
const char *ls_markup_clean(ls_arena *arena, const char *text);

/* Writes a clean text with &, <, >, " and ' as entities. */
void ls_markup_text(const char *text, FILE *stream);

/* "12.5 MiB", "3 KiB", "512 bytes". */
enum { LS_BYTES_TEXT = 24 };
void ls_bytes_show(char text[LS_BYTES_TEXT], double bytes);

/* The smallest of 1, 2 and 5 times a power of ten that is at least `least`: a distance of ticks. */
double ls_round_step(double least);

/* A hue (0 to 360) for the colour of a microbatch: neighbours are far apart on the circle. */
double ls_hue_of(int microbatch);

/* Whether white reads better on hsl(hue, saturation, lightness) than black does: hue 0 to 360, the
 * others 0 to 1. Of the better one the contrast is 4.5 and more (WCAG 2), whatever the colour. */
bool ls_hsl_is_dark(double hue, double saturation, double lightness);

#endif
