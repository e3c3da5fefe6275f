#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "model/model.h"

static const char help[] =
    "usage: lockstep models [WORD] [--json]\n\n"
    "The models whose shapes are built in: what `model:` of a run file, and lockstep plan, take "
    "by\n"
    "name, in upper or lower case, with or without punctuation. Without a word, all; with one,\n"
    "those whose name has it; a whole name, in full. Those that cannot be built yet are listed\n"
    "with what they have that is missing. Any other model is a folder with a config.json.\n\n"
    "  --json  for programs, the keys of config.json among it\n"
    "  --help  this text\n\n"
    "examples:\n"
    "  lockstep models\n"
    "  lockstep models qwen3\n"
    "  lockstep models llama3-405b\n";

static bool is_meant(const ls_preset *preset, const char *word) {
  if (!word || strcasestr(preset->name, word) || ls_preset_is_called(preset, word)) return true;
  for (const char *const *also = preset->also; *also; also++)
    if (strcasestr(*also, word)) return true;
  return false;
}

/* A shape, opened; a row that cannot be has none. */
static ls_status open_shape(ls_arena *arena, const ls_preset *preset, ls_model_config *config,
                            ls_error *error) {
  *config = (ls_model_config){0};
  return preset->config ? ls_model_find(arena, preset->name, config, error) : LS_OK;
}

static void print_line(const ls_preset *preset, const ls_model_config *config) {
  if (!preset->config) {
    printf("%-24s %9s  cannot be built: %s\n", preset->name, preset->parameters, preset->not_built);
    return;
  }
  printf("%-24s %9s %6d %6d %6d %5d %5d %7d  %s%s\n", preset->name, preset->parameters,
         (int)config->layers, (int)config->width, (int)config->mlp_width, (int)config->heads,
         (int)config->kv_heads, (int)config->vocabulary, config->family,
         config->tied ? ", tied" : "");
}

static void print_full(const ls_preset *preset, const ls_model_config *config) {
  printf("\n%s: %s\n", preset->name, preset->title);
  if (preset->config)
    printf("  parameters   %lld, published %s billion\n", (long long)ls_model_parameters(config),
           preset->parameters);
  for (const char *const *also = preset->also; *also; also++) printf("  also         %s\n", *also);
  if (preset->hub) printf("  weights      huggingface.co/%s\n", preset->hub);
  printf("  source       %s\n", preset->source);
  if (preset->notes) printf("  notes        %s\n", preset->notes);
}

static json_t *preset_json(const ls_preset *preset) {
  json_t *row =
      json_pack("{s:s, s:s, s:s, s:s, s:s*, s:s*, s:s*}", "name", preset->name, "title",
                preset->title, "billions", preset->parameters, "source", preset->source, "hub",
                preset->hub, "notes", preset->notes, "not_built", preset->not_built);
  json_t *also = json_array();
  for (const char *const *name = preset->also; *name; name++)
    json_array_append_new(also, json_string(*name));
  json_object_set_new(row, "also", also);
  if (preset->config) json_object_set_new(row, "config", json_loads(preset->config, 0, NULL));
  return row;
}

static void print_json(const ls_preset *presets, int count, const char *word) {
  json_t *rows = json_array();
  for (int i = 0; i < count; i++)
    if (is_meant(&presets[i], word)) json_array_append_new(rows, preset_json(&presets[i]));
  char *text = json_dumps(rows, JSON_INDENT(2));
  printf("%s\n", text ? text : "[]");
  free(text);
  json_decref(rows);
}

static ls_status models(ls_arena *arena, const ls_words *words, void *asked, ls_error *error) {
  if (words->key_count)
    return ls_fail(error, LS_INPUT, "%s: models takes no keys of a run file", words->keys[0]);
  if (words->positional_count > 1)
    return ls_fail(error, LS_INPUT, "%s: expected one word", words->positional[1]);
  const char *word = words->positional_count ? words->positional[0] : NULL;
  int count, listed = 0;
  const ls_preset *presets = ls_model_presets(arena, &count);
  if (*(bool *)asked) {
    print_json(presets, count, word);
    return LS_OK;
  }
  ls_model_config config;
  for (int i = 0; i < count; i++) {
    if (!is_meant(&presets[i], word)) continue;
    if (!listed++)
      printf("%-24s %9s %6s %6s %6s %5s %5s %7s\n", "model", "billions", "layers", "width", "MLP",
             "heads", "KV", "tokens");
    LS_TRY(open_shape(arena, &presets[i], &config, error));
    print_line(&presets[i], &config);
  }
  if (!listed) return ls_model_find(arena, word, &config, error); /* says which are near */
  for (int i = 0; word && i < count; i++) {
    if (!ls_preset_is_called(&presets[i], word)) continue;
    LS_TRY(open_shape(arena, &presets[i], &config, error));
    print_full(&presets[i], &config);
  }
  return LS_OK;
}

int ls_command_models(int count, char **words) {
  bool json = false;
  const ls_command_flag flags[] = {{"--json", NULL, &json}};
  return ls_command_run(
      &(ls_command){"models", help, false, flags, sizeof flags / sizeof *flags, models, &json},
      count, words);
}
