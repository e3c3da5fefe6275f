#include "cli/show_groups.h"

#include <jansson.h>
#include <stdio.h>

#include "cli/show_compare.h"
#include "cost/cost.h"
#include "ir/state.h"

/* Parameters with the same settings. */
typedef struct settings_group {
  double rate, weight_decay;
  int count;
  int64_t elements;
  const char *first, *last;
} settings_group;

typedef LS_LIST(settings_group) groups;

static settings_group *find(const ls_session *session, groups *all, double rate, double decay) {
  for (int g = 0; g < all->count; g++)
    if (all->items[g].rate == rate && all->items[g].weight_decay == decay) return &all->items[g];
  settings_group *made = LS_APPEND(session->arena, all);
  *made = (settings_group){.rate = rate, .weight_decay = decay};
  return made;
}

static groups list_groups(const ls_session *session) {
  groups all = {0};
  for (int p = 0; p < session->graph->parameters.count; p++) {
    const ls_parameter_record *record = &session->graph->parameters.items[p];
    if (!record->trainable) continue;
    const double decay = ls_optimizer_weight_decay(&session->layout.optimizer, record);
    settings_group *group = find(session, &all, record->settings.rate, decay);
    int64_t elements = 1;
    for (int d = 0; d < record->about.ndim; d++) elements *= record->about.dims[d];
    if (group->count++ == 0) group->first = record->about.name;
    group->last = record->about.name;
    group->elements += elements;
  }
  return all;
}

bool ls_show_has_groups(const ls_session *session) {
  for (int p = 0; p < session->graph->parameters.count; p++) {
    const ls_parameter_settings *settings = &session->graph->parameters.items[p].settings;
    if (settings->rate != 1 || settings->weight_decay >= 0) return true;
  }
  return false;
}

static void print_json(const groups *all, double learning_rate) {
  json_t *array = json_array();
  for (int g = 0; g < all->count; g++) {
    const settings_group *each = &all->items[g];
    json_array_append_new(
        array, json_pack("{s:f,s:f,s:f,s:i,s:I,s:s,s:s}", "learning_rate",
                         each->rate * learning_rate, "times", each->rate, "weight_decay",
                         each->weight_decay, "parameters", each->count, "elements",
                         (json_int_t)each->elements, "first", each->first, "last", each->last));
  }
  ls_show_print_json(json_pack("{s:o}", "groups", array));
}

/* What of all parameters the optimizer's own update has, and what is done for it together. */
typedef struct share {
  int count, others;
  int64_t elements, other_elements, lines; /* rows and columns */
} share;

/* What a step does to whole matrices: a rank of the first stage that has most to do. */
typedef struct owned {
  const ls_program *program;
  double flops, sent;
} owned;

static void count_owned(void *context, const ls_executed *each) {
  owned *into = context;
  const ls_instruction *instruction = each->instruction;
  const bool deals = ls_collective_deals(instruction->collective);
  if (!deals && (instruction->collective || instruction->kind != LS_OP_ORTHOGONALISE)) return;
  const ls_work work = ls_instruction_work(into->program, 0, instruction, each->first);
  into->flops += (double)each->times * work.flops;
  into->sent += (double)each->times * work.sent;
}

static owned find_owned(const ls_session *session) {
  owned made = {.program = session->programs[LS_SESSION_STEP]};
  ls_program_walk(made.program, 0, made.program->actions.count, count_owned, &made);
  return made;
}

/* Of all matrices of the model. */
static double orthogonal_flops(const ls_session *session) {
  double flops = 0;
  for (int p = 0; p < session->graph->parameters.count; p++) {
    const ls_parameter_record *record = &session->graph->parameters.items[p];
    const int64_t *dims = record->about.dims;
    if (!record->trainable || ls_optimizer_update_of(&session->layout.optimizer, session->graph, p))
      continue;
    flops += ls_op_flops(LS_OP_ORTHOGONALISE, &(ls_attributes){0},
                         (int64_t[LS_MAX_DIMS]){dims[0] * dims[1], dims[1]}, NULL);
  }
  return flops;
}

static share find_share(const ls_session *session) {
  const ls_optimizer *optimizer = &session->layout.optimizer;
  share made = {0};
  for (int p = 0; p < session->graph->parameters.count; p++) {
    const ls_parameter_record *record = &session->graph->parameters.items[p];
    const ls_state_size size =
        ls_state_size_of(LS_PART_MASTER, record->about.ndim, record->about.dims);
    if (!record->trainable) continue;
    const bool other = ls_optimizer_update_of(optimizer, session->graph, p);
    *(other ? &made.others : &made.count) += 1;
    *(other ? &made.other_elements : &made.elements) += size.rows * size.columns;
    if (other) continue;
    made.lines += size.rows + size.columns;
  }
  return made;
}

static void print_owned(const ls_session *session) {
  const owned of = find_owned(session);
  const int ranks = ls_mesh_stage_ranks(&of.program->mesh);
  printf("  each matrix is made orthogonal by one rank, its owner: %.4g GFLOP a step of all",
         1e-9 * orthogonal_flops(session));
  if (ranks > 1)
    printf(", %.4g of the rank of %d with most, for which %.4g MB go there and back",
           1e-9 * of.flops, ranks, 1e-6 * of.sent);
  printf("\n");
}

static void print_share(const ls_session *session) {
  const ls_optimizer *optimizer = &session->layout.optimizer;
  const ls_optimizer_row *row = ls_optimizer_row_of(optimizer);
  if (row->rule == LS_UPDATES_ALL) return;
  const share of = find_share(session);
  printf("  %s has %d of these parameters, %lld elements; %s the other %d, %lld\n", row->name,
         of.count, (long long)of.elements, ls_optimizer_update(optimizer, 1)->name, of.others,
         (long long)of.other_elements);
  if (row->rule == LS_UPDATES_MATRICES)
    print_owned(session);
  else if (row->rule == LS_UPDATES_FACTORED)
    printf(
        "  squares of rows and columns are added up over the ranks that hold shards: %.4g MB a "
        "step of all\n",
        4e-6 * (double)of.lines);
  else
    printf(
        "  the largest of each block is found over the ranks that hold shards: %.4g MB a step of "
        "all\n",
        8e-6 * (double)of.elements / LS_STATE_BLOCK);
}

void ls_show_groups(const ls_session *session, bool json) {
  const groups all = list_groups(session);
  const double learning_rate = session->run->train.lr;
  if (json) {
    print_json(&all, learning_rate);
    return;
  }
  printf("%s, learning rate at its highest, by group\n",
         ls_optimizer_row_of(&session->layout.optimizer)->name);
  printf("  %13s %8s %13s %11s %14s  from, to\n", "learning rate", "times", "weight decay",
         "parameters", "elements");
  for (int g = 0; g < all.count; g++) {
    const settings_group *each = &all.items[g];
    printf("  %13.6g %8.4g %13.6g %11d %14lld  %s, %s\n", each->rate * learning_rate, each->rate,
           each->weight_decay, each->count, (long long)each->elements, each->first, each->last);
  }
  print_share(session);
}
