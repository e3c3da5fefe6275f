/* Expressions of the forward pass and sums of terms. */
#include <string.h>

#include "check/proof.h"

enum { FIRST_TABLE = 1024 };

void ls_expressions_begin(ls_expressions *all, ls_arena *arena) {
  *all = (ls_expressions){.arena = arena, .table_size = FIRST_TABLE};
  all->table = LS_NEW_ARRAY(arena, int, FIRST_TABLE);
}

static bool same_node(const ls_node_record *a, const ls_node_record *b) {
  return a->kind == b->kind && a->inputs == b->inputs &&
         memcmp(a->in, b->in, sizeof *a->in * (size_t)a->inputs) == 0 &&
         ls_attributes_equal(a->attributes, b->attributes);
}

static unsigned hash_node(const ls_node_record *node) {
  unsigned hash = 2166136261u ^ (unsigned)node->kind;
  for (int i = 0; i < node->inputs; i++) hash = hash * 16777619u ^ (unsigned)node->in[i];
  return hash ^ hash >> 15;
}

static int *find_cell(const ls_expressions *all, const ls_node_record *node) {
  unsigned at = hash_node(node) % (unsigned)all->table_size;
  while (all->table[at] && !same_node(&all->nodes.items[all->table[at] - 1], node))
    at = (at + 1) % (unsigned)all->table_size;
  return &all->table[at];
}

static void grow_table(ls_expressions *all) {
  all->table_size *= 4;
  all->table = LS_NEW_ARRAY(all->arena, int, all->table_size);
  for (int n = 0; n < all->nodes.count; n++) *find_cell(all, &all->nodes.items[n]) = n + 1;
}

int ls_expression_receiver(const ls_expressions *all, int expression) {
  const ls_node_record *node = ls_expression_record(all, expression);
  if (node->kind >= (int)LS_OP_COUNT) return expression;
  const ls_op *row = ls_op_row((ls_op_kind)node->kind);
  return row->again == LS_AGAIN_ALWAYS && ls_op_passes(row, 0) == 0 ? node->in[0] : expression;
}

static bool is_always_made_again(const ls_node_record *node) {
  return ls_op_row((ls_op_kind)node->kind)->again == LS_AGAIN_ALWAYS;
}

/* The node's number; it is new where there was none like it. */
static int intern(ls_expressions *all, const ls_node_record *node, bool is_op) {
  int *found = find_cell(all, node);
  if (*found) return *found - 1;
  const int made = all->nodes.count;
  *found = made + 1;
  *LS_APPEND(all->arena, &all->nodes) = *node;
  for (int o = 0; o < LS_EXPRESSION_OUTPUTS; o++) *LS_APPEND(all->arena, &all->uses) = 0;
  for (int i = 0; i < node->inputs && is_op && !is_always_made_again(node); i++)
    if (ls_op_gives_gradient((ls_op_kind)node->kind, i))
      all->uses.items[ls_expression_receiver(all, node->in[i])]++;
  if (all->nodes.count * 2 > all->table_size) grow_table(all);
  return made;
}

int ls_expression_leaf(ls_expressions *all, ls_leaf leaf, int which, int version) {
  static const ls_attributes none;
  const ls_node_record node = {
      .kind = (int)leaf, .inputs = 2, .in = {which, version}, .attributes = &none};
  return intern(all, &node, false) * LS_EXPRESSION_OUTPUTS;
}

int ls_expression_add(ls_expressions *all, const ls_node_record *node) {
  return intern(all, node, true);
}

int ls_expression_find(const ls_expressions *all, const ls_node_record *node) {
  return *find_cell(all, node) - 1;
}

const ls_node_record *ls_expression_record(const ls_expressions *all, int expression) {
  return &all->nodes.items[expression / LS_EXPRESSION_OUTPUTS];
}

ls_terms ls_term_one(ls_arena *arena, int node, int position, int first, int last) {
  ls_term *made = LS_NEW(arena, ls_term);
  *made = (ls_term){.node = node, .position = position, .first = first, .last = last};
  return (ls_terms){.items = made, .count = 1};
}

ls_terms ls_terms_of_rows(ls_arena *arena, ls_terms terms, ls_rows rows, int64_t all) {
  if (!rows.count) return terms;
  ls_term *made = LS_NEW_ARRAY(arena, ls_term, terms.count + 1);
  for (int t = 0; t < terms.count; t++) {
    made[t] = terms.items[t];
    LS_ASSERT(!made[t].row_end && made[t].first == made[t].last);
    made[t].row = rows.first;
    made[t].row_end = rows.first + rows.count;
    made[t].all_rows = all;
  }
  return (ls_terms){.items = made, .count = terms.count};
}

static int compare_terms(const ls_term *a, const ls_term *b) {
  if (a->node != b->node) return a->node < b->node ? -1 : 1;
  if (a->position != b->position) return a->position < b->position ? -1 : 1;
  if (a->first != b->first) return a->first < b->first ? -1 : 1;
  return (a->row > b->row) - (a->row < b->row);
}

static bool same_use(const ls_term *a, const ls_term *b) {
  return a->node == b->node && a->position == b->position;
}

/* Of one use and in order: whether something is in both. */
static bool overlap(const ls_term *a, const ls_term *b) {
  if (b->first > a->last) return false;
  return !a->row_end || !b->row_end || b->row < a->row_end;
}

/* Of one use, in order and apart: both as one term. False: something is missing in between. */
static bool unite(ls_term *a, const ls_term *b) {
  if (a->row_end && b->row_end && a->first == b->first && a->row_end == b->row) {
    a->row_end = b->row_end;
    if (a->row == 0 && a->row_end == a->all_rows) a->row_end = 0;
    return true;
  }
  if (a->row_end || b->row_end || a->last + 1 != b->first) return false;
  a->last = b->last;
  return true;
}

/* Appends in order; false: something of a use is there twice. */
static bool append_term(ls_term *made, int *count, const ls_term *term) {
  if (*count && same_use(&made[*count - 1], term) && overlap(&made[*count - 1], term)) return false;
  made[(*count)++] = *term;
  while (*count > 1 && same_use(&made[*count - 2], &made[*count - 1]) &&
         unite(&made[*count - 2], &made[*count - 1]))
    (*count)--;
  return true;
}

/* Memory of lists that begin alike: the longest of them has `used` terms. */
struct ls_term_room {
  int used, capacity;
};

/* `a` with one more term of another use, in its memory where nothing stands behind it there. */
static ls_terms extend(ls_arena *arena, ls_terms a, const ls_term *last) {
  if (!a.room || a.room->used != a.count || a.count == a.room->capacity) {
    struct ls_term_room *room = LS_NEW(arena, struct ls_term_room);
    *room = (struct ls_term_room){.capacity = 2 * a.count + 2};
    ls_term *moved = LS_NEW_ARRAY(arena, ls_term, room->capacity);
    memcpy(moved, a.items, (size_t)a.count * sizeof *moved);
    a.items = moved;
    a.room = room;
  }
  ((ls_term *)a.items)[a.count++] = *last;
  a.room->used = a.count;
  return a;
}

bool ls_terms_join(ls_arena *arena, ls_terms a, ls_terms b, ls_terms *both) {
  if (a.count > 1 && b.count == 1 && !same_use(&a.items[a.count - 1], b.items) &&
      compare_terms(&a.items[a.count - 1], b.items) < 0) {
    *both = extend(arena, a, b.items);
    return true;
  }
  ls_term *made = LS_NEW_ARRAY(arena, ls_term, a.count + b.count + 1);
  int count = 0, i = 0, j = 0;
  while (i < a.count || j < b.count) {
    const bool from_a =
        j == b.count || (i < a.count && compare_terms(&a.items[i], &b.items[j]) <= 0);
    if (!append_term(made, &count, from_a ? &a.items[i++] : &b.items[j++])) return false;
  }
  *both = (ls_terms){.items = made, .count = count};
  return true;
}

int ls_terms_uses(ls_terms terms, int first, int last) {
  for (int t = 0; t < terms.count; t++)
    if (terms.items[t].first != first || terms.items[t].last != last || terms.items[t].row_end)
      return -1;
  return terms.count;
}

bool ls_terms_equal(ls_terms a, ls_terms b) {
  if (a.count != b.count) return false;
  for (int t = 0; t < a.count; t++) {
    const ls_term *x = &a.items[t], *y = &b.items[t];
    if (compare_terms(x, y) != 0 || x->last != y->last || x->row_end != y->row_end) return false;
  }
  return true;
}
