/* What a stage does in a step, one after the other: actions over segments, units and microbatches.
 */
#ifndef LS_IR_ACTION_H
#define LS_IR_ACTION_H

#define LS_ACTIONS(X)                                                                            \
  X(COUNT, "count")            /* count the valid tokens of a microbatch */                      \
  X(TOTAL, "total")            /* sum the counts over the data axes */                           \
  X(GATHER, "gather")          /* a unit's weights, from the pieces of dp_shard */               \
  X(FORWARD, "forward")        /* of a segment */                                                \
  X(RECOMPUTE, "recompute")    /* what a segment's forward pass did not keep */                  \
  X(BACKWARD, "backward")      /* of a segment: INPUT and WEIGHT */                              \
  X(INPUT, "input backward")   /* of a segment: what earlier segments wait for */                \
  X(WEIGHT, "weight backward") /* of a segment: the rest of its parameters' gradients */         \
  X(DROP, "drop")              /* a gathered unit's weights */                                   \
  X(SEND, "send") /* what the chunk before a boundary made, to the stage of the next */          \
  X(RECEIVE, "receive")                                                                          \
  X(SENT, "sent")           /* wait until it was taken */                                        \
  X(SEND_BACK, "send back") /* gradients over a boundary, to the stage of the chunk before it */ \
  X(RECEIVE_BACK, "receive back")                                                                \
  X(SENT_BACK, "sent back")                                                                      \
  X(REDUCE, "reduce")      /* a unit's gradient of this microbatch, into its piece */            \
  X(FINISH, "finish")      /* what is left of a unit's gradient reduction, once a step */        \
  X(SUM, "sum of squares") /* of a unit's gradient, where NORM would not find it */              \
  X(NORM, "norm")          /* of all gradients, loss, clip factor */                             \
  X(AHEAD, "ahead")        /* a unit's weights as they are if the norm clips nothing */          \
  X(SETTLE, "settle")      /* the norm over all stages, where NORM did not wait for them */      \
  X(UPDATE, "update")      /* a unit's master weights and moments */                             \
  X(FETCH, "fetch")        /* a unit's parameters to the device, from where they wait; begins */ \
  X(FETCHED, "fetched")                                                                          \
  X(OFFLOAD, "offload") /* what a segment's forward pass kept, from the device; begins */        \
  X(OFFLOADED, "offloaded")                                                                      \
  X(PREFETCH, "prefetch") /* the same back to the device; begins */                              \
  X(PREFETCHED, "prefetched")                                                                    \
  X(GIVE,                                                                                        \
    "give gradient") /* a unit's reduced gradient to where it waits for the update; begins */    \
  X(GIVEN, "gradient given")                                                                     \
  X(TAKE, "take gradient") /* a unit's gradient from its file to the host; begins */             \
  X(TAKEN, "gradient taken")                                                                     \
  X(LOAD, "load state") /* a unit's optimizer state from its file; begins */                     \
  X(LOADED, "state loaded")                                                                      \
  X(STORE, "store state") /* and back; begins */                                                 \
  X(STORED, "state stored")                                                                      \
  X(RETURN, "return") /* a unit's updated parameters to where they wait; begins */               \
  X(RETURNED, "returned")                                                                        \
  X(PUBLISH, "publish") /* updated pieces to ranks that store a unit's weights whole */          \
  X(LOSS, "loss")       /* of an evaluation */

typedef enum ls_action_kind {
#define LS_ACTION_ENUM(suffix, name) LS_ACTION_##suffix,
  LS_ACTIONS(LS_ACTION_ENUM)
#undef LS_ACTION_ENUM
      LS_ACTION_COUNT_OF_KINDS
} ls_action_kind;

const char *ls_action_name(ls_action_kind kind);

typedef struct ls_action {
  ls_action_kind kind;
  int segment;    /* of passes; of transfers the boundary: the chunk before it; else -1 */
  int unit;       /* actions on a unit; else -1 */
  int microbatch; /* -1: once a step */
} ls_action;

#endif
