/* The state of a simulation: actors, their queues, the transfers under way. Internal to sim. */
#ifndef LS_SIM_WORLD_H
#define LS_SIM_WORLD_H

#include "sim/events.h"

/* Ranks that do the same at the same time, and the first of each such class. */
typedef struct ls_sim_classes {
  int count;
  int *first, *ranks; /* [count] the rank that acts for them, and how many they are */
  int *of_rank;       /* [ranks of the mesh] */
} ls_sim_classes;

/* Ends of links, each with a capacity. Links between devices and of NICs carry as much each way. */
typedef enum ls_sim_end {
  LS_END_PEER_OUT = 0,
  LS_END_PEER_IN,
  LS_END_NETWORK_OUT,
  LS_END_NETWORK_IN,
  LS_END_TO_HOST,
  LS_END_FROM_HOST,
  LS_END_DRIVE,
  LS_SIM_ENDS
} ls_sim_end;

/* What a transfer takes of an end, where it goes at the rate that a device has alone. */
typedef struct ls_sim_use {
  int end;
  double weight;
} ls_sim_use;

typedef enum ls_transfer_state { LS_QUEUED = 0, LS_RUNNING, LS_DONE } ls_transfer_state;

typedef struct ls_sim_transfer ls_sim_transfer;
struct ls_sim_transfer {
  const ls_instruction *instruction;
  ls_transfer_time time;
  int actor;
  int cause;                /* of its stage's causes the one that it is */
  int queue, action, index; /* of the instruction in its program */
  int needs;                /* transfers of other queues that must end before it starts */
  LS_LIST(ls_sim_transfer *) needed_by;
  bool wanted; /* it is waited for */
  bool taken;  /* no action of its actor asks for it again */
  ls_transfer_state state;
  double begun, start, end;
  ls_sim_transfer *with; /* the next of those that run as one, the first at their head; of spare */
  ls_sim_use use[4];
  int uses;
  /* Of the head of those that run as one. */
  double latency, remaining; /* seconds, alone on its link, from `paced` on */
  double rate, paced; /* of `remaining`, beside the others, and since when; 0: it stands still */
  double level;       /* its rate, while rates are shared out */
};

/* Those that run as one, and when their latency is over, or at this rate all of them. */
typedef struct ls_sim_running {
  ls_sim_transfer *head;
  double end;
} ls_sim_running;

/* First in, first out: items from `head` on are in it. */
typedef struct ls_sim_queue {
  LS_LIST(ls_sim_transfer *) items;
  int head;
} ls_sim_queue;

/* Queues of an actor: one for collectives of its ranks, one for each link of the tiers, then those
 * of messages, as the engine has them. */
enum {
  LS_QUEUE_OF_GROUPS = 0,
  LS_QUEUE_TO_HOST,
  LS_QUEUE_FROM_HOST,
  LS_QUEUE_OF_DRIVE,
  LS_QUEUE_OF_MESSAGES
};

/* Actors that collectives over these axes join. */
typedef struct ls_sim_family {
  ls_axes axes;
  int count;
  int *actors;
} ls_sim_family;

typedef struct ls_sim_actor {
  const ls_program *program;
  int rank, stage;
  int *peers;          /* [stages] the actor of the rank at its place on that stage */
  ls_sim_body *bodies; /* [2 * bodies]: of the first action, of others */
  double *known[2];    /* seconds by instruction, of bodies of others and of the first */
  int action, item;
  double remaining, paced; /* of what is computed, from then on */
  const ls_sim_item *computes;
  const ls_sim_transfer *accused; /* the one it waits for, with whose side lacks; NULL: none yet */
  int late, cause;                /* that side, and of its stage's causes that one */
  double accused_since;
  double since; /* it computes its action */
  ls_sim_queue *queues;
  LS_LIST(ls_sim_transfer *) begun; /* and not yet waited for */
  LS_LIST(ls_sim_family) families;
  double speed;              /* of its ranks */
  int beside[LS_LINK_KINDS]; /* transfers of its own that go over links of the kind */
  double taken;              /* by these, of its kernels */
  double rate;               /* at which it computes */
  int ends[LS_SIM_ENDS];     /* numbers of its own */
  double unsynced; /* seconds that it computed since its ranks last waited for each other */
  double load[LS_SIM_ENDS]; /* weight of what its ranks put on that end */
} ls_sim_actor;

/* What comes again (repeat.c). */
typedef struct ls_sim_rhythms ls_sim_rhythms;

typedef struct ls_sim_world {
  ls_arena *arena;
  const ls_performance *performance;
  const ls_sim_options *options;
  ls_simulation *made;
  const ls_mesh *mesh;
  ls_sim_classes classes;
  int stages;
  LS_LIST(ls_sim_running) running;
  ls_sim_transfer *spare; /* done with, the first of them: the next to begin has its memory */
  double now;
  int64_t turn; /* between two moments at which something ends */
  /* [classes.count] by actor */
  ls_sim_actor *actors;
  double *computed;              /* when it has; infinite: it computes nothing */
  bool *ready;                   /* it may go on */
  const ls_sim_transfer **waits; /* for this; NULL: for nothing */
  int *missing;                  /* whose side what it waits for lacks (ls_sim_queue_missing) */
  int64_t *touched;              /* the last turn in which its queues changed */
  bool blames;                   /* someone's side lacks no more since waits were accounted */
  /* [ends] of links */
  int ends;
  double *capacity, *left, *wanted;
  int *users;         /* heads that go over it */
  int64_t *looked_at; /* for the last time by this look at the ends of a head, of so many: */
  int64_t looks;
  ls_sim_rhythms *rhythms; /* NULL: nothing is repeated, or no more */
  bool shared; /* rates must be shared out: one end has several heads, or had in this turn */
} ls_sim_world;

/* classes.c: with one actor a stage where hosts and speeds are alike. */
ls_sim_classes ls_sim_classes_make(ls_arena *arena, const ls_mesh *mesh, int per_host,
                                   const double *rank_speed);

/* links.c: numbers the ends of all actors' links; what a transfer that starts takes of them, and
 * its seconds if it were alone; takes note of those that begin to go over their links and of those
 * that end, whether others go over the same; the rate of one that goes there alone; the levels of
 * all that run, max-min fair. */
void ls_sim_links_open(ls_sim_world *world);
double ls_sim_links_use(const ls_sim_world *world, ls_sim_transfer *transfer);
bool ls_sim_links_take(ls_sim_world *world, const ls_sim_transfer *head);
bool ls_sim_links_leave(ls_sim_world *world, const ls_sim_transfer *head);
double ls_sim_links_alone(ls_sim_world *world, const ls_sim_transfer *head);
void ls_sim_links_share(ls_sim_world *world);

/* rates.c: an actor computes from now on; the r-th of those that run goes over its links from now
 * on, or, as it ends, no more; how many threads want a core, over how many there are (0: nobody
 * counts them); new rates where something that shares began or ended. */
void ls_sim_rates_compute(ls_sim_world *world, int actor, double seconds);
void ls_sim_rates_go(ls_sim_world *world, ls_sim_running *running);
void ls_sim_rates_stop(ls_sim_world *world, const ls_sim_transfer *head);
double ls_sim_rates_cores(const ls_sim_world *world);
void ls_sim_rates_share(ls_sim_world *world);

/* waits.c: which of its stage's causes a wait or a transfer on an actor is (`late`: the other actor
 * that has not begun it); who waits for what from now on; an actor waits no more. */
int ls_sim_cause_of(ls_sim_world *world, const ls_sim_transfer *transfer, int late);
void ls_sim_waits_account(ls_sim_world *world);
void ls_sim_waits_end(ls_sim_world *world, int actor);

/* queues.c: puts a transfer into its queue, and among its actor's begun ones; starts what has come
 * to its turn there; takes it out again; starts what then can. */
void ls_sim_queue_add(ls_sim_world *world, ls_sim_transfer *transfer);
void ls_sim_queue_start(ls_sim_world *world, int actor, int queue);
void ls_sim_queue_end(ls_sim_world *world, ls_sim_transfer *transfer);
void ls_sim_queue_go_on(ls_sim_world *world, const ls_sim_transfer *ended);
int ls_sim_queue_count(const ls_sim_world *world);

/* The actor whose side of what stands at the head of the transfer's queue is not there; -1: it
 * runs, or nobody's; -2: nobody's for now, since a side that is there comes behind others. */
int ls_sim_queue_missing(const ls_sim_world *world, const ls_sim_transfer *transfer);

/* repeat.c: where each actor's actions come again, by the options; NULL: somewhere they do not.
 * Puts in the periods that are asked for, once all is as it was a period before. */
ls_sim_rhythms *ls_sim_repeat_find(ls_sim_world *world);
void ls_sim_repeat_look(ls_sim_world *world);

#endif
