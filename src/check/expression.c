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
         ls_attributes_equal(&a->attributes, &b->attributes);
}

static unsigned hash_node(const ls_node_record *node) {
  unsigned hash = 2166136261u ^ (unsigned)node->kind;
  for (int i = 0; i < node->inputs; i++) hash = hash * 16777619u ^ (unsigned)node->in[i];
  return hash ^ hash >> 15;
}

static int *find_cell(ls_expressions *all, const ls_node_record *node) {
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

/* The node's number; it is new where there was none like it. */
static int intern(ls_expressions *all, const ls_node_record *node, bool is_op) {
  int *found = find_cell(all, node);
  if (*found) return *found - 1;
  const int made = all->nodes.count;
  *found = made + 1;
  *LS_APPEND(all->arena, &all->nodes) = *node;
  for (int o = 0; o < LS_EXPRESSION_OUTPUTS; o++) {
    *LS_APPEND(all->arena, &all->uses) = 0;
    *LS_APPEND(all->arena, &all->claimed) = 0;
    LS_APPEND(all->arena, &all->claimed_by);
  }
  for (int i = 0; i < node->inputs && is_op; i++)
    if (ls_use_gives_gradient((ls_op_kind)node->kind, i)) all->uses.items[node->in[i]]++;
  if (all->nodes.count * 2 > all->table_size) grow_table(all);
  return made;
}

int ls_expression_leaf(ls_expressions *all, ls_leaf leaf, int which, int version) {
  const ls_node_record node = {.kind = (int)leaf, .inputs = 2, .in = {which, version}};
  return intern(all, &node, false) * LS_EXPRESSION_OUTPUTS;
}

int ls_expression_node(ls_expressions *all, ls_op_kind kind, const ls_attributes *attributes,
                       const int *in, int inputs) {
  ls_node_record node = {.kind = (int)kind, .inputs = inputs, .attributes = *attributes};
  memcpy(node.in, in, sizeof *in * (size_t)inputs);
  return intern(all, &node, true);
}

const ls_node_record *ls_expression_record(const ls_expressions *all, int expression) {
  return &all->nodes.items[expression / LS_EXPRESSION_OUTPUTS];
}

ls_terms ls_term_one(ls_arena *arena, int node, int position, int first, int last) {
  ls_term *made = LS_NEW(arena, ls_term);
  *made = (ls_term){node, position, first, last};
  return (ls_terms){made, 1};
}

static int compare_terms(const ls_term *a, const ls_term *b) {
  if (a->node != b->node) return a->node < b->node ? -1 : 1;
  if (a->position != b->position) return a->position < b->position ? -1 : 1;
  return (a->first > b->first) - (a->first < b->first);
}

/* Appends in order; false: some microbatch of a use is there twice. */
static bool append_term(ls_term *made, int *count, const ls_term *term) {
  ls_term *last = *count ? &made[*count - 1] : NULL;
  if (last && last->node == term->node && last->position == term->position) {
    if (term->first <= last->last) return false;
    if (term->first == last->last + 1) {
      last->last = term->last;
      return true;
    }
  }
  made[(*count)++] = *term;
  return true;
}

bool ls_terms_join(ls_arena *arena, ls_terms a, ls_terms b, ls_terms *both) {
  ls_term *made = LS_NEW_ARRAY(arena, ls_term, a.count + b.count + 1);
  int count = 0, i = 0, j = 0;
  while (i < a.count || j < b.count) {
    const bool from_a =
        j == b.count || (i < a.count && compare_terms(&a.items[i], &b.items[j]) <= 0);
    if (!append_term(made, &count, from_a ? &a.items[i++] : &b.items[j++])) return false;
  }
  *both = (ls_terms){made, count};
  return true;
}

int ls_terms_uses(ls_terms terms, int first, int last) {
  for (int t = 0; t < terms.count; t++)
    if (terms.items[t].first != first || terms.items[t].last != last) return -1;
  return terms.count;
}
