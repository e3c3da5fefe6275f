#include "ir/state.h"

#include <stddef.h>
#include <string.h>

const char *ls_category_name(ls_category category) {
  static const char *const names[] = {
#define LS_CATEGORY_NAME(suffix, name) name,
      LS_CATEGORIES(LS_CATEGORY_NAME)
#undef LS_CATEGORY_NAME
  };
  return names[category];
}

enum { LS_ALL = 0, LS_TRAINED = 1, LS_KEPT = 2 };
enum { LS_TENSOR = 0, LS_RANGE = 1 };

static const ls_state_row parts[LS_PART_COUNT] = {
#define LS_PART_ROW(suffix, name, type, shape, category, has, saved) \
  {name,                                                             \
   LS_TYPE_##type,                                                   \
   LS_##shape,                                                       \
   LS_CATEGORY_##category,                                           \
   ((LS_##has) & LS_TRAINED) != 0,                                   \
   ((LS_##has) & LS_KEPT) != 0,                                      \
   saved},
    LS_STATE_PARTS(LS_PART_ROW)
#undef LS_PART_ROW
};

const ls_state_row *ls_state_row_of(ls_state_part part) {
  return &parts[part];
}

ls_dtype ls_state_dtype(const ls_layout *layout, ls_state_part part) {
  const ls_state_type type = parts[part].type;
  if (layout->compute == LS_F64 || type == LS_TYPE_COMPUTE) return layout->compute;
  return type == LS_TYPE_GRADIENT ? layout->grad_dtype : LS_F32;
}

#define SETTING(from, to, key) \
  { offsetof(ls_optimizer, from), offsetof(ls_attributes, to), key }

static const ls_optimizer_row optimizers[LS_OPTIMIZER_COUNT] = {
    [LS_OPTIMIZER_ADAMW] = {.name = "adamw",
                            .update = LS_OP_ADAMW,
                            .speculative = LS_OP_ADAMW_SPECULATE,
                            .moments = 2,
                            .moment = {LS_PART_MOMENT1, LS_PART_MOMENT2},
                            .settings = 3,
                            .setting = {SETTING(beta1, beta1, "optimizer.betas"),
                                        SETTING(beta2, beta2, "optimizer.betas"),
                                        SETTING(epsilon, epsilon, "optimizer.eps")}},
    [LS_OPTIMIZER_SGD] = {.name = "sgd",
                          .update = LS_OP_SGD,
                          .speculative = LS_OP_SGD_SPECULATE,
                          .moments = 1,
                          .moment = {LS_PART_MOMENT1},
                          .settings = 1,
                          .setting = {SETTING(momentum, beta1, "optimizer.momentum")}},
};

const ls_optimizer_row *ls_optimizer_row_of(ls_optimizer_kind kind) {
  return &optimizers[kind];
}

const ls_optimizer_row *ls_optimizer_of_op(ls_op_kind op) {
  for (int k = 0; k < LS_OPTIMIZER_COUNT; k++)
    if (optimizers[k].update == op || optimizers[k].speculative == op) return &optimizers[k];
  return NULL;
}

bool ls_optimizer_keeps(ls_optimizer_kind kind, ls_state_part part) {
  bool keeps = part == LS_PART_MASTER;
  for (int m = 0; m < optimizers[kind].moments; m++) keeps |= optimizers[kind].moment[m] == part;
  return keeps;
}

ls_attributes ls_optimizer_attributes(const ls_optimizer *optimizer, int ndim) {
  const ls_optimizer_row *row = &optimizers[optimizer->kind];
  ls_attributes made = {.weight_decay = ndim >= 2 ? optimizer->weight_decay : 0};
  for (int s = 0; s < row->settings; s++)
    memcpy((char *)&made + row->setting[s].to, (const char *)optimizer + row->setting[s].from,
           sizeof(double));
  return made;
}

bool ls_optimizer_takes(ls_optimizer_kind kind, const char *key) {
  const ls_optimizer_row *row = &optimizers[kind];
  for (int s = 0; s < row->settings; s++)
    if (strcmp(row->setting[s].key, key) == 0) return true;
  return false;
}
