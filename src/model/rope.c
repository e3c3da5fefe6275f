#include <math.h>

#include "model/model.h"

/* Formulas: transformers 5, modeling_rope_utils.py. */

static const double pi = 3.14159265358979323846;

/* Long wavelengths are stretched by `factor`, short ones kept, those between blended
 * (_compute_llama3_parameters). */
static double llama3_frequency(double frequency, const ls_model_config *config) {
  const double wavelength = 2 * pi / frequency;
  const double original = config->rope_original_positions;
  const double low = config->rope_low_freq_factor, high = config->rope_high_freq_factor;
  if (wavelength > original / low) return frequency / config->rope_factor;
  if (wavelength < original / high) return frequency;
  const double smooth = (original / wavelength - low) / (high - low);
  return (1 - smooth) * frequency / config->rope_factor + smooth * frequency;
}

/* The pair of columns, as a fraction, that turns `rotations` times over the original positions. */
static double yarn_limit(double rotations, int64_t columns, const ls_model_config *config) {
  return (double)columns * log(config->rope_original_positions / (rotations * 2 * pi)) /
         (2 * log(config->rope_theta));
}

/* Pairs that turn often keep their frequency, those that turn less than once are stretched, and
 * between them it is blended along a ramp (Peng, Quesnelle, Fan, Shippole: "YaRN", 2023;
 * _compute_yarn_parameters). */
static double yarn_frequency(double frequency, int64_t pair, int64_t columns,
                             const ls_model_config *config) {
  double low = yarn_limit(config->rope_beta_fast, columns, config);
  double high = yarn_limit(config->rope_beta_slow, columns, config);
  if (!config->rope_exact_range) {
    low = floor(low);
    high = ceil(high);
  }
  low = fmax(low, 0);
  high = fmin(high, (double)columns - 1);
  if (!(high < low || high > low)) high += 0.001;
  const double ramp = fmin(fmax(((double)pair - low) / (high - low), 0), 1);
  return frequency / config->rope_factor * ramp + frequency * (1 - ramp);
}

/* Beyond the positions it was made for, the base grows with the sequence
 * (_compute_dynamic_ntk_parameters). */
static double dynamic_theta(const ls_model_config *config, int64_t columns, int64_t sequence) {
  const double positions = config->rope_original_positions;
  const double length = fmax((double)sequence, positions), factor = config->rope_factor;
  const double growth = factor * length / positions - (factor - 1);
  return config->rope_theta * pow(growth, (double)columns / (double)(columns - 2));
}

static double scaled_frequency(const ls_model_config *config, double frequency, int64_t pair,
                               int64_t columns, int64_t sequence) {
  switch (config->rope_scaling) {
    case LS_ROPE_LINEAR: return frequency / config->rope_factor;
    case LS_ROPE_LLAMA3: return llama3_frequency(frequency, config);
    case LS_ROPE_YARN: return yarn_frequency(frequency, pair, columns, config);
    case LS_ROPE_LONGROPE: {
      const bool longer = (double)sequence > config->rope_original_positions;
      return frequency / (longer ? config->rope_long : config->rope_short)[pair];
    }
    case LS_ROPE_PLAIN:
    case LS_ROPE_DYNAMIC: break;
  }
  return frequency;
}

const double *ls_rope_frequencies(ls_arena *arena, const ls_model_config *config, bool local,
                                  int64_t sequence, double *scale) {
  const int64_t columns = config->rotary_dim ? config->rotary_dim : config->head_dim;
  double *frequencies = LS_NEW_ARRAY(arena, double, columns / 2);
  double theta = local ? config->rope_local_theta : config->rope_theta;
  if (!local && config->rope_scaling == LS_ROPE_DYNAMIC)
    theta = dynamic_theta(config, columns, sequence);
  *scale = !local && config->rope_attention_factor > 0 ? config->rope_attention_factor : 1;
  for (int64_t pair = 0; pair < columns / 2; pair++) {
    const double plain = 1 / pow(theta, 2 * (double)pair / (double)columns);
    frequencies[pair] = local ? plain : scaled_frequency(config, plain, pair, columns, sequence);
  }
  return frequencies;
}
