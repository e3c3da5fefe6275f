/* What a stage does in a step, one after the other: actions over segments, units and microbatches.
 *
 * A transfer is two actions: it begins at one place of this order and is waited for at another.
 * Between them nobody writes what it reads or touches what it fills. */
#ifndef LS_IR_ACTION_H
#define LS_IR_ACTION_H

#include <stdbool.h>

#define LS_ACTIONS(X)                                                                           \
  X(COUNT, "count")            /* count the valid tokens of a microbatch */                     \
  X(TOTAL, "total")            /* sum the counts over the data axes */                          \
  X(FORWARD, "forward")        /* of a segment */                                               \
  X(RECOMPUTE, "recompute")    /* what a segment's forward pass did not keep */                 \
  X(BACKWARD, "backward")      /* of a segment: INPUT and WEIGHT */                             \
  X(INPUT, "input backward")   /* of a segment: what earlier segments wait for */               \
  X(WEIGHT, "weight backward") /* of a segment: the rest of its parameters' gradients */        \
  X(DROP, "drop")              /* a gathered unit's weights */                                  \
  X(BEGIN, "begin")            /* a transfer */                                                 \
  X(WAIT, "wait for")          /* its end */                                                    \
  X(SUM, "sum of squares")     /* of a unit's gradient, where NORM would not find it */         \
  X(NORM, "norm")              /* of all gradients, loss, clip factor */                        \
  X(SPECULATE, "speculate")    /* a unit's weights as they are if the norm clips nothing */     \
  X(VALIDATE, "validate")      /* the norm over all stages, where NORM did not wait for them */ \
  X(UPDATE, "update")          /* a unit's master weights and moments */                        \
  X(LOSS, "loss")              /* of an evaluation */                                           \
  X(POINT, "point")            /* a unit's weights as this program reads them, of its state */

typedef enum ls_action_kind {
#define LS_ACTION_ENUM(suffix, name) LS_ACTION_##suffix,
  LS_ACTIONS(LS_ACTION_ENUM)
#undef LS_ACTION_ENUM
      LS_ACTION_COUNT_OF_KINDS
} ls_action_kind;

/* What a transfer does. */
#define LS_TRANSFERS(X)                                                              \
  X(GATHER, "gather")         /* shards of a unit -> the whole of it, for use */     \
  X(PUBLISH, "publication")   /* updated shards -> units that are stored whole */    \
  X(REDUCE, "reduction")      /* of one microbatch, into the shard */                \
  X(FINISH, "last reduction") /* what is left of it, once a step */                  \
  X(SEND, "send")             /* to the stage on the other side of a boundary */     \
  X(RECEIVE, "receive")       /* from there */                                       \
  X(FETCH, "fetch")           /* from the tier where it waits to where it is used */ \
  X(RETURN, "return")         /* and back */

typedef enum ls_transfer_kind {
#define LS_TRANSFER_ENUM(suffix, name) LS_TRANSFER_##suffix,
  LS_TRANSFERS(LS_TRANSFER_ENUM)
#undef LS_TRANSFER_ENUM
      LS_TRANSFER_COUNT
} ls_transfer_kind;

/* What a transfer takes there: of a unit, of a segment's passes, or over a stage boundary. */
typedef enum ls_payload {
  LS_PAYLOAD_PARAMETERS = 0,
  LS_PAYLOAD_GRADIENTS,
  LS_PAYLOAD_STATE,
  LS_PAYLOAD_ACTIVATIONS,
  LS_PAYLOAD_COUNT
} ls_payload;

typedef struct ls_action {
  ls_action_kind kind;
  ls_transfer_kind transfer; /* BEGIN and WAIT: of which transfer; else 0 */
  ls_payload payload;
  int segment;    /* of passes; of messages the boundary: the chunk before it; else -1 */
  int unit;       /* actions on a unit; else -1 */
  int microbatch; /* -1: once a step */
} ls_action;

/* "forward", "begin gather of parameters", "wait for send of activations". */
const char *ls_action_name(const ls_action *action);

/* A number of its kind and transfer, below LS_ACTION_SORTS; of any that is no transfer its kind. */
int ls_action_sort(const ls_action *action);
#define LS_BEGIN_OF(transfer, payload) \
  (LS_ACTION_COUNT_OF_KINDS +          \
   2 * (LS_TRANSFER_##transfer * LS_PAYLOAD_COUNT + LS_PAYLOAD_##payload))
#define LS_WAIT_OF(transfer, payload) (LS_BEGIN_OF(transfer, payload) + 1)
enum { LS_ACTION_SORTS = LS_ACTION_COUNT_OF_KINDS + 2 * LS_TRANSFER_COUNT * LS_PAYLOAD_COUNT };

/* Whether it begins or ends a transfer. */
bool ls_action_transfers(const ls_action *action);

/* Whether it begins or ends a message between stages. */
bool ls_action_is_message(const ls_action *action);

#endif
