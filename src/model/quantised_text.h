/* What a config.json says of scales. Thread-safe: no state. */
#ifndef LS_MODEL_QUANTISED_TEXT_H
#define LS_MODEL_QUANTISED_TEXT_H

#include "base/arena.h"

/* The text of a config.json of blocks with codes of 4 bits, beside files whose scales are quantised
 * again. */
const char *ls_config_scales_again(ls_arena *arena, const char *text);

#endif
