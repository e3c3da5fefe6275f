/* Rows: tokens are taken one by one by many ops, so a tensor of them may be made or read some rows
 * at a time. Memory knows which rows lie where; an op works on the same rows of all its operands
 * that have tokens, and what it makes without tokens is a sum over those rows alone. */
#include <string.h>

#include "check/proof.h"

ls_rows ls_value_rows(const ls_value *value) {
  return (ls_rows){value->first_row, value->rows};
}

bool ls_rows_equal(ls_rows a, ls_rows b) {
  return a.count == b.count && (!a.count || a.first == b.first);
}

/* Whether the entry still is all of its content. */
static bool is_intact(const ls_entry *entry) {
  const ls_content *content = entry->content;
  return entry->begin == content->begin && entry->end >= content->end;
}

static bool same_tensor(const ls_stage *stage, const ls_content *content, const ls_value *value) {
  const ls_value *other = &stage->program->values.items[content->value];
  if (content->kind == LS_CONTENT_SHARDS || content->storage != value->storage ||
      content->dtype != value->dtype || other->flat_elements || other->ndim != value->ndim ||
      other->row_elements != value->row_elements)
    return false;
  for (int d = 0; d < value->ndim; d++)
    if (other->global[d] != value->global[d]) return false;
  return ls_places_equal(stage->proof, &other->placement, &value->placement);
}

/* Some rows of what lies there whole. */
static const ls_content *look_inside(const ls_stage *stage, const ls_operand *operand) {
  const ls_value *value = &stage->program->values.items[operand->value];
  const ls_contents *contents = &stage->contents[operand->live_interval];
  const int64_t all = stage->extents[operand->value].all_rows;
  const int64_t row_bytes = (operand->end - operand->begin) / value->rows;
  const int at = ls_contents_find(contents, operand->begin);
  if (at == contents->entries.count || !is_intact(&contents->entries.items[at])) return NULL;
  const ls_content *whole = contents->entries.items[at].content;
  if (whole->rows.count || !same_tensor(stage, whole, value) ||
      whole->end - whole->begin != all * row_bytes ||
      operand->begin != whole->begin + value->first_row * row_bytes)
    return NULL;
  ls_content *made = LS_NEW(stage->proof->arena, ls_content);
  *made = *whole;
  made->rows = ls_value_rows(value);
  made->begin = operand->begin;
  made->end = operand->end;
  return made;
}

static bool alike(const ls_stage *stage, const ls_content *a, const ls_content *b) {
  return a->kind == b->kind && a->expression == b->expression && a->microbatch == b->microbatch &&
         ls_terms_equal(a->terms, b->terms) &&
         ls_places_equal(stage->proof, &a->placement, &b->placement);
}

/* All rows, where each range lies in its place. */
static const ls_content *look_together(const ls_stage *stage, const ls_operand *operand) {
  const ls_value *value = &stage->program->values.items[operand->value];
  const ls_contents *contents = &stage->contents[operand->live_interval];
  const int64_t all = stage->extents[operand->value].all_rows;
  if (value->flat_elements || !all) return NULL;
  const int64_t row_bytes = (operand->end - operand->begin) / all;
  const ls_content *first = NULL;
  int at = ls_contents_find(contents, operand->begin);
  int64_t row = 0;
  for (; row < all && at < contents->entries.count; at++) {
    const ls_content *part = contents->entries.items[at].content;
    if (!is_intact(&contents->entries.items[at]) || !part->rows.count || part->rows.first != row ||
        !same_tensor(stage, part, value) || part->begin != operand->begin + row * row_bytes ||
        part->end != part->begin + part->rows.count * row_bytes ||
        (first && !alike(stage, first, part)))
      return NULL;
    if (!first) first = part;
    row += part->rows.count;
  }
  if (row != all) return NULL;
  ls_content *made = LS_NEW(stage->proof->arena, ls_content);
  *made = *first;
  made->rows = (ls_rows){0};
  made->begin = operand->begin;
  made->end = operand->end;
  return made;
}

const ls_content *ls_rows_look(const ls_stage *stage, const ls_operand *operand) {
  const bool some = stage->program->values.items[operand->value].rows > 0;
  return some ? look_inside(stage, operand) : look_together(stage, operand);
}

/* Dimension 0 is that of tokens. */
static bool has_tokens(const ls_operand_labels *operand) {
  return operand->ndim > 0 && strcmp(operand->dim[0], "n") == 0;
}

ls_status ls_rows_of_op(ls_stage *stage, const ls_content *const *in, ls_rows *rows,
                        ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  const ls_op *row = ls_op_row(instruction->kind);
  const ls_op_labels *labels = &stage->proof->labels[instruction->kind];
  bool any = false;
  *rows = (ls_rows){0};
  for (int i = 0; i < instruction->inputs; i++) {
    const char *name = stage->program->values.items[instruction->in[i]].name;
    if (in[i]->rows.count && !has_tokens(&labels->in[i]))
      return ls_proof_fail(stage, error, "reads some rows of %s: expected all", name);
    if (!has_tokens(&labels->in[i])) continue;
    if (any && !ls_rows_equal(*rows, in[i]->rows))
      return ls_proof_fail(stage, error,
                           "reads other rows of %s than of its other inputs: "
                           "expected the same of all",
                           name);
    *rows = in[i]->rows;
    any = true;
  }
  if (rows->count && !ls_op_takes_rows(row))
    return ls_proof_fail(stage, error, "works on some rows: expected whole sequences");
  return LS_OK;
}

ls_status ls_rows_of_output(ls_stage *stage, int output, ls_rows rows, ls_content *out,
                            ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  if (!rows.count) return LS_OK;
  if (has_tokens(&stage->proof->labels[instruction->kind].out[output])) {
    out->rows = rows;
    return LS_OK;
  }
  if (out->kind == LS_CONTENT_VALUE)
    return ls_proof_fail(stage, error, "makes a value of some rows: expected of all");
  int64_t all = 0;
  for (int i = 0; i < instruction->inputs; i++)
    if (has_tokens(&stage->proof->labels[instruction->kind].in[i]))
      all = stage->extents[instruction->in[i]].all_rows;
  out->terms = ls_terms_of_rows(stage->proof->arena, out->terms, rows, all);
  return LS_OK;
}
