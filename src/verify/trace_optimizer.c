#include <string.h>

#include "verify/trace.h"

/* A number that must be what is built. */
static ls_status expect_number(const ls_json_object *json, const char *key, double built,
                               ls_error *error) {
  double found;
  LS_TRY(ls_json_number(json, key, &found, error));
  if (found == built) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: \"%s\" is %g, which cannot be repeated; expected %g",
                 json->where, key, found, built);
}

static ls_status expect_coefficients(ls_arena *arena, const ls_json_object *hyper,
                                     ls_error *error) {
  static const double built[] = {3.4445, -4.775, 2.0315};
  double *found;
  int count;
  LS_TRY(ls_json_numbers(arena, hyper, "ns_coefficients", &found, &count, error));
  if (count == 3 && memcmp(found, built, sizeof built) == 0) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: found other \"ns_coefficients\"; expected [3.4445, -4.775, 2.0315]",
                 hyper->where);
}

/* Both groups' rates change alike. */
static ls_status check_rates(ls_arena *arena, const ls_json_object *root, double muon_lr, double lr,
                             ls_error *error) {
  const json_t *list = json_object_get(root->json, "steps");
  for (size_t s = 0; s < json_array_size(list); s++) {
    ls_json_object step;
    double of_matrices, usual;
    const char *where = ls_arena_printf(arena, "%s: step %zu", root->where, s);
    LS_TRY(ls_json_root(where, json_array_get(list, s), &step, error));
    LS_TRY(ls_json_number(&step, "muon_lr", &of_matrices, error));
    LS_TRY(ls_json_number(&step, "lr", &usual, error));
    if (of_matrices * lr - usual * muon_lr < 1e-15 * lr * muon_lr &&
        usual * muon_lr - of_matrices * lr < 1e-15 * lr * muon_lr)
      continue;
    return ls_fail(error, LS_INPUT, "%s: muon_lr %g and lr %g; expected hyper's %g and %g alike",
                   where, of_matrices, usual, muon_lr, lr);
  }
  return LS_OK;
}

static ls_status read_muon(ls_arena *arena, const ls_json_object *root, const ls_json_object *hyper,
                           ls_trace *trace, ls_error *error) {
  ls_trace_optimizer *made = &trace->optimizer;
  ls_json_object muon;
  const char *adjust;
  bool nesterov;
  double lr;
  LS_TRY(ls_json_number(hyper, "lr", &lr, error));
  LS_TRY(ls_json_number(hyper, "muon_lr", &made->muon_lr, error));
  LS_TRY(ls_json_number(hyper, "muon_momentum", &made->momentum, error));
  LS_TRY(ls_json_number(hyper, "muon_weight_decay", &made->muon_weight_decay, error));
  LS_TRY(expect_number(hyper, "ns_steps", 5, error));
  LS_TRY(expect_number(hyper, "ns_eps", 1e-7, error));
  LS_TRY(expect_coefficients(arena, hyper, error));
  LS_TRY(ls_json_bool_or(hyper, "muon_nesterov", true, &nesterov, error));
  LS_TRY(ls_json_string_or(hyper, "adjust_lr_fn", "original", &adjust, error));
  if (!nesterov || strcmp(adjust, "original") != 0)
    return ls_fail(error, LS_INPUT,
                   "%s: found muon_nesterov %s and adjust_lr_fn %.40s; expected true and original",
                   hyper->where, nesterov ? "true" : "false", adjust);
  LS_TRY(check_rates(arena, root, made->muon_lr, lr, error));
  LS_TRY(ls_json_child(arena, root, "muon", &muon, error));
  LS_TRY(ls_json_strings(arena, &muon, "parameters", &made->matrices, &made->matrix_count, error));
  for (int m = 0; m < made->matrix_count; m++)
    made->matrices[m] = ls_arena_strdup(arena, made->matrices[m]);
  return LS_OK;
}

ls_status ls_trace_read_optimizer(ls_arena *arena, const ls_json_object *root, ls_trace *trace,
                                  ls_error *error) {
  ls_json_object hyper;
  LS_TRY(ls_json_child(arena, root, "hyper", &hyper, error));
  if (strcmp(trace->optimizer.name, "muon") == 0)
    return read_muon(arena, root, &hyper, trace, error);
  LS_TRY(expect_number(&hyper, "block_size", 256, error));
  return expect_number(&hyper, "min_8bit_size", 4096, error);
}
