/* Candidates: what the numbers of a problem allow, and what is next to a layout. */
#include <string.h>

#include "pipeline/pipeline.h"
#include "plan/ahead.h"

enum { MOST_MICRO_BATCH = 64, MOST_MICROBATCHES = 1024, MOST_CHUNKS = 8 };
/* A sequence is cut into parts of no fewer tokens, unless a user says so. */
enum { LEAST_PART = 2048 };

/* What a layout makes again, in the order in which it costs more time and less memory. */
static const char *const recompute_words[] = {"none", "selective", "full"};
enum { RECOMPUTE_WORDS = 3 };

static void set_recompute(ls_layout *layout, int word) {
  layout->recompute = word == 0   ? (ls_op_set){0}
                      : word == 1 ? ls_op_set_cheap()
                                  : (ls_op_set)LS_EVERY_OP;
  layout->recompute_of = NULL;
  layout->recompute_of_count = 0;
}

static bool same_recompute(const ls_layout *a, const ls_layout *b) {
  if (a->recompute_of_count != b->recompute_of_count) return false;
  for (int s = 0; s < a->recompute_of_count; s++)
    if (!ls_op_set_equal(&a->recompute_of[s], &b->recompute_of[s])) return false;
  return a->recompute_of_count || ls_op_set_equal(&a->recompute, &b->recompute);
}

static int recompute_word(const ls_layout *layout) {
  for (int w = 0; w < RECOMPUTE_WORDS; w++) {
    ls_layout as = *layout;
    set_recompute(&as, w);
    if (same_recompute(&as, layout)) return w;
  }
  return -1;
}

const char *ls_plan_recompute_name(const ls_layout *layout) {
  if (layout->recompute_of_count) return "budget";
  const int word = recompute_word(layout);
  return word < 0 ? "ops" : recompute_words[word];
}

static bool is_zero_1(const ls_layout *layout) {
  return layout->zero == 1 || (layout->zero == 2 && ls_layout_once_a_step(layout, layout->reduce));
}

static bool same_times(const ls_layout *a, const ls_layout *b) {
  return ls_layout_once_a_step(a, a->gather) == ls_layout_once_a_step(b, b->gather) &&
         ls_layout_once_a_step(a, a->reduce) == ls_layout_once_a_step(b, b->reduce) &&
         a->prefetch == b->prefetch;
}

/* Of ZeRO-1 and a ZeRO-2 that is the same, the first is looked at, unless the other is held. */
static bool is_another(const ls_plan_problem *problem, const ls_layout *layout) {
  return layout->zero == 2 && is_zero_1(layout) && !problem->held.zero;
}

bool ls_plan_same(const ls_layout *a, const ls_layout *b) {
  for (int x = 0; x < LS_LAYOUT_AXES; x++)
    if (ls_layout_size(a, x) != ls_layout_size(b, x)) return false;
  return (a->zero == b->zero || (is_zero_1(a) && is_zero_1(b))) &&
         a->microbatches == b->microbatches && a->chunks == b->chunks &&
         strcmp(a->schedule, b->schedule) == 0 && same_recompute(a, b) &&
         a->offload.optimizer == b->offload.optimizer &&
         a->offload.parameters == b->offload.parameters && same_times(a, b) &&
         a->sequence_parallel == b->sequence_parallel && a->ep == b->ep &&
         a->whole_experts == b->whole_experts && ls_layout_turns(a) == ls_layout_turns(b) &&
         ls_layout_head_ranks(a) == ls_layout_head_ranks(b);
}

/* What waits on the host: nothing, the optimizer's state, parameters too. */
enum { NOTHING_AWAY = 0, OPTIMIZER_AWAY, PARAMETERS_AWAY, AWAY_COUNT };

static void set_away(ls_layout *layout, int away) {
  layout->offload.optimizer = away >= OPTIMIZER_AWAY ? LS_TIER_HOST : LS_TIER_DEVICE;
  layout->offload.parameters = away >= PARAMETERS_AWAY ? LS_TIER_HOST : LS_TIER_DEVICE;
  layout->offload.optimizer_fraction = 1;
}

static bool holds(const ls_plan_problem *problem, const ls_layout *layout) {
  const ls_plan_held *held = &problem->held;
  const ls_layout *base = &problem->base;
  for (int x = 0; x < LS_LAYOUT_AXES; x++)
    if (held->axis[x] && ls_layout_size(layout, x) != ls_layout_size(base, x)) return false;
  return (!held->zero || layout->zero == base->zero) && (!held->ep || layout->ep == base->ep) &&
         (!held->whole_experts || layout->tp == 1 ||
          layout->whole_experts == base->whole_experts) &&
         (!held->schedule || strcmp(layout->schedule, base->schedule) == 0) &&
         (!held->chunks || base->chunks == 0 || layout->chunks == base->chunks) &&
         (!held->recompute || ls_op_set_equal(&layout->recompute, &base->recompute)) &&
         (!held->offload || (layout->offload.optimizer == base->offload.optimizer &&
                             layout->offload.parameters == base->offload.parameters)) &&
         (!held->sequence_parallel || layout->tp == 1 ||
          layout->sequence_parallel == base->sequence_parallel) &&
         (!held->reduce || layout->reduce == base->reduce) &&
         (!held->prefetch || layout->prefetch == base->prefetch);
}

/* Sequences of a microbatch are divided before one is cut: with as many tokens a rank, nobody waits
 * for others' keys. */
static bool should_cut(const ls_plan_problem *problem, const ls_layout *layout) {
  const ls_plan_held *held = &problem->held;
  if (layout->cp == 1 || held->axis[LS_LAYOUT_CP]) return true;
  const int64_t each = problem->training->batch / ls_layout_data_ranks(layout);
  const int64_t micro_batch = each / layout->microbatches;
  return problem->training->sequence / layout->cp >= LEAST_PART &&
         (micro_batch == 1 || held->axis[LS_LAYOUT_DP_SHARD] || held->micro_batch);
}

/* All ranks of cp, of tp where experts are whole, and some that share data, have as many experts
 * each (shard/strategy.c). */
static bool can_share_experts(const ls_plan_problem *problem, const ls_layout *layout) {
  const int64_t experts = problem->training->model->experts;
  const int64_t sequence = problem->training->sequence;
  const int inside = ls_layout_expert_ranks_inside(layout);
  if (layout->whole_experts && (!layout->sequence_parallel || sequence % inside)) return false;
  return (layout->ep == 1 && !layout->whole_experts) ||
         (experts > 0 && layout->ep > 0 && experts % layout->ep == 0 && layout->ep % inside == 0 &&
          ls_layout_shards(layout) % (layout->ep / inside) == 0);
}

/* Most ranks that may have experts of their own. */
static int most_expert_ranks(const ls_plan_problem *problem, const ls_layout *layout) {
  if (!problem->training->model->experts) return 1;
  return ls_layout_shards(layout) * ls_layout_expert_ranks_inside(layout);
}

/* As many ranks with experts of their own as before or fewer, whole ones if that can be. */
static void fit_experts(const ls_plan_problem *problem, ls_layout *layout) {
  const int ep = layout->ep;
  while (layout->ep > 0 && !can_share_experts(problem, layout)) layout->ep--;
  if (layout->ep) return;
  layout->whole_experts = false;
  layout->ep = ep;
  while (!can_share_experts(problem, layout)) layout->ep--;
}

static bool can_share_tokens(const ls_plan_problem *problem, const ls_layout *layout) {
  return problem->training->sequence % (layout->cp > 1 ? 2 * layout->cp : 1) == 0 &&
         should_cut(problem, layout) && can_share_experts(problem, layout);
}

/* ZeRO shards over cp too, at no cost: without it cp is looked at only where zero=0 is held. */
static bool can_shard(const ls_plan_problem *problem, const ls_layout *layout) {
  if (layout->zero) return ls_layout_state_ranks(layout) > 1;
  return ls_layout_shards(layout) == 1 && (layout->cp == 1 || problem->held.zero);
}

/* What the numbers of model, batch and devices allow. */
static bool can_be(const ls_plan_problem *problem, const ls_layout *layout) {
  const ls_model_config *model = problem->training->model;
  const int64_t batch = problem->training->batch;
  const int data = ls_layout_data_ranks(layout);
  const int chunks = layout->chunks > 0 ? layout->chunks : 1;
  return ls_layout_ranks(layout) == problem->devices && batch % data == 0 &&
         layout->microbatches >= 1 && batch / data % layout->microbatches == 0 &&
         layout->microbatches <= MOST_MICROBATCHES && model->heads % layout->tp == 0 &&
         (int64_t)layout->pp * chunks <= model->layers && can_share_tokens(problem, layout) &&
         can_shard(problem, layout);
}

/* Bytes that lie on a device between steps at least, or on its host for it: no stage has less than
 * its part of all. */
static double least_state(const ls_layout *layout, const ls_plan_sizes *sizes, ls_tier tier) {
  const double shards = layout->zero ? ls_layout_state_ranks(layout) : 1;
  const double ranks = layout->pp * layout->tp;
  const double elsewhere = 1 - 1.0 / ls_layout_expert_cuts(layout);
  double bytes = 0;
  if (layout->offload.parameters == tier)
    bytes = layout->zero == 3 ? sizes->bytes / shards
                              : sizes->bytes - sizes->expert_bytes * elsewhere -
                                    (double)ls_dtype_bytes(layout->compute) *
                                        sizes->rounded_trained * (1 - 1 / shards);
  const bool all = tier == LS_TIER_DEVICE || !(layout->offload.optimizer_fraction < 1);
  if (layout->offload.optimizer == tier && all)
    for (int part = LS_PART_MASTER; part <= LS_PART_CODES2; part++)
      if (ls_optimizer_keeps(&layout->optimizer, 0, (ls_state_part)part) &&
          (part != LS_PART_MASTER || ls_dtype_bytes(layout->compute) < 4))
        bytes += (double)ls_dtype_bytes(ls_state_dtype(layout, (ls_state_part)part, LS_COMPUTE)) *
                 sizes->trained / shards;
  return bytes / ranks;
}

static bool may_fit(const ls_plan_problem *problem, const ls_layout *layout,
                    const ls_plan_sizes *of) {
  return (!problem->limit || least_state(layout, of, LS_TIER_DEVICE) <= (double)problem->limit) &&
         (!problem->host_limit ||
          least_state(layout, of, LS_TIER_HOST) <= (double)problem->host_limit);
}

static void add(const ls_plan_problem *problem, const ls_layout *layout, ls_plan_candidates *to) {
  if (!can_be(problem, layout) || !holds(problem, layout)) return;
  const int64_t micro_batch =
      problem->training->batch / ls_layout_data_ranks(layout) / layout->microbatches;
  const ls_plan_held *held = &problem->held;
  if (held->micro_batch && micro_batch != held->micro_batch) return;
  if (held->microbatches && layout->microbatches != held->microbatches) return;
  to->seen++;
  if (to->sizes.bytes > 0 && !may_fit(problem, layout, &to->sizes)) return;
  if (!to->arena) { /* they are counted */
    to->list.count++;
    return;
  }
  *LS_APPEND(to->arena, &to->list) =
      (ls_plan_candidate){.layout = *layout, .micro_batch = micro_batch};
}

/* Weights that each rank of several stores whole stay on the device. */
static void add_away(const ls_plan_problem *problem, ls_layout layout, ls_plan_candidates *to) {
  if (problem->held.offload || !(problem->performance->host_per_s > 0)) {
    add(problem, &layout, to);
    return;
  }
  const bool whole = layout.zero < 3 && ls_layout_state_ranks(&layout) > 1;
  const int count = whole ? AWAY_COUNT - 1 : AWAY_COUNT;
  for (int away = 0; away < count; away++) {
    set_away(&layout, away);
    add(problem, &layout, to);
  }
}

static void add_recompute(const ls_plan_problem *problem, ls_layout layout,
                          ls_plan_candidates *to) {
  if (problem->held.recompute) {
    add_away(problem, layout, to);
    return;
  }
  for (int w = 0; w < RECOMPUTE_WORDS; w++) {
    set_recompute(&layout, w);
    add_away(problem, layout, to);
  }
}

/* How many chunks of a stage a schedule is tried with: twice as many as usual and so on, and what
 * cuts the layers evenly. */
static bool is_tried(const ls_plan_problem *problem, const ls_pipeline_kind *kind, int pp,
                     int chunks) {
  const int times = chunks / kind->usual_chunks;
  return (chunks % kind->usual_chunks == 0 && (times & (times - 1)) == 0) ||
         problem->training->model->layers % ((int64_t)pp * chunks) == 0;
}

static void add_schedules(const ls_plan_problem *problem, ls_layout layout,
                          ls_plan_candidates *to) {
  if (layout.pp == 1) {
    add_recompute(problem, layout, to);
    return;
  }
  for (int k = 0; k < ls_pipeline_kind_count; k++) {
    const ls_pipeline_kind *kind = &ls_pipeline_kinds[k];
    if (layout.microbatches < kind->fewest_microbatches(layout.pp)) continue;
    layout.schedule = kind->name;
    const int most = kind->most_chunks ? kind->most_chunks : MOST_CHUNKS;
    for (int chunks = kind->usual_chunks; chunks <= most; chunks++) {
      layout.chunks = chunks;
      if (is_tried(problem, kind, layout.pp, chunks)) add_recompute(problem, layout, to);
    }
  }
}

static void add_microbatches(const ls_plan_problem *problem, ls_layout layout,
                             ls_plan_candidates *to) {
  const int64_t each = problem->training->batch / ls_layout_data_ranks(&layout);
  for (int64_t micro = 1; micro <= each && micro <= MOST_MICRO_BATCH; micro++) {
    if (each % micro || each / micro > MOST_MICROBATCHES) continue;
    layout.microbatches = (int)(each / micro);
    add_schedules(problem, layout, to);
  }
}

static void add_experts(const ls_plan_problem *problem, ls_layout layout, ls_plan_candidates *to) {
  for (int whole = 0; whole < (layout.sequence_parallel ? 2 : 1); whole++) {
    layout.whole_experts = whole;
    const int most = most_expert_ranks(problem, &layout);
    for (layout.ep = 1; layout.ep <= most; layout.ep++)
      if (can_share_experts(problem, &layout)) add_microbatches(problem, layout, to);
  }
}

/* Data-parallel ranks cut into replicas of shard groups, with each way to shard. */
static void add_data(const ls_plan_problem *problem, ls_layout layout, int data,
                     ls_plan_candidates *to) {
  if (problem->training->batch % data) return;
  for (int shards = 1; shards <= data; shards++) {
    if (data % shards) continue;
    ls_layout_set_data_ranks(&layout, data / shards, shards);
    for (layout.zero = 0; layout.zero <= 3; layout.zero++)
      if (can_shard(problem, &layout) && !is_another(problem, &layout))
        add_experts(problem, layout, to);
  }
}

/* Ranks of cp, which divide each sequence; the data axes have what they leave. */
static void add_context(const ls_plan_problem *problem, ls_layout layout, int rest,
                        ls_plan_candidates *to) {
  for (int cp = 1; cp <= rest; cp++) {
    if (rest % cp || problem->training->sequence % cp) continue;
    if (cp > 1 && problem->training->sequence / cp < LEAST_PART &&
        !problem->held.axis[LS_LAYOUT_CP])
      break;
    layout.cp = cp;
    add_data(problem, layout, rest / cp, to);
  }
}

/* Layouts of so many stages. */
static void enumerate(const ls_plan_problem *problem, int pp, ls_plan_candidates *to) {
  const ls_model_config *model = problem->training->model;
  const int rest = problem->devices / pp;
  for (int tp = 1; tp <= rest && tp <= model->heads; tp++) {
    if (rest % tp || model->heads % tp) continue;
    ls_layout layout = problem->base;
    layout.pp = pp;
    layout.tp = tp;
    if (pp == 1) layout.schedule = "1f1b", layout.chunks = 1;
    for (int whole = 0; whole < (tp > 1 ? 2 : 1); whole++) {
      layout.sequence_parallel = tp > 1 && !whole;
      add_context(problem, layout, rest / tp, to);
    }
  }
}

/* By pp, each with its own part of one list. */
typedef struct parts {
  const ls_plan_problem *problem;
  int *pp;
  ls_plan_candidates *items;
} parts;

static void enumerate_turn(void *work, int at) {
  const parts *of = work;
  of->items[at].list.count = 0;
  of->items[at].seen = 0;
  enumerate(of->problem, of->pp[at], &of->items[at]);
}

static int list_stages(const ls_plan_problem *problem, int *pp) {
  int count = 0;
  for (int each = 1; each <= problem->devices && each <= problem->training->model->layers; each++)
    if (problem->devices % each == 0) pp[count++] = each;
  return count;
}

/* They are counted first: a list of so many that grows would need as much memory again. */
void ls_plan_enumerate(const ls_plan_problem *problem, ls_plan_candidates *to) {
  ls_arena *scratch = ls_arena_create();
  parts of = {problem, LS_NEW_ARRAY(scratch, int, problem->training->model->layers + 1), NULL};
  const int count = list_stages(problem, of.pp);
  of.items = LS_NEW_ARRAY(scratch, ls_plan_candidates, count + 1);
  int all = 0;
  for (int p = 0; p < count; p++) of.items[p].sizes = to->sizes;
  ls_plan_share(count, enumerate_turn, &of);
  for (int p = 0; p < count; p++) {
    all += of.items[p].list.count;
    to->seen += of.items[p].seen;
  }
  to->list.items = LS_NEW_ARRAY(to->arena, ls_plan_candidate, all + 1);
  to->list.count = to->list.capacity = all;
  for (int p = 0, first = 0; p < count; p++) {
    const int own = of.items[p].list.count;
    of.items[p].arena = to->arena; /* it has room: nothing is taken of it */
    of.items[p].list.items = &to->list.items[first];
    of.items[p].list.capacity = own;
    first += own;
  }
  ls_plan_share(count, enumerate_turn, &of);
  ls_arena_destroy(&scratch);
}

/* The smallest factor of a number above another: 12 after 2 is 3. 0: there is none. */
static int next_factor(int number, int after) {
  for (int factor = 2; factor <= number; factor++) {
    if (number % factor) continue;
    if (factor > after) return factor;
    while (number % factor == 0) number /= factor;
  }
  return 0;
}

/* Moves a prime factor from one axis to another. */
static void add_exchange(const ls_plan_problem *problem, const ls_layout *of, int from, int into,
                         int factor, ls_plan_candidates *to) {
  ls_layout layout = *of;
  ls_layout_set_size(&layout, from, ls_layout_size(of, from) / factor);
  ls_layout_set_size(&layout, into, factor * ls_layout_size(of, into));
  const int64_t each = problem->training->batch / ls_layout_data_ranks(&layout);
  const int64_t micro = problem->training->batch / ls_layout_data_ranks(of) / of->microbatches;
  layout.microbatches = (int)(each / micro > 0 ? each / micro : 1);
  layout.sequence_parallel =
      layout.tp > 1 && (of->tp > 1 ? of->sequence_parallel : problem->base.sequence_parallel);
  layout.whole_experts = of->whole_experts && layout.tp > 1;
  fit_experts(problem, &layout);
  if (!can_shard(problem, &layout)) layout.zero = layout.zero ? 0 : 1;
  if (layout.pp == 1) layout.schedule = "1f1b", layout.chunks = 1;
  while (layout.pp > of->pp && layout.chunks % 2 == 0 &&
         (int64_t)layout.pp * layout.chunks > problem->training->model->layers)
    layout.chunks /= 2;
  add(problem, &layout, to);
}

static void add_exchanges(const ls_plan_problem *problem, const ls_layout *of,
                          ls_plan_candidates *to) {
  for (int from = 0; from < LS_LAYOUT_AXES; from++)
    for (int factor = 1; (factor = next_factor(ls_layout_size(of, from), factor)) > 0;)
      for (int into = 0; into < LS_LAYOUT_AXES; into++)
        if (into != from) add_exchange(problem, of, from, into, factor, to);
}

/* More or fewer microbatches by a prime factor. */
static void add_batches(const ls_plan_problem *problem, const ls_layout *of,
                        ls_plan_candidates *to) {
  const int64_t micro = problem->training->batch / ls_layout_data_ranks(of) / of->microbatches;
  ls_layout layout = *of;
  for (int factor = 1; (factor = next_factor(of->microbatches, factor)) > 0;) {
    layout.microbatches = of->microbatches / factor;
    add(problem, &layout, to);
  }
  for (int factor = 1; (factor = next_factor((int)micro, factor)) > 0;) {
    layout.microbatches = of->microbatches * factor;
    add(problem, &layout, to);
  }
}

static void add_ways_to_shard(const ls_plan_problem *problem, const ls_layout *of,
                              ls_plan_candidates *to) {
  ls_layout layout = *of;
  for (layout.zero = 1; layout.zero <= 3; layout.zero++)
    if (layout.zero != of->zero && !is_another(problem, &layout)) add(problem, &layout, to);
}

/* More or fewer ranks with experts of their own; other ways to come by all keys of a sequence. */
static void add_shares(const ls_plan_problem *problem, const ls_layout *of,
                       ls_plan_candidates *to) {
  ls_layout layout = *of;
  for (int whole = 0; whole < (of->sequence_parallel ? 2 : 1); whole++) {
    layout.whole_experts = whole;
    const int most = most_expert_ranks(problem, &layout);
    for (layout.ep = 1; layout.ep <= most; layout.ep++)
      if (!ls_plan_same(&layout, of)) add(problem, &layout, to);
  }
  layout = *of;
  for (int kind = 0; kind < LS_CONTEXT_COUNT && of->cp > 1 && !problem->held.context; kind++) {
    layout.context = (ls_context)kind;
    const int most_heads = kind == LS_CONTEXT_HYBRID ? of->cp / 2 : 1;
    for (layout.ulysses = kind == LS_CONTEXT_HYBRID ? 2 : 1; layout.ulysses <= most_heads;
         layout.ulysses++)
      if (of->cp % layout.ulysses == 0 && !ls_plan_same(&layout, of)) add(problem, &layout, to);
  }
}

static void add_kinds(const ls_plan_problem *problem, const ls_layout *of, ls_plan_candidates *to) {
  ls_layout layout = *of;
  for (int k = 0; k < ls_pipeline_kind_count && layout.pp > 1; k++) {
    layout.schedule = ls_pipeline_kinds[k].name;
    layout.chunks = ls_pipeline_kinds[k].usual_chunks;
    if (!ls_plan_same(&layout, of)) add(problem, &layout, to);
  }
}

/* What is made again, and what waits on the host. */
static void add_savings(const ls_plan_problem *problem, const ls_layout *of,
                        ls_plan_candidates *to) {
  ls_layout layout = *of;
  for (int w = 0; w < RECOMPUTE_WORDS && !problem->held.recompute; w++) {
    set_recompute(&layout, w);
    if (!ls_plan_same(&layout, of)) add(problem, &layout, to);
  }
  layout = *of;
  for (int a = 0; a < AWAY_COUNT && problem->performance->host_per_s > 0; a++) {
    set_away(&layout, a);
    if (!ls_plan_same(&layout, of)) add(problem, &layout, to);
  }
}

static ls_when other_time(const ls_layout *of, ls_when when) {
  return ls_layout_once_a_step(of, when) ? LS_WHEN_MICROBATCH : LS_WHEN_STEP;
}

/* When weights are gathered and gradients reduced, and how activations lie between. */
static void add_times(const ls_plan_problem *problem, const ls_layout *of, ls_plan_candidates *to) {
  ls_layout layout = *of;
  layout.gather = other_time(of, of->gather);
  const bool often = of->microbatches > 1;
  if (of->zero == 3 && often && !problem->held.gather) add(problem, &layout, to);
  layout = *of;
  layout.reduce = other_time(of, of->reduce);
  if (of->zero >= 2 && often) add(problem, &layout, to);
  layout = *of;
  layout.prefetch = of->prefetch == 1 ? 2 : 1;
  if (of->zero == 3 && !problem->performance->waits) add(problem, &layout, to);
  layout = *of;
  layout.sequence_parallel = !of->sequence_parallel;
  if (of->tp > 1) add(problem, &layout, to);
}

void ls_plan_neighbours(const ls_plan_problem *problem, const ls_plan_row *of,
                        ls_plan_candidates *to) {
  ls_layout plain = of->layout; /* what a layer makes again is chosen for one layout alone */
  plain.recompute_of = NULL;
  plain.recompute_of_count = 0;
  if (of->layout.recompute_of_count) add(problem, &plain, to);
  add_exchanges(problem, &plain, to);
  add_batches(problem, &plain, to);
  add_ways_to_shard(problem, &plain, to);
  add_shares(problem, &plain, to);
  add_savings(problem, &plain, to);
  add_kinds(problem, &plain, to);
  add_times(problem, &plain, to);
}
