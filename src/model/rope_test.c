/* Rotary frequencies of every rope_type, against transformers' own (modeling_rope_utils.py of 5.23
 * with float32 read as float64): read from a config.json, so that its keys are tested as well. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "model/model.h"

enum { PAIRS = 8 };

static void check(const char *keys, int64_t sequence, double scale, const double *expected) {
  ls_arena *arena = ls_arena_create();
  ls_model_config config;
  ls_error error = {0};
  double found_scale;
  const char *text = ls_arena_printf(arena,
                                     "{\"model_type\": \"llama\", \"hidden_size\": 32, "
                                     "\"num_attention_heads\": 2, %s}",
                                     keys);
  if (ls_model_config_parse(arena, "config.json", text, strlen(text), &config, &error) != LS_OK)
    fail_msg("%s", error.text);
  const double *found = ls_rope_frequencies(arena, &config, false, sequence, &found_scale);
  if (!(fabs(found_scale - scale) <= 1e-14)) fail_msg("%s: scale %.17g", keys, found_scale);
  for (int i = 0; i < PAIRS; i++)
    if (!(fabs(found[i] - expected[i]) <= 1e-14 * expected[i]))
      fail_msg("%s: pair %d turns by %.17g; expected %.17g", keys, i, found[i], expected[i]);
  ls_arena_destroy(&arena);
}

static const double plain[PAIRS] = {1,    0.31622776601683794,  0.1,   0.03162277660168379,
                                    0.01, 0.003162277660168379, 0.001, 0.00031622776601683794};

static void plain_and_linear(void **state) {
  (void)state;
  double quarter[PAIRS];
  for (int i = 0; i < PAIRS; i++) quarter[i] = plain[i] / 4;
  check("\"rope_theta\": 10000", 9, 1, plain);
  check("\"rope_scaling\": {\"type\": \"linear\", \"factor\": 4}", 9, 1, quarter);
}

/* Llama 3.2's numbers: four pairs are kept, one blended, three stretched. */
static void llama3(void **state) {
  (void)state;
  static const double expected[PAIRS] = {1,
                                         0.19392274474868576,
                                         0.03760603093086393,
                                         0.0072926647372171085,
                                         0.00042955679655936815,
                                         8.570255489881478e-06,
                                         1.661967467795309e-06,
                                         3.2229329303788936e-07};
  check(
      "\"rope_theta\": 500000, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 32, "
      "\"low_freq_factor\": 1, \"high_freq_factor\": 4, "
      "\"original_max_position_embeddings\": 8192}",
      9, 1, expected);
}

static void yarn(void **state) {
  (void)state;
  static const double rounded[PAIRS] = {
      1,       0.31622776601683794,   0.1,     0.02569350598886808,
      0.00625, 0.0013834964763236657, 0.00025, 7.905694150420948e-05};
  static const double exact[PAIRS] = {1,
                                      0.31622776601683794,
                                      0.1,
                                      0.03162277660168379,
                                      0.005790104962447107,
                                      0.00012395236926610428,
                                      2.5e-05,
                                      7.905694150420947e-06};
  check(
      "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, "
      "\"original_max_position_embeddings\": 4096}",
      9, 1.138629436111989, rounded);
  check(
      "\"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 40, \"mscale\": 0.707, "
      "\"mscale_all_dim\": 1, \"truncate\": false, \"beta_fast\": 16, \"beta_slow\": 2, "
      "\"original_max_position_embeddings\": 4096}",
      9, 0.9210423553163399, exact);
  check(
      "\"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 4, \"attention_factor\": 1.5, "
      "\"original_max_position_embeddings\": 4096}",
      9, 1.5, rounded);
  check(
      "\"max_position_embeddings\": 16384, \"rope_parameters\": {\"rope_type\": \"yarn\", "
      "\"original_max_position_embeddings\": 4096}",
      9, 1.138629436111989, rounded);
}

static void dynamic(void **state) {
  (void)state;
  static const double longer[PAIRS] = {1,
                                       0.2495284675940164,
                                       0.062264456139818077,
                                       0.01553675432614365,
                                       0.0038768624983873293,
                                       0.0009673875582953002,
                                       0.00024139073499094342,
                                       6.0233860193683424e-05};
  static const char *const keys =
      "\"max_position_embeddings\": 32, \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}";
  check(keys, 100, 1, longer);
  check(keys, 30, 1, plain);
}

/* The list for short sequences up to the original positions, the other beyond. */
static void longrope(void **state) {
  (void)state;
  static const double few[PAIRS] = {1,
                                    0.2874797872880344,
                                    0.08333333333333333,
                                    0.024325212770525996,
                                    0.007142857142857143,
                                    0.0021081851067789193,
                                    0.000625,
                                    0.0001860163329510811};
  static const double many[PAIRS] = {
      0.6666666666666666,     0.15811388300841897,  0.04,
      0.010540925533894598,   0.002857142857142857, 0.0007905694150420947,
      0.00022222222222222223, 6.324555320336758e-05};
  static const char *const keys =
      "\"max_position_embeddings\": 256, \"original_max_position_embeddings\": 64, "
      "\"rope_scaling\": {\"type\": \"longrope\", "
      "\"short_factor\": [1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7], "
      "\"long_factor\": [1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5]}";
  check(keys, 64, 1.1547005383792517, few);
  check(keys, 65, 1.1547005383792517, many);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(plain_and_linear), cmocka_unit_test(llama3),
                                     cmocka_unit_test(yarn), cmocka_unit_test(dynamic),
                                     cmocka_unit_test(longrope)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
