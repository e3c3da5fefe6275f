/* Seeded damage to compiled programs, one small change at a time: what a checker of programs is
 * judged by. A change may be harmless (two independent instructions swapped): who accepts it runs
 * the program and compares. */
#ifndef LS_TESTS_MUTATE_H
#define LS_TESTS_MUTATE_H

#include "ir/program.h"

/* The kinds of damage, by name. */
extern const char *const ls_mutation_names[];
extern const int ls_mutation_count;
/* By kind, whether one may change nothing: what is made once more in the same place, comes before
 * or after what has nothing to do with it, or lies where nothing else does. */
extern const bool ls_mutation_harmless[];

/* Damages the program in its arena; `what` tells a person where. False: the program has nothing of
 * that kind, and is as it was. Deterministic: the same program and seed, the same change. */
bool ls_mutate(ls_program *program, int kind, uint64_t seed, char what[160]);

/* Takes one instruction out, with the events that others wait for moved to the one before it. */
void ls_drop_instruction(ls_program *program, int instruction, char what[160]);

/* Sets the lives of all live intervals to what the actions now say. */
void ls_refresh_lives(ls_program *program);

/* Puts each body's instructions in another order that its events allow, as if one queue or the
 * other were late: what depends on how long things take is to be seen. */
void ls_delay_queues(ls_program *program, uint64_t seed);

#endif
