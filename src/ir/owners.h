/* Owners: what an update does to whole matrices each is done by one rank of a stage.
 *
 * What a unit's shards hold of its matrices is dealt: each matrix goes to its owner, and what the
 * owner makes of it is handed back to all that hold a part. Owners' matrices are one flat buffer,
 * of which each rank of the stage has a shard, S(flat), and no cut goes through a matrix:
 * ls_program_parameter.owned is where one begins. On either side LS_DEAL and LS_HAND_BACK have this
 * buffer and the unit's.
 *
 * Thread-safe: values only. */
#ifndef LS_IR_OWNERS_H
#define LS_IR_OWNERS_H

#include "ir/program.h"

/* Rows of elements that one member of the group has for another, or for itself: where they begin in
 * the buffer of either, and how far apart rows lie there. */
typedef struct ls_deal_piece {
  int from, to; /* members, as ls_instruction_group numbers them */
  int64_t source, target, source_stride, target_stride;
  int64_t rows, width;
} ls_deal_piece;

/* Visits the pieces of LS_DEAL or LS_HAND_BACK, of every matrix of its unit in turn. Of ranks that
 * hold the same elements the one takes part in a deal that is as its owner on these axes. */
typedef void ls_deal_visit(void *context, const ls_deal_piece *piece);
void ls_deal_pieces(const ls_program *program, const ls_instruction *instruction,
                    ls_deal_visit *visit, void *context);

/* The most elements that one rank sends or receives. */
int64_t ls_deal_most(const ls_program *program, const ls_instruction *instruction);

/* The owner of a parameter's matrix, as the group numbers it. */
int ls_deal_owner(const ls_program *program, const ls_instruction *instruction, int parameter);

/* The axes whose ranks are owners: all inside the stage that have several. */
ls_axes ls_owner_axes(const ls_mesh *mesh);

/* How what owners have is placed. */
ls_placement ls_owner_placement(const ls_mesh *mesh);

#endif
