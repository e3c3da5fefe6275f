/* A model and its layout made so small that this machine can train it in a moment, with everything
 * still in play that the large one has: every axis of the mesh with more than one rank, and every
 * place where something does not divide.
 *
 *   ls_shrunk *small;
 *   LS_TRY(ls_shrink(arena, &config, &layout, batch, sequence, NULL, &small, error));
 *   ... train small->config under small->layout ...
 *
 * What is in play is a table of edges, functions of a form's numbers: the small form is the
 * smallest on the same side of each as the large one. Thread-safe: no state. */
#ifndef LS_VERIFY_SHRINK_H
#define LS_VERIFY_SHRINK_H

#include "model/model.h"
#include "shard/strategy.h"

/* Three stages of three shards, or three replicas of them, each of two tensor-parallel ranks, and
 * 2 x 2 x 2 x 3; where all five axes are above 1 two of each. */
enum { LS_SHRINK_MOST_RANKS = 24, LS_SHRINK_RANKS_OF_ALL_AXES = 32 };

/* The numbers that may shrink. */
typedef struct ls_form {
  int64_t pp, replicas, shards, cp, tp;
  int64_t ep;              /* ranks of shards x cp that share out experts ... */
  bool whole_experts;      /* ... x tp */
  int64_t chunks;          /* of a stage */
  int64_t microbatches;    /* of a step */
  int64_t layers;          /* of the model ... */
  int64_t wrap, recompute; /* ... of a unit, and of what is made again together; 0: nothing is */
  int64_t heads, kv_heads, head_dim, width, mlp_width;
  int64_t block; /* weights in whole blocks of so many: rows of a rank are; 1: not */
  int64_t experts, experts_per_token; /* 0: there are none */
  int64_t vocabulary;
  int64_t sequences;   /* of a data-parallel rank and microbatch */
  int64_t sequence;    /* T */
  int64_t positions;   /* the longest T of the model */
  int64_t logits_rows; /* tokens of a slice of logits; 0: one has all */
  bool sequence_parallel;
  bool latent;        /* keys and values are made of a latent: each head has its own */
  int64_t head_ranks; /* of cp, that change tokens for heads; 1: none */
  bool offloads;      /* activations: what a chunk's last layers keep has no time to leave */
  unsigned by_hand;   /* of stages: ls_form_cut; 0: cut by cost */
} ls_form;

/* What stages cut by hand are like. */
enum ls_form_cut { LS_FORM_BY_HAND = 1, LS_FORM_EMPTY_CHUNK = 2, LS_FORM_UNLIKE_CHUNKS = 4 };

typedef struct ls_form_edge {
  const char *name;                     /* "KV heads fewer than tp" */
  int part;                             /* of the search: which numbers it is about */
  int64_t (*side)(const ls_form *form); /* forms with the same answer are alike in this */
} ls_form_edge;

/* Of shards those that share out experts. */
int64_t ls_form_expert_shards(const ls_form *form);
int64_t ls_form_expert_ranks_inside(const ls_form *form);

/* The most important first: where these are too few for all, the later ones are given up. */
extern const ls_form_edge ls_form_edges[];
extern const int ls_form_edge_count;

/* One line of what was done: "layers", "61", "5", "uneven over 4 chunks". */
typedef struct ls_shrink_row {
  const char *key, *from, *to, *why;
} ls_shrink_row;

typedef struct ls_shrunk {
  ls_form before, form;
  ls_model_config config;
  ls_layout layout;
  int64_t batch;                         /* sequences of a step */
  LS_LIST(const char *) freeze;          /* names of parameters, as ls_freeze takes them */
  const ls_parameter_settings *settings; /* by parameter; NULL: as they are made */
  LS_LIST(ls_shrink_row) rows;
  LS_LIST(const char *) given_up; /* names of edges that are not kept */
} ls_shrunk;

/* The form of a model under a layout: `batch` sequences of `sequence` tokens a step. LS_INPUT: the
 * schedule cannot be. */
LS_CHECKED ls_status ls_form_make(const ls_model_config *config, const ls_layout *layout,
                                  int64_t batch, int64_t sequence, ls_form *form, ls_error *error);

/* Shrinks it, to at most LS_SHRINK_MOST_RANKS ranks, or with all axes
 * above 1 LS_SHRINK_RANKS_OF_ALL_AXES; a mesh that has no more stays as it is. What
 * was found compiles: of illegal forms the next larger is taken. `large`: the model's graph, where
 * some of it is frozen or in groups of its own; else NULL. In the arena. LS_INPUT: the large layout
 * is illegal, as train would say; or a schedule from a file, which cannot shrink, has too many
 * stages. */
LS_CHECKED ls_status ls_shrink(ls_arena *arena, const ls_model_config *config,
                               const ls_layout *layout, int64_t batch, int64_t sequence,
                               const ls_graph *large, ls_shrunk **shrunk, ls_error *error);

#endif
