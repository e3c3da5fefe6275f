/* What instructions cost: the one place that counts flops, bytes and messages, and the one walk
 * over a program that counts.
 *
 *   const ls_work work = ls_instruction_work(program, rank, instruction, true);
 *   const ls_work_rates rates = {.flops_per_s = 2e11, .bytes_per_s = 4e10, .sent_per_s = 2e10};
 *   double least = ls_work_seconds(&work, &rates);
 *
 * Read-only on the program: any thread may. */
#ifndef LS_COST_COST_H
#define LS_COST_COST_H

#include "device/facts.h"
#include "ir/program.h"

/* What one device does. */
typedef struct ls_work {
  double flops; /* of matrix products and attention */
  double bytes; /* that must move between its kernels and its memory */
  double sent;  /* bytes to other devices */
  double moved; /* bytes to another tier */
} ls_work;

/* What a device can do in a second; 0: not known, and takes no time. */
typedef struct ls_work_rates {
  double flops_per_s, bytes_per_s, sent_per_s;
} ls_work_rates;

/* The least time: of flops and bytes the longer (the roofline of Williams, Waterman, Patterson
 * 2009), and what is sent. Tiers are copied between beside both. */
double ls_work_seconds(const ls_work *work, const ls_work_rates *rates);

/* An operand's part on one device. */
typedef struct ls_work_operand {
  ls_dtype dtype;
  int ndim;
  int64_t dims[LS_MAX_DIMS];
  bool adds; /* an output: to what is there */
} ls_work_operand;

double ls_work_operand_bytes(const ls_work_operand *operand);

/* One execution of an op, its bytes as they are were every operand read or written once: what no
 * kernel can do without unless a cache holds it. What is added to, and what an update changes in
 * place, is read and written; of a table of embeddings, the rows that tokens name. */
ls_work ls_op_work(ls_op_kind kind, const ls_attributes *attributes, const ls_work_operand *in,
                   int inputs, const ls_work_operand *out, int outputs);

/* Bytes that one of `ranks` ranks sends in a collective of `whole` bytes, by the field's formulas:
 * all-reduce 2K(n-1)/n, reduce-scatter and all-gather K(n-1)/n, all-to-all K(n-1)/n^2. Of a message
 * and of a permute `whole` is what the rank sends, of what goes to owners and back the most that
 * one rank sends or receives. */
double ls_collective_bytes(ls_collective collective, double whole, int ranks);

/* A rank's parts of an op's operands; returns how many inputs it reads. `first` as below. */
int ls_instruction_operands(const ls_program *program, int rank, const ls_instruction *instruction,
                            bool first, ls_work_operand in[LS_MAX_INPUTS],
                            ls_work_operand out[LS_MAX_OUTPUTS]);

/* One execution of an instruction on a rank. `first`: of its body, where LS_ADD_AFTER_FIRST writes.
 * What a transfer costs is its beginning's; its end costs nothing. */
ls_work ls_instruction_work(const ls_program *program, int rank, const ls_instruction *instruction,
                            bool first);

/* A body shortly before this one with as many instructions, which may be those of a layer before;
 * -1: there is none. */
int ls_body_like(const ls_program *program, int body);

/* Whether two instructions cost the same on every rank: the same op, of operands of the same sizes
 * that are cut, written and kept alike. Of transfers and of ranges of a unit's buffer that is not
 * known, and said to be false. */
bool ls_instructions_alike(const ls_program *program, const ls_instruction *a,
                           const ls_instruction *b);

/* How long an action takes on paper: a pass over a segment 1, forward and backward together 3, what
 * else there is an eighth. */
double ls_action_units(ls_action_kind kind);

/* Executions of one instruction that cost the same. */
typedef struct ls_executed {
  const ls_program_action *action; /* the first of them */
  const ls_instruction *instruction;
  bool first;    /* LS_ADD_AFTER_FIRST writes */
  int64_t times; /* in one run of the program */
} ls_executed;

/* Visits what actions [first, last) execute, each body once, or twice where its first action writes
 * what others add to; bodies in the order of their first actions. */
typedef void (*ls_visit)(void *context, const ls_executed *executed);
void ls_program_walk(const ls_program *program, int first, int last, ls_visit visit, void *context);

/* Instructions of one run of the program. */
int64_t ls_program_executed(const ls_program *program);

/* Bytes a rank sends in one run of the program, and how many collectives and messages that is. */
double ls_program_bytes_sent(const ls_program *program, int *collectives);

/* Bytes that one run of the program moves from one tier to another, on one rank. */
int64_t ls_program_bytes_moved(const ls_program *program, ls_tier from, ls_tier to);

/* Flops of all nodes of a graph, on global shapes. */
double ls_graph_flops(const ls_graph *graph);

/* Flops of a step by segment, added to `by_segment`, and their sum: told by the forward part, so
 * that step and evaluation are cut alike. */
double ls_segment_flops(const ls_graph *graph, double *by_segment);

/* The shape of a rank's part of a value, without its data. */
ls_view ls_program_view(const ls_program *program, int rank, int value);

/* Bytes of one block that all kernels of the program share, as the device's recipe says; 0: they
 * need none. Ranks of a stage differ in it by what is padding on the last of them. */
int64_t ls_program_workspace(const ls_device_facts *facts, const ls_program *program, int rank);

/* Instructions that are products of operands rounded to fp8, but for those of weights' gradients;
 * in `codes` those of them that the device does with codes of 8 bits. */
int ls_program_fp8_products(const ls_device_facts *facts, const ls_program *program, int rank,
                            int *codes);

/* LS_INPUT where storages of the program do not lie as the device's kernels want operands to. */
LS_CHECKED ls_status ls_program_check_alignment(const ls_device_facts *facts,
                                                const ls_program *program, ls_error *error);

/* The groups that programs communicate in: those over axes, each once and in one order for all
 * ranks, that of all ranks among them; and marks those with another stage. Returns how many are
 * over axes. */
enum { LS_MAX_GROUPS = 256 };
int ls_programs_mark_groups(const ls_program *const *programs, int count,
                            ls_axis_order orders[LS_MAX_GROUPS], bool *by_stage);

/* Groups of two or more ranks that a rank with these programs is in, those of the same ranks once.
 */
int ls_programs_groups(const ls_program *const *programs, int count);

/* Bytes that a device has taken beside arena and workspace, where a rank is in so many groups. */
int64_t ls_device_overhead(const ls_device_facts *facts, int groups);

/* Bytes that transfers of these programs fill beside their operands where a library carries them
 * that adds to nothing and sends only what lies together: for each group the most of any. */
int64_t ls_programs_beside(const ls_program *const *programs, int count);

/* Each collective of the program with its bytes and its reason: stable, for people and golden
 * tests. */
void ls_program_print_collectives(const ls_program *program, FILE *stream);

/* `workspace`: bytes that kernels need beside the arena, which no program knows; 0: not told. */
void ls_program_print_memory(const ls_program *program, int64_t workspace, FILE *stream);

#endif
