/* Models that are wrong and consistent: a small change of a forward graph, before it has a backward
 * part, so that what is compiled of it differentiates and trains as well as the right one. What a
 * checker that knows rules and no model cannot see. */
#ifndef LS_TESTS_WRONG_MODELS_H
#define LS_TESTS_WRONG_MODELS_H

#include "graph/graph.h"

typedef struct ls_wrong_model {
  const char *name;
  /* Changes the graph in one place, which the seed says. False: it has no such place, and is as it
   * was. */
  bool (*make)(ls_graph *graph, uint64_t seed);
  const char *reason; /* in the text of its rejection */
  bool unread;        /* parameters may be left that nothing reads, which no model of its own has */
} ls_wrong_model;

/* What is frozen in the wrong one is so in the right one: that nothing reads it is to be seen. */
void ls_freeze_alike(ls_graph *right, const ls_graph *wrong);

extern const ls_wrong_model ls_wrong_models[];
extern const int ls_wrong_model_count;

#endif
