#include "watch/front_picture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "watch/axis.h"
#include "watch/markup.h"

enum {
  LEFT = 74,
  TOP = 84,
  WIDE = 620, /* of a panel */
  HIGH = 400,
  BETWEEN = 100,
  LINE = 18,   /* of the list below */
  LISTED = 16, /* points of the front that have a number */
  LETTER = 7,  /* pixels of one, at most on the average */
};

typedef enum quantity { STEP, MEMORY, MONEY } quantity;

typedef struct axis {
  quantity of;
  ls_axis along;
} axis;

typedef struct panel {
  const ls_front *front;
  FILE *stream;
  int left;
  axis x, y;
} panel;

static double value_of(const ls_front_point *point, quantity of) {
  return of == STEP ? point->seconds : of == MEMORY ? point->bytes / 1073741824 : point->money;
}

static axis axis_of(const ls_front *front, quantity of) {
  double least = INFINITY, most = 0;
  for (int p = 0; p < front->points.count; p++) {
    const double value = value_of(&front->points.items[p], of);
    if (!(value > 0)) continue;
    least = fmin(least, value);
    most = fmax(most, value);
  }
  return (axis){of, ls_axis_of(least, most, true)};
}

static double x_of(const panel *of, double value) {
  return of->left + ls_axis_at(&of->x.along, value) * WIDE;
}

static double y_of(const panel *of, double value) {
  return TOP + HIGH - ls_axis_at(&of->y.along, value) * HIGH;
}

/* "5.2 s", "64 GiB", "0.28 USD". */
static void print_value(const panel *of, quantity what, double value) {
  if (what == STEP)
    fprintf(of->stream,
            value < 1      ? "%.4g ms"
            : value < 1000 ? "%.4g s"
                           : "%.0f s",
            value < 1 ? 1000 * value : value);
  else if (what == MEMORY)
    fprintf(of->stream, value < 1000 ? "%.4g GiB" : "%.0f GiB", value);
  else
    fprintf(of->stream, value < 1000 ? "%.3g %s" : "%.0f %s", value, of->front->currency);
}

static void draw_x_tick(void *context, double value) {
  const panel *of = context;
  if (!(value > 0)) return;
  const double x = x_of(of, value);
  fprintf(of->stream,
          "<line x1='%.1f' y1='%d' x2='%.1f' y2='%d' class='grid'/>"
          "<text x='%.1f' y='%d' class='m'>",
          x, TOP, x, TOP + HIGH, x, TOP + HIGH + 16);
  print_value(of, of->x.of, value);
  fputs("</text>\n", of->stream);
}

static void draw_y_tick(void *context, double value) {
  const panel *of = context;
  if (!(value > 0)) return;
  const double y = y_of(of, value);
  fprintf(of->stream,
          "<line x1='%d' y1='%.1f' x2='%d' y2='%.1f' class='grid'/>"
          "<text x='%d' y='%.1f' class='e'>",
          of->left, y, of->left + WIDE, y, of->left - 6, y + 4);
  print_value(of, of->y.of, value);
  fputs("</text>\n", of->stream);
}

static int hue_of(const ls_front *front, int machine) {
  return front->machine_count > 1 ? (int)ls_hue_of(machine) : 210;
}

/* Where the numbers of a panel are. */
typedef struct numbers {
  double x[LISTED], y[LISTED];
  int count;
} numbers;

/* Beside its point, on the first side where no other number is; on none: it is in the list alone.
 */
static void draw_number(const panel *of, double x, double y, int number, numbers *drawn) {
  static const int sides[][2] = {{7, -5}, {7, 14}, {-21, -5}, {-21, 14}, {20, 4}, {-34, 4}};
  for (size_t s = 0; s < sizeof sides / sizeof *sides; s++) {
    const double to_x = x + sides[s][0], to_y = y + sides[s][1];
    bool clear = to_y > TOP + 8 && to_y < TOP + HIGH - 2;
    for (int n = 0; n < drawn->count; n++)
      clear &= fabs(to_x - drawn->x[n]) > 2 * LETTER || fabs(to_y - drawn->y[n]) > 10;
    if (!clear) continue;
    drawn->x[drawn->count] = to_x;
    drawn->y[drawn->count++] = to_y;
    fprintf(of->stream, "<text x='%.1f' y='%.1f' class='number'>%d</text>", to_x, to_y, number);
    return;
  }
}

static void draw_point(const panel *of, const ls_front_point *point) {
  const double value = value_of(point, of->y.of);
  if (!(value > 0) || (of->y.of == MONEY && !point->fits)) return;
  const double x = x_of(of, point->seconds), y = y_of(of, value);
  fputs("<g><title>", of->stream);
  ls_markup_text(of->front->machines[point->machine], of->stream);
  fputs(": ", of->stream);
  ls_markup_text(point->layout, of->stream);
  fputs("\n", of->stream);
  print_value(of, STEP, point->seconds);
  fputs(", ", of->stream);
  print_value(of, MEMORY, value_of(point, MEMORY));
  if (!point->fits) fputs(", too large", of->stream);
  fprintf(of->stream, "</title><circle cx='%.1f' cy='%.1f' r='%s' class='%s' ", x, y,
          point->best ? "4.5" : "2.6",
          point->best   ? "best"
          : point->fits ? "fits"
                        : "large");
  const int hue = hue_of(of->front, point->machine);
  if (point->fits)
    fprintf(of->stream, "fill='hsl(%d,60%%,50%%)'/>", hue);
  else
    fprintf(of->stream, "fill='none' stroke='hsl(%d,60%%,50%%)'/>", hue);
  fputs("</g>\n", of->stream);
}

/* The fronts of the machines, from the fastest on: steps, for between two there is nothing. */
static void draw_lines(const panel *of, const ls_front_point *const *best, int count) {
  for (int machine = 0; machine < of->front->machine_count; machine++) {
    int drawn = 0;
    for (int b = 0; b < count; b++) {
      const double value = value_of(best[b], of->y.of);
      if (best[b]->machine != machine || !(value > 0)) continue;
      const double x = x_of(of, best[b]->seconds), y = y_of(of, value);
      if (!drawn++)
        fprintf(of->stream,
                "<path fill='none' class='line' stroke='hsl(%d,60%%,50%%)' d='M%.1f %.1f",
                hue_of(of->front, machine), x, y);
      else
        fprintf(of->stream, "H%.1fV%.1f", x, y);
    }
    if (drawn) fputs("'/>\n", of->stream);
  }
}

static void draw_panel(panel *of, const ls_front_point *const *best, int count) {
  fprintf(of->stream, "<text x='%d' y='%d'>%s</text>\n", of->left, TOP - 10,
          of->y.of == MEMORY ? "memory of a device, over step time"
                             : "money of a step, over step time");
  ls_axis_ticks(&of->x.along, WIDE, draw_x_tick, of);
  ls_axis_ticks(&of->y.along, HIGH, draw_y_tick, of);
  fprintf(of->stream, "<rect x='%d' y='%d' width='%d' height='%d' class='frame'/>\n", of->left, TOP,
          WIDE, HIGH);
  for (int p = 0; p < of->front->points.count; p++)
    if (!of->front->points.items[p].best) draw_point(of, &of->front->points.items[p]);
  if (of->y.of == MEMORY) draw_lines(of, best, count);
  for (int b = 0; b < count; b++) draw_point(of, best[b]);
  numbers drawn = {.count = 0};
  for (int b = 0; b < count && b < LISTED; b++) {
    const double value = value_of(best[b], of->y.of);
    if (value > 0) draw_number(of, x_of(of, best[b]->seconds), y_of(of, value), b + 1, &drawn);
  }
}

static int by_seconds(const void *a, const void *b) {
  const ls_front_point *x = *(const ls_front_point *const *)a;
  const ls_front_point *y = *(const ls_front_point *const *)b;
  if (x->seconds != y->seconds) return x->seconds < y->seconds ? -1 : 1;
  return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Points of the front in the order of their times. */
static int take_best(const ls_front *front, const ls_front_point **best) {
  int count = 0;
  for (int p = 0; p < front->points.count; p++)
    if (front->points.items[p].best) best[count++] = &front->points.items[p];
  qsort(best, (size_t)count, sizeof *best, by_seconds);
  return count;
}

/* A line of the list, after its number. */
static void print_listed(const panel *of, const ls_front_point *point) {
  if (of->front->machine_count > 1) {
    ls_markup_text(of->front->machines[point->machine], of->stream);
    fputs(": ", of->stream);
  }
  print_value(of, STEP, point->seconds);
  fputs(", ", of->stream);
  print_value(of, MEMORY, value_of(point, MEMORY));
  if (point->money > 0) {
    fputs(", ", of->stream);
    print_value(of, MONEY, point->money);
  }
  fputs(": ", of->stream);
  ls_markup_text(point->layout, of->stream);
}

static void draw_list(const panel *of, const ls_front_point *const *best, int count, int y) {
  for (int b = 0; b < count && b < LISTED; b++, y += LINE) {
    fprintf(of->stream,
            "<circle cx='%d' cy='%d' r='4.5' fill='hsl(%d,60%%,50%%)'/>"
            "<text x='%d' y='%d'>%d</text><text x='%d' y='%d'>",
            LEFT, y - 4, hue_of(of->front, best[b]->machine), LEFT + 10, y, b + 1, LEFT + 36, y);
    print_listed(of, best[b]);
    fputs("</text>\n", of->stream);
  }
  if (count > LISTED)
    fprintf(of->stream, "<text x='%d' y='%d'>and %d more</text>\n", LEFT + 36, y, count - LISTED);
}

static const char sizes[] =
    "large: no layout is better in all, with its number in the list; small: it fits; "
    "ring: too large for the device";

static int legend_width(const ls_front_point *const *best, int count, const ls_front *front) {
  size_t most = sizeof sizes, longest = 0;
  for (int m = 0; m < front->machine_count; m++) {
    const size_t length = strlen(front->machines[m]);
    most += length + 5;
    if (length > longest) longest = length;
  }
  enum { NUMBERS = 40 }; /* letters of the numbers before a layout */
  for (int b = 0; b < count && b < LISTED; b++) {
    const size_t length = longest + NUMBERS + strlen(best[b]->layout);
    if (length > most) most = length;
  }
  return LEFT + LETTER * (int)most;
}

static void draw_legend(const panel *of) {
  int x = LEFT;
  for (int m = 0; m < of->front->machine_count; m++) {
    fprintf(of->stream,
            "<circle cx='%d' cy='46' r='4.5' fill='hsl(%d,60%%,50%%)'/><text x='%d' y='50'>", x + 5,
            hue_of(of->front, m), x + 14);
    ls_markup_text(of->front->machines[m], of->stream);
    fputs("</text>\n", of->stream);
    x += 30 + LETTER * (int)strlen(of->front->machines[m]);
  }
  fprintf(of->stream, "<text x='%d' y='50' class='d'>%s</text>\n", x + 10, sizes);
}

void ls_front_svg(const ls_front *front, FILE *stream) {
  const ls_front_point **best =
      LS_NEW_ARRAY(front->arena, const ls_front_point *, front->points.count + 1);
  const int count = take_best(front, best), listed = count < LISTED ? count : LISTED + 1;
  const bool money = front->machine_count > 1 && front->currency;
  const int drawn = LEFT + WIDE + 60 + (money ? BETWEEN + WIDE : 0), list = TOP + HIGH + 50;
  const int texts = legend_width(best, count, front), width = texts > drawn ? texts : drawn;
  panel memory = {front, stream, LEFT, axis_of(front, STEP), axis_of(front, MEMORY)};
  panel cost = {front, stream, LEFT + WIDE + BETWEEN, memory.x, axis_of(front, MONEY)};
  fprintf(
      stream,
      "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' font-family='sans-serif' "
      "font-size='12'>\n"
      "<style>.page{fill:#fff}text{fill:#222}.d{fill:#666}.m{text-anchor:middle;font-size:10px}"
      ".e{text-anchor:end;font-size:10px}.grid{stroke:#888;stroke-opacity:0.25}"
      ".frame{fill:none;stroke:#888}.fits{fill-opacity:0.45}.best{stroke:#fff;stroke-width:1}"
      ".large{stroke-opacity:0.7}.line{stroke-width:1.4}.number{paint-order:stroke;"
      "stroke:#fff;stroke-width:3}"
      "@media(prefers-color-scheme:dark){.page{fill:#16181c}text{fill:#ddd}.d{fill:#999}"
      ".best,.number{stroke:#16181c}.fits{fill-opacity:0.75}.large{stroke-opacity:0.9}}</style>\n"
      "<rect width='100%%' height='100%%' class='page'/>\n<text x='%d' y='24' font-size='15'>",
      width, list + listed * LINE + 20, LEFT);
  ls_markup_text(ls_markup_clean(front->arena, front->title), stream);
  fputs("</text>\n", stream);
  draw_legend(&memory);
  draw_panel(&memory, best, count);
  if (money) draw_panel(&cost, best, count);
  draw_list(&memory, best, count, list);
  fputs("</svg>\n", stream);
}
