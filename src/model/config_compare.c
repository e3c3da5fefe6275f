#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/model.h"

static ls_status fail(const char *what, double found, double expected, ls_error *error) {
  return ls_fail(error, LS_INPUT, "%s: found %.12g; expected %.12g", what, found, expected);
}

static ls_status fail_flag(const char *what, bool found, bool expected, ls_error *error) {
  return ls_fail(error, LS_INPUT, "%s: found %s; expected %s", what, found ? "true" : "false",
                 expected ? "true" : "false");
}

enum { TARGETS_BYTES = 192 };

/* "attention.query, mlp.down" of bits by ls_model_linears. */
static const char *targets_text(int64_t targets, char text[TARGETS_BYTES]) {
  size_t used = 0;
  text[0] = 0;
  for (int p = 0; p < LS_MODEL_LINEARS && used < TARGETS_BYTES; p++)
    if (targets >> p & 1)
      used += (size_t)snprintf(text + used, TARGETS_BYTES - used, "%s%s", used ? ", " : "",
                               ls_model_linears[p]);
  return targets ? text : "none";
}

static ls_status compare_targets(int64_t found, int64_t expected, ls_error *error) {
  char texts[2][TARGETS_BYTES];
  if (found == expected) return LS_OK;
  return ls_fail(error, LS_INPUT, "products with adapters: found %s; expected %s",
                 targets_text(found, texts[0]), targets_text(expected, texts[1]));
}

/* Numbers that were written and read again. */
static bool is_same(double a, double b) {
  return fabs(a - b) <= 1e-12 * fabs(b);
}

static ls_status compare_lists(const char *what, const double *found, const double *expected,
                               int64_t count, ls_error *error) {
  if (!found != !expected) return fail(what, found != NULL, expected != NULL, error);
  for (int64_t i = 0; found && i < count; i++)
    if (!is_same(found[i], expected[i])) return fail(what, found[i], expected[i], error);
  return LS_OK;
}

/* What a layer is, where it may have a window or be without rotation. */
static int kind_of(const ls_model_config *config, int64_t layer) {
  if (config->layer_kinds) return config->layer_kinds[layer];
  return config->window > 0 ? LS_LAYER_WINDOW : 0;
}

static ls_status compare_adapters(const ls_model_config *found, const ls_model_config *expected,
                                  ls_error *error) {
  if (!found->lora_sizes && !expected->lora_sizes) return LS_OK;
  for (int64_t l = 0; l < found->layers; l++)
    for (int p = 0; p < LS_MODEL_LINEARS; p++) {
      const ls_lora_size a = ls_model_lora_size(found, l, p);
      const ls_lora_size b = ls_model_lora_size(expected, l, p);
      if (!(found->lora_targets >> p & 1)) continue;
      if (a.rank != b.rank)
        return fail("rank of an adapter", (double)a.rank, (double)b.rank, error);
      if (!is_same(a.alpha, b.alpha)) return fail("alpha of an adapter", a.alpha, b.alpha, error);
    }
  return LS_OK;
}

ls_status ls_model_config_compare(const ls_model_config *found, const ls_model_config *expected,
                                  ls_error *error) {
  if (strcmp(found->family, expected->family) != 0)
    return ls_fail(error, LS_INPUT, "model_type: found %s; expected %s", found->family,
                   expected->family);
  LS_TRY(compare_targets(found->lora_targets, expected->lora_targets, error));
#define LS_MODEL_COMPARE(type, name, words)                                       \
  if (!is_same((double)found->name, (double)expected->name))                      \
    return _Generic(found->name, bool                                             \
                    : true, default                                               \
                    : false)                                                      \
               ? fail_flag(words, (bool)found->name, (bool)expected->name, error) \
               : fail(words, (double)found->name, (double)expected->name, error);
  LS_MODEL_NUMBERS(LS_MODEL_COMPARE)
#undef LS_MODEL_COMPARE
  for (int64_t l = 0; l < found->layers; l++)
    if (kind_of(found, l) != kind_of(expected, l))
      return fail("layer_types", kind_of(found, l), kind_of(expected, l), error);
  LS_TRY(compare_adapters(found, expected, error));
  const int64_t turned = found->rotary_dim ? found->rotary_dim : found->head_dim;
  LS_TRY(compare_lists("short_factor of rope_scaling", found->rope_short, expected->rope_short,
                       turned / 2, error));
  return compare_lists("long_factor of rope_scaling", found->rope_long, expected->rope_long,
                       turned / 2, error);
}
