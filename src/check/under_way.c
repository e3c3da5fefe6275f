/* Transfers under way: from its beginning to its end nobody writes what one reads and nobody
 * touches what it fills. The collectives of one action follow one another on their queue. */
#include "check/proof.h"

static bool follows(const ls_stage *stage, const ls_open_transfer *open) {
  const ls_instruction *now = ls_proof_instruction(stage);
  return open->action == stage->action && now->phase == LS_BEGIN && now->queue == open->by->queue &&
         ls_collective_is_of_group(now->collective) &&
         ls_collective_is_of_group(open->by->collective);
}

static const char *name_of(const ls_stage *stage, const ls_operand *operand) {
  return stage->program->values.items[operand->value].name;
}

/* The bytes of memory that an operand stands for. */
ls_operand ls_operand_bytes(const ls_stage *stage, const ls_operand *operand) {
  const ls_program *program = stage->program;
  const ls_storage *storage =
      &program->storages.items[program->values.items[operand->value].storage];
  ls_operand made = *operand;
  if (!stage->extents[operand->value].of_unit) return made;
  made.begin = storage->offset;
  made.end = made.reach = storage->offset + storage->bytes;
  return made;
}

ls_status ls_check_under_way(const ls_stage *stage, const ls_operand *operand, bool writes,
                             ls_error *error) {
  for (int t = 0; t < stage->open.count; t++) {
    const ls_open_transfer *open = &stage->open.items[t];
    const bool fills = open->fills && open->to.live_interval == operand->live_interval;
    const bool reads = open->reads && open->from.live_interval == operand->live_interval;
    if (!fills && !(writes && reads)) continue;
    const ls_operand touched = ls_operand_bytes(stage, operand);
    if (fills) {
      const ls_operand to = ls_operand_bytes(stage, &open->to);
      if (ls_operands_overlap(&to, &touched) && !follows(stage, open))
        return ls_proof_fail(stage, error,
                             "touches %s, which a %s is filling: expected it left alone until its "
                             "end",
                             name_of(stage, &open->to), ls_collective_name(open->by->collective));
    }
    if (!writes || !reads) continue;
    const ls_operand from = ls_operand_bytes(stage, &open->from);
    if (ls_operands_overlap(&from, &touched) && !follows(stage, open))
      return ls_proof_fail(stage, error,
                           "writes over %s, which a %s is reading: expected it kept until its end",
                           name_of(stage, &open->from), ls_collective_name(open->by->collective));
  }
  return LS_OK;
}

static ls_status find_operands(const ls_stage *stage, ls_open_transfer *open, ls_error *error) {
  const ls_instruction *now = ls_proof_instruction(stage);
  *open = (ls_open_transfer){
      .by = now, .action = stage->action, .reads = now->inputs > 0, .fills = now->outputs > 0};
  if (open->reads) LS_TRY(ls_operand_find(stage, now->in[0], &open->from, error));
  if (open->fills) LS_TRY(ls_operand_find(stage, now->out[0], &open->to, error));
  return LS_OK;
}

ls_status ls_begin_transfer(ls_stage *stage, ls_error *error) {
  ls_open_transfer open;
  LS_TRY(find_operands(stage, &open, error));
  *LS_APPEND(stage->proof->arena, &stage->open) = open;
  return LS_OK;
}

static bool is_like(const ls_instruction *a, const ls_instruction *b) {
  return a->collective == b->collective && a->queue == b->queue && a->axes == b->axes &&
         a->peer == b->peer;
}

/* A sum of numbers says what it fills at its end alone. */
static bool has_operands(const ls_open_transfer *begun, const ls_open_transfer *ended) {
  const bool sum = begun->by->collective == LS_SUM_NUMBERS;
  return begun->reads == ended->reads && (sum || begun->fills == ended->fills) &&
         begun->by->count == ended->by->count && begun->by->reduce == ended->by->reduce &&
         (sum || !begun->fills || begun->by->write[0] == ended->by->write[0]) &&
         (!begun->reads || ls_operands_same(&begun->from, &ended->from)) &&
         (!begun->fills || ls_operands_same(&begun->to, &ended->to));
}

ls_status ls_end_transfer(ls_stage *stage, ls_error *error) {
  ls_open_transfer ended;
  LS_TRY(find_operands(stage, &ended, error));
  const bool in_order =
      ls_collective_is_message(ended.by->collective) || ended.by->collective == LS_SUM_NUMBERS;
  int found = 0;
  while (found < stage->open.count &&
         !(is_like(stage->open.items[found].by, ended.by) &&
           (in_order || has_operands(&stage->open.items[found], &ended))))
    found++;
  if (found == stage->open.count || !has_operands(&stage->open.items[found], &ended))
    return ls_proof_fail(stage, error,
                         in_order ? "ends what is not the oldest of its kind under way: expected "
                                    "the order in which they began"
                                  : "ends what is not under way: expected its beginning");
  for (int t = found + 1; t < stage->open.count; t++)
    stage->open.items[t - 1] = stage->open.items[t];
  stage->open.count--;
  return LS_OK;
}

ls_status ls_check_none_under_way(const ls_stage *stage, const char *where, ls_error *error) {
  if (!stage->open.count) return LS_OK;
  const ls_open_transfer *open = &stage->open.items[0];
  return ls_fail(error, LS_REFUTED,
                 "stage %d: %s with a %s of %s under way, which action %d began: expected its end "
                 "before",
                 stage->number, where, ls_collective_name(open->by->collective),
                 name_of(stage, open->fills ? &open->to : &open->from), open->action);
}
