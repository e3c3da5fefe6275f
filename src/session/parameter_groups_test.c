/* optimizer.groups and optimizer.layer_decay: what each parameter gets, and what is refused. */
#include "session/parameter_groups.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "store/freeze.h"

typedef struct grouped {
  ls_arena *arena;
  ls_run_file *run;
  ls_model_config config;
  ls_graph *graph;
} grouped;

static grouped open_run(const char *preset, const char *text) {
  grouped made = {.arena = ls_arena_create()};
  const ls_build_options options = {.tokens = 4, .sequence = 4};
  ls_error error = {0};
  if (ls_run_file_parse(made.arena, "run.yaml", text, strlen(text), NULL, 0, &made.run, &error) !=
          LS_OK ||
      ls_model_find(made.arena, preset, &made.config, &error) != LS_OK ||
      ls_model_build(made.arena, &made.config, &options, &made.graph, &error) != LS_OK)
    fail_msg("%s", error.text);
  return made;
}

static void apply(grouped *of) {
  ls_error error = {0};
  if (ls_parameter_groups_apply(of->run, &of->config, of->graph, &error) != LS_OK)
    fail_msg("%s", error.text);
}

static void expect(const grouped *of, const char *name, double rate, double weight_decay) {
  for (int p = 0; p < of->graph->parameters.count; p++) {
    const ls_parameter_record *record = &of->graph->parameters.items[p];
    if (strcmp(record->about.name, name) != 0) continue;
    if (!(fabs(record->settings.rate - rate) <= 1e-15 * rate) ||
        record->settings.weight_decay != weight_decay)
      fail_msg("%s has %.17g and %.17g; expected %.17g and %g", name, record->settings.rate,
               record->settings.weight_decay, rate, weight_decay);
    return;
  }
  fail_msg("no %s", name);
}

/* A llama of 4 layers. The first group that covers a parameter has it, with what it does not say
 * left as usual. */
static void the_first_group_holds(void **state) {
  (void)state;
  grouped of = open_run("llama-3m",
                        "train: {lr: 2e-3}\n"
                        "optimizer:\n"
                        "  groups:\n"
                        "    - {match: 'model.layers.0.*norm*', weight_decay: 0.5}\n"
                        "    - {match: '*layernorm', lr: 0.1x}\n"
                        "    - {match: layers.1-2.mlp, lr: 1e-3, weight_decay: 0}\n"
                        "    - {match: '*.q_proj.weight', lr: 3x}\n");
  apply(&of);
  expect(&of, "layers.0.norm1.weight", 1, 0.5);
  expect(&of, "layers.0.norm2.weight", 1, 0.5);
  expect(&of, "layers.1.norm1.weight", 0.1, -1);
  expect(&of, "layers.1.mlp.down.weight", 0.5, 0);
  expect(&of, "layers.2.mlp.gate.weight", 0.5, 0);
  expect(&of, "layers.3.mlp.gate.weight", 1, -1);
  expect(&of, "layers.3.attention.query.weight", 3, -1);
  expect(&of, "embedding.token", 1, -1);
  ls_arena_destroy(&of.arena);
}

/* The embedding lies under 4 layers, the last norm above them. */
static void each_layer_learns_slower_than_the_one_above(void **state) {
  (void)state;
  grouped of = open_run("gpt2-10m",
                        "optimizer:\n"
                        "  layer_decay: 0.5\n"
                        "  groups: [{match: h.1.attn.c_attn, lr: 0.1x}]\n");
  apply(&of);
  const int layers = (int)of.config.layers;
  expect(&of, "embedding.token", pow(0.5, layers + 1), -1);
  expect(&of, "embedding.position", pow(0.5, layers + 1), -1);
  expect(&of, "layers.0.mlp.up.weight", pow(0.5, layers), -1);
  expect(&of, "layers.1.attention.query.weight", 0.1 * pow(0.5, layers - 1), -1);
  expect(&of, "layers.1.attention.value.bias", 0.1 * pow(0.5, layers - 1), -1);
  expect(&of, "layers.1.attention.output.bias", pow(0.5, layers - 1), -1);
  expect(&of, "head.norm.weight", 1, -1);
  ls_arena_destroy(&of.arena);
}

static void refused(const char *groups, const char *freeze, const char *expected) {
  char text[256];
  snprintf(text, sizeof text, "train: {lr: 2e-3}\noptimizer:\n  groups: %s\n", groups);
  grouped of = open_run("llama-3m", text);
  ls_error error = {0};
  if (freeze) assert_int_equal(ls_freeze(&of.config, of.graph, &freeze, 1, &error), LS_OK);
  const ls_status status = ls_parameter_groups_apply(of.run, &of.config, of.graph, &error);
  if (status != LS_INPUT || strcmp(error.text, expected) != 0)
    fail_msg("found %s\nexpected %s", error.text, expected);
  ls_arena_destroy(&of.arena);
}

static void what_would_change_nothing_is_refused(void **state) {
  (void)state;
  refused("[{match: layers.0.mpl, lr: 2x}]", NULL,
          "run.yaml:3: optimizer.groups: no parameter is called layers.0.mpl; the nearest is "
          "layers.0.mlp");
  refused("[{match: layers.7, lr: 2x}]", NULL,
          "run.yaml:3: optimizer.groups: no parameter is called layers.7; the nearest is layers.0");
  refused("[{match: '*', lr: 2x}, {match: layers.0, lr: 3x}]", NULL,
          "run.yaml:3: optimizer.groups: all that layers.0 covers is of earlier groups, and the "
          "first holds; expected a parameter that none of them covers");
  refused("[{match: embedding, lr: 2x}]", "embedding",
          "run.yaml:3: optimizer.groups: all that embedding covers is frozen; expected a parameter "
          "that is trained");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_first_group_holds),
      cmocka_unit_test(each_layer_learns_slower_than_the_one_above),
      cmocka_unit_test(what_would_change_nothing_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
