/* A run from its run file to compiled programs: what train, show and verify have in common.
 *
 *   ls_session *session;
 *   LS_TRY(ls_session_create(arena, run, devices, 1, &session, error));
 *   ... on each rank's thread:
 *   ls_rank *rank;
 *   LS_TRY(ls_session_rank(session, comm, &rank, error));
 *   LS_TRY(ls_session_initialise(session, rank, error));
 *
 * Read-only once created: all rank threads share it. */
#ifndef LS_SESSION_SESSION_H
#define LS_SESSION_SESSION_H

#include "cluster/rates.h"
#include "data/order.h"
#include "lower/training.h"
#include "model/model.h"
#include "run/rank_parameters.h"
#include "text/run_file.h"
#include "tokenizer/tokenizer.h"

/* Programs of a session's ranks, by number. */
enum {
  LS_SESSION_STEP = LS_COMPILED_STEP,
  LS_SESSION_EVALUATE = LS_COMPILED_EVALUATE,
  LS_SESSION_STEP_AGAIN = LS_COMPILED_STEP_AGAIN,         /* these two where rows for experts */
  LS_SESSION_EVALUATE_AGAIN = LS_COMPILED_EVALUATE_AGAIN, /* may find no slot */
  LS_SESSION_PROGRAMS = LS_COMPILED_PROGRAMS
};

typedef struct ls_session {
  ls_arena *arena; /* borrowed */
  ls_run_file *run;
  ls_model_config config;
  const ls_model_config *teacher; /* of the folder run->teacher; NULL: there is none */
  const ls_top_logits *told;      /* or what one has said, of the file run->distill.logits */
  ls_layout layout;
  bool evaluates;          /* it has no step: both its programs are the evaluation */
  const char *weights;     /* Hugging Face weights to start from; NULL: from scratch */
  int devices;             /* ranks of the whole mesh */
  int ranks_sharing_cores; /* ranks that share the cores of this process */
  int64_t sequence;        /* T */
  int64_t batch;           /* sequences of a step over the whole mesh */
  ls_compiled compiled;
  /* What of it is asked for most. */
  ls_graph *graph;                                 /* of the step, with its backward part */
  const ls_program **stages[LS_SESSION_PROGRAMS];  /* [pp] programs of each stage: compiled.count */
  const ls_program *programs[LS_SESSION_PROGRAMS]; /* of the first stage */
  ls_device device;
  const ls_device_facts *on; /* the device that all is compiled for; NULL: this machine's */
  int64_t *workspace;        /* [pp] bytes that kernels of a device need beside its arena */
  int64_t *overhead;         /* [pp] and those that it has taken before */
  int *groups;               /* [pp] that a rank communicates in */
  /* As in ls_rank_options; NULL: nobody asks. */
  void (*tuning)(void *context, const ls_rank_tuning *said);
  void *tuning_context;
} ls_session;

/* Whether the loss has a teacher's share. */
static inline bool ls_session_is_taught(const ls_session *session) {
  return session->teacher || session->told;
}

/* The program that a step is made again by whose rows for experts found no slot; 0: there is none.
 */
int ls_session_step_again(const ls_session *session);

/* Resolves what the run file leaves open (mesh, batch, dtype, threads, learning rate), finds the
 * model and compiles its programs for `devices` ranks, `ranks_sharing_cores` of them on the cores
 * of this process. LS_INPUT says which key cannot be and the nearest that can; LS_REFUTED: the
 * program does not fit device.memory or host.memory, with the largest categories. Nothing is
 * written. */
LS_CHECKED ls_status ls_session_create(ls_arena *arena, ls_run_file *run, int devices,
                                       int ranks_sharing_cores, ls_session **session,
                                       ls_error *error);

/* The same for devices with these facts, which need not be here: to be shown and proved, not run.
 * Their memory is the limit where device.memory says none. NULL: this machine's. */
LS_CHECKED ls_status ls_session_create_on(ls_arena *arena, ls_run_file *run, int devices,
                                          int ranks_sharing_cores, const ls_device_facts *on,
                                          ls_session **session, ls_error *error);

/* The same to be evaluated alone: parameters as they compute, and nothing beside them that training
 * would need. */
LS_CHECKED ls_status ls_session_create_evaluation(ls_arena *arena, ls_run_file *run, int devices,
                                                  int ranks_sharing_cores, ls_session **session,
                                                  ls_error *error);

/* The name of the run's dtype: "fp8" where products are in that, else that of compute. */
const char *ls_session_dtype(const ls_session *session);

/* How products in fp8 are done on its devices, in one line; NULL: none are. In the arena. */
const char *ls_session_fp8(ls_arena *arena, const ls_session *session);

/* Whether the fastest ways of what the device's library has several for are found first. */
bool ls_session_tunes(const ls_session *session);

/* What of it has run on stand-ins of GPUs alone, never on hardware: "several GPUs together, this
 * task"; NULL: nothing, or it is not for GPUs. In the arena. */
const char *ls_session_untried(ls_arena *arena, const ls_session *session);

/* Bytes that a device may use: device.memory, else what it has; 0: neither is known. */
int64_t ls_session_limit(const ls_session *session);

/* How often a device of the stage has an overhead: of each group, or once. */
int ls_session_overhead_times(const ls_session *session, int stage, const ls_overhead *overhead);

/* The first part of it, without programs: what is to be trained, and how; its graph too. */
LS_CHECKED ls_status ls_session_resolve(ls_arena *arena, ls_run_file *run, int devices,
                                        int ranks_sharing_cores, const ls_device_facts *on,
                                        ls_session **session, ls_error *error);

/* What a session trains, to be compiled under other layouts. Borrows the session. */
ls_training ls_session_training(const ls_session *session);

/* The same training under another layout, compiled to see what it needs: it is held against no
 * limit of memory, and not run. LS_INPUT: the layout cannot be. */
LS_CHECKED ls_status ls_session_under(ls_arena *arena, const ls_session *session,
                                      const ls_layout *layout, ls_session **made, ls_error *error);

/* Likewise the same training of all parameters, where some are frozen. */
LS_CHECKED ls_status ls_session_thawed(ls_arena *arena, const ls_session *session,
                                       ls_session **made, ls_error *error);

/* Likewise the same training without the teacher. */
LS_CHECKED ls_status ls_session_untaught(ls_arena *arena, const ls_session *session,
                                         ls_session **made, ls_error *error);

/* Has the evaluation leave all logits, which it else may make in slices. Before there are ranks. */
LS_CHECKED ls_status ls_session_keep_logits(ls_session *session, ls_error *error);

/* The tokenizer that data.tokenizer names: a folder or file, bytes, or for "auto" the model's own,
 * else bytes. LS_INPUT also where the model has no row for one of its ids. Close it with
 * ls_tokenizer_close. */
LS_CHECKED ls_status ls_session_open_tokenizer(const ls_session *session,
                                               const ls_tokenizer **tokenizer, ls_error *error);

/* LS_INPUT where the tokenizer has ids that the model has no row for. */
LS_CHECKED ls_status ls_session_check_tokenizer(const ls_session *session,
                                                const ls_tokenizer *tokenizer, ls_error *error);

/* Memory of a tier that a run's programs need for a device of the stage that needs most; `stage`
 * says which that is. */
int64_t ls_session_tier_bytes(const ls_session *session, ls_tier tier, int *stage);

/* Memory of the device itself: with the workspace of its kernels and its overheads. */
int64_t ls_session_bytes_needed(const ls_session *session, int *stage);

/* Bytes that a device of the stage that sends most sends in one run of the program, and in how many
 * collectives; `stage` says which that is. collectives may be NULL. */
double ls_session_bytes_sent(const ls_session *session, int program, int *stage, int *collectives);

/* What a rank of a stage needs of its machine's memory: device and host tier. */
int64_t ls_session_stage_bytes(const ls_session *session, int stage);

/* What the device's memory is for: at the peak of a step a category each, then its overheads, and
 * last the workspace of its kernels. */
enum { LS_SESSION_MEMORY_PARTS = LS_CATEGORY_COUNT + 2 };
void ls_session_memory_parts(const ls_session *session, int stage,
                             int64_t parts[LS_SESSION_MEMORY_PARTS]);
const char *ls_session_memory_part_name(int part);

/* A rank with the session's programs. Collective: all ranks. */
LS_CHECKED ls_status ls_session_rank(const ls_session *session, ls_comm *comm, ls_rank **rank,
                                     ls_error *error);

/* Fills the parameters from scratch, as the family initialises them, from train.seed: the same for
 * every layout; and a teacher's from its folder. */
LS_CHECKED ls_status ls_session_initialise(const ls_session *session, ls_rank *rank,
                                           ls_error *error);

/* LS_INPUT: the run trains adapters, and its model gives no weights for them. */
LS_CHECKED ls_status ls_session_check_start(const ls_session *session, ls_error *error);

/* Fills the adapters alone, from a folder as PEFT writes it. */
LS_CHECKED ls_status ls_session_load_adapters(const ls_session *session, ls_rank *rank,
                                              const char *path, ls_error *error);

/* Fills the parameters from Hugging Face weights: a folder or file as ls_safetensors_open takes.
 * Adapters come from a folder of them, and what they are beside from their base; of a folder
 * without any they are as ls_session_initialise draws them. A teacher's come from its own folder.
 * Only what this rank keeps is read, in LS_TILE_MEMORY; the bytes of it are added to *bytes_read,
 * which may be NULL. Not collective, but all ranks call it: of a head that the file holds beside
 * tied embeddings each compares its part. */
LS_CHECKED ls_status ls_session_load_weights(const ls_session *session, ls_rank *rank,
                                             const char *path, int64_t *bytes_read,
                                             ls_error *error);

/* What one rank can reach on this machine while the others that share its cores work too. */
typedef struct ls_session_limits {
  double flops_per_s; /* of the compute type; 0: not measured */
  double bytes_per_s;
} ls_session_limits;

ls_session_limits ls_session_limits_of(const ls_session *session, const ls_rates *rates);

/* What all ranks together can do in products of the compute type: the denominator of MFU. */
typedef struct ls_peak {
  double flops_per_s;
  double usual;     /* the median of the products that were measured now */
  int measured_now; /* ranks of which that is more than what is kept */
  bool of_sheet;    /* it is the devices' data sheet's, as is usual of GPUs */
} ls_peak;

/* What a rank does in products, alone and beside the others. Of single ones a neighbour that is
 * loud for a while slows some, not the best. Where more ranks share cores than there are cores, a
 * product may fit in one turn of its rank: there only what all do in the whole time says what they
 * can do.
 */
typedef struct ls_products {
  double best, usual; /* rates of single products */
  double flops, seconds;
  double takes_turns; /* 1: it shares cores with more ranks than there are cores */
  double kept;        /* its share of what is kept of its machine; 0: nothing is */
} ls_products;

/* The peak of all ranks, who measured at once. */
ls_peak ls_peak_of(const ls_products *every, int ranks);

/* What share of the peak a rate is. A rate above one that was measured is the peak from then on: it
 * was measured beside other work. NAN above a data sheet's: the time is of more than one step. */
double ls_peak_share(ls_peak *peak, double flops_per_s);

/* What the data sheet says of each device, where it is known; else for each rank what `lockstep
 * bench` has kept of its machine or, where that is less (it may have run beside other work), what
 * products reach now while all ranks do the same (ls_products), which takes about 0.1 s. All ranks
 * get the same. Collective: all ranks. */
LS_CHECKED ls_status ls_session_peak(const ls_session *session, ls_rank *rank, ls_peak *peak,
                                     ls_error *error);

#endif
