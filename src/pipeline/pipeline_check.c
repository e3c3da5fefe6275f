/* Whether a pipeline's lists hold every pass once, in an order that can be executed. */
#include "pipeline/pipeline_make.h"

/* Where each pass stands in its stage's list, from 1; 0: nowhere. */
typedef struct census {
  const ls_pipeline *pipeline;
  ls_pipeline_place *const *places;
  int *at[LS_PASS_KINDS]; /* [chunk * microbatches + microbatch] */
} census;

enum { PLACE_BYTES = 48 };

/* ":LINE:COLUMN" in a file, ": stage S, pass I" in a pipeline that was made. */
static const char *place_of(const census *all, int stage, int i, char text[PLACE_BYTES]) {
  if (all->places) {
    const ls_pipeline_place *place = &all->places[stage][i];
    snprintf(text, PLACE_BYTES, ":%d:%d", place->line, place->column);
  } else {
    snprintf(text, PLACE_BYTES, ": stage %d, pass %d", stage, i);
  }
  return text;
}

static int pair_of(const census *all, const ls_pipeline_pass *pass) {
  return pass->chunk * all->pipeline->microbatches + pass->microbatch;
}

/* ":LINE" of a stage in a file, nothing for a pipeline that was made. */
static const char *line_of(const census *all, int stage, char text[PLACE_BYTES]) {
  text[0] = '\0';
  if (all->places && all->pipeline->lists[stage].count)
    snprintf(text, PLACE_BYTES, ":%d", all->places[stage][0].line);
  return text;
}

static ls_status check_placement(const census *all, int *held, ls_error *error) {
  const ls_pipeline *pipeline = all->pipeline;
  char line[PLACE_BYTES];
  const int chain = pipeline->stages * pipeline->chunks;
  for (int c = 0; c < chain; c++) {
    const int stage = pipeline->stage_of[c];
    if (stage < 0 || stage >= pipeline->stages) {
      return ls_fail(error, LS_INPUT, "%s: found chunk %d on stage %d; expected 0 to %d",
                     pipeline->name, c, stage, pipeline->stages - 1);
    }
    held[stage]++;
  }
  for (int stage = 0; stage < pipeline->stages; stage++) {
    if (held[stage] == pipeline->chunks) continue;
    return ls_fail(error, LS_INPUT,
                   "%s%s: found %d chunks on stage %d; expected %d on each of %d stages",
                   pipeline->name, line_of(all, stage, line), held[stage], stage, pipeline->chunks,
                   pipeline->stages);
  }
  return LS_OK;
}

static ls_status check_range(const census *all, int stage, int i, ls_error *error) {
  const ls_pipeline *pipeline = all->pipeline;
  const ls_pipeline_pass *pass = &pipeline->lists[stage].items[i];
  const int chain = pipeline->stages * pipeline->chunks;
  char place[PLACE_BYTES];
  place_of(all, stage, i, place);
  if ((unsigned)pass->kind >= LS_PASS_KINDS) {
    return ls_fail(error, LS_INPUT, "%s%s: found a pass of kind %d; expected F, B, I or W",
                   pipeline->name, place, (int)pass->kind);
  }
  const char letter = ls_pass_letter(pass->kind);
  if (pass->chunk < 0 || pass->chunk >= chain) {
    return ls_fail(error, LS_INPUT,
                   "%s%s: found %d%c%d; expected a chunk of 0 to %d: %d stages of %d chunks",
                   pipeline->name, place, pass->chunk, letter, pass->microbatch, chain - 1,
                   pipeline->stages, pipeline->chunks);
  }
  if (pass->microbatch < 0 || pass->microbatch >= pipeline->microbatches) {
    return ls_fail(error, LS_INPUT, "%s%s: found %d%c%d; expected a microbatch of 0 to %d",
                   pipeline->name, place, pass->chunk, letter, pass->microbatch,
                   pipeline->microbatches - 1);
  }
  if (pipeline->stage_of[pass->chunk] != stage) {
    return ls_fail(error, LS_INPUT,
                   "%s%s: found %d%c%d on stage %d; expected it on stage %d, which holds chunk %d",
                   pipeline->name, place, pass->chunk, letter, pass->microbatch, stage,
                   pipeline->stage_of[pass->chunk], pass->chunk);
  }
  return LS_OK;
}

static ls_status take(census *all, int stage, int i, ls_error *error) {
  const ls_pipeline *pipeline = all->pipeline;
  const ls_pipeline_pass *pass = &pipeline->lists[stage].items[i];
  char place[PLACE_BYTES], before[PLACE_BYTES];
  LS_TRY(check_range(all, stage, i, error));
  const int pair = pair_of(all, pass);
  const ls_pass_kind other = pass->kind == LS_PASS_BACKWARD  ? LS_PASS_INPUT
                             : pass->kind == LS_PASS_FORWARD ? LS_PASS_FORWARD
                                                             : LS_PASS_BACKWARD;
  int *at = &all->at[pass->kind][pair];
  int first = *at ? *at : all->at[other][pair];
  if (!first && pass->kind == LS_PASS_BACKWARD) first = all->at[LS_PASS_WEIGHT][pair];
  if (!first) {
    *at = i + 1;
    return LS_OK;
  }
  const ls_pipeline_pass *earlier = &pipeline->lists[stage].items[first - 1];
  return ls_fail(error, LS_INPUT,
                 "%s%s: found %d%c%d, and %d%c%d%s before it; expected each pass once: one F and "
                 "either one B or one I and one W",
                 pipeline->name, place_of(all, stage, i, place), pass->chunk,
                 ls_pass_letter(pass->kind), pass->microbatch, earlier->chunk,
                 ls_pass_letter(earlier->kind), earlier->microbatch,
                 place_of(all, stage, first - 1, before));
}

static ls_status check_whole(const census *all, int chunk, int microbatch, ls_error *error) {
  const ls_pipeline *pipeline = all->pipeline;
  const int pair = chunk * pipeline->microbatches + microbatch;
  const bool forward = all->at[LS_PASS_FORWARD][pair], backward = all->at[LS_PASS_BACKWARD][pair];
  const bool input = all->at[LS_PASS_INPUT][pair], weight = all->at[LS_PASS_WEIGHT][pair];
  char missing = 0, line[PLACE_BYTES];
  if (!forward) missing = 'F';
  if (forward && !backward && !input) missing = weight ? 'I' : 'B';
  if (forward && input && !weight) missing = 'W';
  if (!missing) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s%s: found no %d%c%d; expected it on stage %d: each chunk has one F and either "
                 "one B or one I and one W of each of the %d microbatches",
                 pipeline->name, line_of(all, pipeline->stage_of[chunk], line), chunk, missing,
                 microbatch, pipeline->stage_of[chunk], pipeline->microbatches);
}

static ls_status check_before(const census *all, int stage, int i, ls_error *error) {
  const ls_pipeline_pass *pass = &all->pipeline->lists[stage].items[i];
  if (pass->kind == LS_PASS_FORWARD) return LS_OK;
  const ls_pass_kind needed = pass->kind == LS_PASS_WEIGHT ? LS_PASS_INPUT : LS_PASS_FORWARD;
  const int at = all->at[needed][pair_of(all, pass)];
  char place[PLACE_BYTES], after[PLACE_BYTES];
  if (at <= i) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s%s: found %d%c%d before %d%c%d%s; expected it after that",
                 all->pipeline->name, place_of(all, stage, i, place), pass->chunk,
                 ls_pass_letter(pass->kind), pass->microbatch, pass->chunk, ls_pass_letter(needed),
                 pass->microbatch, place_of(all, stage, at - 1, after));
}

static ls_status check_passes(census *all, ls_error *error) {
  const ls_pipeline *pipeline = all->pipeline;
  for (int stage = 0; stage < pipeline->stages; stage++)
    for (int i = 0; i < pipeline->lists[stage].count; i++) LS_TRY(take(all, stage, i, error));
  for (int c = 0; c < pipeline->stages * pipeline->chunks; c++)
    for (int m = 0; m < pipeline->microbatches; m++) LS_TRY(check_whole(all, c, m, error));
  for (int stage = 0; stage < pipeline->stages; stage++)
    for (int i = 0; i < pipeline->lists[stage].count; i++)
      LS_TRY(check_before(all, stage, i, error));
  return LS_OK;
}

static ls_status check_all(ls_arena *arena, const ls_pipeline *pipeline,
                           ls_pipeline_place *const *places, ls_error *error) {
  if (pipeline->stages < 1 || pipeline->chunks < 1 || pipeline->microbatches < 1 ||
      3.0 * pipeline->stages * pipeline->chunks * pipeline->microbatches >
          LS_PIPELINE_MOST_PASSES) {
    return ls_fail(error, LS_INPUT,
                   "%s: found %d stages x %d chunks x %d microbatches; expected at least one of "
                   "each and %d passes at most",
                   pipeline->name, pipeline->stages, pipeline->chunks, pipeline->microbatches,
                   LS_PIPELINE_MOST_PASSES);
  }
  census all = {.pipeline = pipeline, .places = places};
  LS_TRY(check_placement(&all, LS_NEW_ARRAY(arena, int, pipeline->stages), error));
  const int pairs = pipeline->stages * pipeline->chunks * pipeline->microbatches;
  for (int kind = 0; kind < LS_PASS_KINDS; kind++) all.at[kind] = LS_NEW_ARRAY(arena, int, pairs);
  LS_TRY(check_passes(&all, error));
  return ls_pipeline_executes(arena, pipeline, places, error);
}

ls_status ls_pipeline_check_at(const ls_pipeline *pipeline, ls_pipeline_place *const *places,
                               ls_error *error) {
  ls_arena *arena = ls_arena_create();
  const ls_status status = check_all(arena, pipeline, places, error);
  ls_arena_destroy(&arena);
  return status;
}

ls_status ls_pipeline_check(const ls_pipeline *pipeline, ls_error *error) {
  return ls_pipeline_check_at(pipeline, NULL, error);
}
