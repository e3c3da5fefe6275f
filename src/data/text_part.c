#include "data/text_part.h"

typedef LS_LIST(ls_token_run) run_list;

static void add_run(ls_arena *arena, run_list *runs, ls_text_part *part, int64_t first,
                    int64_t count) {
  *LS_APPEND(arena, runs) = (ls_token_run){part->tokens, first};
  part->tokens += count;
}

static void close_runs(ls_arena *arena, run_list *runs, ls_text_part *part) {
  part->run_count = runs->count;
  *LS_APPEND(arena, runs) = (ls_token_run){part->tokens, -1};
  part->runs = runs->items;
}

/* Tokens [first, end) of the corpus. */
static void stretch(ls_arena *arena, const ls_corpus *corpus, int64_t first, int64_t end,
                    ls_text_part *part) {
  run_list runs = {0};
  *part = (ls_text_part){.corpus = corpus};
  if (end > first) {
    add_run(arena, &runs, part, first, end - first);
    const int64_t begin = ls_corpus_document(corpus, first);
    const bool starts = corpus->documents[begin].first == first;
    part->documents = ls_corpus_document(corpus, end - 1) - begin + starts;
  }
  close_runs(arena, &runs, part);
}

void ls_text_part_whole(ls_arena *arena, const ls_corpus *corpus, ls_text_part *part) {
  stretch(arena, corpus, 0, corpus->count, part);
}

void ls_text_part_split_tail(ls_arena *arena, const ls_corpus *corpus, int64_t tail,
                             ls_text_part *others, ls_text_part *kept) {
  const int64_t border = corpus->count > tail ? corpus->count - tail : 0;
  stretch(arena, corpus, 0, border, others);
  stretch(arena, corpus, border, corpus->count, kept);
}

static bool is_kept(const ls_document *document, double fraction) {
  return (double)(document->hash >> 11) * 0x1p-53 < fraction;
}

void ls_text_part_split_documents(ls_arena *arena, const ls_corpus *corpus, double fraction,
                                  ls_text_part *others, ls_text_part *kept) {
  ls_text_part *parts[2] = {others, kept};
  run_list runs[2] = {0};
  for (int p = 0; p < 2; p++) *parts[p] = (ls_text_part){.corpus = corpus};
  for (int64_t d = 0; d < corpus->document_count;) { /* neighbours make one run */
    const bool side = is_kept(&corpus->documents[d], fraction);
    int64_t end = d + 1;
    while (end < corpus->document_count && is_kept(&corpus->documents[end], fraction) == side)
      end++;
    const int64_t first = corpus->documents[d].first;
    const int64_t beyond =
        end < corpus->document_count ? corpus->documents[end].first : corpus->count;
    add_run(arena, &runs[side], parts[side], first, beyond - first);
    parts[side]->documents += end - d;
    d = end;
  }
  for (int p = 0; p < 2; p++) close_runs(arena, &runs[p], parts[p]);
}

/* The run that a token of the part lies in. */
static int64_t find_run(const ls_text_part *part, int64_t token) {
  int64_t low = 0, high = part->run_count;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    if (part->runs[middle].place <= token)
      low = middle;
    else
      high = middle;
  }
  return low;
}

ls_status ls_text_part_copy(const ls_text_part *part, int64_t first, int64_t count, int32_t *ids,
                            ls_error *error) {
  LS_ASSERT(first >= 0 && count >= 0 && first <= part->tokens - count);
  for (int64_t r = find_run(part, first); count > 0; r++) {
    const ls_token_run *run = &part->runs[r];
    const int64_t left = run[1].place - first, here = count < left ? count : left;
    LS_TRY(ls_corpus_copy(part->corpus, run->first + (first - run->place), here, ids, error));
    ids += here;
    first += here;
    count -= here;
  }
  return LS_OK;
}

void ls_text_part_places(const ls_text_part *part, int64_t first, int64_t count, int32_t *places) {
  LS_ASSERT(first >= 0 && count >= 0 && first <= part->tokens - count);
  const ls_corpus *corpus = part->corpus;
  int32_t place = 0;
  for (int64_t r = find_run(part, first); count > 0; r++) {
    const ls_token_run *run = &part->runs[r];
    const int64_t left = run[1].place - first, here = count < left ? count : left;
    const int64_t token = run->first + (first - run->place);
    int64_t next = ls_corpus_document(corpus, token);
    if (corpus->documents[next].first < token) next++;
    for (int64_t i = 0; i < here; i++) {
      if (next < corpus->document_count && corpus->documents[next].first == token + i) {
        place = 0;
        next++;
      }
      *places++ = place++;
    }
    first += here;
    count -= here;
  }
}
