/* A user's own schedule, in the form in which PyTorch's pipelining and torchtitan exchange them. */
#include <ctype.h>
#include <string.h>

#include "pipeline/pipeline_make.h"
#include "text/quote.h"

enum { MOST_NUMBER = 100000000 };

typedef LS_LIST(ls_pipeline_place) place_list;

typedef struct reader {
  ls_arena *arena;
  const char *name;
  int stages;
  ls_pipeline_list *lists; /* [stages] */
  place_list *places;      /* [stages] */
  int stage;               /* whose line is read */
  int line;
  const char *line_start;
  int passes;                                      /* in all */
  ls_pipeline_pass last_chunk, last_microbatch;    /* the passes with the highest */
  ls_pipeline_place chunk_place, microbatch_place; /* and where they stand */
} reader;

static const char expected_cell[] =
    "chunk, F, B, I or W, and microbatch, as in 0F0, or nothing between commas";

/* "FILE:LINE:COLUMN: found "TEXT"; expected ...". */
static ls_status fail_cell(const reader *from, const char *cell, size_t length,
                           const char *expected, ls_error *error) {
  char shown[LS_QUOTE_BYTES];
  return ls_fail(error, LS_INPUT, "%s:%d:%d: found \"%s\"; expected %s", from->name, from->line,
                 (int)(cell - from->line_start) + 1, ls_quote(shown, cell, length), expected);
}

static bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}

static void trim(const char **text, size_t *length) {
  while (*length && is_blank(**text)) (*text)++, (*length)--;
  while (*length && is_blank((*text)[*length - 1])) (*length)--;
}

/* Digits at `*at`, which moves past them; false where there are none or too many. */
static bool read_number(const char **at, const char *end, int *number) {
  const char *start = *at;
  *number = 0;
  for (; *at < end && isdigit((unsigned char)**at); (*at)++) {
    if (*number >= MOST_NUMBER / 10) return false;
    *number = *number * 10 + (**at - '0');
  }
  return *at > start;
}

static void add_pass(reader *into, ls_pipeline_pass pass, ls_pipeline_place place) {
  *LS_APPEND(into->arena, &into->lists[into->stage]) = pass;
  *LS_APPEND(into->arena, &into->places[into->stage]) = place;
  if (!into->passes || pass.chunk > into->last_chunk.chunk)
    into->last_chunk = pass, into->chunk_place = place;
  if (!into->passes || pass.microbatch > into->last_microbatch.microbatch)
    into->last_microbatch = pass, into->microbatch_place = place;
  into->passes++;
}

static ls_status read_pass(reader *into, const char *cell, size_t length, ls_error *error) {
  static const char *const derived[] = {"SEND_F",  "RECV_F",  "SEND_B",     "RECV_B",
                                        "UNSHARD", "RESHARD", "REDUCE_GRAD"};
  const char *at = cell, *end = cell + length;
  ls_pipeline_pass pass = {0};
  if (!read_number(&at, end, &pass.chunk))
    return fail_cell(into, cell, length, expected_cell, error);
  for (size_t i = 0; i < sizeof derived / sizeof *derived; i++) {
    const size_t word = strlen(derived[i]);
    if ((size_t)(end - at) >= word && !strncmp(at, derived[i], word)) {
      return fail_cell(into, cell, length,
                       "F, B, I and W alone: transfers and gathers follow from them", error);
    }
  }
  int kind = 0;
  while (kind < LS_PASS_KINDS && (at == end || *at != ls_pass_letter((ls_pass_kind)kind))) kind++;
  if (kind == LS_PASS_KINDS) return fail_cell(into, cell, length, expected_cell, error);
  pass.kind = (ls_pass_kind)kind;
  at++;
  if (!read_number(&at, end, &pass.microbatch) || at != end) {
    return fail_cell(into, cell, length, expected_cell, error);
  }
  if (into->passes == LS_PIPELINE_MOST_PASSES) {
    return fail_cell(into, cell, length, "fewer than 16,777,216 passes before it", error);
  }
  add_pass(into, pass, (ls_pipeline_place){into->line, (int)(cell - into->line_start) + 1});
  return LS_OK;
}

/* PyTorch's "(0F1;3B0)OVERLAP_F_B": here the passes of it, one after the other. */
static ls_status read_overlap(reader *into, const char *cell, size_t length, ls_error *error) {
  static const char word[] = "OVERLAP_F_B";
  const char *close = memchr(cell, ')', length), *end = cell + length;
  if (!close || (size_t)(end - close - 1) != strlen(word) ||
      strncmp(close + 1, word, strlen(word)) != 0) {
    return fail_cell(into, cell, length, "an overlapped pair such as (0F1;3B0)OVERLAP_F_B", error);
  }
  for (const char *at = cell + 1; at <= close;) {
    const char *mark = memchr(at, ';', (size_t)(close - at));
    const char *stop = mark ? mark : close, *part = at;
    size_t part_length = (size_t)(stop - at);
    trim(&part, &part_length);
    LS_TRY(read_pass(into, part, part_length, error));
    at = stop + 1;
  }
  return LS_OK;
}

static ls_status read_line(reader *into, const char *line, size_t length, ls_error *error) {
  const char *whole = line;
  size_t whole_length = length;
  trim(&whole, &whole_length);
  if (!whole_length) return LS_OK;
  if (++into->stage == into->stages) {
    return ls_fail(error, LS_INPUT,
                   "%s:%d:1: found a line for stage %d; expected %d lines, one for each stage",
                   into->name, into->line, into->stage, into->stages);
  }
  into->line_start = line;
  for (const char *at = line, *end = line + length; at <= end;) {
    const char *comma = memchr(at, ',', (size_t)(end - at));
    const char *stop = comma ? comma : end, *cell = at;
    size_t cell_length = (size_t)(stop - at);
    trim(&cell, &cell_length);
    if (cell_length && *cell == '(') {
      LS_TRY(read_overlap(into, cell, cell_length, error));
    } else if (cell_length) {
      LS_TRY(read_pass(into, cell, cell_length, error));
    }
    at = stop + 1;
  }
  return LS_OK;
}

static ls_status read_lines(reader *into, const char *text, size_t bytes, ls_error *error) {
  if (bytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) text += 3, bytes -= 3;
  for (const char *at = text, *end = text + bytes; at < end;) {
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    const char *stop = newline ? newline : end;
    into->line++;
    LS_TRY(read_line(into, at, (size_t)(stop - at), error));
    at = stop + 1;
  }
  if (into->stage + 1 == into->stages) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s:%d: found %d lines; expected %d, one for each stage",
                 into->name, into->line, into->stage + 1, into->stages);
}

/* Sizes that were not given are the highest numbers of the file. One above the number of passes
 * cannot be right, and is refused before tables of that size are made. */
static ls_status take_sizes(const reader *from, int *chunks, int *microbatches, ls_error *error) {
  if (!*chunks) {
    const int chain = from->last_chunk.chunk + 1;
    if (chain % from->stages || chain > from->passes) {
      return ls_fail(error, LS_INPUT,
                     "%s:%d:%d: found chunks up to %d; expected each stage of %d to hold as many",
                     from->name, from->chunk_place.line, from->chunk_place.column, chain - 1,
                     from->stages);
    }
    *chunks = chain / from->stages;
  }
  if (!*microbatches) {
    *microbatches = from->last_microbatch.microbatch + 1;
    if (*microbatches > from->passes) {
      return ls_fail(error, LS_INPUT,
                     "%s:%d:%d: found microbatches up to %d; expected fewer than the %d passes",
                     from->name, from->microbatch_place.line, from->microbatch_place.column,
                     *microbatches - 1, from->passes);
    }
  }
  if (3.0 * from->stages * *chunks * *microbatches <= LS_PIPELINE_MOST_PASSES) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: found %d stages x %d chunks x %d microbatches; expected at most %d passes",
                 from->name, from->stages, *chunks, *microbatches, LS_PIPELINE_MOST_PASSES);
}

/* A chunk lies where the file has it first. */
static ls_status place_chunks(const reader *from, ls_pipeline *pipeline, ls_error *error) {
  const int chain = pipeline->stages * pipeline->chunks;
  for (int c = 0; c < chain; c++) pipeline->stage_of[c] = -1;
  for (int s = 0; s < pipeline->stages; s++) {
    pipeline->lists[s] = from->lists[s];
    for (int i = 0; i < from->lists[s].count; i++) {
      const ls_pipeline_pass *pass = &from->lists[s].items[i];
      const bool split = pass->kind == LS_PASS_INPUT || pass->kind == LS_PASS_WEIGHT;
      if (split) pipeline->splits = true;
      if (pass->chunk < chain && pipeline->stage_of[pass->chunk] < 0)
        pipeline->stage_of[pass->chunk] = s;
    }
  }
  for (int c = 0; c < chain; c++) {
    if (pipeline->stage_of[c] >= 0) continue;
    return ls_fail(error, LS_INPUT, "%s: found no pass of chunk %d; expected chunks 0 to %d",
                   from->name, c, chain - 1);
  }
  return LS_OK;
}

ls_status ls_pipeline_parse_csv(ls_arena *arena, const char *name, const char *text, size_t bytes,
                                int stages, int chunks, int microbatches, ls_pipeline **pipeline,
                                ls_error *error) {
  *pipeline = NULL;
  LS_ASSERT(stages > 0 && chunks >= 0 && microbatches >= 0);
  reader from = {.arena = arena, .name = name, .stages = stages, .stage = -1};
  from.lists = LS_NEW_ARRAY(arena, ls_pipeline_list, stages);
  from.places = LS_NEW_ARRAY(arena, place_list, stages);
  LS_TRY(read_lines(&from, text, bytes, error));
  if (!from.passes) {
    return ls_fail(error, LS_INPUT, "%s: found no passes; expected a line of them for each stage",
                   name);
  }
  LS_TRY(take_sizes(&from, &chunks, &microbatches, error));
  ls_pipeline *read =
      ls_pipeline_new(arena, ls_arena_strdup(arena, name), stages, chunks, microbatches, false);
  LS_TRY(place_chunks(&from, read, error));
  ls_pipeline_place **places = LS_NEW_ARRAY(arena, ls_pipeline_place *, stages);
  for (int s = 0; s < stages; s++) places[s] = from.places[s].items;
  LS_TRY(ls_pipeline_check_at(read, places, error));
  *pipeline = read;
  return LS_OK;
}

void ls_pipeline_write_csv(const ls_pipeline *pipeline, FILE *stream) {
  for (int stage = 0; stage < pipeline->stages; stage++) {
    for (int i = 0; i < pipeline->lists[stage].count; i++) {
      const ls_pipeline_pass *pass = &pipeline->lists[stage].items[i];
      fprintf(stream, "%s%d%c%d", i ? "," : "", pass->chunk, ls_pass_letter(pass->kind),
              pass->microbatch);
    }
    fputc('\n', stream);
  }
}
