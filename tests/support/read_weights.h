/* Parameters out of weights' files, for tests: a run reads tiles of them (store/stored_box.h).
 *
 *   assert_int_equal(ls_test_read_weights(weights, i, 0, rows, target, LS_F32, &error), LS_OK);
 */
#ifndef LS_TESTS_READ_WEIGHTS_H
#define LS_TESTS_READ_WEIGHTS_H

#include "store/weights.h"

/* Rows first .. first + rows - 1 of a parameter (elements where it has one dimension) to `target`
 * as any floating type. */
LS_CHECKED ls_status ls_test_read_weights(const ls_weights *weights, int parameter, int64_t first,
                                          int64_t rows, void *target, ls_dtype dtype,
                                          ls_error *error);

#endif
