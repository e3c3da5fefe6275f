/* What an instruction costs: flops, bytes, messages. The one place that counts them.
 *
 *   double sent = ls_program_bytes_sent(program, &collectives);
 *
 * Read-only on the program: any thread may. */
#ifndef LS_COST_COST_H
#define LS_COST_COST_H

#include "ir/program.h"

/* Bytes a rank sends in one run of the program, by the field's formulas (all-reduce of K bytes over
 * n ranks 2K(n-1)/n, the others K(n-1)/n), and how many collectives that is. */
double ls_program_bytes_sent(const ls_program *program, int *collectives);

/* Bytes of one instruction's collective, sent by one rank. */
double ls_instruction_bytes_sent(const ls_program *program, const ls_instruction *instruction);

/* Floating-point operations of one execution of an instruction on a rank, as ls_op_flops counts
 * them on its parts of the operands. */
double ls_instruction_flops(const ls_program *program, int rank, const ls_instruction *instruction);

/* Bytes that an op has to move on a rank, were every operand read or written once: what no kernel
 * can do without unless a cache holds it. What is added to, and what an update changes in place,
 * is read and written; of a table of embeddings, the rows that tokens name. `first`: of its body,
 * where LS_ADD_AFTER_FIRST writes. 0 for a collective. */
double ls_instruction_bytes(const ls_program *program, int rank, const ls_instruction *instruction,
                            bool first);

/* Each collective of the program with its bytes and its reason: stable, for people and golden
 * tests. */
void ls_program_print_collectives(const ls_program *program, FILE *stream);

#endif
