#include "watch/timeline.h"

enum {
  LEFT = 84,
  TOP = 64,
  LANE = 34,
  GAP = 8,
  LEGEND = 64,
  WIDEST_UNIT = 34, /* pixels of a unit of time */
  WIDTH = 1500,     /* pixels of all of it, where units shrink to fit */
  NARROWEST_UNIT = 12,
};

typedef struct drawing {
  const ls_pipeline *pipeline;
  const ls_pipeline_times *times;
  double unit; /* pixels */
  FILE *stream;
} drawing;

/* Neighbouring microbatches are far apart on the circle of colours. */
static double hue_of(int microbatch) {
  const double turn = 0.618033988749895 * microbatch;
  return 360 * (turn - (double)(long long)turn);
}

/* Forward is the pure colour; the parts of backward are darker, weights paler. */
static int lightness_of(ls_pass_kind kind) {
  switch (kind) {
    case LS_PASS_FORWARD: return 78;
    case LS_PASS_BACKWARD: return 55;
    case LS_PASS_INPUT: return 62;
    default: return 88;
  }
}

static void draw_pass(const drawing *of, const ls_pipeline_pass *pass, const ls_pipeline_span *span,
                      int stage) {
  const double x = LEFT + span->start * of->unit, width = (span->end - span->start) * of->unit;
  const int y = TOP + stage * (LANE + GAP);
  fprintf(of->stream,
          "<g><title>stage %d, chunk %d, microbatch %d: %c, %g to %g</title>"
          "<rect x='%.1f' y='%d' width='%.1f' height='%d' fill='hsl(%.0f,65%%,%d%%)' "
          "stroke='#444' stroke-width='0.6'/>",
          stage, pass->chunk, pass->microbatch, ls_pass_letter(pass->kind), span->start, span->end,
          x, y, width, LANE, hue_of(pass->microbatch), lightness_of(pass->kind));
  if (width >= 18) {
    fprintf(of->stream, "<text x='%.1f' y='%d'>%c%d</text>", x + width / 2,
            of->pipeline->chunks > 1 ? y + 15 : y + 21, ls_pass_letter(pass->kind),
            pass->microbatch);
    if (of->pipeline->chunks > 1)
      fprintf(of->stream, "<text x='%.1f' y='%d' class='s'>c%d</text>", x + width / 2, y + 28,
              pass->chunk);
  } else if (width >= (pass->microbatch < 100 ? 11 : 16)) {
    fprintf(of->stream, "<text x='%.1f' y='%d' class='t'>%d</text>", x + width / 2, y + 21,
            pass->microbatch);
  }
  fprintf(of->stream, "</g>\n");
}

static void draw_lane(const drawing *of, int stage) {
  const int y = TOP + stage * (LANE + GAP);
  fprintf(of->stream,
          "<text x='%d' y='%d' class='l'>stage %d</text>"
          "<rect x='%d' y='%d' width='%.1f' height='%d' fill='#f2f2f2'/>\n",
          LEFT - 8, y + 21, stage, LEFT, y, of->times->makespan * of->unit, LANE);
  const ls_pipeline_list *list = &of->pipeline->lists[stage];
  for (int i = 0; i < list->count; i++)
    draw_pass(of, &list->items[i], &of->times->spans[stage][i], stage);
}

static bool has_kind(const ls_pipeline *pipeline, ls_pass_kind kind) {
  for (int s = 0; s < pipeline->stages; s++)
    for (int i = 0; i < pipeline->lists[s].count; i++)
      if (pipeline->lists[s].items[i].kind == kind) return true;
  return false;
}

static void draw_legend(const drawing *of, int y) {
  static const char *const names[] = {"forward", "backward", "backward: inputs",
                                      "backward: weights"};
  int x = LEFT;
  for (int kind = LS_PASS_FORWARD; kind <= LS_PASS_WEIGHT; kind++) {
    if (!has_kind(of->pipeline, (ls_pass_kind)kind)) continue;
    fprintf(of->stream,
            "<rect x='%d' y='%d' width='16' height='16' fill='hsl(210,65%%,%d%%)' stroke='#444' "
            "stroke-width='0.6'/><text x='%d' y='%d' class='g'>%c %s</text>\n",
            x, y, lightness_of((ls_pass_kind)kind), x + 22, y + 13,
            ls_pass_letter((ls_pass_kind)kind), names[kind]);
    x += 160;
  }
}

void ls_timeline_svg(const ls_pipeline *pipeline, const ls_pipeline_times *times, const char *title,
                     FILE *stream) {
  drawing of = {.pipeline = pipeline, .times = times, .stream = stream, .unit = WIDEST_UNIT};
  if (times->makespan * of.unit > WIDTH) of.unit = WIDTH / times->makespan;
  if (of.unit < NARROWEST_UNIT) of.unit = NARROWEST_UNIT;
  const double width = LEFT + times->makespan * of.unit + 24;
  const int legend = TOP + pipeline->stages * (LANE + GAP) + 12;
  fprintf(
      stream,
      "<svg xmlns='http://www.w3.org/2000/svg' width='%.0f' height='%d' "
      "font-family='sans-serif' font-size='12'>\n"
      "<style>text{text-anchor:middle}.l{text-anchor:end}.g{text-anchor:start}"
      ".s{font-size:9px;fill:#333}.t{font-size:8px}</style>\n"
      "<rect width='100%%' height='100%%' fill='white'/>\n"
      "<text x='%d' y='22' class='g' font-size='15'>%s</text>\n"
      "<text x='%d' y='42' class='g'>%d stages, %d microbatches, %d chunk%s each: %.4g units of "
      "time, bubble %.1f %%</text>\n",
      width < 560 ? 560 : width, legend + LEGEND, LEFT, title, LEFT, pipeline->stages,
      pipeline->microbatches, pipeline->chunks, pipeline->chunks == 1 ? "" : "s", times->makespan,
      100 * times->bubble);
  for (int s = 0; s < pipeline->stages; s++) draw_lane(&of, s);
  draw_legend(&of, legend);
  fprintf(stream, "</svg>\n");
}
