#include "watch/memory_map.h"

#include <stdlib.h>
#include <string.h>

#include "watch/markup.h"

enum {
  LEFT = 104,
  RIGHT = 220, /* for labels of bands */
  TOP = 66,
  WIDTH = 1400,       /* pixels of all actions, where they may shrink to fit */
  WIDEST = 16000,     /* whatever they are */
  NARROWEST = 1320,   /* of the picture: its legend has nine categories at most */
  WIDEST_ACTION = 40, /* pixels */
  NARROWEST_ACTION = 4,
  CURVE = 130, /* height of the bytes alive */
  WORK = 560,  /* of the work region */
  BAND = 22,   /* of a category that lasts */
  RIBBON = 18, /* of the actions' names */
  GAP = 26,
  MOST_TENSORS = 12000, /* boxes: above it one for each buffer group */
};

typedef struct picture {
  const ls_program *program;
  FILE *stream;
  double action; /* pixels */
  double byte;   /* pixels of a byte of the work region */
  int work_top, band_top, ribbon_top, bottom;
  int *first_storage; /* [buffer groups + 1]: in `storages` */
  int *storages;      /* by buffer group, in order of address */
  bool *kept;         /* by storage */
  bool by_tensor;     /* not only by buffer group */
} picture;

static const char *color_of(ls_category category) {
  static const char *const colors[LS_CATEGORY_COUNT] = {
      [LS_CATEGORY_PARAMETERS] = "#4e79a7",  [LS_CATEGORY_MASTER] = "#76b7b2",
      [LS_CATEGORY_MOMENTS] = "#b07aa1",     [LS_CATEGORY_GRADIENTS] = "#e15759",
      [LS_CATEGORY_GATHERED] = "#86bcf0",    [LS_CATEGORY_ACTIVATIONS] = "#59a14f",
      [LS_CATEGORY_TEMPORARIES] = "#edc948", [LS_CATEGORY_CACHES] = "#9c755f",
      [LS_CATEGORY_INPUTS] = "#bab0ac"};
  return colors[category];
}

static double x_of(const picture *of, int action) {
  return LEFT + action * of->action;
}

/* "backward of layers.3, microbatch 2". */
static void print_action(const picture *of, int index) {
  const ls_action *action = &of->program->actions.items[index].action;
  fputs(ls_action_name(action), of->stream);
  const int segment = ls_program_segment_of(of->program, action);
  if (segment >= 0) {
    fputs(" of ", of->stream);
    ls_markup_text(of->program->segments.items[segment].name, of->stream);
  }
  if (action->unit >= 0) fprintf(of->stream, " of unit %d", action->unit);
  if (action->microbatch >= 0) fprintf(of->stream, ", microbatch %d", action->microbatch);
}

static void print_life(const picture *of, const ls_live_interval *live_interval) {
  fprintf(of->stream, "actions %d (", live_interval->first);
  print_action(of, live_interval->first);
  fprintf(of->stream, ") to %d (", live_interval->last);
  print_action(of, live_interval->last);
  fputs(")", of->stream);
}

static void print_bytes(const picture *of, int64_t bytes) {
  char text[LS_BYTES_TEXT];
  ls_bytes_show(text, (double)bytes);
  fprintf(of->stream, "%s (%lld)", text, (long long)bytes);
}

/* Storages by buffer group, in order of address. */
static void sort_storages(picture *of, ls_arena *arena) {
  const ls_program *program = of->program;
  const int buffer_groups = program->buffer_groups.count;
  of->first_storage = LS_NEW_ARRAY(arena, int, buffer_groups + 2);
  of->storages = LS_NEW_ARRAY(arena, int, program->storages.count + 1);
  for (int s = 0; s < program->storages.count; s++)
    if (program->storages.items[s].buffer_group >= 0)
      of->first_storage[program->storages.items[s].buffer_group + 2]++;
  for (int f = 2; f <= buffer_groups + 1; f++) of->first_storage[f] += of->first_storage[f - 1];
  for (int s = 0; s < program->storages.count; s++) {
    const int buffer_group = program->storages.items[s].buffer_group;
    if (buffer_group < 0) continue;
    int at = of->first_storage[buffer_group + 1]++;
    for (; at > of->first_storage[buffer_group] &&
           program->storages.items[of->storages[at - 1]].offset > program->storages.items[s].offset;
         at--)
      of->storages[at] = of->storages[at - 1];
    of->storages[at] = s;
  }
}

/* What several bodies touch is kept, and lies apart from all else that is kept in its buffer group;
 * what one body touches are its temporaries, which follow one another at the same place. */
static void find_kept(picture *of, ls_arena *arena) {
  const ls_program *program = of->program;
  int *body_of = LS_NEW_ARRAY(arena, int, program->storages.count + 1);
  of->kept = LS_NEW_ARRAY(arena, bool, program->storages.count + 1);
  for (int b = 0; b < program->bodies.count; b++) {
    const ls_body *body = &program->bodies.items[b];
    for (int i = body->first; i < body->first + body->count; i++) {
      const ls_instruction *each = &program->instructions.items[i];
      for (int v = 0; v < each->inputs + each->outputs; v++) {
        const int value = v < each->inputs ? each->in[v] : each->out[v - each->inputs];
        const int storage = program->values.items[value].storage;
        if (body_of[storage] && body_of[storage] != b + 1) of->kept[storage] = true;
        body_of[storage] = b + 1;
      }
    }
  }
}

static void print_tensors(const picture *of, int buffer_group) {
  enum { MOST = 6 };
  const int first = of->first_storage[buffer_group], last = of->first_storage[buffer_group + 1];
  for (int i = first; i < last && i < first + MOST; i++) {
    fputs(i > first ? ", " : ": ", of->stream);
    ls_markup_text(of->program->storages.items[of->storages[i]].name, of->stream);
  }
  if (last - first > MOST) fprintf(of->stream, " and %d more", last - first - MOST);
}

/* A box of the work region: a buffer group, or a tensor kept in it. */
static void draw_box(const picture *of, const ls_live_interval *live_interval, int storage) {
  const ls_buffer_group *buffer_group =
      &of->program->buffer_groups.items[live_interval->buffer_group];
  int64_t offset = live_interval->offset, bytes = buffer_group->bytes;
  if (storage >= 0) {
    offset += of->program->storages.items[storage].offset;
    bytes = of->program->storages.items[storage].bytes;
  }
  const double height = (double)bytes * of->byte;
  const double width = (live_interval->last - live_interval->first + 1) * of->action;
  fprintf(of->stream, "<g class='%s'><title>", storage >= 0 ? "tensor" : "buffer-group");
  ls_markup_text(storage >= 0 ? of->program->storages.items[storage].name : buffer_group->name,
                 of->stream);
  if (storage < 0) print_tensors(of, live_interval->buffer_group);
  fprintf(of->stream, "\n%s, ", ls_category_name(buffer_group->category));
  print_bytes(of, bytes);
  fprintf(of->stream, " at %lld\n", (long long)offset);
  print_life(of, live_interval);
  fprintf(of->stream, "</title><rect x='%.2f' y='%.2f' width='%.2f' height='%.2f' fill='%s'",
          x_of(of, live_interval->first), of->work_top + WORK - (double)(offset + bytes) * of->byte,
          width, height, color_of(buffer_group->category));
  fprintf(of->stream, "%s/></g>\n", width > 2 && height > 2 ? " class='b'" : "");
}

static void draw_live_intervals(const picture *of) {
  for (int i = 0; i < of->program->live_intervals.count; i++) {
    const ls_live_interval *live_interval = &of->program->live_intervals.items[i];
    if (of->program->buffer_groups.items[live_interval->buffer_group].pool != LS_POOL_WORK)
      continue;
    draw_box(of, live_interval, -1);
    const int first = of->first_storage[live_interval->buffer_group];
    const int last = of->first_storage[live_interval->buffer_group + 1];
    for (int s = first; of->by_tensor && last - first > 1 && s < last; s++)
      if (of->kept[of->storages[s]]) draw_box(of, live_interval, of->storages[s]);
  }
}

static bool too_many_tensors(const picture *of) {
  int64_t boxes = 0;
  for (int i = 0; i < of->program->live_intervals.count; i++) {
    const int buffer_group = of->program->live_intervals.items[i].buffer_group;
    if (of->program->buffer_groups.items[buffer_group].pool == LS_POOL_WORK)
      boxes += of->first_storage[buffer_group + 1] - of->first_storage[buffer_group];
  }
  return boxes > MOST_TENSORS;
}

/* What lasts, summed by category. */
static int lasting_bytes(const ls_program *program, int64_t bytes[LS_CATEGORY_COUNT]) {
  int bands = 0;
  memset(bytes, 0, sizeof(int64_t) * LS_CATEGORY_COUNT);
  for (int i = 0; i < program->live_intervals.count; i++) {
    const ls_buffer_group *buffer_group =
        &program->buffer_groups.items[program->live_intervals.items[i].buffer_group];
    if (buffer_group->pool != LS_POOL_WORK && ls_pool_tier(buffer_group->pool) == LS_TIER_DEVICE)
      bytes[buffer_group->category] += buffer_group->bytes;
  }
  for (int c = 0; c < LS_CATEGORY_COUNT; c++) bands += bytes[c] > 0;
  return bands;
}

static void draw_lasting(const picture *of, const int64_t bytes[LS_CATEGORY_COUNT]) {
  const double width = of->program->actions.count * of->action;
  int y = of->band_top;
  fprintf(of->stream, "<text x='%d' y='%d' class='l'>lasting</text>\n", LEFT - 8, y + 15);
  for (int c = 0; c < LS_CATEGORY_COUNT; c++) {
    if (!bytes[c]) continue;
    char text[LS_BYTES_TEXT];
    ls_bytes_show(text, (double)bytes[c]);
    fprintf(of->stream,
            "<rect x='%d' y='%d' width='%.1f' height='%d' fill='%s' class='b'/>"
            "<text x='%.1f' y='%d'>%s: %s</text>\n",
            LEFT, y, width, BAND - 2, color_of((ls_category)c), LEFT + width + 8, y + 15,
            ls_category_name((ls_category)c), text);
    y += BAND;
  }
}

/* Bytes alive through the actions, a category on another. */
static void draw_curve(const picture *of, ls_arena *arena, const ls_alive *alive, int64_t most) {
  const int actions = of->program->actions.count;
  int64_t *below = LS_NEW_ARRAY(arena, int64_t, actions + 1);
  const double scale = (double)CURVE / (double)most;
  for (int c = 0; c < LS_CATEGORY_COUNT; c++) {
    fprintf(of->stream, "<path fill='%s' d='M%d %d", color_of((ls_category)c), LEFT, TOP + CURVE);
    bool any = false;
    for (int a = 0; a < actions; a++) {
      below[a] += alive[a].by_category[c];
      any |= alive[a].by_category[c] > 0;
      const double y = TOP + CURVE - (double)below[a] * scale;
      fprintf(of->stream, "L%.2f %.2fH%.2f", x_of(of, a), y, x_of(of, a + 1));
    }
    for (int a = actions - 1; a >= 0; a--) {
      const double y = TOP + CURVE - (double)(below[a] - alive[a].by_category[c]) * scale;
      fprintf(of->stream, "L%.2f %.2fH%.2f", x_of(of, a + 1), y, x_of(of, a));
    }
    fprintf(of->stream, "Z'%s/>\n", any ? "" : " visibility='hidden'");
  }
}

/* What the ribbon calls an action: F, B, I or W; ' ' for one that goes with its neighbours. */
static char letter_of(ls_action_kind kind) {
  switch (kind) {
    case LS_ACTION_FORWARD: return 'F';
    case LS_ACTION_RECOMPUTE:
    case LS_ACTION_BACKWARD: return 'B';
    case LS_ACTION_INPUT: return 'I';
    case LS_ACTION_WEIGHT: return 'W';
    default: return ' ';
  }
}

static void draw_run(const picture *of, int first, int last, char letter, int microbatch) {
  const double width = (last - first) * of->action;
  const bool pass = letter != ' ';
  const int lightness = letter == 'F' ? 78 : letter == 'W' ? 88 : letter == ' ' ? 80 : 58;
  const double hue = pass ? ls_hue_of(microbatch) : 0;
  fprintf(of->stream, "<g><title>actions %d to %d: ", first, last - 1);
  print_action(of, first);
  if (last - first > 1) {
    fputs(" to ", of->stream);
    print_action(of, last - 1);
  }
  fprintf(of->stream,
          "</title><rect x='%.2f' y='%d' width='%.2f' height='%d' fill='hsl(%.0f,%d%%,%d%%)'%s/>",
          x_of(of, first), of->ribbon_top, width, RIBBON, hue, pass ? 65 : 0, lightness,
          width > 2 ? " class='b'" : "");
  if (pass && width >= (microbatch < 10 ? 16 : 24))
    fprintf(of->stream, "<text x='%.1f' y='%d' class='m%s'>%c%d</text>",
            x_of(of, first) + width / 2, of->ribbon_top + 13,
            ls_hsl_is_dark(hue, 0.65, lightness / 100.0) ? " v" : "", letter, microbatch);
  fputs("</g>\n", of->stream);
}

/* Passes of one microbatch in a row are one box; what is done for them goes with them. */
static void draw_ribbon(const picture *of) {
  const ls_program *program = of->program;
  int first = 0;
  char now = ' ';
  int microbatch = -1;
  for (int a = 0; a < program->actions.count; a++) {
    const ls_action *action = &program->actions.items[a].action;
    char letter = letter_of(action->kind);
    if (letter == ' ' && action->microbatch >= 0 && action->microbatch == microbatch) letter = now;
    const int of_microbatch = letter == ' ' ? -1 : action->microbatch;
    if (a && letter == now && of_microbatch == microbatch) continue;
    if (a) draw_run(of, first, a, now, microbatch);
    first = a;
    now = letter;
    microbatch = of_microbatch;
  }
  draw_run(of, first, program->actions.count, now, microbatch);
  fprintf(of->stream, "<text x='%d' y='%d' class='l'>actions</text>\n", LEFT - 8,
          of->ribbon_top + 13);
}

static void draw_ticks(const picture *of, int64_t most, double pixels_per_byte, int bottom) {
  const double unit = most >= (int64_t)4 << 30 ? 1073741824.0 : most >= 4 << 20 ? 1048576.0 : 1024;
  const double step = ls_round_step(36 / (pixels_per_byte * unit));
  for (int i = 0; i * step * unit <= (double)most; i++) {
    const double y = bottom - i * step * unit * pixels_per_byte;
    fprintf(of->stream,
            "<line x1='%d' y1='%.1f' x2='%d' y2='%.1f' stroke='#999'/>"
            "<text x='%d' y='%.1f' class='a'>%g%s</text>\n",
            LEFT - 5, y, LEFT, y, LEFT - 8, y + 4, i * step,
            i            ? ""
            : unit > 1e9 ? " GiB"
            : unit > 1e6 ? " MiB"
                         : " KiB");
  }
}

static int find_peak(const ls_program *program, const ls_alive *alive) {
  int peak = 0;
  for (int a = 1; a < program->actions.count; a++)
    if (alive[a].sum > alive[peak].sum) peak = a;
  return peak;
}

static void draw_peak(const picture *of, int peak, int64_t most) {
  const double x = x_of(of, peak) + of->action / 2,
               middle = x_of(of, of->program->actions.count) / 2;
  fprintf(of->stream,
          "<line x1='%.1f' y1='%d' x2='%.1f' y2='%d' class='q'/>"
          "<text x='%.1f' y='%d' class='p%s'>peak ",
          x, TOP - 6, x, of->bottom, x + (x > middle ? -5 : 5), TOP - 8, x > middle ? " l" : "");
  char text[LS_BYTES_TEXT];
  ls_bytes_show(text, (double)most);
  fprintf(of->stream, "%s (%lld bytes), in action %d: ", text, (long long)most, peak);
  print_action(of, peak);
  fputs("</text>\n", of->stream);
}

/* Of what lies on the device at some time. */
static void draw_legend(const picture *of, int y) {
  int64_t bytes[LS_CATEGORY_COUNT] = {0};
  for (int f = 0; f < of->program->buffer_groups.count; f++) {
    const ls_buffer_group *buffer_group = &of->program->buffer_groups.items[f];
    if (ls_pool_tier(buffer_group->pool) == LS_TIER_DEVICE)
      bytes[buffer_group->category] += buffer_group->bytes;
  }
  int x = LEFT;
  for (int c = 0; c < LS_CATEGORY_COUNT; c++) {
    if (!bytes[c]) continue;
    const char *name = ls_category_name((ls_category)c);
    fprintf(of->stream,
            "<rect x='%d' y='%d' width='14' height='14' fill='%s' class='b'/>"
            "<text x='%d' y='%d'>%s</text>\n",
            x, y, color_of((ls_category)c), x + 20, y + 12, name);
    x += 44 + 7 * (int)strlen(name);
  }
}

static void draw_head(const picture *of, double width, int height, const char *title) {
  fprintf(
      of->stream,
      "<svg xmlns='http://www.w3.org/2000/svg' width='%.0f' height='%d' "
      "font-family='sans-serif' font-size='12'>\n"
      "<style>.tensor rect{fill-opacity:0.55}.buffer-group "
      "rect{fill-opacity:0.8}text{fill:#1c2430}.l{text-anchor:end}"
      ".a{text-anchor:end;font-size:10px}.a,.d{fill:#555}.m{text-anchor:middle;font-size:10px;"
      "fill:#111}.m.v{fill:#fff}.p{fill:#c00}.q{stroke:#c00;stroke-dasharray:4 3}.b{stroke:#333;"
      "stroke-width:0.5}.w{fill:#fff}.k{fill:#f4f4f4}"
      "@media(prefers-color-scheme:dark){text{fill:#dde3ea}.a,.d{fill:#9aa7b5}.m{fill:#111}"
      ".p{fill:#ff8a80}.q{stroke:#ff8a80}.w{fill:#14181d}.k{fill:#232a32}}</style>\n"
      "<rect width='100%%' height='100%%' class='w'/>\n"
      "<text x='%d' y='22' font-size='15'>",
      width, height, LEFT);
  ls_markup_text(title, of->stream);
  fprintf(of->stream, "</text>\n<text x='%d' y='40'>memory of a device", LEFT);
  if (ls_mesh_stages(&of->program->mesh) > 1)
    fprintf(of->stream, " of stage %d", of->program->stage);
  fputs(", ", of->stream);
  print_bytes(of, ls_program_bytes(of->program));
  fprintf(of->stream, ", through the %d actions of %s</text>\n", of->program->actions.count,
          of->program->kind == LS_PROGRAM_STEP ? "a step" : "an evaluation");
}

void ls_memory_map_svg(const ls_program *program, const char *title, FILE *stream) {
  ls_arena *arena = ls_arena_create();
  const int actions = program->actions.count;
  const ls_alive *alive = ls_program_alive(arena, program, LS_TIER_DEVICE);
  int64_t lasting[LS_CATEGORY_COUNT];
  const int bands = lasting_bytes(program, lasting), peak = find_peak(program, alive);
  const int64_t most = alive[peak].sum;
  const int64_t work = program->pool_bytes[LS_POOL_WORK];
  picture of = {.program = program, .stream = stream, .action = WIDEST_ACTION};
  if (actions * of.action > WIDTH) of.action = (double)WIDTH / actions;
  if (of.action < NARROWEST_ACTION) of.action = NARROWEST_ACTION;
  if (actions * of.action > WIDEST) of.action = (double)WIDEST / actions;
  of.byte = work ? (double)WORK / (double)work : 0;
  of.ribbon_top = TOP + CURVE + 8;
  of.work_top = of.ribbon_top + RIBBON + GAP;
  of.band_top = of.work_top + WORK + 10;
  of.bottom = of.band_top + bands * BAND;
  sort_storages(&of, arena);
  find_kept(&of, arena);
  of.by_tensor = !too_many_tensors(&of);
  const double width = LEFT + actions * of.action + RIGHT;
  draw_head(&of, width < NARROWEST ? NARROWEST : width, of.bottom + 54,
            ls_markup_clean(arena, title));
  draw_curve(&of, arena, alive, most);
  draw_ticks(&of, most, (double)CURVE / (double)most, TOP + CURVE);
  draw_ribbon(&of);
  fprintf(stream,
          "<text x='%d' y='%d' class='d'>work region by address, and what lives in it: buffer "
          "groups, "
          "and the tensors kept in them</text>"
          "<rect x='%d' y='%d' width='%.1f' height='%d' class='k'/>\n",
          LEFT, of.work_top - 6, LEFT, of.work_top, actions * of.action, WORK);
  draw_live_intervals(&of);
  if (work) draw_ticks(&of, work, of.byte, of.work_top + WORK);
  draw_lasting(&of, lasting);
  draw_peak(&of, peak, most);
  draw_legend(&of, of.bottom + 24);
  fputs("</svg>\n", stream);
  ls_arena_destroy(&arena);
}
