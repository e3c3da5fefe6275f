/* The search: estimate all, compile the best whole, then go to the best neighbour until there is no
 * better one. */
#include "plan/ahead.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  COMPILED_FIRST = 16,
  TAKEN_AT_ONCE = 8,
  EXPECTED_BEHIND = 4, /* these */
  LEADERS_EXPECTED = 4,
  LEADERS_LOOKED = 2000, /* for these, of the order */
  CLIMBED_FROM = 3,
  MOST_CLIMBED = 32,
  NEAR_AT_ONCE = 4,
  MOST_FITTED = 4
};
/* Of the best by their estimates: so many are ranked again by what was learnt. */
enum { MOST_RANKED = 4096, MOST_LED = 6 };
/* How many are sized, and how many of the smallest compiled where none fits. */
enum { MOST_SIZED = 256, SMALLEST = 16 };
/* Instructions and actions that are compiled before neighbours: of small programs, many layouts'.
 */
#define WORK_FIRST 300000
/* As many of large programs, few layouts', end the search: half of them before neighbours. */
#define WORK_MOST 4000000
/* An estimate by its class that is so much larger than a device is not compiled unless nothing
 * fits; of leaders those below the first of these come first. */
#define LEADER_SLACK 1.05
#define CLASS_SLACK 1.25
/* What is so much larger than the smallest by its class is not smaller. */
#define ESTIMATE_SLACK 1.5
/* So much may an estimate of memory.h be above what is compiled. */
#define SIZE_SLACK 1.05
/* What is below this part of a device by its class is compiled without being sized. */
#define SMALL 0.5
#define FAR_FROM_BEST 1.3
/* While so little was compiled, more pairs are looked at, and all cuts. */
#define WORK_LITTLE 100000
#define FAR_WHILE_LITTLE 2.0
/* Microbatches times layers: what a step comes to that is short. */
#define SHORT_STEP 6000
/* So much may what is expected of a neighbour be above what it takes, and what it needs. */
#define TIME_DOUBT 1.03
#define BYTES_DOUBT 1.2
/* What is better by so much is climbed from, before all that is next to the other is compiled. */
#define GAIN 0.999

static double score(const ls_plan_problem *problem, double seconds, int64_t bytes) {
  return problem->objective == LS_PLAN_MEMORY ? (double)bytes * (1 + 1e-9 * seconds) : seconds;
}

typedef struct search {
  ls_arena *arena; /* of the plan */
  ls_arena *scratch;
  const ls_plan_problem *problem;
  ls_plan *plan;
  ls_plan_memory *memory;
  ls_plan_ahead *ahead;
  const ls_plan_estimates *estimates;
  ls_plan_sizes sizes; /* of the whole model */
  int sized;           /* candidates, by memory.h */
  int64_t before;      /* instructions and actions of leaders */
} search;

static bool was_compiled(const ls_plan *plan, const ls_layout *layout) {
  for (int r = 0; r < plan->rows.count; r++)
    if (ls_plan_same(&plan->rows.items[r].layout, layout)) return true;
  for (int r = 0; r < plan->too_large.count; r++)
    if (ls_plan_same(&plan->too_large.items[r].layout, layout)) return true;
  return false;
}

static void append(ls_plan *plan, const ls_plan_row *row) {
  if (row->fits)
    *LS_APPEND(plan->arena, &plan->rows) = *row;
  else
    *LS_APPEND(plan->arena, &plan->too_large) = *row;
}

/* Compiles a candidate whole; false: it had been, the compiler refuses it, or it needs more bytes
 * of a device than `most`. */
static bool take_within(search *self, ls_plan_candidate *candidate, double most) {
  if (candidate->done) return false;
  candidate->done = true;
  if (was_compiled(self->plan, &candidate->layout)) return false;
  ls_plan_row row;
  const ls_status status = ls_plan_ahead_measure(self->ahead, &candidate->layout, most, &row);
  if (status == LS_OK && (double)row.bytes > most) return false;
  self->plan->compiled++;
  if (status != LS_OK) return false;
  self->plan->work += row.work;
  self->plan->done += row.done;
  row.estimated_s = candidate->seconds;
  row.estimated_bytes = candidate->bytes;
  append(self->plan, &row);
  return true;
}

static bool take(search *self, ls_plan_candidate *candidate) {
  return take_within(self, candidate, INFINITY);
}

/* Sizes a candidate by its stages; what the compiler refuses, it will refuse later. */
static void size(search *self, ls_plan_candidate *candidate) {
  if (candidate->sized) return;
  const int64_t bytes = ls_plan_ahead_size(self->ahead, &candidate->layout);
  if (bytes >= 0) candidate->bytes = bytes;
  candidate->sized = true;
}

/* Whether it is worth knowing first that a candidate is not too large: of the first few that may
 * be. */
static bool is_doubtful(const search *self, const ls_plan_candidate *candidate) {
  return self->problem->limit && !self->problem->all && !candidate->sized &&
         self->sized < MOST_SIZED &&
         (double)candidate->bytes > SMALL * (double)self->problem->limit;
}

/* Whether compiling it whole tells its size as soon as its stages with few layers would. */
static bool is_short(const search *self, const ls_plan_candidate *candidate) {
  return (int64_t)candidate->layout.microbatches * self->problem->training->model->layers <=
         SHORT_STEP;
}

/* What take_fitting, or take, will ask of a candidate. */
static ls_plan_ask ask_of(const search *self, const ls_plan_candidate *candidate, bool fitting) {
  ls_plan_ask ask = {candidate->layout, INFINITY, false};
  if (!fitting || !is_doubtful(self, candidate)) return ask;
  ask.most = SIZE_SLACK * (double)self->problem->limit;
  ask.sized = !is_short(self, candidate);
  return ask;
}

/* Compiles a candidate unless it is too large for the devices. */
static bool take_fitting(search *self, ls_plan_candidate *candidate) {
  const int64_t limit = self->problem->limit;
  if (candidate->done) return false;
  if (!limit || self->problem->all) return take(self, candidate);
  const ls_plan_ask ask = ask_of(self, candidate, true);
  self->sized += isfinite(ask.most);
  if (isfinite(ask.most) && !ask.sized) return take_within(self, candidate, ask.most);
  if (ask.sized) size(self, candidate);
  if (!candidate->sized || (double)candidate->bytes <= SIZE_SLACK * (double)limit)
    return take(self, candidate);
  candidate->done = true;
  return false;
}

/* These will be taken, unless they were. */
static void expect_all(search *self, const ls_plan_candidates *candidates) {
  ls_plan_ask *asks = LS_NEW_ARRAY(self->scratch, ls_plan_ask, candidates->list.count + 1);
  int count = 0;
  for (int c = 0; c < candidates->list.count; c++) {
    const ls_plan_candidate *each = &candidates->list.items[c];
    if (!each->done && !was_compiled(self->plan, &each->layout))
      asks[count++] = ask_of(self, each, false);
  }
  ls_plan_ahead_expect(self->ahead, asks, count);
}

/* With its score, so that sorting needs nothing else. */
typedef struct scored {
  double score;
  int64_t bytes;
  int place;
} scored;

static int by_score(const void *a, const void *b) {
  const scored *x = a, *y = b;
  if (x->score != y->score) return x->score < y->score ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
  return x->place - y->place;
}

static int by_bytes(const void *a, const void *b) {
  const scored *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
  return x->place - y->place;
}

static bool is_among(const ls_plan_candidates *candidates, const ls_layout *layout) {
  for (int c = 0; c < candidates->list.count; c++)
    if (ls_plan_same(&candidates->list.items[c].layout, layout)) return true;
  return false;
}

/* Candidates with estimates, in an order. */
typedef struct ranked {
  scored *items;
  int count;
} ranked;

/* How much of a layout two have in common. */
static int likeness(const ls_plan_candidate *a, const ls_plan_row *b) {
  const ls_layout *x = &a->layout, *y = &b->layout;
  return 4 * (x->pp == y->pp) + 4 * (x->tp == y->tp) + 4 * (x->cp == y->cp) + 4 * (x->ep == y->ep) +
         2 * (x->whole_experts == y->whole_experts) + 2 * (x->zero == y->zero) +
         2 * (x->chunks == y->chunks && x->schedule == y->schedule) +
         (a->micro_batch == b->micro_batch) + (ls_layout_shards(x) == ls_layout_shards(y)) +
         ls_op_set_equal(&x->recompute, &y->recompute);
}

static void liken(const ls_plan_candidate *candidate, const ls_plan_row *rows, int count, int *most,
                  double *ratio) {
  for (int r = 0; r < count; r++) {
    const int like = likeness(candidate, &rows[r]);
    if (like <= *most || !(rows[r].estimated_s > 0)) continue;
    *most = like;
    *ratio = rows[r].seconds / rows[r].estimated_s;
  }
}

/* Estimated seconds, as far off as those of the compiled layout that is most like it were. */
static double corrected(const search *self, const ls_plan_candidate *candidate) {
  const ls_plan *plan = self->plan;
  double ratio = 1;
  int most = 0;
  if (self->problem->all) return candidate->seconds;
  liken(candidate, plan->rows.items, plan->rows.count, &most, &ratio);
  liken(candidate, plan->too_large.items, plan->too_large.count, &most, &ratio);
  return candidate->seconds * ratio;
}

/* Those that seem to fit, by score; with `any`, all by their bytes. */
static ranked rank(const search *self, const ls_plan_candidates *candidates, bool any) {
  const ls_plan_problem *problem = self->problem;
  ranked made = {LS_NEW_ARRAY(self->scratch, scored, candidates->list.count + 1), 0};
  for (int c = 0; c < candidates->list.count; c++) {
    const ls_plan_candidate *each = &candidates->list.items[c];
    const bool seems = !problem->limit || problem->all ||
                       (double)each->bytes <= CLASS_SLACK * (double)problem->limit;
    if (!isinf(each->seconds) && (seems || any) && !each->done)
      made.items[made.count++] =
          (scored){score(problem, corrected(self, each), each->bytes), each->bytes, c};
  }
  qsort(made.items, (size_t)made.count, sizeof *made.items, any ? by_bytes : by_score);
  return made;
}

/* The same candidates in the order of what was learnt since, without those that are done. */
static void rank_again(const search *self, const ls_plan_candidates *candidates, ranked *order) {
  int left = 0;
  for (int c = 0; c < order->count; c++) {
    const ls_plan_candidate *each = &candidates->list.items[order->items[c].place];
    if (each->done) continue;
    order->items[left] = order->items[c];
    order->items[left++].score = score(self->problem, corrected(self, each), each->bytes);
  }
  order->count = left;
  qsort(order->items, (size_t)left, sizeof *order->items, by_score);
}

/* Before the others are ranked again. */
static int taken_at_once(const search *self) {
  return self->problem->all ? MOST_RANKED : TAKEN_AT_ONCE;
}

/* The first in this order will be taken if they fit, and so may some behind them. */
static void expect_first(search *self, const ls_plan_candidates *candidates, const ranked *order) {
  const int most = taken_at_once(self) + EXPECTED_BEHIND;
  ls_plan_ask *asks = LS_NEW_ARRAY(self->scratch, ls_plan_ask, most + 1);
  int count = 0;
  for (int c = 0; c < order->count && c < most; c++) {
    const ls_plan_candidate *each = &candidates->list.items[order->items[c].place];
    asks[count++] = ask_of(self, each, true);
  }
  ls_plan_ahead_expect(self->ahead, asks, count);
}

/* What the layouts that one leads have in common. */
typedef enum leads { LEADS_PP, LEADS_CUTS, LEADS_BOTH } leads;

/* Whether ranks of a stage divide a microbatch's work alike. */
static bool cut_alike(const ls_layout *a, const ls_layout *b) {
  return a->tp == b->tp && a->cp == b->cp && a->ep == b->ep && a->whole_experts == b->whole_experts;
}

static bool led_alike(const ls_layout *a, const ls_layout *b, leads of) {
  return (of == LEADS_CUTS || a->pp == b->pp) && (of == LEADS_PP || cut_alike(a, b));
}

/* Whether such a one was compiled, or a few were too large. */
static bool was_led(const ls_plan_candidates *led, const ls_layout *layout, leads of) {
  int tried = 0;
  for (int l = 0; l < led->list.count; l++) {
    const ls_plan_candidate *each = &led->list.items[l];
    if (!led_alike(&each->layout, layout, of)) continue;
    if (each->done || ++tried == MOST_LED) return true;
  }
  return false;
}

/* The least score of those that were compiled. */
static double best_led(const search *self, const ls_plan_candidates *led) {
  double best = INFINITY;
  for (int l = 0; l < led->list.count; l++) {
    const ls_plan_candidate *each = &led->list.items[l];
    if (each->done) best = fmin(best, score(self->problem, each->seconds, each->bytes));
  }
  return best;
}

/* Whether so many instructions and actions were compiled that what is best so far must do. */
static bool is_long(const search *self, int64_t most) {
  return !self->problem->all && self->plan->done >= most;
}

static bool may_lead(const scored *about, const ls_plan_candidate *candidate,
                     const ls_plan_candidates *led, leads of, double limit) {
  return (double)about->bytes <= limit && !candidate->done && !was_led(led, &candidate->layout, of);
}

/* From here on these will be taken, if each of them fits. */
static void expect_leaders(search *self, const ls_plan_candidates *candidates, const ranked *order,
                           int from, const ls_plan_candidates *led, leads of, double limit) {
  ls_plan_ask asks[LEADERS_EXPECTED];
  int count = 0;
  for (int c = from; c < order->count && c < from + LEADERS_LOOKED; c++) {
    const ls_plan_candidate *each = &candidates->list.items[order->items[c].place];
    if (!may_lead(&order->items[c], each, led, of, limit)) continue;
    bool alike = false;
    for (int a = 0; a < count; a++) alike |= led_alike(&asks[a].layout, &each->layout, of);
    if (alike) continue;
    asks[count++] = ask_of(self, each, true);
    if (count == LEADERS_EXPECTED) break;
  }
  ls_plan_ahead_expect(self->ahead, asks, count);
}

/* Those of a greater score lead nothing. */
static double last_leader(const search *self, const ls_plan_candidates *led, leads of) {
  const bool little = self->plan->work < WORK_LITTLE;
  if (of == LEADS_PP || (of == LEADS_CUTS && little)) return INFINITY;
  return (little ? FAR_WHILE_LITTLE : FAR_FROM_BEST) * best_led(self, led);
}

/* The first that fit, so many of them, of each pp, of each cut or of each pair of both: what an
 * estimate is wrong about, it is wrong about alike for these. Cuts and pairs far behind the best
 * that fits are left to neighbours. */
static int compile_leaders(search *self, ls_plan_candidates *candidates, const ranked *order,
                           ls_plan_candidates *led, leads of, double slack, int most) {
  const double last = last_leader(self, led, of);
  const double limit = self->problem->limit ? slack * (double)self->problem->limit : INFINITY;
  int taken = 0;
  for (int c = 0; c < order->count && taken < most && order->items[c].score <= last; c++) {
    ls_plan_candidate *each = &candidates->list.items[order->items[c].place];
    if (!may_lead(&order->items[c], each, led, of, limit)) continue;
    if (of == LEADS_BOTH && is_long(self, WORK_MOST / 2)) break;
    expect_leaders(self, candidates, order, c, led, of, limit);
    ls_plan_candidate *tried = LS_APPEND(self->scratch, &led->list);
    *tried = *each;
    tried->done = take_fitting(self, each);
    taken += tried->done;
  }
  return taken;
}

static bool is_cheap(const search *self) {
  return self->problem->all ||
         (!self->problem->compiled_first && self->plan->work - self->before < WORK_FIRST);
}

/* The smallest of all: candidates are sized in the order of their estimates, until these are so far
 * above the smallest that no later one can be smaller, and the smallest few are compiled. */
static void compile_smallest(search *self, ls_plan_candidates *candidates) {
  const ranked order = rank(self, candidates, true);
  int64_t least = INT64_MAX;
  int sized = 0;
  for (; sized < order.count && sized < MOST_SIZED; sized++) {
    ls_plan_candidate *each = &candidates->list.items[order.items[sized].place];
    if ((double)each->bytes > ESTIMATE_SLACK * (double)least) break;
    self->sized += !each->sized;
    size(self, each);
    order.items[sized].bytes = each->bytes;
    if (each->bytes < least) least = each->bytes;
  }
  qsort(order.items, (size_t)sized, sizeof *order.items, by_bytes);
  for (int c = 0; c < sized && c < SMALLEST; c++) {
    ls_plan_candidate *each = &candidates->list.items[order.items[c].place];
    if (self->problem->only_fitting)
      take_fitting(self, each);
    else
      take(self, each);
  }
}

/* The best of the candidates by their estimates. */
static void compile_best(search *self, ls_plan_candidates *candidates) {
  const ls_plan_problem *problem = self->problem;
  const int first = problem->compiled_first ? problem->compiled_first : COMPILED_FIRST;
  ranked order = rank(self, candidates, false);
  ls_plan_candidates led = {.arena = self->scratch};
  int taken = 0;
  for (leads of = LEADS_PP; of <= LEADS_BOTH; of++) {
    const int before = taken;
    taken += compile_leaders(self, candidates, &order, &led, of, LEADER_SLACK, first);
    taken +=
        compile_leaders(self, candidates, &order, &led, of, CLASS_SLACK, first - (taken - before));
  }
  self->before = self->plan->work;
  if (order.count > MOST_RANKED && !problem->all) order.count = MOST_RANKED;
  while ((taken < 2 * first || is_cheap(self)) && !is_long(self, WORK_MOST / 2)) {
    rank_again(self, candidates, &order);
    expect_first(self, candidates, &order);
    for (int c = 0; c < order.count && c < taken_at_once(self) && !is_long(self, WORK_MOST / 2);
         c++)
      taken += take_fitting(self, &candidates->list.items[order.items[c].place]);
    if (!order.count) break;
  }
}

static void sort_rows(const ls_plan_problem *problem, ls_plan_row *rows, int count, bool bytes) {
  if (!count) return;
  ls_arena *scratch = ls_arena_create();
  scored *order = LS_NEW_ARRAY(scratch, scored, count);
  ls_plan_row *copy = LS_NEW_ARRAY(scratch, ls_plan_row, count);
  memcpy(copy, rows, sizeof *rows * (size_t)count);
  for (int r = 0; r < count; r++)
    order[r] = (scored){score(problem, rows[r].seconds, rows[r].bytes), rows[r].bytes, r};
  qsort(order, (size_t)count, sizeof *order, bytes ? by_bytes : by_score);
  for (int r = 0; r < count; r++) rows[r] = copy[order[r].place];
  ls_arena_destroy(&scratch);
}

static void sort_plan(const ls_plan_problem *problem, ls_plan *plan) {
  sort_rows(problem, plan->rows.items, plan->rows.count, false);
  sort_rows(problem, plan->too_large.items, plan->too_large.count, true);
}

void ls_plan_add(const ls_plan_problem *problem, ls_plan *plan, const ls_plan_row *row) {
  append(plan, row);
  sort_plan(problem, plan);
}

/* Whether a row before this one has its pp, tp, cp and ep. */
static bool has_better_alike(const ls_plan *plan, int row) {
  const ls_layout *of = &plan->rows.items[row].layout;
  for (int r = 0; r < row; r++) {
    const ls_layout *each = &plan->rows.items[r].layout;
    if (each->pp == of->pp && cut_alike(each, of)) return true;
  }
  return false;
}

/* Of the best rows of the few best pp and cuts the first that was not expanded; -1: all were. */
static int next_to_climb(const ls_plan *plan, const ls_plan_candidates *expanded) {
  for (int r = 0, looked = 0; r < plan->rows.count && looked < CLIMBED_FROM; r++) {
    if (has_better_alike(plan, r)) continue;
    if (!is_among(expanded, &plan->rows.items[r].layout)) return r;
    looked++;
  }
  return -1;
}

static double least_bytes(const ls_plan *plan) {
  double least = INFINITY;
  for (int r = 0; r < plan->rows.count; r++) least = fmin(least, (double)plan->rows.items[r].bytes);
  return least;
}

/* However ranks of cp come by all keys, a candidate's class has it one way. */
static void take_context(ls_plan_candidate *candidate, const ls_plan_problem *problem) {
  candidate->layout.context = problem->base.context;
  candidate->layout.ulysses = problem->base.ulysses;
}

/* Fills a neighbour's seconds by what its class has more or less than that of the row it is next
 * to, and says whether it may need less memory than all others; or fit and, if it made nothing
 * again, be the best. */
static bool is_promising(const search *self, const ls_plan_row *row, ls_plan_candidate *near) {
  const ls_plan *plan = self->plan;
  const bool of_memory = self->problem->objective == LS_PLAN_MEMORY;
  ls_plan_candidate of = {.layout = row->layout, .micro_batch = row->micro_batch}, as = *near;
  take_context(&of, self->problem);
  take_context(&as, self->problem);
  ls_plan_candidate kept = as;
  kept.layout.recompute = (ls_op_set){0};
  const bool known = ls_plan_estimate_like(self->estimates, &of) &&
                     ls_plan_estimate_like(self->estimates, &as) &&
                     ls_plan_estimate_like(self->estimates, &kept);
  near->bytes = as.bytes;
  near->seconds = known ? as.seconds * row->seconds / of.seconds : INFINITY;
  if (!known) return false;
  const double bytes = (double)near->bytes * (double)row->bytes / (double)of.bytes;
  if (bytes < (of_memory ? BYTES_DOUBT : 1) * least_bytes(plan)) return true;
  const double least = kept.seconds * row->seconds / of.seconds;
  return !of_memory && least < TIME_DOUBT * plan->rows.items[0].seconds &&
         (!self->problem->limit || bytes < BYTES_DOUBT * (double)self->problem->limit);
}

/* The neighbours of a row that are worth compiling, or all, the most promising first. */
static ls_plan_candidates *list_near(const search *self, const ls_plan_row *from, bool all) {
  ls_plan_candidates near = {.arena = self->scratch},
                     *made = LS_NEW(self->scratch, ls_plan_candidates);
  made->arena = self->scratch;
  ls_plan_neighbours(self->problem, from, &near);
  scored *order = LS_NEW_ARRAY(self->scratch, scored, near.list.count + 1);
  int count = 0;
  for (int c = 0; c < near.list.count; c++) {
    ls_plan_candidate *each = &near.list.items[c];
    const bool promising = is_promising(self, from, each);
    if (was_compiled(self->plan, &each->layout) || !(promising || all)) continue;
    order[count++] = (scored){each->seconds, 0, c};
  }
  qsort(order, (size_t)count, sizeof *order, by_score);
  for (int c = 0; c < count; c++)
    *LS_APPEND(self->scratch, &made->list) = near.list.items[order[c].place];
  return made;
}

/* Whether a row from this place on is so much better than another that it is climbed from instead:
 * of the same pp and cut, or the best of all. */
static bool is_left(const search *self, int first, const ls_plan_row *from) {
  const ls_plan *plan = self->plan;
  const double best = score(self->problem, plan->rows.items[0].seconds, plan->rows.items[0].bytes);
  const double own = score(self->problem, from->seconds, from->bytes);
  for (int r = first; r < plan->rows.count; r++) {
    const ls_plan_row *row = &plan->rows.items[r];
    const double now = score(self->problem, row->seconds, row->bytes);
    if (now < GAIN * own && (now < best || led_alike(&row->layout, &from->layout, LEADS_BOTH)))
      return true;
  }
  return false;
}

/* Compiles what is next to a row, a few at a time, until one of them is better; false: none is. */
static bool compile_near(search *self, const ls_plan_row *from, bool all) {
  ls_plan_candidates *near = list_near(self, from, all);
  const int first = self->plan->rows.count;
  bool left = false;
  for (int c = 0; c < near->list.count && !left && !is_long(self, WORK_MOST);) {
    ls_plan_candidates next = {.arena = self->scratch};
    next.list.items = &near->list.items[c];
    next.list.count = near->list.count - c;
    if (next.list.count > NEAR_AT_ONCE + EXPECTED_BEHIND)
      next.list.count = NEAR_AT_ONCE + EXPECTED_BEHIND;
    expect_all(self, &next);
    for (int n = 0; n < NEAR_AT_ONCE && c < near->list.count; n++, c++)
      take(self, &near->list.items[c]);
    left = is_left(self, first, from);
  }
  sort_plan(self->problem, self->plan);
  return left;
}

/* Goes from the best few to what is next to them, until that leaves them the best: of the first of
 * them all is compiled in the end, since estimates may be wrong, and people ask what one choice
 * costs. */
static void climb(search *self) {
  const ls_plan *plan = self->plan;
  ls_plan_candidates expanded = {.arena = self->scratch}, whole = {.arena = self->scratch};
  for (int round = 0; plan->rows.count && !is_long(self, WORK_MOST);) {
    const int next = round < MOST_CLIMBED ? next_to_climb(plan, &expanded) : -1;
    const ls_plan_row from = plan->rows.items[next < 0 ? 0 : next];
    ls_plan_candidates *done = next < 0 ? &whole : &expanded;
    if (next < 0 && is_among(&whole, &from.layout)) return;
    LS_APPEND(self->scratch, &done->list)->layout = from.layout;
    if (compile_near(self, &from, next < 0)) done->list.count--;
    round += next >= 0;
  }
}

/* What a row would take at least if it made less again. */
static double least_seconds(const ls_plan_row *row) {
  return row->seconds - row->terms[LS_PLAN_RECOMPUTE];
}

/* The row that may gain most by making less again, and be the best; NULL: none may. */
static const ls_plan_row *most_promising(const search *self, const ls_plan_candidates *tried) {
  const ls_plan_row *rows = self->plan->rows.items, *most = NULL;
  for (int r = 0; r < self->plan->rows.count; r++) {
    if (!(least_seconds(&rows[r]) < (most ? least_seconds(most) : rows[0].seconds)) ||
        rows[r].layout.recompute_of_count)
      continue;
    ls_layout kept = rows[r].layout;
    kept.recompute = (ls_op_set){0};
    if (!ls_plan_same(&kept, &rows[r].layout) && !is_among(tried, &kept)) most = &rows[r];
  }
  return most;
}

/* Between making all again and nothing, for which memory may lack: what each layer makes again is
 * chosen to fit, where that may be better than the best. */
static void fit_recompute(search *self) {
  const ls_plan_problem *problem = self->problem;
  ls_plan_candidates tried = {.arena = self->scratch};
  const bool sought = problem->limit && !problem->held.recompute &&
                      problem->base.recompute_layers <= 1 && problem->objective != LS_PLAN_MEMORY &&
                      self->plan->rows.count;
  for (int n = 0; n < MOST_FITTED && sought; n++) {
    const ls_plan_row *row = most_promising(self, &tried);
    if (!row) return;
    ls_plan_candidate kept = {.layout = row->layout, .micro_batch = row->micro_batch};
    kept.layout.recompute = (ls_op_set){0};
    *LS_APPEND(self->scratch, &tried.list) = kept;
    const int64_t bytes = ls_plan_memory_of(self->memory, &kept.layout);
    if ((bytes < 0 || bytes > problem->limit) &&
        ls_plan_fit_recompute(self->arena, problem, &kept.layout, NULL) != LS_OK)
      continue;
    if (take(self, &kept)) sort_plan(self->problem, self->plan);
  }
}

/* Which of the keys that are held no layout has. */
static ls_status refuse(ls_arena *arena, const ls_plan_problem *problem, ls_error *error) {
  const ls_model_config *model = problem->training->model;
  const char *held = "";
  for (int a = 0; a < LS_LAYOUT_AXES; a++)
    if (problem->held.axis[a])
      held = ls_arena_printf(arena, "%s mesh.%s=%d", held, ls_layout_axis(a),
                             ls_layout_size(&problem->base, a));
  if (problem->held.ep) held = ls_arena_printf(arena, "%s mesh.ep=%d", held, problem->base.ep);
  if (problem->held.zero) held = ls_arena_printf(arena, "%s zero=%d", held, problem->base.zero);
  if (problem->held.schedule)
    held = ls_arena_printf(arena, "%s schedule=%s", held, problem->base.schedule);
  if (problem->held.chunks)
    held = ls_arena_printf(arena, "%s chunks=%d", held, problem->base.chunks);
  if (problem->held.micro_batch)
    held = ls_arena_printf(arena, "%s train.micro_batch=%lld", held,
                           (long long)problem->held.micro_batch);
  if (problem->held.microbatches)
    held = ls_arena_printf(arena, "%s train.microbatches=%lld", held,
                           (long long)problem->held.microbatches);
  return ls_fail(
      error, LS_INPUT,
      "no layout of %d device%s has%s%s: pp, tp, cp and the data axes together are all "
      "devices, pp at most %lld layers, tp divides %lld heads, 2 cp %lld tokens, the "
      "data axes and the micro-batch %lld sequences; a schedule has more than one stage, and "
      "chunks as it is made; ep divides %lld experts, all ranks of cp and some that share data "
      "have them; ZeRO has more than one rank to shard over",
      problem->devices, problem->devices == 1 ? "" : "s", *held ? "" : " such a batch", held,
      (long long)model->layers, (long long)model->heads, (long long)problem->training->sequence,
      (long long)problem->training->batch, (long long)model->experts);
}

/* Candidates with estimates; with `any`, those too that cannot fit. */
static ls_plan_candidates *list(search *self, bool any) {
  ls_plan_candidates *made = LS_NEW(self->scratch, ls_plan_candidates);
  made->arena = self->scratch;
  if (!any && !self->problem->all) made->sizes = self->sizes;
  ls_plan_enumerate(self->problem, made);
  self->plan->candidates = made->seen;
  self->plan->estimated = made->list.count;
  self->estimates = ls_plan_estimate(self->scratch, self->problem, made);
  self->plan->classes = ls_plan_classes(self->estimates);
  return made;
}

static ls_status look(void *context, ls_error *error) {
  search *self = context;
  ls_plan_candidates *candidates = list(self, false);
  if (!candidates->seen) return refuse(self->scratch, self->problem, error);
  compile_best(self, candidates);
  if (!self->plan->rows.count) compile_smallest(self, list(self, !self->problem->only_fitting));
  sort_plan(self->problem, self->plan);
  if (!self->problem->all) climb(self);
  fit_recompute(self);
  return LS_OK;
}

ls_status ls_plan_make(ls_arena *arena, const ls_plan_problem *problem, ls_plan **plan,
                       ls_error *error) {
  *plan = LS_NEW(arena, ls_plan);
  (*plan)->arena = arena;
  search self = {.arena = arena, .problem = problem, .plan = *plan};
  self.scratch = ls_arena_create();
  ls_status status = ls_plan_memory_make(self.scratch, problem, &self.memory, error);
  if (status == LS_OK)
    status = ls_plan_sizes_of(problem, problem->training->model->layers, &self.sizes, error);
  bool lacks = false;
  if (status == LS_OK) {
    self.ahead = ls_plan_ahead_start(self.scratch, problem, self.memory);
    status = ls_arena_guard(look, &self, true, error);
    ls_plan_ahead_stop(self.ahead);
    lacks = status == LS_FAILED;
  }
  ls_arena_destroy(&self.scratch);
  /* Memory that lacks goes to the guard of who called, now that no thread is left. */
  if (lacks) ls_out_of_memory(sizeof(ls_plan_row));
  return status;
}
