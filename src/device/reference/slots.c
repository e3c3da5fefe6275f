#include <math.h>
#include <string.h>

#include "device/reference/reference.h"

/* Rows of tokens that are sent to the ranks of their experts. A rank's slots lie in the order of
 * those ranks; what arrives is sorted by expert. Slots [ranks, slots, columns] are rows one after
 * the other. */

/* In place of the slot of a choice that finds none: LS_OP_LEFT_OUT tells of it; or of one that is
 * dropped, of no expert. */
enum { LEFT_OUT = -1 };

static LS_REAL *slot_of(const ls_view *slots, int64_t slot) {
  return (LS_REAL *)slots->data + slot * (slots->ndim > 2 ? slots->dims[2] : 1);
}

static int64_t count_slots(const ls_view *slots) {
  return slots->dims[0] * slots->dims[1];
}

/* The first row of this expert or one behind it. */
static int64_t first_row(const int32_t *expert_of_row, int64_t rows, int64_t expert) {
  int64_t low = 0, high = rows;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (expert_of_row[middle] < expert)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

ls_status LS_REFERENCE(SLOTS)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "iir>iir", error));
  if (args->accumulate[0] || args->accumulate[1] || args->accumulate[2])
    return ls_fail(error, LS_INTERNAL, "slots cannot be accumulated into");
  const ls_view *places = &args->in[0], *experts = &args->out[1];
  const int64_t choices = places->valid[0] * places->dims[1], held = args->attributes->held;
  const int32_t *row = places->data, *expert_of_row = args->in[1].data;
  int32_t *slot = args->out[0].data, *expert_of_slot = experts->data;
  for (int64_t s = 0; s < count_slots(experts); s++) {
    expert_of_slot[s] = (int32_t)args->attributes->experts;
    ls_real_data(&args->out[2])[s] = 0;
  }
  for (int64_t s = 0; s < choices; s++) {
    const int32_t expert = expert_of_row[row[s]];
    const int64_t rank = expert / held;
    const int64_t at = row[s] - first_row(expert_of_row, choices, rank * held);
    const bool has = expert < args->attributes->experts && at < experts->dims[1];
    slot[s] = has ? (int32_t)(rank * experts->dims[1] + at) : LEFT_OUT;
    if (slot[s] == LEFT_OUT) continue;
    expert_of_slot[slot[s]] = expert;
    ls_real_data(&args->out[2])[slot[s]] = ls_real_data(&args->in[2])[row[s]];
  }
  return LS_OK;
}

/* Whether of a rank's rows more are for one rank than it has slots for. */
static bool leaves_out(const ls_attributes *attributes, const int32_t *expert_of_row,
                       int64_t rows) {
  int64_t begin = 0;
  bool any = false;
  for (int64_t last = attributes->held; last <= attributes->experts; last += attributes->held) {
    const int64_t end = first_row(expert_of_row, rows, last);
    any |= end - begin > attributes->slots;
    begin = end;
  }
  return any;
}

ls_status LS_REFERENCE(LEFT_OUT)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "i>d", error));
  const int64_t ranks = args->attributes->turns > 0 ? args->attributes->turns : 1;
  const int64_t rows = args->in[0].valid[0] / ranks;
  bool any = false;
  for (int64_t r = 0; r < ranks; r++)
    any |= leaves_out(args->attributes, ls_index_data(&args->in[0]) + r * rows, rows);
  ls_put_cell(&args->out[0], any ? INFINITY : 0, args->accumulate[0]);
  return LS_OK;
}

ls_status LS_REFERENCE(SLOTS_BWD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rii>r", error));
  const ls_view *places = &args->in[1];
  const int32_t *row = places->data, *slot = args->in[2].data;
  for (int64_t s = 0; s < places->valid[0] * places->dims[1]; s++)
    ls_put(&ls_real_data(&args->out[0])[row[s]],
           slot[s] == LEFT_OUT ? 0 : (double)ls_real_data(&args->in[0])[slot[s]],
           args->accumulate[0]);
  return LS_OK;
}

/* A copy of each token's row in each of its slots, zeros in the others. */
static ls_status fill(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "ri>r", error));
  const ls_view *x = &args->in[0], *slots = &args->in[1], *out = &args->out[0];
  const int64_t chosen = slots->dims[1], columns = ls_smaller(x->dims[1], out->dims[2]);
  if (!args->accumulate[0])
    memset(out->data, 0, (size_t)(count_slots(out) * out->dims[2]) * sizeof(LS_REAL));
  for (int64_t s = 0; s < slots->valid[0] * chosen; s++) {
    const int32_t slot = ls_index_data(slots)[s];
    for (int64_t c = 0; c < columns && slot != LEFT_OUT; c++)
      ls_put(&slot_of(out, slot)[c], (double)ls_real_row(x, s / chosen)[c], args->accumulate[0]);
  }
  return LS_OK;
}

/* The sum of each token's slots. */
static ls_status collect(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "ri>r", error));
  const ls_view *from = &args->in[0], *slots = &args->in[1], *out = &args->out[0];
  const int64_t chosen = slots->dims[1], columns = ls_smaller(from->dims[2], out->dims[1]);
  for (int64_t n = 0; n < out->valid[0]; n++) {
    const int32_t *of = ls_index_data(slots) + n * chosen;
    for (int64_t c = 0; c < columns; c++) {
      double sum = 0;
      for (int64_t j = 0; j < chosen; j++)
        if (of[j] != LEFT_OUT) sum += (double)slot_of(from, of[j])[c];
      ls_put(&ls_real_row(out, n)[c], sum, args->accumulate[0]);
    }
    ls_put_padding(ls_real_row(out, n), columns, out->dims[1], args->accumulate[0]);
  }
  return LS_OK;
}

ls_status LS_REFERENCE(TO_SLOTS)(const ls_kernel_args *args, ls_error *error) {
  return fill(args, error);
}

ls_status LS_REFERENCE(TO_SLOTS_BWD)(const ls_kernel_args *args, ls_error *error) {
  return collect(args, error);
}

ls_status LS_REFERENCE(FROM_SLOTS)(const ls_kernel_args *args, ls_error *error) {
  return collect(args, error);
}

ls_status LS_REFERENCE(FROM_SLOTS_BWD)(const ls_kernel_args *args, ls_error *error) {
  return fill(args, error);
}

ls_status LS_REFERENCE(ARRIVALS)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "ir>iir", error));
  if (args->accumulate[0] || args->accumulate[1] || args->accumulate[2])
    return ls_fail(error, LS_INTERNAL, "arrivals cannot be accumulated into");
  const int32_t *expert = args->in[0].data;
  int32_t *row_of_slot = args->out[0].data, *expert_of_row = args->out[1].data, row = 0;
  for (int64_t e = 0; e <= args->attributes->experts; e++)
    for (int64_t s = 0; s < count_slots(&args->in[0]); s++) {
      if (expert[s] != e) continue;
      expert_of_row[row] = (int32_t)e;
      ls_real_data(&args->out[2])[row] = ls_real_data(&args->in[1])[s];
      row_of_slot[s] = row++;
    }
  return LS_OK;
}

ls_status LS_REFERENCE(ARRIVALS_BWD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "ri>r", error));
  for (int64_t s = 0; s < count_slots(&args->in[1]); s++)
    ls_put(&ls_real_data(&args->out[0])[s],
           (double)ls_real_data(&args->in[0])[ls_index_data(&args->in[1])[s]], args->accumulate[0]);
  return LS_OK;
}

/* Each slot to its row, or back. */
static ls_status move(const ls_kernel_args *args, bool back, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "ri>r", error));
  const ls_view *slots = back ? &args->out[0] : &args->in[0];
  const ls_view *rows = back ? &args->in[0] : &args->out[0];
  const int64_t columns = ls_smaller(slots->dims[2], rows->dims[1]);
  for (int64_t s = 0; s < count_slots(slots); s++) {
    LS_REAL *row = ls_real_row(rows, ls_index_data(&args->in[1])[s]), *slot = slot_of(slots, s);
    for (int64_t c = 0; c < columns; c++)
      ls_put(back ? &slot[c] : &row[c], (double)(back ? row[c] : slot[c]), args->accumulate[0]);
  }
  return LS_OK;
}

ls_status LS_REFERENCE(ARRIVE)(const ls_kernel_args *args, ls_error *error) {
  return move(args, false, error);
}

ls_status LS_REFERENCE(ARRIVE_BWD)(const ls_kernel_args *args, ls_error *error) {
  return move(args, true, error);
}

ls_status LS_REFERENCE(LEAVE)(const ls_kernel_args *args, ls_error *error) {
  return move(args, true, error);
}

ls_status LS_REFERENCE(LEAVE_BWD)(const ls_kernel_args *args, ls_error *error) {
  return move(args, false, error);
}
