#include "model/family.h"

#include <string.h>

static const ls_family *const families[] = {
    &ls_family_bert,       &ls_family_bloom,    &ls_family_deepseek_v2, &ls_family_deepseek_v3,
    &ls_family_distilbert, &ls_family_falcon,   &ls_family_gemma,       &ls_family_gemma2,
    &ls_family_gemma3,     &ls_family_glm4_moe, &ls_family_gpt2,        &ls_family_gpt_neox,
    &ls_family_gpt_oss,    &ls_family_llama,    &ls_family_mistral,     &ls_family_mixtral,
    &ls_family_modernbert, &ls_family_olmo2,    &ls_family_olmoe,       &ls_family_phi,
    &ls_family_phi3,       &ls_family_qwen2,    &ls_family_qwen2_moe,   &ls_family_qwen3,
    &ls_family_qwen3_moe,  &ls_family_roberta,  &ls_family_smollm3,     &ls_family_starcoder2};
enum { FAMILIES = sizeof families / sizeof *families };

const ls_family *ls_family_find(const char *name) {
  for (int i = 0; i < FAMILIES; i++)
    if (strcmp(families[i]->name, name) == 0) return families[i];
  return NULL;
}

bool ls_model_is_encoder(const ls_model_config *config) {
  const ls_family *family = ls_family_find(config->family);
  return family && family->decoder.two_way;
}

const char *const *ls_family_dropout_keys(const ls_family *family) {
  static const char *const usual[] = {"attention_dropout", NULL};
  return family->dropout_keys ? family->dropout_keys : usual;
}

const char *ls_family_names(ls_arena *arena) {
  const char *names = families[0]->name;
  for (int i = 1; i < FAMILIES; i++)
    names = ls_arena_printf(arena, "%s, %s", names, families[i]->name);
  return names;
}
