#include <string.h>

#include "generate/generator.h"

/* A match of this many tokens is looked for, then of fewer. */
enum { LONGEST_MATCH = 6, SHORTEST_MATCH = 2 };

struct ls_draft {
  ls_arena *arena;
  int64_t tokens;      /* at once */
  ls_generator *model; /* NULL: what stood behind the same tokens before */
};

/* Tokens that may be proposed for a sequence: behind the last nothing is fed. */
static int64_t most_of(const ls_draft *self, const ls_generator *generator, const ls_sequence *of) {
  const int64_t rows = generator->decoding->rows - of->fed - 1;
  const int64_t wanted = of->request->most - of->made - 1;
  int64_t most = self->tokens < rows ? self->tokens : rows;
  if (wanted < most) most = wanted;
  return most > 0 ? most : 0;
}

/* Where the last `length` of `count` ids stand before, most lately; -1: nowhere. */
static int64_t find_before(const int32_t *ids, int64_t count, int64_t length) {
  const int32_t *end = ids + count - length;
  for (int64_t at = count - length - 1; at >= 0; at--)
    if (memcmp(ids + at, end, sizeof *ids * (size_t)length) == 0) return at;
  return -1;
}

/* What stood behind the longest end of the text that is in it before; and behind the text's end
 * what is proposed itself, so that what repeats goes on. */
static void propose_again(const ls_sequence *of, int64_t most, ls_drafted *drafted) {
  const int64_t count = of->fed + 1;
  int64_t at = -1, length = LONGEST_MATCH;
  drafted->sure = true;
  for (; length >= SHORTEST_MATCH && at < 0; length -= at < 0)
    if (length < count) at = find_before(of->ids, count, length);
  if (at < 0) return;
  for (at += length; drafted->count < most; at++)
    drafted->ids[drafted->count++] = at < count ? of->ids[at] : drafted->ids[at - count];
}

/* Of a model: sequences that it drafts for. */
typedef struct drafting {
  ls_draft *draft;
  ls_generator *generator; /* that asks */
  int64_t sequences[LS_MOST_SEQUENCES], most[LS_MOST_SEQUENCES];
  int count;
} drafting;

/* Whether the model can say what comes behind a text: its vocabulary may be padded otherwise, and
 * be made for fewer positions. */
static bool can_follow(const ls_draft *self, const ls_sequence *of, int64_t *most) {
  const int64_t room = self->model->decoding->rows - of->fed;
  const int32_t vocabulary = (int32_t)ls_generator_config(self->model)->vocabulary;
  if (room < *most) *most = room;
  for (int64_t i = 0; i <= of->fed && *most > 0; i++)
    if (of->ids[i] >= vocabulary) *most = 0;
  return *most > 0;
}

static ls_status propose(const drafting *self, int number, const float *logits, ls_error *error) {
  ls_sequence *of = &self->generator->sequences[self->sequences[number]];
  ls_drafted *drafted = &of->drafted;
  const int64_t at = of->fed + 1 + drafted->count;
  LS_TRY(ls_sampler_draft(of->sampler, of->scratch, logits, (uint64_t)at,
                          &drafted->ids[drafted->count], &drafted->chances[drafted->count], error));
  drafted->count++;
  return LS_OK;
}

/* The next token of each; in the first go of a round also the one before, where the draft was kept
 * whole and the model has not seen its last. */
static ls_status go_on(const drafting *self, int64_t done, ls_error *error) {
  ls_generator *model = self->draft->model;
  ls_decoder_token tokens[2 * LS_MOST_SEQUENCES];
  int rows[LS_MOST_SEQUENCES];
  int64_t count = 0;
  for (int n = 0; n < self->count; n++) {
    ls_sequence *of = &model->sequences[self->sequences[n]];
    const int32_t which = (int32_t)self->sequences[n];
    if (self->most[n] <= done) continue;
    for (int64_t i = 0; i < model->pending_count; i++)
      if (model->pending[i].sequence == which) tokens[count++] = model->pending[i];
    rows[n] = (int)count;
    const int32_t position = count && tokens[count - 1].sequence == which
                                 ? tokens[count - 1].position + 1
                                 : (int32_t)of->fed;
    tokens[count++] = (ls_decoder_token){of->next, position, which};
  }
  const float *logits;
  const int64_t vocabulary = ls_generator_config(model)->vocabulary;
  model->pending_count = 0;
  LS_TRY(ls_generator_run_tokens(model, tokens, count, &logits, error));
  for (int n = 0; n < self->count; n++) {
    if (self->most[n] <= done) continue;
    LS_TRY(propose(self, n, logits + rows[n] * vocabulary, error));
    const ls_drafted *drafted = &self->generator->sequences[self->sequences[n]].drafted;
    model->sequences[self->sequences[n]].next = drafted->ids[drafted->count - 1];
  }
  return LS_OK;
}

static ls_status ask_model(drafting *self, ls_error *error) {
  ls_generator *model = self->draft->model;
  int64_t most = 0, behind = 0;
  model->pending_count = 0;
  for (int n = 0; n < self->count; n++) {
    const int64_t which = self->sequences[n], before = model->pending_count;
    const ls_sequence *of = &self->generator->sequences[which];
    LS_TRY(ls_generator_follow(model, which, of->ids, of->fed + 1, error));
    if (self->most[n] > most) most = self->most[n];
    if (model->pending_count - before > behind) behind = model->pending_count - before;
  }
  if (behind > 1) LS_TRY(ls_generator_feed_pending(model, error));
  for (int64_t done = 0; done < most; done++) LS_TRY(go_on(self, done, error));
  return LS_OK;
}

ls_status ls_draft_propose(ls_draft *draft, ls_generator *generator, ls_error *error) {
  drafting self = {.draft = draft, .generator = generator};
  for (int64_t s = 0; s < generator->decoding->sequences; s++) {
    ls_sequence *of = &generator->sequences[s];
    of->drafted.count = 0;
    if (!of->request || of->ended) continue;
    int64_t most = most_of(draft, generator, of);
    of->ids[of->fed] = of->next;
    if (!draft->model) {
      propose_again(of, most, &of->drafted);
    } else if (can_follow(draft, of, &most)) {
      self.sequences[self.count] = s;
      self.most[self.count++] = most;
    }
  }
  return self.count ? ask_model(&self, error) : LS_OK;
}

void ls_draft_forget(ls_draft *draft, int64_t sequence) {
  if (draft->model) draft->model->sequences[sequence].fed = 0;
}

ls_status ls_draft_create(ls_arena *arena, const ls_draft_options *options,
                          const ls_generator *generator, ls_draft **draft, ls_error *error) {
  const ls_decoding *decoding = generator->decoding;
  if (options->tokens < 1 || options->tokens > decoding->options.ahead)
    return ls_fail(error, LS_INPUT, "%lld tokens of a draft; expected 1 to %lld, as is compiled",
                   (long long)options->tokens, (long long)decoding->options.ahead);
  ls_draft *made = LS_NEW(arena, ls_draft);
  *made = (ls_draft){.arena = arena, .tokens = options->tokens};
  if (options->folder) {
    const ls_generator_options of = {.folder = options->folder,
                                     .layers = options->layers,
                                     .compute = decoding->options.compute,
                                     .device = decoding->options.device,
                                     .tuning = decoding->options.tuning,
                                     .threads = decoding->options.threads,
                                     .rows = decoding->rows,
                                     .sequences = decoding->sequences,
                                     .ahead = 1};
    LS_TRY(ls_generator_create(arena, &of, &made->model, error));
  }
  *draft = made;
  return LS_OK;
}

void ls_draft_destroy(ls_draft **draft) {
  if (*draft) ls_generator_destroy(&(*draft)->model);
  *draft = NULL;
}
