/* Transfers of a rank: collectives and messages, which its engine carries, and moves between
 * tiers. */
#include <string.h>

#include "run/rank_loaded.h"

const ls_memory_calls *ls_rank_memory_of(const ls_rank *rank, const void *address) {
  const bool host = rank->tiers && ls_tiers_of(rank->tiers, address) == LS_TIER_HOST;
  return host ? &ls_host_memory : rank->device->memory;
}

static ls_status run_move(ls_rank *rank, const ls_loaded *each, ls_error *error) {
  const ls_instruction *instruction = each->instruction;
  const ls_view *from = &each->args.in[0], *to = &each->args.out[0];
  LS_TRY(rank->device->wait(&rank->queues[LS_TIER_DEVICE], error));
  LS_TRY(ls_rank_check_transfers(rank, error));
  if (instruction->phase == LS_END) return ls_tiers_end(rank->tiers, to->data, &rank->moved, error);
  const int64_t bytes = instruction->count * (int64_t)ls_dtype_bytes(from->dtype);
  LS_TRY(ls_tiers_begin(rank->tiers, to->data, from->data, bytes, instruction->reason, error));
  if (instruction->phase == LS_BEGIN) return LS_OK;
  return ls_tiers_end(rank->tiers, to->data, &rank->moved, error);
}

/* What the engine is told of an instruction. */
static ls_transfer transfer_of(const ls_loaded *each) {
  const ls_instruction *of = each->instruction;
  const ls_view *in = &each->args.in[0], *out = &each->args.out[0];
  ls_transfer made = {.kind = of->collective,
                      .group = each->group,
                      .source = of->collective == LS_RECEIVE ? NULL : in->data,
                      .target = of->collective == LS_SEND ? NULL : out->data,
                      .count = of->count,
                      .dtype = of->collective == LS_RECEIVE ? out->dtype : in->dtype,
                      .reduce = of->reduce,
                      .accumulate = of->collective == LS_REDUCE_SCATTER && each->args.accumulate[0],
                      .peer = 1 - ls_group_rank(each->group),
                      .shift = each->to.shift - each->from.shift};
  if (of->collective == LS_ALL_TO_ALL) {
    made.reshard =
        (ls_resharding){.ndim = in->ndim, .gathered = each->from.dim, .cut = each->to.dim};
    memcpy(made.reshard.source, in->dims, sizeof made.reshard.source);
    memcpy(made.reshard.target, out->dims, sizeof made.reshard.target);
  }
  if (ls_collective_deals(of->collective)) {
    made.kind = LS_ALL_TO_ALL;
    made.reshard = (ls_resharding){.ndim = 1,
                                   .source = {in->dims[0]},
                                   .target = {out->dims[0]},
                                   .gathered = of->collective == LS_HAND_BACK,
                                   .cut = of->collective == LS_DEAL,
                                   .pieces = each->pieces,
                                   .piece_count = each->piece_count};
  }
  return made;
}

/* What is under way after a part of a program, of transfers that last; `most` at once. */
static int last_through(const ls_program *program, ls_program_part part, int now, int *most) {
  const int end = ls_program_first_of(program, part + 1);
  for (int a = ls_program_first_of(program, part); a < end; a++) {
    const ls_body *body = &program->bodies.items[program->actions.items[a].body];
    for (int i = body->first; i < body->first + body->count; i++) {
      const ls_instruction *each = &program->instructions.items[i];
      if (!ls_transfer_lasts(each->collective)) continue;
      now += each->phase == LS_END ? -1 : 1;
      if (now > *most) *most = now;
    }
  }
  return now;
}

/* Most transfers of a program that last at once. The next step's prologue may come before this
 * step is validated, and again after it. */
static int most_lasting(const ls_program *program) {
  static const ls_program_part order[] = {
      LS_PROGRAM_PROLOGUE, LS_PROGRAM_PASSES, LS_PROGRAM_SPECULATE, LS_PROGRAM_PROLOGUE,
      LS_PROGRAM_VALIDATE, LS_PROGRAM_UPDATE, LS_PROGRAM_PROLOGUE,  LS_PROGRAM_PASSES};
  int most = 0, now = 0;
  for (size_t p = 0; p < sizeof order / sizeof *order; p++)
    now = last_through(program, order[p], now, &most);
  return most;
}

static ls_transfer_room measure(const ls_rank *rank) {
  ls_transfer_room room = {.whole = 0};
  for (int p = 0; p < rank->program_count; p++) {
    const ls_loaded_program *of = &rank->programs[p];
    const int lasting = most_lasting(of->program);
    if (lasting > room.lasting_count) room.lasting_count = lasting;
    for (int i = 0; i < of->program->instructions.count; i++) {
      const ls_loaded *each = &of->instructions[i];
      if (!each->instruction || !ls_collective_communicates(each->instruction->collective))
        continue;
      const ls_transfer transfer = transfer_of(each);
      const ls_transfer_bytes bytes = ls_transfer_bytes_of(&transfer);
      const size_t larger = bytes.in > bytes.out ? bytes.in : bytes.out;
      size_t *most = ls_transfer_lasts(transfer.kind) ? &room.lasting : &room.whole;
      if (larger > *most) *most = larger;
    }
  }
  return room;
}

/* What the loaded programs ask of a group. */
static ls_group_use use_of(const ls_rank *rank, const ls_group *group) {
  ls_group_use use = {.beside = 0};
  for (int p = 0; p < rank->program_count; p++) {
    const ls_loaded_program *of = &rank->programs[p];
    for (int i = 0; i < of->program->instructions.count; i++) {
      const ls_loaded *each = &of->instructions[i];
      if (!each->instruction || each->group != group) continue;
      if (!ls_collective_communicates(each->instruction->collective)) continue;
      const bool message = ls_collective_is_message(each->instruction->collective);
      use.messages = use.messages || message;
      use.together = use.together || !message;
      ls_transfer transfer = transfer_of(each);
      transfer.accumulate = each->instruction->write[0] != LS_WRITE;
      const size_t beside = ls_transfer_beside(&transfer);
      if (beside > use.beside) use.beside = beside;
    }
  }
  return use;
}

static ls_status join(const ls_rank *rank, ls_group *group, ls_error *error) {
  const ls_group_use use = use_of(rank, group);
  return rank->engine->join(rank->carrier, group, &use, error);
}

ls_status ls_rank_open_carrier(ls_rank *rank, ls_error *error) {
  const ls_carrier_options of = {.comm = rank->comm,
                                 .device = rank->device,
                                 .queue = &rank->queues[LS_TIER_DEVICE],
                                 .room = measure(rank)};
  LS_TRY(ls_engine_choose(&of, rank->world, &rank->engine, error));
  if (rank->engine->said && rank->number == 0 && ls_comm_size(rank->comm) > 1)
    ls_warn("data between ranks goes %s%s", rank->engine->words, rank->engine->said);
  const char *apart = rank->device->facts.engine ? NULL : ls_comm_apart(rank->comm);
  if (apart && rank->number == 0)
    ls_warn("GPUs of this host's processes do not copy from each other: %s", apart);
  LS_TRY(rank->engine->open(&of, &rank->carrier, error));
  for (int g = 0; g < LS_MAX_GROUPS && rank->groups[g]; g++)
    LS_TRY(join(rank, rank->groups[g], error));
  for (int stage = 0; stage < rank->stages; stage++)
    if (rank->pairs[stage]) LS_TRY(join(rank, rank->pairs[stage], error));
  return rank->engine->ready ? rank->engine->ready(rank->carrier, rank->world, error) : LS_OK;
}

ls_status ls_rank_check_transfers(const ls_rank *rank, ls_error *error) {
  if (!rank->carrier || !rank->engine->check) return LS_OK;
  return rank->engine->check(rank->carrier, error);
}

ls_status ls_rank_transfer(ls_rank *rank, const ls_loaded *each, ls_error *error) {
  const ls_instruction *of = each->instruction;
  if (ls_collective_moves(of->collective)) return run_move(rank, each, error);
  const ls_transfer transfer = transfer_of(each);
  if (of->phase != LS_END) LS_TRY(rank->engine->begin(rank->carrier, &transfer, error));
  return of->phase == LS_BEGIN ? LS_OK : rank->engine->end(rank->carrier, &transfer, error);
}
