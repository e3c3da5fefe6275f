/* Names of tensors by family, as tables. Internal to this room.
 *
 * "*" stands for the layer's number, which is the same on both sides. Rules with the same name of
 * theirs are its pieces, in their order. Names that begin with "/" have no prefix. What no rule is
 * for is the head's. Thread-safe: constant. */
#ifndef LS_STORE_NAMES_TABLE_H
#define LS_STORE_NAMES_TABLE_H

#include "store/names.h"

typedef enum ls_name_form {
  LS_NAME_PLAIN = 0,  /* [out, in] */
  LS_NAME_TRANSPOSED, /* [in, out] */
  LS_NAME_BY_HEAD,    /* pieces in turns: for each KV head its queries, its key, its value */
  /* A tensor for each expert, whose number stands for "#" in its name. */
  LS_NAME_EXPERT,
  LS_NAME_EXPERT_TRANSPOSED,
  /* One tensor of all experts' matrices, one after another. */
  LS_NAME_STACK,
  LS_NAME_STACK_TRANSPOSED,
} ls_name_form;

typedef struct ls_name_rule {
  const char *ours, *theirs;
  ls_name_form form;
} ls_name_rule;

/* A head over classes, in the file of a model ...ForSequenceClassification. */
typedef struct ls_class_head {
  const ls_name_rule *rules; /* of its modules, up to one whose name is NULL */
  /* Up to NULL: what the names of a head of tokens begin with, up to a point. It is not read. */
  const char *const *others;
  /* Modules of torch's that PEFT is told to keep (modules_to_save): that makes logits, and what
   * stands before it, or NULL where that is of the same one. */
  const char *classes, *before;
} ls_class_head;

/* The head over classes that a model has, of texts or of tokens. */
ls_class_head ls_class_head_of(const ls_model_config *config);

typedef struct ls_family_tensors {
  const char *family;
  const char *prefix;         /* of all but the head */
  const char *head;           /* without ".weight" */
  const ls_name_rule *rules;  /* up to one whose name is NULL */
  const ls_name_rule *other;  /* what is named otherwise in the family's other form; or NULL */
  const char *const *ignored; /* up to NULL */
  /* What is named otherwise with two norms side by side, without a latent of queries, or with rows
   * of positions that are skipped; or NULL. */
  const ls_name_rule *variant;
  const ls_class_head *classes; /* NULL: "score", and `head` is that of tokens */
} ls_family_tensors;

/* The row of a family; NULL where there is none. */
const ls_family_tensors *ls_family_tensors_find(const char *family);

#endif
