/* A trace repeated under a layout: for tests of equality with other programs. */
#ifndef LS_TESTS_TRACE_CASE_H
#define LS_TESTS_TRACE_CASE_H

#include "verify/verify.h"

/* A layout as a user would write it, words separated by blanks: "mesh.dp_shard=2 zero=1". The count
 * of devices is the product of the mesh. */
ls_status ls_trace_case_run(ls_arena *arena, const char *trace, const char *words,
                            ls_verification **verification, ls_error *error);

/* Runs it in `dtype` and prints a line; false, with the reason printed, where it does not hold. */
bool ls_trace_case_holds(const char *trace, const char *dtype, const char *words);

/* The final adapters of a trace, in the new folder `made`, which is returned: beside the trace's
 * own weights. */
const char *ls_trace_adapters(ls_arena *arena, const char *trace, const char *made);

#endif
