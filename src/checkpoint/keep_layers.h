/* The weights of some of a model's layers, and in these of some columns, as a Hugging Face folder
 * of a model that has only these.
 *
 *   LS_TRY(ls_keep_layers(arena, "runs/a/checkpoints/step-9", &config, kept, &small, "small",
 *                         error));
 *
 * Written aside and published whole. Thread-safe for different folders. */
#ifndef LS_CHECKPOINT_KEEP_LAYERS_H
#define LS_CHECKPOINT_KEEP_LAYERS_H

#include "model/model.h"

/* Writes `to`, which is not there yet or empty: layer i of `small` is layer kept[i] of the folder's
 * model `config`; what is of no layer stays. Where `small` is narrower it has the columns, heads
 * and columns of MLPs whose weights are largest. Types stay; tokenizer's files come along.
 * LS_INPUT: the folder's weights are not the model's, or in blocks. Nothing is left behind then. */
LS_CHECKED ls_status ls_keep_layers(ls_arena *arena, const char *folder,
                                    const ls_model_config *config, const int64_t *kept,
                                    const ls_model_config *small, const char *to, ls_error *error);

#endif
