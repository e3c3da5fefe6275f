/* A pipeline's times as text: a row for each stage. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "pipeline/pipeline.h"

enum { LABEL = 10 /* "stage 12  " */, MOST_WIDTH = 1 << 16 };

typedef struct drawing {
  const ls_pipeline *pipeline;
  const ls_pipeline_times *times;
  double unit; /* of time, as long as the shortest pass */
  int cell;    /* characters for a unit */
  int width;   /* characters of a whole row */
  int *place;  /* [chunk], among the chunks of its stage */
} drawing;

static int digits(int number) {
  int count = 1;
  for (; number >= 10; number /= 10) count++;
  return count;
}

static int column_of(const drawing *of, double time) {
  return (int)lround(time / of->unit * of->cell);
}

/* What stands for a chunk of a stage that has several: a, b, ... z, then its number. */
static void chunk_name(const drawing *of, int chunk, char text[16]) {
  const int place = of->place[chunk];
  if (of->pipeline->chunks == 1) {
    text[0] = '\0';
  } else if (place < 26) {
    snprintf(text, 16, "%c", 'a' + place);
  } else {
    snprintf(text, 16, ".%d", place);
  }
}

/* A pass takes its columns but the last, which keeps it apart from the next; a longer one is filled
 * with lines: "F3b ", "B3b---- ". */
static void draw_pass(const drawing *of, const ls_pipeline_pass *pass, ls_pipeline_span span,
                      char *row) {
  char label[64], chunk[16];
  const int from = column_of(of, span.start), to = column_of(of, span.end);
  chunk_name(of, pass->chunk, chunk);
  const int length =
      snprintf(label, sizeof label, "%c%d%s", ls_pass_letter(pass->kind), pass->microbatch, chunk);
  for (int i = from; i < to - 1 && i < of->width; i++)
    row[i] = i - from < length ? label[i - from] : '-';
}

static double shortest_pass(const drawing *of) {
  double shortest = 0;
  for (int s = 0; s < of->pipeline->stages; s++) {
    for (int i = 0; i < of->pipeline->lists[s].count; i++) {
      const double length = of->times->spans[s][i].end - of->times->spans[s][i].start;
      if (length > 0 && (shortest == 0 || length < shortest)) shortest = length;
    }
  }
  return shortest;
}

/* Where passes differ so much that the rows would be longer than anyone reads, the short ones are
 * drawn without their label. */
static drawing drawing_new(ls_arena *arena, const ls_pipeline *pipeline,
                           const ls_pipeline_times *times) {
  drawing of = {.pipeline = pipeline, .times = times};
  const int chain = pipeline->stages * pipeline->chunks;
  int *held = LS_NEW_ARRAY(arena, int, pipeline->stages);
  of.place = LS_NEW_ARRAY(arena, int, chain);
  for (int c = 0; c < chain; c++) of.place[c] = held[pipeline->stage_of[c]]++;
  const int named = pipeline->chunks == 1 ? 0 : pipeline->chunks <= 26 ? 1 : 1 + digits(chain);
  of.cell = 2 + digits(pipeline->microbatches - 1) + named;
  of.unit = shortest_pass(&of);
  const double widest = MOST_WIDTH;
  if (of.unit * widest < times->makespan * of.cell) of.unit = times->makespan * of.cell / widest;
  of.width = of.unit > 0 ? column_of(&of, times->makespan) : 0;
  return of;
}

static void print_block(const drawing *of, char *const *rows, int from, int columns, FILE *stream) {
  for (int s = 0; s < of->pipeline->stages; s++) {
    int end = from + columns < of->width ? from + columns : of->width;
    while (end > from && rows[s][end - 1] == ' ') end--;
    const int label = fprintf(stream, "stage %d", s);
    if (end > from)
      fprintf(stream, "%*s%.*s", label < LABEL ? LABEL - label : 1, "", end - from, rows[s] + from);
    fputc('\n', stream);
  }
}

static void print_legend(const drawing *of, FILE *stream) {
  static const char *const meanings[LS_PASS_KINDS] = {
      "F forward", "B backward", "I backward of inputs", "W backward of weights"};
  const ls_pipeline *pipeline = of->pipeline;
  bool used[LS_PASS_KINDS] = {false};
  for (int s = 0; s < pipeline->stages; s++)
    for (int i = 0; i < pipeline->lists[s].count; i++)
      used[pipeline->lists[s].items[i].kind] = true;
  fprintf(stream, "%s: bubble %.1f%%", pipeline->name, 100 * of->times->bubble);
  if (fabs(of->times->bubble - of->times->steady_bubble) > 5e-4)
    fprintf(stream, ", %.1f%% where steps follow without a barrier (post_validation: true)",
            100 * of->times->steady_bubble);
  fputc('\n', stream);
  const char *before = "";
  for (int kind = 0; kind < LS_PASS_KINDS; kind++) {
    if (!used[kind]) continue;
    fprintf(stream, "%s%s", before, meanings[kind]);
    before = ", ";
  }
  fputs(" of microbatch 0, 1, ...", stream);
  if (pipeline->chunks > 1) fputs(" in the stage's chunk a, b, ...", stream);
  fputc('\n', stream);
}

void ls_pipeline_print(const ls_pipeline *pipeline, const ls_pipeline_times *times, int columns,
                       FILE *stream) {
  ls_arena *arena = ls_arena_create();
  const drawing of = drawing_new(arena, pipeline, times);
  char **rows = LS_NEW_ARRAY(arena, char *, pipeline->stages);
  for (int s = 0; s < pipeline->stages; s++) {
    rows[s] = LS_NEW_ARRAY(arena, char, of.width + 1);
    memset(rows[s], ' ', (size_t)of.width);
    for (int i = 0; i < pipeline->lists[s].count; i++)
      draw_pass(&of, &pipeline->lists[s].items[i], times->spans[s][i], rows[s]);
  }
  int each = columns > 0 ? (columns - LABEL) / of.cell * of.cell : of.width;
  if (each < of.cell) each = of.cell;
  for (int from = 0; from < of.width; from += each) {
    if (from) fputc('\n', stream);
    print_block(&of, rows, from, each, stream);
  }
  print_legend(&of, stream);
  ls_arena_destroy(&arena);
}
