#include "watch/timeline.h"

#include <string.h>

#include "watch/markup.h"

enum {
  LEFT = 124,
  TOP = 64,
  TRACK = 34,      /* of what computes */
  THIN_TRACK = 20, /* of what communicates, and of what moves, below it */
  GAP = 8,
  AXIS = 26,
  LEGEND = 22,      /* a line of it */
  WIDEST_UNIT = 34, /* pixels of a unit of time of a plan */
  WIDTH = 1500,     /* pixels of all of it, where units shrink to fit */
  NARROWEST_UNIT = 12,
  CROWD = 6,     /* pixels for each span of a process, of what was measured */
  WIDEST = 6000, /* of that */
  TICK = 90,     /* pixels between ticks, at least */
  MOST_BOXES = 20000,
};

typedef struct drawing {
  const ls_timeline *timeline;
  double unit; /* pixels */
  FILE *stream;
} drawing;

/* Forward is the pure colour; the parts of backward are darker, weights paler. */
static int lightness_of(ls_span_kind kind) {
  static const int lightness[LS_SPAN_KINDS] = {
      [LS_SPAN_FORWARD] = 78,    [LS_SPAN_BACKWARD] = 55,  [LS_SPAN_INPUT] = 62,
      [LS_SPAN_WEIGHT] = 88,     [LS_SPAN_RECOMPUTE] = 70, [LS_SPAN_UPDATE] = 72,
      [LS_SPAN_COLLECTIVE] = 66, [LS_SPAN_TRANSFER] = 84,  [LS_SPAN_MOVE] = 75,
  };
  return lightness[kind];
}

const char *ls_timeline_queue_name(int queue) {
  static const char *const names[] = {"compute", "communicate"};
  return queue < (int)(sizeof names / sizeof *names) ? names[queue] : "tier";
}

static int process_height(const ls_timeline *timeline) {
  return TRACK + (timeline->queues - 1) * (THIN_TRACK + 2) + GAP;
}

static int track_top(const ls_timeline *timeline, int process, int queue) {
  const int top = TOP + process * process_height(timeline);
  return queue == LS_QUEUE_COMPUTE ? top : top + TRACK + 2 + (queue - 1) * (THIN_TRACK + 2);
}

static void draw_tooltip(const drawing *of, const ls_timeline_span *span) {
  const ls_timeline *timeline = of->timeline;
  fputs("<title>", of->stream);
  ls_markup_text(timeline->process_names[span->process], of->stream);
  fputs(": ", of->stream);
  ls_markup_text(span->name, of->stream);
  if (span->chunk >= 0 && timeline->chunks > 1) fprintf(of->stream, ", chunk %d", span->chunk);
  if (span->microbatch >= 0) fprintf(of->stream, ", microbatch %d", span->microbatch);
  fprintf(of->stream, ": %.6g to %.6g %s", span->start, span->end, timeline->unit);
  if (span->bytes > 0) {
    char text[LS_BYTES_TEXT];
    ls_bytes_show(text, span->bytes);
    fprintf(of->stream, ", sends %s", text);
  }
  fputs("</title>", of->stream);
}

static void draw_label(const drawing *of, const ls_timeline_span *span, double x, int y,
                       double width) {
  const size_t characters = strlen(span->label);
  const char *ink = span->microbatch >= 0 && ls_hsl_is_dark(ls_hue_of(span->microbatch), 0.65,
                                                            lightness_of(span->kind) / 100.0)
                        ? " v"
                        : "";
  const bool thin = span->queue != LS_QUEUE_COMPUTE;
  const bool chunk = !thin && span->chunk >= 0 && of->timeline->chunks > 1;
  const int below = thin ? 14 : chunk ? 15 : 21;
  if (width >= 1 + 7 * (double)characters) {
    fprintf(of->stream, "<text x='%.1f' y='%d' class='i%s%s'>%s</text>", x, y + below,
            thin ? " s" : "", ink, span->label);
    if (chunk)
      fprintf(of->stream, "<text x='%.1f' y='%d' class='i s%s'>c%d</text>", x, y + 28, ink,
              span->chunk);
  } else if (!thin && span->microbatch >= 0 && width >= (span->microbatch < 100 ? 11 : 16)) {
    fprintf(of->stream, "<text x='%.1f' y='%d' class='i t%s'>%d</text>", x, y + 21, ink,
            span->microbatch);
  }
}

static void draw_span(const drawing *of, const ls_timeline_span *span) {
  const double x = LEFT + span->start * of->unit, width = (span->end - span->start) * of->unit;
  const bool thin = span->queue != LS_QUEUE_COMPUTE;
  const int y = track_top(of->timeline, span->process, (int)span->queue);
  fputs("<g>", of->stream);
  draw_tooltip(of, span);
  fprintf(of->stream,
          "<rect x='%.2f' y='%d' width='%.2f' height='%d' fill='hsl(%.0f,%d%%,%d%%)'%s/>", x, y,
          width, thin ? THIN_TRACK : TRACK, span->microbatch >= 0 ? ls_hue_of(span->microbatch) : 0,
          span->microbatch >= 0 ? 65 : 0, lightness_of(span->kind), width < 3 ? "" : " class='b'");
  draw_label(of, span, x + width / 2, y, width);
  fputs("</g>\n", of->stream);
}

static void draw_track(const drawing *of, int process, int queue) {
  const bool thin = queue != LS_QUEUE_COMPUTE;
  const int y = track_top(of->timeline, process, queue);
  fprintf(of->stream, "<text x='%d' y='%d' class='%s'>", LEFT - 8, y + (thin ? 14 : 21),
          thin                                                ? "q"
          : strlen(of->timeline->process_names[process]) > 17 ? "l n"
                                                              : "l");
  ls_markup_text(thin ? ls_timeline_queue_name(queue) : of->timeline->process_names[process],
                 of->stream);
  fprintf(of->stream, "</text><rect x='%d' y='%d' width='%.1f' height='%d' class='k'/>\n", LEFT, y,
          of->timeline->end * of->unit, thin ? THIN_TRACK : TRACK);
}

static void draw_axis(const drawing *of, int y) {
  const double step = ls_round_step(TICK / of->unit);
  for (int i = 0; i * step <= of->timeline->end; i++) {
    const double x = LEFT + i * step * of->unit;
    fprintf(of->stream,
            "<line x1='%.1f' y1='%d' x2='%.1f' y2='%d' stroke='#999'/>"
            "<text x='%.1f' y='%d' class='a'>%.10g%s%s</text>\n",
            x, y, x, y + 5, x, y + 17, i * step, i ? "" : " ", i ? "" : of->timeline->unit);
  }
}

/* An entry of the legend, at the end of a line or, where that is full, in the next one. */
static void draw_entry(const drawing *of, const char *box, const char *text, double width, int *x,
                       int *y) {
  const int wide = (*box ? 46 : 24) + 6 * (int)strlen(text);
  if (*x > LEFT && *x + wide > width) *x = LEFT, *y += LEGEND;
  if (of->stream) {
    if (*box)
      fprintf(of->stream, "<rect x='%d' y='%d' width='16' height='16' fill='%s' class='b'/>", *x,
              *y, box);
    fprintf(of->stream, "<text x='%d' y='%d' class='g'>%s</text>\n", *x + (*box ? 22 : 0), *y + 13,
            text);
  }
  *x += wide;
}

/* What shades, colours and small numbers say, in lines from `y` on; returns where it ends. Without
 * a stream nothing is drawn. */
static int draw_legend(const drawing *of, const ls_timeline *drawn, double width, int y) {
  static const char *const names[LS_SPAN_KINDS] = {
      "F forward",
      "B backward",
      "I backward: inputs",
      "W backward: weights",
      "re recompute",
      "U once a step",
      "AR all-reduce, AG all-gather, RS reduce-scatter",
      "S send, R receive with its wait, S end when it was taken",
      "M moves between tiers"};
  bool there[LS_SPAN_KINDS] = {false}, colored = false, grey = false;
  for (int i = 0; i < drawn->spans.count; i++) {
    const ls_timeline_span *span = &drawn->spans.items[i];
    there[span->kind] = true;
    colored |= span->microbatch >= 0;
    grey |= span->microbatch < 0;
  }
  int x = LEFT;
  for (int kind = 0; kind < LS_SPAN_KINDS; kind++) {
    if (!there[kind]) continue;
    char box[40];
    snprintf(box, sizeof box, "hsl(210,%d%%,%d%%)", kind == LS_SPAN_UPDATE ? 0 : 65,
             lightness_of((ls_span_kind)kind));
    draw_entry(of, box, names[kind], width, &x, &y);
  }
  if (colored) draw_entry(of, "", "a colour, or the number: a microbatch", width, &x, &y);
  if (colored && drawn->chunks > 1) draw_entry(of, "", "c: a chunk", width, &x, &y);
  if (grey)
    draw_entry(of, "hsl(0,0%,72%)", "grey: of no microbatch, or of several too short to be drawn",
               width, &x, &y);
  return y + LEGEND;
}

/* Whether a span goes on in another of its track, both narrower than `least`. */
static bool blends(const ls_timeline_span *last, const ls_timeline_span *next, double least) {
  return last->end - last->start < least && next->end - next->start < least &&
         next->start - last->end < least;
}

/* The spans, neighbours narrower than `least` as one. */
static int blend(const ls_timeline *from, double least, ls_timeline_span *made) {
  int count = 0, last[LS_QUEUE_COUNT] = {0};
  for (int i = 0; i < from->spans.count; i++) {
    const ls_timeline_span *span = &from->spans.items[i];
    if (!i || span[-1].process != span->process)
      for (int q = 0; q < LS_QUEUE_COUNT; q++) last[q] = -1;
    int *of = &last[span->queue];
    if (*of < 0 || !blends(&made[*of], span, least)) {
      *of = count;
      made[count++] = *span;
      continue;
    }
    ls_timeline_span *wider = &made[*of];
    wider->end = span->end;
    wider->bytes += span->bytes;
    wider->name = "several, each too short to be drawn";
    wider->label = "";
    if (wider->microbatch != span->microbatch) wider->microbatch = -1;
    if (wider->chunk != span->chunk) wider->chunk = -1;
  }
  return count;
}

/* As it is, or where it has more spans than a picture should have boxes with fewer. */
static ls_timeline thinned(ls_arena *arena, const ls_timeline *timeline, double unit) {
  ls_timeline made = *timeline;
  if (timeline->spans.count <= MOST_BOXES) return made;
  made.spans.items = LS_NEW_ARRAY(arena, ls_timeline_span, timeline->spans.count);
  for (double pixels = 1; pixels < WIDEST; pixels *= 1.5) {
    made.spans.count = blend(timeline, pixels / unit, made.spans.items);
    if (made.spans.count <= MOST_BOXES) break;
  }
  return made;
}

/* Wider where more happens. */
static double measured_width(const ls_timeline *timeline) {
  const double width = CROWD * (double)timeline->spans.count / timeline->processes;
  return width < WIDTH ? WIDTH : width > WIDEST ? WIDEST : width;
}

void ls_timeline_svg(const ls_timeline *timeline, FILE *stream) {
  drawing of = {.timeline = timeline, .stream = stream, .unit = WIDEST_UNIT};
  const bool planned = strcmp(timeline->unit, "ms") != 0;
  if (!planned)
    of.unit = measured_width(timeline) / timeline->end;
  else if (timeline->end * of.unit > WIDTH)
    of.unit = WIDTH / timeline->end;
  if (planned && of.unit < NARROWEST_UNIT) of.unit = NARROWEST_UNIT;
  const double needed = LEFT + timeline->end * of.unit + 36, width = needed < 760 ? 760 : needed;
  const int axis = TOP + timeline->processes * process_height(timeline);
  ls_arena *scratch = ls_arena_create();
  const ls_timeline drawn = thinned(scratch, timeline, of.unit);
  const drawing nothing = {0};
  const int height = draw_legend(&nothing, &drawn, width, axis + AXIS + 8) + 4;
  fprintf(
      stream,
      "<svg xmlns='http://www.w3.org/2000/svg' width='%.0f' height='%d' "
      "font-family='sans-serif' font-size='12'>\n"
      "<style>text{text-anchor:middle;fill:#1c2430}.l{text-anchor:end}.n{font-size:10px}.g{"
      "text-anchor:start}"
      ".q{text-anchor:end;font-size:10px;fill:#555}.a{font-size:10px;fill:#555}.i{fill:#111}"
      ".v{fill:#fff}.s{font-size:9px}.t{font-size:8px}.b{stroke:#444;stroke-width:0.6}.w{fill:#fff}"
      ".k{fill:#f2f2f2}"
      "@media(prefers-color-scheme:dark){text{fill:#dde3ea}.q,.a{fill:#9aa7b5}.i{fill:#111}.v{fill:"
      "#fff}"
      ".w{fill:#14181d}.k{fill:#232a32}}</style>\n"
      "<rect width='100%%' height='100%%' class='w'/>\n"
      "<text x='%d' y='22' class='g' font-size='15'>",
      width, height, LEFT);
  ls_markup_text(timeline->title, stream);
  fprintf(stream, "</text>\n<text x='%d' y='42' class='g'>", LEFT);
  ls_markup_text(timeline->subtitle, stream);
  fputs("</text>\n", stream);
  for (int p = 0; p < timeline->processes; p++)
    for (int queue = 0; queue < timeline->queues; queue++) draw_track(&of, p, queue);
  for (int i = 0; i < drawn.spans.count; i++) draw_span(&of, &drawn.spans.items[i]);
  draw_axis(&of, axis);
  draw_legend(&of, &drawn, width, axis + AXIS + 8);
  ls_arena_destroy(&scratch);
  fputs("</svg>\n", stream);
}
