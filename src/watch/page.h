/* `show --html`: one offline page that steps through a training step under several layouts.
 *
 *   ls_page_layout layouts[] = {{.name = "DDP", .stages = ..., ...}, {.name = "TP", .refused =
 * why}}; ls_page_write(layouts, 2, "llama-8m on 4 devices", stream);
 *
 * The page (page.html, built into the library) draws and steps; what it draws comes from the
 * programs and is embedded in it as JSON. It needs no server and loads nothing. Thread-safe. */
#ifndef LS_WATCH_PAGE_H
#define LS_WATCH_PAGE_H

#include <jansson.h>
#include <stdio.h>

#include "ir/program.h"

/* Drawn of each layout, spread over its stages, and of each stage one at least: devices, and rows
 * for units. A step of more actions than this is too long for a page. */
enum { LS_PAGE_DEVICES = 16, LS_PAGE_ROWS = 24, LS_PAGE_ACTIONS = 200000 };

typedef struct ls_page_layout {
  const char *name;                /* "ZeRO-3" */
  const char *refused;             /* why it cannot be; then the rest is not looked at */
  const char *about;               /* "tp 4, zero-3" */
  const ls_program *const *stages; /* [pp] of a step */
} ls_page_layout;

/* The page; every text in it may hold any characters. */
void ls_page_write(const ls_page_layout *layouts, int count, const char *title, FILE *stream);

/* What happens in a step, in order: an array of moments, each an array of events, one of a stage at
 * most. Stages go on when they can, passes taking unit times. An event is [which of `events`,
 * microbatch or -1, action]; `events` takes what they are, each once: stage, kind, row and, of a
 * collective, its axes, bytes and reason. `row_of_unit`: places in the page's table, -1 for none.
 * `reasons`: an array that takes each text that says why a collective is there once; events have
 * its place. The caller owns all three arrays. */
json_t *ls_page_moments(const ls_page_layout *layout, const int *row_of_unit, json_t *reasons,
                        json_t *events);

#endif
