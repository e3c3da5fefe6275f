/* Layouts by step time, memory and money as SVG: which of them no other beats.
 *
 *   ls_front front = {.arena = arena, .title = "llama3-8b", .machines = names, .machine_count = 2};
 *   *LS_APPEND(arena, &front.points) = (ls_front_point){.seconds = 5.2, .bytes = 8e10, .fits =
 * true}; ls_front_svg(&front, stream);
 *
 * Thread-safe as long as no two threads share an arena. */
#ifndef LS_WATCH_FRONT_PICTURE_H
#define LS_WATCH_FRONT_PICTURE_H

#include <stdbool.h>
#include <stdio.h>

#include "base/arena.h"

typedef struct ls_front_point {
  double seconds, bytes; /* of a step; of a device */
  double money;          /* of a step; 0: not known */
  int machine;
  bool fits, best; /* best: on the front */
  const char *layout;
} ls_front_point;

typedef struct ls_front {
  ls_arena *arena;
  const char *title, *currency; /* NULL: no money is known */
  const char *const *machines;
  int machine_count;
  LS_LIST(ls_front_point) points; /* positive seconds and bytes */
} ls_front;

/* Memory over step time and, of several machines with prices, money over step time. Points of the
 * front are numbered, joined, and listed below. In light and dark, as the reader has it. */
void ls_front_svg(const ls_front *front, FILE *stream);

#endif
