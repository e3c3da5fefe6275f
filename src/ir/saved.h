/* The saved form of a program: JSON that holds all a run needs, no graph and no model.
 *
 *   const char *text = ls_program_text(arena, made);
 *   LS_TRY(ls_program_parse(arena, "program.json", text, strlen(text), &program, error));
 *
 * What is loaded is checked: every index, offset and size lies inside what it refers to, so that a
 * damaged file is refused (LS_INPUT, naming the file and the part) and never runs. Thread-safe. */
#ifndef LS_IR_SAVED_H
#define LS_IR_SAVED_H

#include "ir/program.h"

/* The text of the saved form, in the arena. */
const char *ls_program_text(ls_arena *arena, const ls_program *program);

/* Reads it back; `name` stands for the file in errors. The program lives in the arena. */
LS_CHECKED ls_status ls_program_parse(ls_arena *arena, const char *name, const char *text,
                                      size_t bytes, ls_program **program, ls_error *error);

#endif
