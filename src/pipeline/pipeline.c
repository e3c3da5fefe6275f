#include "pipeline/pipeline.h"

#include <string.h>

#include "pipeline/pipeline_make.h"
#include "text/distance.h"
#include "text/quote.h"

char ls_pass_letter(ls_pass_kind kind) {
  LS_ASSERT((unsigned)kind < LS_PASS_KINDS);
  return "FBIW"[kind];
}

static int at_most(int value, int most) {
  return value < most ? value : most;
}

static int one(int stages) {
  (void)stages;
  return 1;
}

/* A rank of DualPipeV fills both arms of the V before its main part. With one stage there is
 * nothing to fill. */
static int both_arms(int stages) {
  return stages == 1 ? 1 : 2 * stages;
}

static double sequential_bubble(int stages, int chunks, int microbatches) {
  (void)chunks, (void)microbatches;
  return (stages - 1) / (double)stages;
}

static double fill_and_drain_bubble(int stages, int chunks, int microbatches) {
  (void)chunks;
  return (stages - 1) / (double)(microbatches + stages - 1);
}

static double interleaved_bubble(int stages, int chunks, int microbatches) {
  if (microbatches % stages) return -1;
  return (stages - 1) / ((double)chunks * microbatches + stages - 1);
}

/* (d - 1)(F + I - W) idle beside m(F + I + W) of work. */
static double zbh1_bubble(int stages, int chunks, int microbatches) {
  (void)chunks;
  if (microbatches < stages) return -1;
  return (stages - 1) / (3.0 * microbatches + stages - 1);
}

static double zero_bubble(int stages, int chunks, int microbatches) {
  (void)chunks;
  return microbatches < 2 * stages - 1 ? -1 : 0;
}

/* The paper gives about d/2m, of the work of one microbatch on a stage, which is 6 here; exact is
 * that the idle time stays below d/2 of these. */
static double vhalf_bubble(int stages, int chunks, int microbatches) {
  (void)chunks;
  if (microbatches < stages) return -1;
  return 3.0 * stages / (6.0 * microbatches + 3.0 * stages);
}

/* Likewise, about 2d/3m. */
static double vmin_bubble(int stages, int chunks, int microbatches) {
  (void)chunks;
  if (microbatches < stages) return -1;
  return 4.0 * stages / (6.0 * microbatches + 4.0 * stages);
}

/* (d - 1)(F&B + B - 3W) beside 2m(F + B) of work, where the overlapped pair F&B takes F + B. As two
 * passes the pair passes its first result on earlier: here d - 1 units are idle, half of that. */
static double dual_bubble(int stages, int chunks, int microbatches) {
  return 2.0 * (stages - 1) / (3.0 * chunks * microbatches + 2.0 * (stages - 1));
}

static int one_in_flight(int stages, int chunks, int microbatches) {
  (void)stages, (void)microbatches;
  return chunks;
}

static int all_in_flight(int stages, int chunks, int microbatches) {
  (void)stages;
  return chunks * microbatches;
}

static int as_many_as_stages(int stages, int chunks, int microbatches) {
  return chunks * at_most(stages, microbatches);
}

static int interleaved_in_flight(int stages, int chunks, int microbatches) {
  if (chunks == 1) return as_many_as_stages(stages, chunks, microbatches);
  if (microbatches % stages) return -1;
  return at_most(chunks * stages + stages - 1, chunks * microbatches);
}

static int twice_the_stages(int stages, int chunks, int microbatches) {
  return chunks * at_most(2 * stages - 1, microbatches);
}

static int vhalf_in_flight(int stages, int chunks, int microbatches) {
  return chunks * at_most((stages + 2) / 2, microbatches);
}

static int vmin_in_flight(int stages, int chunks, int microbatches) {
  return chunks * at_most((stages + 4) / 3, microbatches);
}

static int dual_in_flight(int stages, int chunks, int microbatches) {
  return at_most(2 * stages + 1, chunks * microbatches);
}

const ls_pipeline_kind ls_pipeline_kinds[] = {
    {"sequential", 1, 1, 1, false, LS_BACKWARD_WHOLE, one, sequential_bubble, false, one_in_flight,
     ls_pipeline_make_sequential, "layer-split model parallelism: one microbatch in flight"},
    {"gpipe", 1, 1, 1, false, LS_BACKWARD_WHOLE, one, fill_and_drain_bubble, false, all_in_flight,
     ls_pipeline_make_gpipe, "Huang et al., GPipe, arXiv 1811.06965"},
    {"1f1b", 1, 1, 1, false, LS_BACKWARD_WHOLE, one, fill_and_drain_bubble, false,
     as_many_as_stages, ls_pipeline_make_1f1b,
     "Narayanan et al., Memory-Efficient Pipeline-Parallel DNN Training, arXiv 2006.09503"},
    {"interleaved", 1, 0, 2, false, LS_BACKWARD_WHOLE, one, interleaved_bubble, false,
     interleaved_in_flight, ls_pipeline_make_interleaved,
     "Narayanan et al., Efficient Large-Scale Language Model Training, arXiv 2104.04473"},
    {"zbh1", 1, 1, 1, false, LS_BACKWARD_SPLIT, one, zbh1_bubble, false, as_many_as_stages,
     ls_pipeline_make_zbh1, "Qi et al., Zero Bubble Pipeline Parallelism, arXiv 2401.10241"},
    {"zbh2", 1, 1, 1, false, LS_BACKWARD_SPLIT, one, zero_bubble, false, twice_the_stages,
     ls_pipeline_make_zbh2, "Qi et al., Zero Bubble Pipeline Parallelism, arXiv 2401.10241"},
    {"zbv", 2, 2, 2, true, LS_BACKWARD_SPLIT, one, zero_bubble, false, as_many_as_stages,
     ls_pipeline_make_zbv, "Qi et al., Zero Bubble Pipeline Parallelism, arXiv 2401.10241, ZB-V"},
    {"vhalf", 2, 2, 2, true, LS_BACKWARD_SPLIT, one, vhalf_bubble, true, vhalf_in_flight,
     ls_pipeline_make_vhalf,
     "Qi et al., Pipeline Parallelism with Controllable Memory, arXiv 2405.15362, V-Half"},
    {"vmin", 2, 2, 2, true, LS_BACKWARD_SPLIT, one, vmin_bubble, true, vmin_in_flight,
     ls_pipeline_make_vmin,
     "Qi et al., Pipeline Parallelism with Controllable Memory, arXiv 2405.15362, V-Min"},
    {"dualpipev", 2, 2, 2, true, LS_BACKWARD_MIXED, both_arms, dual_bubble, true, dual_in_flight,
     ls_pipeline_make_dualpipev, "DeepSeek-AI, DualPipe (2025), DualPipeV"},
};
const int ls_pipeline_kind_count = sizeof ls_pipeline_kinds / sizeof *ls_pipeline_kinds;

ls_status ls_pipeline_kind_find(const char *name, const ls_pipeline_kind **kind, ls_error *error) {
  const char *names[sizeof ls_pipeline_kinds / sizeof *ls_pipeline_kinds];
  char list[256] = "", shown[LS_QUOTE_BYTES];
  size_t length = 0;
  for (int i = 0; i < ls_pipeline_kind_count; i++) {
    *kind = &ls_pipeline_kinds[i];
    if (!strcmp(name, (*kind)->name)) return LS_OK;
  }
  for (int i = 0; i < ls_pipeline_kind_count; i++) {
    names[i] = ls_pipeline_kinds[i].name;
    length +=
        (size_t)snprintf(list + length, sizeof list - length, "%s%s", i ? ", " : "", names[i]);
    LS_ASSERT(length < sizeof list);
  }
  *kind = NULL;
  const char *near = ls_nearest(name, names, ls_pipeline_kind_count);
  ls_quote(shown, name, strlen(name));
  return ls_fail(error, LS_INPUT, "found schedule \"%s\"%s%s%s; expected one of %s, or a CSV file",
                 shown, near ? " (did you mean " : "", near ? near : "", near ? "?)" : "", list);
}

ls_pipeline *ls_pipeline_new(ls_arena *arena, const char *name, int stages, int chunks,
                             int microbatches, bool folded) {
  ls_pipeline *pipeline = LS_NEW(arena, ls_pipeline);
  const int chain = stages * chunks;
  *pipeline = (ls_pipeline){.name = name,
                            .stages = stages,
                            .chunks = chunks,
                            .microbatches = microbatches,
                            .stage_of = LS_NEW_ARRAY(arena, int, chain),
                            .lists = LS_NEW_ARRAY(arena, ls_pipeline_list, stages)};
  for (int c = 0; c < chain; c++) {
    const int along = c % stages;
    pipeline->stage_of[c] = folded && c / stages % 2 ? stages - 1 - along : along;
  }
  return pipeline;
}

void ls_pipeline_append(ls_arena *arena, ls_pipeline *pipeline, int stage, ls_pass_kind kind,
                        int chunk, int microbatch) {
  *LS_APPEND(arena, &pipeline->lists[stage]) =
      (ls_pipeline_pass){.kind = kind, .microbatch = microbatch, .chunk = chunk};
  if (kind == LS_PASS_INPUT || kind == LS_PASS_WEIGHT) pipeline->splits = true;
}

void ls_pipeline_append_weight(ls_arena *arena, ls_pipeline *pipeline, int stage, int *place) {
  const ls_pipeline_list *list = &pipeline->lists[stage];
  while (*place < list->count && list->items[*place].kind != LS_PASS_INPUT) ++*place;
  LS_ASSERT(*place < list->count);
  const ls_pipeline_pass input = list->items[(*place)++];
  ls_pipeline_append(arena, pipeline, stage, LS_PASS_WEIGHT, input.chunk, input.microbatch);
}

static ls_status check_chunks(const ls_pipeline_kind *kind, int chunks, ls_error *error) {
  if (chunks < kind->least_chunks) {
    return ls_fail(error, LS_INPUT, "schedule %s: found %d chunks per stage; expected at least %d",
                   kind->name, chunks, kind->least_chunks);
  }
  if (!kind->most_chunks || chunks <= kind->most_chunks) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "schedule %s: found %d chunks per stage; expected %d: give chunks: %d, or "
                 "schedule: interleaved, which takes any count",
                 kind->name, chunks, kind->most_chunks, kind->most_chunks);
}

ls_status ls_pipeline_make(ls_arena *arena, const ls_pipeline_kind *kind, int stages, int chunks,
                           int microbatches, ls_pipeline **pipeline, ls_error *error) {
  *pipeline = NULL;
  if (stages < 1) {
    return ls_fail(error, LS_INPUT, "schedule %s: found %d stages; expected at least 1", kind->name,
                   stages);
  }
  if (!chunks) chunks = kind->usual_chunks;
  LS_TRY(check_chunks(kind, chunks, error));
  const int fewest = kind->fewest_microbatches(stages);
  if (microbatches < fewest) {
    return ls_fail(error, LS_INPUT,
                   "schedule %s: found %d microbatches; expected at least %d on %d stage%s: give "
                   "more microbatches%s",
                   kind->name, microbatches, fewest, stages, stages == 1 ? "" : "s",
                   fewest > 1 ? ", or schedule: zbv, which takes any count" : "");
  }
  const double passes = 3.0 * stages * chunks * microbatches;
  if (passes > LS_PIPELINE_MOST_PASSES) {
    return ls_fail(error, LS_INPUT,
                   "schedule %s: found %d stages x %d chunks x %d microbatches, %.0f passes; "
                   "expected at most %d: give larger microbatches",
                   kind->name, stages, chunks, microbatches, passes, LS_PIPELINE_MOST_PASSES);
  }
  *pipeline = ls_pipeline_new(arena, kind->name, stages, chunks, microbatches, kind->folded);
  kind->make(arena, *pipeline);
  return LS_OK;
}
