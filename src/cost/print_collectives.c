#include <stdio.h>
#include <string.h>

#include "cost/cost.h"

/* Collectives that are one row: of one reason, or over one group. */
typedef struct total {
  const char *reason; /* NULL: of the sum of a kind over a group */
  ls_collective collective;
  ls_axes axes;
  int calls;
  double bytes;
} total;

typedef struct totals {
  total *rows;
  int count;
} totals;

static total *find_total(totals *all, const ls_instruction *instruction, const char *reason) {
  for (int t = 0; t < all->count; t++) {
    total *row = &all->rows[t];
    if (row->collective != instruction->collective) continue;
    if (reason ? strcmp(row->reason, reason) == 0 : row->axes == instruction->axes) return row;
  }
  all->rows[all->count] = (total){reason, instruction->collective, instruction->axes, 0, 0};
  return &all->rows[all->count++];
}

static void add(totals *all, const ls_executed *each, const char *reason, double bytes) {
  total *row = find_total(all, each->instruction, reason);
  row->calls += (int)each->times;
  row->bytes += (double)each->times * bytes;
}

/* Both tables of a program. */
typedef struct counting {
  const ls_program *program;
  totals reasons, kinds;
} counting;

static void count(void *context, const ls_executed *each) {
  counting *into = context;
  const ls_instruction *instruction = each->instruction;
  if (!ls_collective_communicates(instruction->collective) || instruction->phase == LS_END) return;
  const double bytes = ls_instruction_work(into->program, 0, instruction, each->first).sent;
  add(&into->reasons, each, instruction->reason, bytes);
  add(&into->kinds, each, NULL, bytes);
}

static void print_row(FILE *stream, const total *row, double unit, const char *words) {
  fprintf(stream, "%-15s %6d %12.1f  %s\n", ls_collective_name(row->collective), row->calls,
          row->bytes / unit, words);
}

/* Over which axes, or of two neighbouring stages. */
static const char *over(ls_arena *arena, const ls_program *program, const total *row) {
  const ls_axes axes = ls_mesh_active(&program->mesh, row->axes);
  if (!axes) return "in all, between stages or within a rank";
  return ls_arena_printf(arena, "in all, over %s", ls_axes_print(arena, &program->mesh, axes));
}

void ls_program_print_collectives(const ls_program *program, FILE *stream) {
  enum { KIB = 1 << 10, MIB = 1 << 20, GIB = 1 << 30 };
  ls_arena *arena = ls_arena_create();
  const int most = program->instructions.count + 1;
  counting made = {.program = program,
                   .reasons = {LS_NEW_ARRAY(arena, total, most), 0},
                   .kinds = {LS_NEW_ARRAY(arena, total, most), 0}};
  ls_program_walk(program, 0, program->actions.count, count, &made);
  const totals reasons = made.reasons, kinds = made.kinds;
  int collectives;
  const double bytes = ls_program_bytes_sent(program, &collectives);
  const bool large = bytes >= 4.0 * GIB;
  const double unit = large ? MIB : KIB;
  fprintf(stream, "%-15s %6s %12s  %s\n", "collective", "calls", large ? "MiB sent" : "KiB sent",
          "why");
  for (int t = 0; t < reasons.count; t++)
    print_row(stream, &reasons.rows[t], unit, reasons.rows[t].reason);
  for (int t = 0; t < kinds.count && kinds.count > 1; t++)
    print_row(stream, &kinds.rows[t], unit, over(arena, program, &kinds.rows[t]));
  fprintf(stream, "%-15s %6d %12.1f  by one rank in one run of the program\n", "all", collectives,
          bytes / unit);
  ls_arena_destroy(&arena);
}
