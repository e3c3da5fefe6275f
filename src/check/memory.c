/* Who wrote which bytes last, and what. */
#include <string.h>

#include "check/proof.h"

ls_status ls_operand_find(const ls_stage *stage, int value, ls_operand *operand, ls_error *error) {
  const ls_program_action *action = ls_proof_action(stage);
  const ls_body *body = &stage->program->bodies.items[action->body];
  const ls_extent *extent = &stage->extents[value];
  const int buffer_group =
      stage->program->storages.items[stage->program->values.items[value].storage].buffer_group;
  ls_binding *last = &stage->bindings[stage->program->buffer_groups.count];
  if (last->action != stage->action) {
    for (int f = body->buffer_groups.count - 1; f >= 0; f--)
      stage->bindings[body->buffer_groups.items[f]] =
          (ls_binding){stage->action, action->live_intervals[f]};
    last->action = stage->action;
  }
  const ls_binding *found = &stage->bindings[buffer_group];
  if (found->action != stage->action)
    return ls_proof_fail(stage, error,
                         "uses %s, whose buffer group its body does not list: expected it to",
                         stage->program->values.items[value].name);
  *operand = (ls_operand){value, found->live_interval, extent->begin, extent->end, extent->end};
  stage->proof->report.operands++;
  return LS_OK;
}

bool ls_operands_overlap(const ls_operand *a, const ls_operand *b) {
  return a->live_interval == b->live_interval && a->begin < b->reach && b->begin < a->reach;
}

bool ls_operands_same(const ls_operand *a, const ls_operand *b) {
  return a->live_interval == b->live_interval && a->begin == b->begin && a->end == b->end;
}

int ls_contents_find(const ls_contents *contents, int64_t address) {
  int low = 0, high = contents->entries.count;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (contents->entries.items[middle].end <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Makes room for `added` entries in place of `removed` ones. */
static void replace(ls_arena *arena, ls_contents *contents, int at, int removed, int added) {
  if (removed == added) return;
  for (int i = removed; i < added; i++) LS_APPEND(arena, &contents->entries);
  const int count = contents->entries.count - (added > removed ? added - removed : 0);
  memmove(&contents->entries.items[at + added], &contents->entries.items[at + removed],
          (size_t)(count - at - removed) * sizeof *contents->entries.items);
  contents->entries.count = count + added - removed;
}

/* Empties a range; what lay there in part keeps the rest, which no longer is the whole of it. */
static int clear(ls_arena *arena, ls_contents *contents, int64_t begin, int64_t end) {
  int at = ls_contents_find(contents, begin);
  if (at < contents->entries.count && contents->entries.items[at].begin < begin) {
    ls_entry *first = &contents->entries.items[at++];
    const ls_entry rest = {end, first->end, first->content};
    first->end = begin;
    if (rest.end > end) {
      replace(arena, contents, at, 0, 1);
      contents->entries.items[at] = rest;
    }
  }
  int last = at;
  while (last < contents->entries.count && contents->entries.items[last].end <= end) last++;
  if (last < contents->entries.count && contents->entries.items[last].begin < end)
    contents->entries.items[last].begin = end;
  replace(arena, contents, at, last - at, 0);
  return at;
}

static void set(ls_arena *arena, ls_contents *contents, int64_t begin, int64_t end,
                const ls_content *content) {
  if (begin == end) return;
  const int at = ls_contents_find(contents, begin);
  if (at < contents->entries.count && contents->entries.items[at].begin == begin &&
      contents->entries.items[at].end == end) {
    contents->entries.items[at].content = content;
    return;
  }
  const int where = clear(arena, contents, begin, end);
  replace(arena, contents, where, 0, 1);
  contents->entries.items[where] = (ls_entry){begin, end, content};
}

static const ls_content *look(const ls_contents *contents, int64_t begin, int64_t end) {
  const int at = ls_contents_find(contents, begin);
  if (at == contents->entries.count) return NULL;
  const ls_entry *entry = &contents->entries.items[at];
  if (entry->begin != begin || entry->end < end) return NULL;
  return entry->content->begin == begin && entry->content->end == end ? entry->content : NULL;
}

/* Whether the storage's bytes are still those of its shards. */
static bool holds_pieces(const ls_stage *stage, int live_interval, int storage) {
  const ls_storage *about = &stage->program->storages.items[storage];
  const ls_content *proxy =
      look(&stage->contents[live_interval], about->offset, about->offset + about->bytes);
  return proxy && proxy->kind == LS_CONTENT_SHARDS && proxy->storage == storage;
}

const ls_content *ls_memory_look(const ls_stage *stage, int live_interval, int storage,
                                 int64_t begin, int64_t end) {
  if (begin >> LS_SHARD_SHIFT && !holds_pieces(stage, live_interval, storage)) return NULL;
  const ls_content *found = look(&stage->contents[live_interval], begin, end);
  return found && found->storage == storage ? found : NULL;
}

static ls_status fail_read(const ls_stage *stage, const ls_operand *operand, ls_error *error) {
  const ls_value *value = &stage->program->values.items[operand->value];
  const ls_contents *contents = &stage->contents[operand->live_interval];
  int64_t begin = operand->begin;
  if (begin >> LS_SHARD_SHIFT && !holds_pieces(stage, operand->live_interval, value->storage))
    begin = stage->program->storages.items[value->storage].offset;
  const int at = ls_contents_find(contents, begin);
  if (at == contents->entries.count || contents->entries.items[at].begin >= operand->end)
    return ls_proof_fail(stage, error, "reads %s, which nothing has written: expected it made",
                         value->name);
  const ls_content *there = contents->entries.items[at].content;
  const char *name = stage->program->values.items[there->value].name;
  if (there->storage != value->storage)
    return ls_proof_fail(stage, error, "reads %s, which %s has overwritten: expected it kept",
                         value->name, name);
  return ls_proof_fail(stage, error,
                       "reads %s at %lld, where %s lies in part, in other rows or in other sizes: "
                       "expected all of it",
                       value->name, (long long)operand->begin, name);
}

ls_status ls_memory_read(ls_stage *stage, const ls_operand *operand, const ls_content **content,
                         ls_error *error) {
  const ls_value *value = &stage->program->values.items[operand->value];
  LS_TRY(ls_check_under_way(stage, operand, false, error));
  const ls_content *found =
      ls_memory_look(stage, operand->live_interval, value->storage, operand->begin, operand->end);
  if (!found || !ls_rows_equal(found->rows, ls_value_rows(value)))
    found = ls_rows_look(stage, operand);
  if (!found) return fail_read(stage, operand, error);
  if (found->dtype != value->dtype)
    return ls_proof_fail(stage, error, "reads %s as %s: expected %s", value->name,
                         ls_dtype_name(value->dtype), ls_dtype_name(found->dtype));
  *content = found;
  return LS_OK;
}

ls_status ls_memory_write(ls_stage *stage, const ls_operand *operand, const ls_content *content,
                          ls_error *error) {
  const ls_value *value = &stage->program->values.items[operand->value];
  ls_contents *contents = &stage->contents[operand->live_interval];
  ls_arena *arena = stage->proof->arena;
  LS_TRY(ls_check_under_way(stage, operand, true, error));
  if (!ls_rows_equal(content->rows, ls_value_rows(value)))
    return ls_proof_fail(stage, error, "writes other rows than %s has: expected these",
                         value->name);
  ls_content *made = LS_NEW(arena, ls_content);
  *made = *content;
  made->dtype = value->dtype;
  made->value = operand->value;
  made->storage = value->storage;
  made->begin = operand->begin;
  made->end = operand->end;
  if (operand->begin >> LS_SHARD_SHIFT &&
      !holds_pieces(stage, operand->live_interval, value->storage)) {
    const ls_storage *about = &stage->program->storages.items[value->storage];
    ls_content *proxy = LS_NEW(arena, ls_content);
    *proxy = (ls_content){.kind = LS_CONTENT_SHARDS,
                          .value = operand->value,
                          .storage = value->storage,
                          .begin = about->offset,
                          .end = about->offset + about->bytes};
    const int64_t base = stage->shards[value->storage];
    clear(arena, contents, base, base + ((int64_t)1 << LS_SHARD_SHIFT));
    set(arena, contents, proxy->begin, proxy->end, proxy);
  }
  set(arena, contents, operand->begin, operand->reach, made);
  return LS_OK;
}

ls_status ls_memory_forget(ls_stage *stage, const ls_operand *operand, ls_error *error) {
  LS_TRY(ls_check_under_way(stage, operand, true, error));
  clear(stage->proof->arena, &stage->contents[operand->live_interval], operand->begin,
        operand->reach);
  return LS_OK;
}

/* The sum of what is there and what comes: each contribution once, both in one placement. */
static ls_status add(ls_stage *stage, const ls_operand *operand, const ls_content *added,
                     ls_error *error) {
  const ls_content *there;
  LS_TRY(ls_memory_read(stage, operand, &there, error));
  const bool cells = there->kind == LS_CONTENT_SUM && added->kind == LS_CONTENT_SUM;
  const bool gradients = there->kind == LS_CONTENT_GRADIENT && added->kind == LS_CONTENT_GRADIENT;
  if ((!cells && !gradients) || there->expression != added->expression ||
      there->microbatch != added->microbatch || !ls_rows_equal(there->rows, added->rows))
    return ls_proof_fail(stage, error, "adds to what is no sum of the same: expected to write");
  if (!ls_places_equal(stage->proof, &there->placement, &added->placement))
    return ls_proof_fail(stage, error, "adds to a sum in another placement: expected the same");
  ls_content sum = *added;
  if (!ls_terms_join(stage->proof->arena, there->terms, added->terms, &sum.terms))
    return ls_proof_fail(stage, error,
                         "adds a contribution that is there already: expected each "
                         "once");
  return ls_memory_write(stage, operand, &sum, error);
}

ls_status ls_memory_put(ls_stage *stage, int output, const ls_operand *operand,
                        const ls_content *content, ls_error *error) {
  const ls_write_mode mode = ls_proof_instruction(stage)->write[output];
  const bool adds =
      mode == LS_ADD || (mode == LS_ADD_AFTER_FIRST && !ls_proof_action(stage)->first);
  return adds ? add(stage, operand, content, error)
              : ls_memory_write(stage, operand, content, error);
}
