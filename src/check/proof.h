/* Inside of `check`: what is known of memory while programs are interpreted. */
#ifndef LS_CHECK_PROOF_H
#define LS_CHECK_PROOF_H

#include <stdbool.h>

#include "check/check.h"
#include "graph/labels.h"

/* Where addresses of units begin: a number of each storage in a buffer group, shifted, above every
 * address in a buffer group. */
enum { LS_SHARD_SHIFT = 47 };

/* In place of an index: several fit. */
enum { LS_SEVERAL = -2 };

/* Rows of what a rank stores of a tensor, from `first` on; count 0: all of them. */
typedef struct ls_rows {
  int64_t first, count;
} ls_rows;

/* Part of a sum: what the use of an expression by `node` at `position` gives, of microbatches
 * [first, last]; or of one of them, and of its tokens' rows [row, row_end) of all that a rank has;
 * row_end 0: of all. Lists of terms are sorted and never change. A list that is another one with
 * terms behind it may share its memory: a sum of all parameters' squares is made one by one. */
typedef struct ls_term {
  int node, position, first, last;
  int64_t row, row_end, all_rows;
} ls_term;

typedef struct ls_terms {
  const ls_term *items;
  int count;
  struct ls_term_room *room; /* what is behind them in memory; NULL: nothing is free there */
} ls_terms;

/* What the forward pass computes, apart from microbatch, placement and stage: equal expressions
 * have equal numbers (node x LS_EXPRESSION_OUTPUTS + output), so what is made again is the same.
 * The nodes of ops are the model's, all there before a program is looked at. */
enum { LS_EXPRESSION_OUTPUTS = 4 };
_Static_assert((int)LS_MAX_OUTPUTS <= (int)LS_EXPRESSION_OUTPUTS,
               "an expression has room for each output");

typedef enum ls_leaf {
  /* By part, of each by parameter and version: 0, 1 after the update, 2 speculated. */
  LS_LEAF_PART = LS_OP_COUNT,
  LS_LEAF_PARAMETER = LS_LEAF_PART + LS_PART_STORED,
  LS_LEAF_INPUT = LS_LEAF_PART + LS_PART_COUNT, /* by ls_input */
  LS_LEAF_CELL,     /* by cell: set from outside, or made from finished sums */
  LS_LEAF_STATE,    /* by the graph's tensor and version: 0, 1 with this program's rows */
  LS_LEAF_TEMPORARY /* by parameter and temporary of the optimizer's update */
} ls_leaf;

/* What a program is given before it runs. */
typedef enum ls_input {
  LS_INPUT_TOKENS = 0,
  LS_INPUT_LABELS,
  LS_INPUT_POSITIONS,
  LS_INPUT_PLACES,
  LS_INPUT_DRAWS,
  LS_INPUT_REFERENCE,
  LS_INPUT_REMAINING,
  LS_INPUT_TYPES,
  LS_INPUT_WEIGHTS,
  LS_INPUT_SETS,
  LS_INPUT_TOP_IDS,
  LS_INPUT_TOP_BELOW,
  LS_INPUT_COUNT
} ls_input;

/* Where a program has each, as values; -1: it has none. */
void ls_program_inputs(const ls_program *program, int values[LS_INPUT_COUNT]);

typedef struct ls_node_record {
  int kind; /* ls_op_kind or ls_leaf */
  int inputs, in[LS_MAX_INPUTS];
  const ls_attributes *attributes;
  const ls_node *of; /* the graph's; NULL: it has none */
} ls_node_record;

/* Where an instruction stands. */
typedef struct ls_place_in_program {
  int stage, action, instruction;
} ls_place_in_program;

typedef struct ls_expressions {
  ls_arena *arena;
  LS_LIST(ls_node_record) nodes;
  int *table; /* nodes + 1 by hash */
  int table_size;
  LS_LIST(int) uses; /* by expression: the model's uses that give it a gradient */
} ls_expressions;

typedef enum ls_content_kind {
  LS_CONTENT_VALUE = 0, /* `expression` itself */
  LS_CONTENT_GRADIENT,  /* the gradient of `expression`, as far as `terms` go */
  LS_CONTENT_AMAX,      /* the largest magnitudes of rows of that */
  LS_CONTENT_ROUNDED,   /* that, rounded to fp8 by them */
  LS_CONTENT_CODES,     /* the 8 bits of `expression`, a rounded weight */
  LS_CONTENT_SUM,       /* a cell's sum of `terms`; `expression` is the ls_cell; zero: of any */
  LS_CONTENT_SHARDS     /* a storage whose contents are known by place in their unit */
} ls_content_kind;

/* A gradient op: the op whose inputs' gradients it makes, the first of several, and how. `rule`
 * NULL: it is none. */
typedef struct ls_backward {
  ls_op_kind forward;
  const ls_gradient_rule *rule;
} ls_backward;

/* In place of a node: what the loss is for. */
enum { LS_ROOT = -1 };

/* What lies in a range of memory. Never changes once made. */
typedef struct ls_content {
  ls_content_kind kind;
  int expression;
  int microbatch; /* -1: of none, or a sum over them */
  ls_rows rows;   /* that it has, of the tensor's */
  ls_terms terms;
  ls_placement placement;
  ls_dtype dtype;
  int value, storage; /* through which it was written */
  int64_t begin, end;
} ls_content;

typedef struct ls_entry {
  int64_t begin, end;
  const ls_content *content;
} ls_entry;

/* The contents of a live interval, ordered, disjoint. Addresses are bytes from the buffer group's
 * start; for storages that hold a rank's shard of a unit, bytes of the whole unit behind a large
 * base. */
typedef struct ls_contents {
  LS_LIST(ls_entry) entries;
} ls_contents;

/* Where a value lies, for every rank at once. */
typedef struct ls_extent {
  bool of_unit;       /* addresses are of the unit, not of memory */
  ls_axes flat_axes;  /* S(flat) on these axes: only this rank's shard */
  int64_t begin, end; /* addresses */
  int64_t elements;   /* that a rank stores; of a cut range: of the whole range */
  int64_t shard;    /* of a range: elements of the unit that a rank has, all where it is not cut */
  int64_t all_rows; /* that a rank stores of the tensor, of which the value may be some */
} ls_extent;

/* A parameter's elements in a storage. */
typedef struct ls_region {
  int parameter;
  int64_t begin, end; /* addresses */
} ls_region;

typedef struct ls_regions {
  LS_LIST(ls_region) items; /* by begin */
} ls_regions;

/* The live interval of a buffer group in an action. */
typedef struct ls_binding {
  int action, live_interval; /* action -1: none yet */
} ls_binding;

typedef struct ls_operand {
  int value, live_interval;
  int64_t begin, end; /* addresses of the content */
  int64_t reach;      /* end of what is touched: padding behind the content included */
} ls_operand;

/* A transfer under way. */
typedef struct ls_open_transfer {
  const ls_instruction *by;
  int action; /* that began it */
  bool reads, fills;
  ls_operand from, to;
} ls_open_transfer;

typedef struct ls_message {
  const ls_content *content;
  int64_t count;
  int from_value;
  ls_place_in_program place;
} ls_message;

typedef struct ls_proof_channel {
  LS_LIST(ls_message) sent;
  int taken, ended; /* received; whose send has ended */
  int matched;      /* that have left the queues, where messages hold these */
} ls_proof_channel;

/* A message in a queue: to the peer, or from it. */
typedef struct ls_posted {
  int peer;
  bool sends;
} ls_posted;

typedef struct ls_message_queue {
  LS_LIST(ls_posted) posted;
  int head; /* those before it are matched */
} ls_message_queue;

typedef struct ls_proof ls_proof;

typedef struct ls_stage {
  ls_proof *proof;
  const ls_program *program;
  int number;
  ls_extent *extents;    /* by value */
  int64_t *shards;       /* by storage: where addresses of its unit begin */
  ls_regions *regions;   /* by storage */
  ls_contents *contents; /* by live interval */
  ls_binding
      *bindings; /* by buffer group, of the last action that was looked at; it is at the end */
  bool *in_one_memory;       /* by instruction: its operands were found to lie so */
  const ls_placement **made; /* by instruction: where its outputs lie; NULL: not proved yet */
  int *gradient_of;          /* by value: the parameter whose raw gradient it is; -1; LS_SEVERAL */
  LS_LIST(ls_open_transfer) open; /* the oldest first */
  ls_message_queue *queues;       /* [2 * stages]; of one queue for all the first */
  bool *outlives;                 /* by live interval: lives through the next step's prologue */
  int norm, validate;             /* actions where sums over stages begin and end; -1: none */
  int action, at;                 /* what comes next: the action, and the instruction in its body */
} ls_stage;

/* A gradient under another name: that of x + b is that of x too. */
typedef struct ls_candidate {
  int target;
  int node, position; /* the one use that it is of; -1: as many as the gradient has */
} ls_candidate;

typedef LS_LIST(ls_candidate) ls_candidates;

/* All that is known. */
struct ls_proof {
  ls_arena *arena;
  ls_stage *stages;
  int count;
  ls_mesh mesh;
  ls_axes active; /* axes with more than one rank */
  const ls_graph *graph;
  const ls_layout *layout;
  int logits;          /* the model's; -1: it has none */
  LS_LIST(int) losses; /* its, first that of tokens; empty: it has none */
  LS_LIST(int) loads;  /* nodes that count loads of experts, by layer that has them */
  ls_expressions expressions;
  ls_proof_channel *channels;  /* [from][to] */
  const ls_queues *queues;     /* of the engine */
  const ls_op_labels *labels;  /* by op */
  ls_backward *backward;       /* by op */
  ls_candidates candidates[2]; /* of the gradients that are looked at: room that is used again */
  ls_check_report report;
};

/* "stage S action A instruction I (op of tensor): ..." for what comes next on the stage;
 * LS_REFUTED. */
ls_status ls_proof_fail(const ls_stage *stage, ls_error *error, const char *format, ...)
    LS_PRINTF(3, 4);

static inline const ls_program_action *ls_proof_action(const ls_stage *stage) {
  return &stage->program->actions.items[stage->action];
}

static inline const ls_instruction *ls_proof_instruction(const ls_stage *stage) {
  const ls_body *body = &stage->program->bodies.items[ls_proof_action(stage)->body];
  return &stage->program->instructions.items[body->first + stage->at];
}

ls_place_in_program ls_proof_place(const ls_stage *stage);

/* structure.c: indices and sizes of the whole program, before anything is interpreted. */
LS_CHECKED ls_status ls_proof_structure(ls_stage *stage, ls_error *error);

/* extents.c: places of values and parameters. */
LS_CHECKED ls_status ls_proof_extents(ls_stage *stage, ls_error *error);
bool ls_value_same_place(const ls_value *a, const ls_value *b);
int64_t ls_proof_group(const ls_proof *proof, ls_axes axes); /* ranks */
/* Places of `placement` on the tensor axes and where it is S(dim), on all others S(flat) where the
 * value is cut so. */
ls_placement ls_part_placement(const ls_stage *stage, const ls_placement *placement, int value);

/* parameters.c: their parts' places and what memory holds before the program. */
LS_CHECKED ls_status ls_proof_parameters(ls_stage *stage, ls_error *error);
/* The parameter's elements lie in a storage too, at an address. */
void ls_note_region(ls_stage *stage, int parameter, int storage, int64_t begin, int64_t end);
void ls_proof_begin(ls_stage *stage);
LS_CHECKED ls_status ls_proof_end(ls_stage *stage, ls_error *error);
/* The parameter's stored weights are a speculation at its update. */
LS_CHECKED ls_status ls_proof_speculated(ls_stage *stage, int parameter, ls_error *error);

/* post_validation.c: what runs before the norm of the step before is known. */
LS_CHECKED ls_status ls_proof_ahead(ls_stage *stage, ls_error *error);
LS_CHECKED ls_status ls_proof_enter(ls_stage *stage, ls_error *error);
LS_CHECKED ls_status ls_proof_same_side(const ls_stage *stage, const ls_message *message,
                                        ls_error *error);
LS_CHECKED ls_status ls_run_sum_begin(ls_stage *stage, ls_error *error);

/* lives.c: live intervals of buffer groups. */
LS_CHECKED ls_status ls_proof_lives(ls_stage *stage, ls_error *error);

/* waits.c: events between queues. */
LS_CHECKED ls_status ls_proof_waits(ls_stage *stage, ls_error *error);

/* memory.c: reads and writes of what comes next on the stage. */
LS_CHECKED ls_status ls_operand_find(const ls_stage *stage, int value, ls_operand *operand,
                                     ls_error *error);
bool ls_operands_overlap(const ls_operand *a, const ls_operand *b);
bool ls_operands_same(const ls_operand *a, const ls_operand *b);
LS_CHECKED ls_status ls_memory_read(ls_stage *stage, const ls_operand *operand,
                                    const ls_content **content, ls_error *error);
/* A copy of `content` now lies there. */
LS_CHECKED ls_status ls_memory_write(ls_stage *stage, const ls_operand *operand,
                                     const ls_content *content, ls_error *error);
/* The same, or added to what is there, by the instruction's mode for `output`. */
LS_CHECKED ls_status ls_memory_put(ls_stage *stage, int output, const ls_operand *operand,
                                   const ls_content *content, ls_error *error);
/* Nothing lies there any more. */
LS_CHECKED ls_status ls_memory_forget(ls_stage *stage, const ls_operand *operand, ls_error *error);
/* The first entry that ends behind the address; as many as there are: none. */
int ls_contents_find(const ls_contents *contents, int64_t address);
/* What lies exactly at an address, or NULL. */
const ls_content *ls_memory_look(const ls_stage *stage, int live_interval, int storage,
                                 int64_t begin, int64_t end);

/* rows.c: tensors that are made or read some rows at a time. */
ls_rows ls_value_rows(const ls_value *value);
bool ls_rows_equal(ls_rows a, ls_rows b);
/* What a value reads of a tensor that lies there whole, or in rows that together are all; else
 * NULL. */
const ls_content *ls_rows_look(const ls_stage *stage, const ls_operand *operand);
/* The rows that an op works on, which all its inputs with tokens have, and from which those outputs
 * follow that have tokens; those without are sums over them. */
LS_CHECKED ls_status ls_rows_of_op(ls_stage *stage, const ls_content *const *in, ls_rows *rows,
                                   ls_error *error);
LS_CHECKED ls_status ls_rows_of_output(ls_stage *stage, int output, ls_rows rows, ls_content *out,
                                       ls_error *error);

/* expression.c */
void ls_expressions_begin(ls_expressions *all, ls_arena *arena);
int ls_expression_leaf(ls_expressions *all, ls_leaf leaf, int which, int version);
/* The node of an op over expressions; `find` gives -1 where the model has none like it. */
int ls_expression_add(ls_expressions *all, const ls_node_record *node);
int ls_expression_find(const ls_expressions *all, const ls_node_record *node);
/* What has the gradient of an expression: of what is always made again, its parameter. */
int ls_expression_receiver(const ls_expressions *all, int expression);
const ls_node_record *ls_expression_record(const ls_expressions *all, int expression);
ls_terms ls_term_one(ls_arena *arena, int node, int position, int first, int last);
/* False: both have some term. */
bool ls_terms_join(ls_arena *arena, ls_terms a, ls_terms b, ls_terms *both);
/* How many uses the terms are of, or -1 where one lacks some of microbatches [first, last], or some
 * of their rows. */
int ls_terms_uses(ls_terms terms, int first, int last);
/* Of each term these rows alone, of so many. */
ls_terms ls_terms_of_rows(ls_arena *arena, ls_terms terms, ls_rows rows, int64_t all);
bool ls_terms_equal(ls_terms a, ls_terms b);

/* expected.c: what the graph says that programs compute. */
void ls_expected_begin(ls_proof *proof);
/* The program's parameters and inputs are the graph's. */
LS_CHECKED ls_status ls_expected_check_sources(const ls_stage *stage, ls_error *error);
/* The model's node that does what comes next on the stage, to these expressions. */
LS_CHECKED ls_status ls_expected_find(const ls_stage *stage, const int *in, int *node,
                                      ls_error *error);
/* A value of the program has the sizes and the type of the tensor that it holds. */
LS_CHECKED ls_status ls_expected_check_form(const ls_stage *stage, int value,
                                            const ls_content *content, ls_error *error);
/* The expression of a graph's tensor that no node makes. */
int ls_expected_source(ls_proof *proof, int tensor, int version);
/* The graph's tensor of this name that is kept between programs; -1: there is none. */
int ls_expected_find_state(const ls_proof *proof, const char *name);
/* Whether the step changes the parameter. */
bool ls_expected_trains(const ls_proof *proof, int parameter);
/* All stages together have the model's parameters, its loss and what it leaves. */
LS_CHECKED ls_status ls_expected_check_end(ls_proof *proof, ls_error *error);

/* gradient.c: which gradients follow from which. */
ls_backward *ls_backward_list(ls_arena *arena); /* by op */
LS_CHECKED ls_status ls_gradient_op(ls_stage *stage, const ls_content *const *in, ls_content *out,
                                    ls_error *error);
LS_CHECKED ls_status ls_gradient_add(ls_stage *stage, const ls_content *const *in, ls_content *out,
                                     ls_error *error);
/* A gradient's largest magnitudes, and the gradient rounded by them. */
ls_content ls_gradient_amax(const ls_content *gradient);
LS_CHECKED ls_status ls_gradient_fp8(const ls_stage *stage, const ls_content *const *in,
                                     ls_content *out, ls_error *error);
/* codes.c: a weight's shard as codes, and what gathered codes stand for. */
LS_CHECKED ls_status ls_run_largest(ls_stage *stage, ls_error *error);
LS_CHECKED ls_status ls_run_codes(ls_stage *stage, ls_error *error);
LS_CHECKED ls_status ls_decoded(const ls_stage *stage, const ls_content *const *in, ls_content *out,
                                ls_error *error);
/* Every use and every microbatch once, and nothing partial where `wanted` is not. */
LS_CHECKED ls_status ls_gradient_complete(ls_stage *stage, const ls_content *content,
                                          ls_error *error);

/* placement.c */
bool ls_places_equal(const ls_proof *proof, const ls_placement *a, const ls_placement *b);
LS_CHECKED ls_status ls_derive_placements(ls_stage *stage, const ls_content *const *in,
                                          ls_placement *out, ls_error *error);
/* The value is what the program says of it: placement as declared. */
LS_CHECKED ls_status ls_check_declared(ls_stage *stage, int value, const ls_placement *placement,
                                       ls_error *error);
/* Whether no other axis cuts the dimension inside of one of these. */
bool ls_axes_innermost(const ls_proof *proof, const ls_placement *placement, int dim, ls_axes axes);
LS_CHECKED ls_status ls_check_whole(ls_stage *stage, const ls_content *content, const char *what,
                                    ls_error *error);

/* A sum of the model's (its losses, what these are a mean over, rewards, loads of experts, which
 * count on behind the cells): of every microbatch, and whole on every rank. */
LS_CHECKED ls_status ls_finished_sum(ls_stage *stage, const ls_content *content, int cell,
                                     const char *what, ls_error *error);

/* op.c, update.c, collective.c, transfer.c: what comes next on the stage. */
LS_CHECKED ls_status ls_run_op(ls_stage *stage, ls_error *error);
LS_CHECKED ls_status ls_run_update(ls_stage *stage, bool *done, ls_error *error);
LS_CHECKED ls_status ls_run_collective(ls_stage *stage, ls_error *error);
/* What reduces a rank's shard in place must not find there what others still need of it. */
LS_CHECKED ls_status ls_check_own_shard(ls_stage *stage, int value, const ls_content *content,
                                        ls_error *error);
/* owners.c: whole matrices to their owners, and back. */
LS_CHECKED ls_status ls_run_dealing(ls_stage *stage, const ls_operand *in, const ls_operand *out,
                                    ls_error *error);
/* Some rank has all elements of the parameter's matrix there. */
LS_CHECKED ls_status ls_check_owned(const ls_stage *stage, int parameter, int value,
                                    const ls_content *content, ls_error *error);
bool ls_is_join(const ls_stage *stage);
/* Whether the instruction needs all stages, or two, at once. */
bool ls_stage_joins(const ls_stage *stage, const ls_instruction *instruction);
LS_CHECKED ls_status ls_run_message(ls_stage *stage, bool *blocked, ls_error *error);

/* move.c: what comes next on the stage moves; its operands lie in one memory, none in a file. */
LS_CHECKED ls_status ls_run_move(ls_stage *stage, ls_error *error);
LS_CHECKED ls_status ls_check_tiers(ls_stage *stage, ls_error *error);

/* under_way.c: the transfer that comes next on the stage begins, or ends. */
LS_CHECKED ls_status ls_begin_transfer(ls_stage *stage, ls_error *error);
LS_CHECKED ls_status ls_end_transfer(ls_stage *stage, ls_error *error);
/* No transfer under way fills the operand, nor reads it if it is written. */
LS_CHECKED ls_status ls_check_under_way(const ls_stage *stage, const ls_operand *operand,
                                        bool writes, ls_error *error);
LS_CHECKED ls_status ls_check_none_under_way(const ls_stage *stage, const char *where,
                                             ls_error *error);
ls_operand ls_operand_bytes(const ls_stage *stage, const ls_operand *operand);

/* queues.c: counts the queues that are busy beside what comes next on the stage. */
void ls_note_beside(ls_stage *stage);
/* A message to or from the other stage goes into its queue. */
void ls_post_message(ls_stage *stage, int peer, bool sends);
/* What has to be matched before it; where nothing has, it itself. */
ls_posted ls_message_in_front(const ls_stage *stage, int peer, bool sends);

/* A collective between stages whose members all stand at it: done, and their next instruction. */
LS_CHECKED ls_status ls_run_joins(ls_proof *proof, bool *progress, ls_error *error);
/* All stages are stuck or at their end. */
LS_CHECKED ls_status ls_name_circle(ls_proof *proof, ls_error *error);

/* Whether the walk finds the elements of a piece where the stored tensor has them: in the whole
 * and in tiles across the end of a block. */
bool ls_proof_walks(const ls_stored_layout *layout, const ls_weight_piece *piece,
                    ls_stored_walk *walk);

#endif
