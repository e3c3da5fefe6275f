#include "watch/curves.h"

#include <math.h>
#include <string.h>

#include "watch/axis.h"
#include "watch/markup.h"

enum {
  LEFT = 66,
  TOP = 64,
  WIDE = 520, /* of a panel */
  HIGH = 260,
  ACROSS = LEFT + WIDE + 20, /* from a panel to the next */
  DOWN = HIGH + 66,
  COLUMNS = 2,
  LEGEND = 18, /* a line of it */
};

typedef struct frame {
  const ls_curves *curves;
  FILE *stream;
  int left, top;
  ls_axis x, y;
} frame;

static double x_of(const frame *of, double value) {
  return of->left + ls_axis_at(&of->x, value) * WIDE;
}

static double y_of(const frame *of, double value) {
  return of->top + HIGH - ls_axis_at(&of->y, value) * HIGH;
}

static void draw_x_tick(void *context, double value) {
  const frame *of = context;
  if (value < 0) return;
  const double x = x_of(of, value);
  char text[LS_TICK_TEXT];
  ls_axis_number(text, value);
  fprintf(of->stream,
          "<line x1='%.1f' y1='%d' x2='%.1f' y2='%d' class='grid'/>"
          "<text x='%.1f' y='%d' class='m'>%s</text>\n",
          x, of->top, x, of->top + HIGH, x, of->top + HIGH + 14, text);
}

static void draw_y_tick(void *context, double value) {
  const frame *of = context;
  const double y = y_of(of, value);
  char text[LS_TICK_TEXT];
  ls_axis_number(text, value);
  fprintf(of->stream,
          "<line x1='%d' y1='%.1f' x2='%d' y2='%.1f' class='grid'/>"
          "<text x='%d' y='%.1f' class='e'>%s</text>\n",
          of->left, y, of->left + WIDE, y, of->left - 6, y + 4, text);
}

static int hue_of(int run) {
  return ((int)ls_hue_of(run) + 210) % 360;
}

static void put(const frame *of, bool *begun, double x, double y) {
  fprintf(of->stream, "%s%.1f %.1f", *begun ? "L" : "M", x_of(of, x), y_of(of, y));
  *begun = true;
}

/* The points of one pixel: its first, its least and its most in the order that they have, its last.
 */
static void put_pixel(const frame *of, const ls_curve *curve, int from, int to, bool *begun) {
  int least = from, most = from;
  for (int i = from; i < to; i++) {
    if (curve->y[i] < curve->y[least]) least = i;
    if (curve->y[i] > curve->y[most]) most = i;
  }
  const int keep[] = {from, least < most ? least : most, least < most ? most : least, to - 1};
  for (int k = 0; k < 4; k++)
    if (k == 0 || keep[k] != keep[k - 1]) put(of, begun, curve->x[keep[k]], curve->y[keep[k]]);
}

static void draw_line(const frame *of, const ls_curve *curve) {
  static const char *const classes[] = {"line", "faint", "marked"};
  fprintf(of->stream, "<path class='%s' stroke='hsl(%d,60%%,50%%)' d='", classes[curve->kind],
          hue_of(curve->run));
  bool begun = false;
  for (int from = 0, to; from < curve->count; from = to) {
    to = from + 1;
    if (!isfinite(curve->y[from])) {
      begun = false;
      continue;
    }
    const double pixel = floor(x_of(of, curve->x[from]));
    while (to < curve->count && isfinite(curve->y[to]) && floor(x_of(of, curve->x[to])) == pixel)
      to++;
    put_pixel(of, curve, from, to, &begun);
  }
  fputs("'/>\n", of->stream);
}

static void draw_marks(const frame *of, const ls_curve *curve) {
  for (int i = 0; i < curve->count; i++)
    if (isfinite(curve->y[i]))
      fprintf(of->stream,
              "<circle cx='%.1f' cy='%.1f' r='2.5' fill='hsl(%d,60%%,50%%)'><title>%.6g: "
              "%.6g</title></circle>\n",
              x_of(of, curve->x[i]), y_of(of, curve->y[i]), hue_of(curve->run), curve->x[i],
              curve->y[i]);
}

typedef struct range {
  double least, most;
} range;

static void widen(range *of, double value) {
  if (!isfinite(value)) return;
  of->least = fmin(of->least, value);
  of->most = fmax(of->most, value);
}

static void draw_panel(frame *of, const ls_curves_panel *panel) {
  range x = {INFINITY, -INFINITY}, y = x;
  for (int c = 0; c < panel->curves.count; c++)
    for (int i = 0; i < panel->curves.items[c].count; i++) {
      widen(&x, panel->curves.items[c].x[i]);
      widen(&y, panel->curves.items[c].y[i]);
    }
  fprintf(of->stream, "<text x='%d' y='%d'>", of->left, of->top - 8);
  ls_markup_text(panel->title, of->stream);
  fprintf(of->stream, "</text>\n<rect x='%d' y='%d' width='%d' height='%d' class='frame'/>\n",
          of->left, of->top, WIDE, HIGH);
  if (!(y.least <= y.most)) {
    fprintf(of->stream, "<text x='%d' y='%d' class='m d'>no value</text>\n", of->left + WIDE / 2,
            of->top + HIGH / 2);
    return;
  }
  of->x = ls_axis_of(x.least, x.most, false);
  of->y = ls_axis_of(y.least, y.most, false);
  ls_axis_ticks(&of->x, WIDE, draw_x_tick, of);
  ls_axis_ticks(&of->y, HIGH, draw_y_tick, of);
  fprintf(of->stream, "<text x='%d' y='%d' class='e d'>", of->left + WIDE, of->top + HIGH + 28);
  ls_markup_text(of->curves->x_name, of->stream);
  fputs("</text>\n", of->stream);
  for (int c = 0; c < panel->curves.count; c++) {
    draw_line(of, &panel->curves.items[c]);
    if (panel->curves.items[c].kind == LS_CURVE_MARKED) draw_marks(of, &panel->curves.items[c]);
  }
}

static void draw_legend(const ls_curves *curves, int y, FILE *stream) {
  for (int r = 0; r < curves->run_count; r++, y += LEGEND) {
    fprintf(stream,
            "<line x1='%d' y1='%d' x2='%d' y2='%d' stroke='hsl(%d,60%%,50%%)' stroke-width='2'/>"
            "<text x='%d' y='%d'>",
            LEFT, y - 4, LEFT + 20, y - 4, hue_of(r), LEFT + 28, y);
    ls_markup_text(ls_markup_clean(curves->arena, curves->runs[r]), stream);
    fputs("</text>\n", stream);
  }
}

void ls_curves_svg(const ls_curves *curves, FILE *stream) {
  const int panels = curves->panels.count, rows = (panels + COLUMNS - 1) / COLUMNS;
  const int legend = TOP + rows * DOWN;
  fprintf(stream,
          "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' font-family='sans-serif' "
          "font-size='12'>\n"
          "<style>.page{fill:#fff}text{fill:#222}.d{fill:#666}.m{text-anchor:middle;font-size:10px}"
          ".e{text-anchor:end;font-size:10px}.grid{stroke:#888;stroke-opacity:0.25}"
          ".frame{fill:none;stroke:#888}path{fill:none;stroke-linejoin:round}"
          ".line{stroke-width:1.5}.faint{stroke-opacity:0.3}"
          ".marked{stroke-width:1.2;stroke-dasharray:4 3}"
          "@media(prefers-color-scheme:dark){.page{fill:#16181c}text{fill:#ddd}.d{fill:#999}}"
          "</style>\n<rect width='100%%' height='100%%' class='page'/>\n"
          "<text x='%d' y='24' font-size='15'>",
          (panels < COLUMNS ? panels : COLUMNS) * ACROSS + 20,
          legend + curves->run_count * LEGEND + 8, LEFT);
  ls_markup_text(ls_markup_clean(curves->arena, curves->title), stream);
  fputs("</text>\n", stream);
  for (int p = 0; p < panels; p++) {
    frame of = {.curves = curves,
                .stream = stream,
                .left = LEFT + p % COLUMNS * ACROSS,
                .top = TOP + p / COLUMNS * DOWN};
    draw_panel(&of, &curves->panels.items[p]);
  }
  draw_legend(curves, legend, stream);
  fputs("</svg>\n", stream);
}

double *ls_curve_smooth(ls_arena *arena, const double *y, int count, double weight) {
  double *smooth = LS_NEW_ARRAY(arena, double, count + 1), last = 0, seen = 0;
  for (int i = 0; i < count; i++) {
    smooth[i] = y[i];
    if (!isfinite(y[i])) continue;
    last = weight * last + (1 - weight) * y[i];
    seen = weight * seen + (1 - weight);
    smooth[i] = last / seen;
  }
  return smooth;
}
