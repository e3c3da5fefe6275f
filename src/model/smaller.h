/* A model's config.json with fewer layers, or narrower: to tune on, or to draft.
 *
 *   int64_t kept[LAYERS];
 *   ls_layers_kept(config.layers, 4, kept);
 *   LS_TRY(ls_model_smaller(arena, &config, kept, 4, 512, &small, error));
 *
 * Thread-safe: no state. */
#ifndef LS_MODEL_SMALLER_H
#define LS_MODEL_SMALLER_H

#include "model/model.h"

/* Which `few` of `layers` are kept: evenly spaced, with the first and the last (Shleifer, Rush:
 * "Pre-trained summarization distillation", arXiv:2010.13002); one alone is the first. */
void ls_layers_kept(int64_t layers, int64_t few, int64_t *kept);

/* The configuration of those layers (NULL: all) in this width (0: its own), with its text. Heads
 * keep their columns: there are fewer, and as many for each key/value head; the MLP is as much
 * narrower. LS_INPUT: a width that is no whole heads, or one whose columns are not the stream's; a
 * layer would not be what it was (a window, no experts). */
LS_CHECKED ls_status ls_model_smaller(ls_arena *arena, const ls_model_config *config,
                                      const int64_t *kept, int64_t few, int64_t width,
                                      ls_model_config *small, ls_error *error);

#endif
