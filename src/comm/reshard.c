/* Shards that change hands: from one dimension to another (all-to-all), to owners and back, or
 * round (permute).
 *
 * Of an all-to-all a member's block for another lies in runs, since one of the two dimensions is
 * inside the other. Members of a host copy runs out of each other's buffers; messages carry blocks
 * packed, some of their bytes at a time. */
#include <string.h>

#include "comm/comm.h"
#include "comm/world.h"

/* A block as runs of bytes: `outer` x `rows` x `middle` of them, which lie at these strides. */
typedef struct runs {
  int64_t outer, rows, middle;
  size_t length;
  size_t outer_stride, row_stride, middle_stride, offset;
} runs;

/* Of one member's buffer the part that goes to, or comes from, another one: `row` and `column` are
 * where it begins on the outer and on the inner of the two dimensions, of which it has so many. */
static runs runs_of(const ls_resharding *of, const int64_t *dims, const int64_t begin[2],
                    const int64_t have[2], size_t width) {
  const int low = of->gathered < of->cut ? of->gathered : of->cut;
  const int high = of->gathered + of->cut - low;
  size_t inner = width;
  runs made = {.outer = 1, .rows = have[0], .middle = 1};
  for (int d = 0; d < low; d++) made.outer *= dims[d];
  for (int d = low + 1; d < high; d++) made.middle *= dims[d];
  for (int d = high + 1; d < of->ndim; d++) inner *= (size_t)dims[d];
  made.middle_stride = (size_t)dims[high] * inner;
  made.row_stride = made.middle_stride * (size_t)made.middle;
  made.outer_stride = made.row_stride * (size_t)dims[low];
  made.length = (size_t)have[1] * inner;
  made.offset = (size_t)begin[0] * made.row_stride + (size_t)begin[1] * inner;
  return made;
}

static int64_t part(int64_t whole, int64_t each, int member) {
  const int64_t left = whole - each * member;
  return left < 0 ? 0 : left < each ? left : each;
}

/* The block that member `from` has for member `to`, as it lies with either. */
static void find_block(const ls_resharding *of, int from, int to, size_t width, runs *there,
                       runs *here) {
  const int g = of->gathered, c = of->cut;
  const bool outer = g < c; /* it is the outer dimension that is gathered */
  const int64_t rows = part(of->target[g], of->source[g], from);
  const int64_t columns = part(of->source[c], of->target[c], to);
  const int64_t have[2] = {outer ? rows : columns, outer ? columns : rows};
  const int64_t first_cut = of->target[c] * to, first_gathered = of->source[g] * from;
  *there = runs_of(of, of->source, (const int64_t[]){outer ? 0 : first_cut, outer ? first_cut : 0},
                   have, width);
  *here = runs_of(of, of->target,
                  (const int64_t[]){outer ? first_gathered : 0, outer ? 0 : first_gathered}, have,
                  width);
}

static size_t bytes_of(const runs *block) {
  return (size_t)(block->outer * block->rows * block->middle) * block->length;
}

/* One piece as it lies with the member that has it, or with the one that gets it. */
static runs runs_of_piece(const ls_deal_piece *piece, size_t width, bool there) {
  const int64_t stride = there ? piece->source_stride : piece->target_stride;
  return (runs){.outer = 1,
                .rows = piece->rows,
                .middle = 1,
                .length = (size_t)piece->width * width,
                .row_stride = (size_t)stride * width,
                .offset = (size_t)(there ? piece->source : piece->target) * width};
}

/* What one member has for another: one block, or several pieces, of which this is the next from
 * *at on; false: there is none. */
static bool next_block(const ls_resharding *of, int from, int to, size_t width, int *at,
                       runs *there, runs *here) {
  if (!of->pieces) {
    find_block(of, from, to, width, there, here);
    return (*at)++ == 0;
  }
  while (*at < of->piece_count) {
    const ls_deal_piece *piece = &of->pieces[(*at)++];
    if (piece->from != from || piece->to != to) continue;
    *there = runs_of_piece(piece, width, true);
    *here = runs_of_piece(piece, width, false);
    return true;
  }
  return false;
}

static size_t place_of(const runs *block, size_t run) {
  const size_t middle = (size_t)block->middle, rows = (size_t)block->rows;
  return block->offset + run % middle * block->middle_stride +
         run / middle % rows * block->row_stride + run / middle / rows * block->outer_stride;
}

/* Runs follow one another evenly within the innermost of these that has several. */
static ls_status copy_block(const runs *there, const runs *here, char *target, const char *source,
                            ls_copy_rows copy, void *context, ls_error *error) {
  const bool flat = there->middle == 1;
  const int64_t rows = flat ? there->rows : there->middle;
  if (bytes_of(there) == 0) return LS_OK;
  for (int64_t run = 0; run < there->outer * there->rows * there->middle; run += rows) {
    const ls_device_copy with = {.to = target + place_of(here, (size_t)run),
                                 .from = source + place_of(there, (size_t)run),
                                 .width = there->length,
                                 .rows = (size_t)rows,
                                 .to_stride = flat ? here->row_stride : here->middle_stride,
                                 .from_stride = flat ? there->row_stride : there->middle_stride};
    LS_TRY(copy(context, &with, error));
  }
  return LS_OK;
}

ls_status ls_reshard_rows(const ls_resharding *of, int from, int to, ls_dtype dtype, void *target,
                          const void *source, ls_copy_rows copy, void *context, ls_error *error) {
  runs there, here;
  for (int at = 0; next_block(of, from, to, ls_dtype_bytes(dtype), &at, &there, &here);)
    LS_TRY(copy_block(&there, &here, target, source, copy, context, error));
  return LS_OK;
}

ls_status ls_reshard_packed(const ls_resharding *of, const ls_reshard_side *side, ls_dtype dtype,
                            void *buffer, void *packed, ls_copy_rows copy, void *context,
                            ls_error *error) {
  runs there, here;
  char *to = packed;
  for (int at = 0;
       next_block(of, side->from, side->to, ls_dtype_bytes(dtype), &at, &there, &here);) {
    const runs *block = side->out ? &there : &here;
    runs together = *block; /* one run behind the other */
    together.offset = 0;
    together.middle_stride = block->length;
    together.row_stride = together.middle_stride * (size_t)block->middle;
    together.outer_stride = together.row_stride * (size_t)block->rows;
    LS_TRY(side->out ? copy_block(block, &together, to, buffer, copy, context, error)
                     : copy_block(&together, block, buffer, to, copy, context, error));
    to += bytes_of(block);
  }
  return LS_OK;
}

size_t ls_reshard_bytes(const ls_resharding *of, int from, int to, ls_dtype dtype) {
  runs there, here;
  size_t bytes = 0;
  for (int at = 0; next_block(of, from, to, ls_dtype_bytes(dtype), &at, &there, &here);)
    bytes += bytes_of(&there);
  return bytes;
}

static ls_status copy_here(void *context, const ls_device_copy *rows, ls_error *error) {
  (void)context, (void)error;
  for (size_t row = 0; row < rows->rows; row++)
    memcpy((char *)rows->to + row * rows->to_stride,
           (const char *)rows->from + row * rows->from_stride, rows->width);
  return LS_OK;
}

void ls_reshard_block(const ls_resharding *of, int from, int to, ls_dtype dtype, void *target,
                      const void *source) {
  (void)ls_reshard_rows(of, from, to, dtype, target, source, copy_here, NULL, NULL);
}

/* Bytes [first, first + count) of a packed block, out of a buffer or into it. */
static void copy_part(const runs *block, size_t first, size_t count, char *buffer, char *packed,
                      bool out) {
  for (size_t done = 0; done < count;) {
    const size_t at = (first + done) % block->length, left = block->length - at;
    const size_t bytes = left < count - done ? left : count - done;
    char *place = buffer + place_of(block, (first + done) / block->length) + at;
    if (out)
      memcpy(packed + done, place, bytes);
    else
      memcpy(place, packed + done, bytes);
    done += bytes;
  }
}

/* An all-to-all with the members that messages have to reach. */
typedef struct exchange {
  const ls_resharding *of;
  char *target, *source;
  ls_dtype dtype;
  size_t width, room; /* bytes of a block that go in one round */
} exchange;

/* The same of all that one member has for another. */
static void copy_packed(const exchange *e, int from, int to, size_t first, size_t count,
                        char *packed, bool out) {
  runs there, here;
  for (int at = 0; count && next_block(e->of, from, to, e->width, &at, &there, &here);) {
    const runs *block = out ? &there : &here;
    const size_t all = bytes_of(block), left = first < all ? all - first : 0;
    const size_t bytes = left < count ? left : count;
    if (bytes) copy_part(block, first, bytes, out ? e->source : e->target, packed, out);
    first = left ? 0 : first - all;
    packed += bytes;
    count -= bytes;
  }
}

static char *staging_of(const ls_group *group, const exchange *e, int member, bool out) {
  return (char *)group->comm->staging + (size_t)(2 * member + out) * e->room;
}

/* How much of what one member has for another is left from `first` on, for one round. */
static size_t round_bytes(const exchange *e, int from, int to, size_t first) {
  const size_t all = ls_reshard_bytes(e->of, from, to, e->dtype),
               left = first < all ? all - first : 0;
  return left < e->room ? left : e->room;
}

/* One round with one member: before it what goes out is packed, after it what came is put away. */
static void use_staging(ls_group *group, const exchange *e, int member, size_t first, bool after) {
  ls_peer_transfer *transfer = &group->transfers[member];
  if (ls_group_needs_message(group, member, ls_call_own(group)) && !after) {
    transfer->out = staging_of(group, e, member, true);
    transfer->out_bytes = round_bytes(e, group->rank, member, first);
    copy_packed(e, group->rank, member, first, transfer->out_bytes, (char *)transfer->out, true);
  }
  if (group->peers[member]) return;
  char *staged = staging_of(group, e, member, false);
  const size_t bytes = round_bytes(e, member, group->rank, first);
  if (after) {
    copy_packed(e, member, group->rank, first, bytes, staged, false);
    return;
  }
  transfer->in = staged;
  transfer->in_bytes = bytes;
}

/* Rounds until nobody's block has anything left. */
static ls_status exchange_packed(ls_group *group, const exchange *e, ls_error *error) {
  for (size_t first = 0;; first += e->room) {
    bool any = false;
    ls_transfers_clear(group);
    for (int i = 0; i < group->size; i++) {
      if (i == group->rank) continue;
      use_staging(group, e, i, first, false);
      any = any || group->transfers[i].out_bytes || group->transfers[i].in_bytes;
    }
    if (!any) return LS_OK;
    LS_TRY(ls_exchange(group, LS_COLLECTIVES, error));
    for (int i = 0; i < group->size; i++)
      if (i != group->rank) use_staging(group, e, i, first, true);
  }
}

static int64_t elements_of(const ls_resharding *of, const int64_t *dims) {
  int64_t elements = 1;
  for (int d = 0; d < of->ndim; d++) elements *= dims[d];
  return elements;
}

static ls_status reshard(ls_group *group, void *target, void *source, const ls_resharding *of,
                         ls_dtype dtype, ls_error *error) {
  const size_t width = ls_dtype_bytes(dtype);
  const int64_t elements = elements_of(of, of->source);
  const ls_posting call = {.kind = LS_CALL_ALL_TO_ALL,
                           .dtype = (int32_t)dtype,
                           .detail = 1 + of->gathered * LS_MAX_DIMS + of->cut,
                           .count = elements};
  LS_TRY(ls_call_begin(group, &call, source, (size_t)elements * width, LS_ALL_MEMBERS, error));
  const size_t room = group->comm->world->staging_bytes / 2 / (size_t)group->size;
  const exchange e = {of, target, source, dtype, width, room};
  LS_TRY(exchange_packed(group, &e, error));
  int64_t sent = 0;
  for (int step = 0; step < group->size; step++) {
    const int i = (group->rank + step) % group->size;
    if (group->peers[i]) ls_reshard_block(of, i, group->rank, dtype, target, group->peers[i]);
    if (i != group->rank) sent += (int64_t)ls_reshard_bytes(of, group->rank, i, dtype);
  }
  ls_count_sent(group->comm, sent);
  return ls_call_end(group, true, error);
}

ls_status ls_reshard(ls_group *group, void *target, const void *source, const ls_resharding *of,
                     ls_dtype dtype, ls_error *error) {
  LS_TRY(
      ls_call_check(group, LS_CALL_ALL_TO_ALL, elements_of(of, of->source), dtype, false, error));
  bool fits = of->gathered != of->cut && of->ndim <= LS_MAX_DIMS;
  for (int d = 0; d < of->ndim && fits && !of->pieces; d++) {
    const int64_t few = d == of->gathered ? of->source[d] : of->target[d];
    const int64_t many = d == of->gathered ? of->target[d] : of->source[d];
    fits = d == of->gathered || d == of->cut
               ? (many + group->size - 1) / group->size <= few && few <= many
               : few == many;
  }
  if (!fits)
    return ls_fail(error, LS_INTERNAL,
                   "all-to-all: the parts of dimension %d do not become those of %d", of->gathered,
                   of->cut);
  if (group->size == 1) {
    ls_reshard_block(of, 0, 0, dtype, target, source);
    return LS_OK;
  }
  return ls_call_conclude(group, reshard(group, target, (void *)source, of, dtype, error));
}

static ls_status permute(ls_group *group, char *target, char *source, int64_t count, int from,
                         int to, ls_dtype dtype, ls_error *error) {
  const size_t bytes = (size_t)count * ls_dtype_bytes(dtype);
  const ls_posting call = {.kind = LS_CALL_PERMUTE,
                           .dtype = (int32_t)dtype,
                           .detail = (from - group->rank + group->size) % group->size,
                           .count = count};
  LS_TRY(ls_call_begin(group, &call, source, bytes, LS_ALL_MEMBERS, error));
  ls_transfers_clear(group);
  if (ls_group_needs_message(group, to, ls_call_own(group))) {
    group->transfers[to].out = source;
    group->transfers[to].out_bytes = bytes;
  }
  if (!group->peers[from]) {
    group->transfers[from].in = target;
    group->transfers[from].in_bytes = bytes;
  } else if (bytes) {
    memcpy(target, group->peers[from], bytes);
  }
  LS_TRY(ls_exchange(group, LS_COLLECTIVES, error));
  if (to != group->rank) ls_count_sent(group->comm, (int64_t)bytes);
  return ls_call_end(group, true, error);
}

ls_status ls_permute(ls_group *group, void *target, const void *source, int64_t count, int shift,
                     ls_dtype dtype, ls_error *error) {
  LS_TRY(ls_call_check(group, LS_CALL_PERMUTE, count, dtype, false, error));
  const int size = group->size, by = (shift % size + size) % size;
  if (size == 1) {
    if (count) memcpy(target, source, (size_t)count * ls_dtype_bytes(dtype));
    return LS_OK;
  }
  return ls_call_conclude(group,
                          permute(group, target, (char *)source, count, (group->rank + by) % size,
                                  (group->rank + size - by) % size, dtype, error));
}
