/* Transfers of a rank: collectives, messages, moves between tiers. Where the host cannot address
 * the device's memory, collectives and messages go through a mirror in the host's, which the engine
 * reads and writes in the device's place. */
#include <stdlib.h>
#include <string.h>

#include "run/rank_loaded.h"

enum { MIRROR_ALIGNMENT = 64 };

/* What stays as it is until its end, in a slot of the mirror. */
typedef struct begun {
  const ls_group *group;
  bool sends; /* else a sum of numbers */
  int slot;
} begun;

struct ls_mirror {
  char *base;
  size_t whole; /* bytes of the largest operand: one read and one written come first */
  size_t slot_bytes;
  int slots;
  bool *taken;
  begun *begun; /* oldest first */
  int begun_count;
};

const ls_memory_calls *ls_rank_memory_of(const ls_rank *rank, const void *address) {
  const bool host = rank->tiers && ls_tiers_of(rank->tiers, address) == LS_TIER_HOST;
  return host ? &ls_host_memory : rank->device->memory;
}

/* In issue order a message is waited for at its end. */
static ls_status run_message(const ls_loaded *each, ls_error *error) {
  const ls_instruction *instruction = each->instruction;
  const bool receives = instruction->collective == LS_RECEIVE, ends = instruction->phase == LS_END;
  const ls_view *view = receives ? &each->args.out[0] : &each->args.in[0];
  const int peer = 1 - ls_group_rank(each->group);
  if (receives && !ends) return LS_OK;
  if (receives)
    return ls_receive(each->group, view->data, instruction->count, view->dtype, peer, error);
  if (ends) return ls_send_end(each->group, peer, error);
  return ls_send_begin(each->group, view->data, instruction->count, view->dtype, peer, error);
}

static ls_status run_move(ls_rank *rank, const ls_loaded *each, ls_error *error) {
  const ls_instruction *instruction = each->instruction;
  const ls_view *from = &each->args.in[0], *to = &each->args.out[0];
  if (instruction->phase == LS_END) return ls_tiers_end(rank->tiers, to->data, &rank->moved, error);
  const int64_t bytes = instruction->count * (int64_t)ls_dtype_bytes(from->dtype);
  return ls_tiers_begin(rank->tiers, to->data, from->data, bytes, instruction->reason, error);
}

/* Shards of one dimension become those of another. */
static ls_status reshard(const ls_loaded *each, ls_error *error) {
  const ls_view *in = &each->args.in[0], *out = &each->args.out[0];
  ls_resharding of = {.ndim = in->ndim, .gathered = each->from.dim, .cut = each->to.dim};
  memcpy(of.source, in->dims, sizeof of.source);
  memcpy(of.target, out->dims, sizeof of.target);
  return ls_reshard(each->group, out->data, in->data, &of, in->dtype, error);
}

static ls_status run_collective(const ls_rank *rank, const ls_loaded *each, ls_error *error) {
  const ls_instruction *instruction = each->instruction;
  const ls_kernel_args *args = &each->args;
  if (ls_collective_is_message(instruction->collective)) return run_message(each, error);
  void *source = args->in[0].data, *target = args->out[0].data;
  const ls_dtype dtype = args->in[0].dtype;
  switch (instruction->collective) {
    case LS_ALL_REDUCE:
      if (target != source)
        LS_TRY(
            ls_rank_memory_of(rank, target)
                ->copy(target, source, (size_t)instruction->count * ls_dtype_bytes(dtype), error));
      return ls_all_reduce(each->group, target, instruction->count, dtype, instruction->reduce,
                           error);
    case LS_REDUCE_SCATTER:
      return ls_reduce_scatter(each->group, target, source, instruction->count, dtype,
                               args->accumulate[0], error);
    case LS_ALL_GATHER:
      return ls_all_gather(each->group, target, source, instruction->count, dtype, error);
    case LS_ALL_TO_ALL: return reshard(each, error);
    case LS_PERMUTE:
      return ls_permute(each->group, target, source, instruction->count,
                        each->to.shift - each->from.shift, dtype, error);
    case LS_SUM_NUMBERS:
      return instruction->phase == LS_BEGIN
                 ? ls_sum_begin(each->group, source, (int)instruction->count, error)
                 : ls_sum_end(each->group, target, (int)instruction->count, error);
    default: return ls_fail(error, LS_INTERNAL, "not a collective");
  }
}

/* ---- the mirror ------------------------------------------------------------------------------ */

static size_t bytes_held(const ls_view *view) {
  size_t bytes = ls_dtype_bytes(view->dtype);
  for (int d = 0; d < view->ndim; d++) bytes *= (size_t)view->dims[d];
  return bytes;
}

/* Bytes that a transfer reads and that it writes. */
typedef struct amounts {
  size_t in, out;
} amounts;

static amounts amounts_of(const ls_loaded *each) {
  const ls_instruction *of = each->instruction;
  const ls_view *in = &each->args.in[0], *out = &each->args.out[0];
  const size_t width = ls_dtype_bytes(of->collective == LS_RECEIVE ? out->dtype : in->dtype);
  const size_t all = (size_t)of->count * width;
  size_t shard = 0;
  if (each->group) {
    const int64_t size = ls_group_size(each->group), chunk = (of->count + size - 1) / size;
    const int64_t begin = chunk * ls_group_rank(each->group);
    const int64_t left = begin < of->count ? of->count - begin : 0;
    shard = (size_t)(left < chunk ? left : chunk) * width;
  }
  switch (of->collective) {
    case LS_REDUCE_SCATTER: return (amounts){all, shard};
    case LS_ALL_GATHER: return (amounts){shard, all};
    case LS_ALL_TO_ALL: return (amounts){bytes_held(in), bytes_held(out)};
    case LS_RECEIVE: return (amounts){0, all};
    case LS_SEND: return (amounts){all, 0};
    default: return (amounts){all, all};
  }
}

/* Whether an instruction's data stay as they are from its beginning to its end. */
static bool has_slot(const ls_instruction *of) {
  return of->collective == LS_SEND || of->collective == LS_SUM_NUMBERS;
}

/* Most slots that a program has taken at once. */
static int most_slots(const ls_program *program) {
  int most = 0, now = 0;
  for (int a = 0; a < program->actions.count; a++) {
    const ls_body *body = &program->bodies.items[program->actions.items[a].body];
    for (int i = body->first; i < body->first + body->count; i++) {
      const ls_instruction *each = &program->instructions.items[i];
      if (!has_slot(each)) continue;
      now += each->phase == LS_END ? -1 : 1;
      if (now > most) most = now;
    }
  }
  return most;
}

static size_t rounded(size_t bytes) {
  return (bytes + MIRROR_ALIGNMENT - 1) / MIRROR_ALIGNMENT * MIRROR_ALIGNMENT;
}

static void measure(const ls_rank *rank, ls_mirror *made) {
  for (int p = 0; p < rank->program_count; p++) {
    const ls_loaded_program *of = &rank->programs[p];
    const int slots = most_slots(of->program);
    if (slots > made->slots) made->slots = slots;
    for (int i = 0; i < of->program->instructions.count; i++) {
      const ls_loaded *each = &of->instructions[i];
      if (!each->instruction || !ls_collective_communicates(each->instruction->collective))
        continue;
      const amounts size = amounts_of(each);
      const size_t larger = rounded(size.in > size.out ? size.in : size.out);
      size_t *most = has_slot(each->instruction) ? &made->slot_bytes : &made->whole;
      if (larger > *most) *most = larger;
    }
  }
}

ls_status ls_rank_make_mirror(ls_rank *rank, ls_error *error) {
  if (rank->device->memory->addressable) return LS_OK;
  ls_mirror *made = rank->mirror = calloc(1, sizeof *made);
  if (!made) return ls_fail(error, LS_FAILED, "out of memory for a rank");
  measure(rank, made);
  made->taken = calloc((size_t)made->slots + 1, sizeof *made->taken);
  made->begun = calloc((size_t)made->slots + 1, sizeof *made->begun);
  if (!made->taken || !made->begun) return ls_fail(error, LS_FAILED, "out of memory for a rank");
  const size_t bytes = 2 * made->whole + (size_t)made->slots * made->slot_bytes;
  void *base;
  LS_TRY(ls_comm_arena(rank->comm, &ls_host_memory, bytes, &base, error));
  made->base = base;
  return LS_OK;
}

void ls_rank_free_mirror(ls_rank *rank) {
  if (!rank->mirror) return;
  free(rank->mirror->taken);
  free(rank->mirror->begun);
  free(rank->mirror);
  rank->mirror = NULL;
}

static char *slot_at(const ls_mirror *mirror, int slot) {
  return mirror->base + 2 * mirror->whole + (size_t)slot * mirror->slot_bytes;
}

/* A slot for what begins now. */
static char *take_slot(ls_mirror *mirror, const ls_loaded *each) {
  int slot = 0;
  while (mirror->taken[slot]) slot++;
  LS_ASSERT(slot < mirror->slots);
  mirror->taken[slot] = true;
  mirror->begun[mirror->begun_count++] =
      (begun){each->group, each->instruction->collective == LS_SEND, slot};
  return slot_at(mirror, slot);
}

/* The slot of what ends now, the oldest of its kind; it is free from the next beginning on. */
static char *give_slot(ls_mirror *mirror, const ls_loaded *each) {
  const bool sends = each->instruction->collective == LS_SEND;
  int b = 0;
  while (mirror->begun[b].group != each->group || mirror->begun[b].sends != sends) b++;
  LS_ASSERT(b < mirror->begun_count);
  const int slot = mirror->begun[b].slot;
  mirror->begun_count--;
  memmove(&mirror->begun[b], &mirror->begun[b + 1],
          sizeof(begun) * (size_t)(mirror->begun_count - b));
  mirror->taken[slot] = false;
  return slot_at(mirror, slot);
}

/* Whether a transfer leaves some of what it writes as it was. */
static bool keeps_some(const ls_loaded *each) {
  return each->args.accumulate[0] || each->instruction->collective == LS_ALL_TO_ALL;
}

static ls_status run_mirrored(ls_rank *rank, const ls_loaded *each, ls_error *error) {
  const ls_instruction *of = each->instruction;
  ls_mirror *mirror = rank->mirror;
  const bool ends = of->phase == LS_END, begins = of->phase == LS_BEGIN;
  const amounts size = amounts_of(each);
  void *in = each->args.in[0].data, *out = each->args.out[0].data;
  ls_loaded there = *each;
  const bool reads = size.in && !(ends && has_slot(of));
  const bool writes = size.out && !(begins && (has_slot(of) || of->collective == LS_RECEIVE));
  char *slot = !has_slot(of) ? mirror->base
               : ends        ? give_slot(mirror, each)
                             : take_slot(mirror, each);
  there.args.in[0].data = slot;
  there.args.out[0].data =
      has_slot(of) || of->collective == LS_ALL_REDUCE ? slot : slot + mirror->whole;
  if (reads) LS_TRY(ls_rank_memory_of(rank, in)->read(slot, in, size.in, error));
  if (writes && keeps_some(each))
    LS_TRY(ls_rank_memory_of(rank, out)->read(there.args.out[0].data, out, size.out, error));
  LS_TRY(run_collective(rank, &there, error));
  if (!writes) return LS_OK;
  return ls_rank_memory_of(rank, out)->write(out, there.args.out[0].data, size.out, error);
}

ls_status ls_rank_transfer(ls_rank *rank, const ls_loaded *each, ls_error *error) {
  const ls_instruction *of = each->instruction;
  if (ls_collective_moves(of->collective)) return run_move(rank, each, error);
  if (ls_collective_is_of_group(of->collective) && of->phase == LS_END)
    return LS_OK; /* done where it began */
  return rank->mirror ? run_mirrored(rank, each, error) : run_collective(rank, each, error);
}
