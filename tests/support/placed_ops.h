/* Ops that are told where their elements lie in the whole: of an update, whose kernels know where
 * in the whole parameter their elements lie: what makes views of any op by its labels makes none of
 * these, and src/device/updates_test.c tests them; of blocks, whose scales are numbered:
 * src/device/cpu_blocks_test.c; nor of slots and capacities, whose numbers fit one another:
 * src/device/slots_test.c, capacity_test.c; nor of caches whose rows are dealt to ranks:
 * src/device/dealt_test.c; nor of tokens that lie in an order of their own:
 * src/device/pair_shares_test.c. */
#ifndef LS_TESTS_PLACED_OPS_H
#define LS_TESTS_PLACED_OPS_H

#include "graph/op.h"

static inline bool ls_test_is_placed(ls_op_kind kind) {
  const bool slots = (kind >= LS_OP_CHOICES && kind <= LS_OP_LEFT_OUT) ||
                     (kind >= LS_OP_KEEP_BWD && kind <= LS_OP_FROM_SLOTS_BWD);
  const bool dealt = kind == LS_OP_CACHED_PART || kind == LS_OP_CACHED_END;
  return slots || dealt || kind == LS_OP_TOKEN_ROWS || kind == LS_OP_RESTORE_SCALES ||
         kind == LS_OP_ADAMW8_LARGEST || kind == LS_OP_ADAMW8 || kind == LS_OP_ADAMW8_KEEP ||
         kind == LS_OP_MUON_MOMENTUM || kind == LS_OP_ORTHOGONALISE || kind == LS_OP_MUON ||
         (kind >= LS_OP_RANGE_AMAX && kind <= LS_OP_FP8_DECODE) ||
         (kind >= LS_OP_ADAFACTOR_SUMS && kind <= LS_OP_ADAFACTOR);
}

#endif
