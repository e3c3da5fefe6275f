/* Checkpoints: a run's state as a folder that Hugging Face tools read, and back onto any layout.
 *
 * OUT/checkpoints/step-N holds config.json, model.safetensors (fp32, fp64 in fp64 runs, or shards
 * with an index), the tokenizer's files, optimizer.safetensors (moment1.NAME, moment2.NAME by our
 * names), run.yaml and state.json, which has the position and size and checksum of every file. It
 * is written aside and published whole: a kill at any moment leaves the last good one.
 *
 *   LS_TRY(ls_checkpoint_save(session, rank, run->out, step, &extra, error));
 *   if (rank 0) ls_checkpoint_prune(run->out, run->checkpoint.keep);
 *   ...
 *   LS_TRY(ls_checkpoint_newest_whole(arena, run->out, &folder, &step, error));
 *   if (folder) LS_TRY(ls_checkpoint_load(session, rank, folder, &state, error));
 *
 * No state: what is called on different folders may be called by different threads. */
#ifndef LS_CHECKPOINT_CHECKPOINT_H
#define LS_CHECKPOINT_CHECKPOINT_H

#include "base/checksum.h"
#include "data/dataset.h"
#include "session/loss_scale.h"
#include "session/session.h"

/* Of the evaluations of a run so far, by their validation loss. */
typedef struct ls_best_evaluation {
  double loss;    /* the lowest */
  int64_t step;   /* that it came after; 0: there is none yet, and no loss */
  int64_t worse;  /* evaluations since one was lower by eval.min_delta */
  int64_t judged; /* the last step whose evaluation is counted in; 0: none */
} ls_best_evaluation;

/* What a checkpoint holds beside tensors. Only rank 0 looks at it. */
typedef struct ls_checkpoint_extra {
  const char *run_text;           /* of the resolved run file: ls_run_file_text */
  const ls_tokenizer *tokenizer;  /* NULL: no tokenizer files are written */
  const ls_chat *chat;            /* a template that a file gave it is written; NULL: none */
  int64_t tokens;                 /* seen since the run began */
  int64_t sequences;              /* likewise: with data.seed the place in the order of the data */
  const char *loss_scale;         /* ls_loss_scale_write's text; NULL: none */
  const char *corpus;             /* ls_dataset's fingerprint; NULL: none */
  const char *base;               /* of weights that resuming needs beside it; NULL: none */
  const ls_best_evaluation *best; /* NULL: nobody asks for it */
  size_t max_shard_bytes;         /* of a file of tensors; 0: 5 GB, as Hugging Face cuts them */
} ls_checkpoint_extra;

/* Saves the parameters and moments after `step` updates as OUT/checkpoints/step-N; one of that name
 * is replaced at the instant of publishing. Every rank writes what it alone holds, and its share of
 * what several hold: each byte is written once, and by OUT's file system, which all hosts share.
 * Beside the parameters a rank uses LS_TILE_MEMORY at most. Collective: all ranks, which all return
 * the same status and text: LS_FAILED where the disk is full, say, with nothing left behind. */
LS_CHECKED ls_status ls_checkpoint_save(const ls_session *session, ls_rank *rank, const char *out,
                                        int64_t step, const ls_checkpoint_extra *extra,
                                        ls_error *error);

/* Lays down config.json and the weights alone, for as long as somebody reads them, in a folder
 * among OUT's checkpoints which is none, is not flushed, and which ls_checkpoint_clear removes
 * after a kill. Rank 0 removes *folder, in the arena. Collective, and errors, as above. */
LS_CHECKED ls_status ls_checkpoint_lay_weights(ls_arena *arena, const ls_session *session,
                                               ls_rank *rank, const char *out, int64_t step,
                                               const char **folder, ls_error *error);

/* The newest checkpoint of OUT of a step below `below` (INT64_MAX: any); *folder NULL where there
 * is none. One that is damaged, as far as names and sizes tell, is named in a warning and the one
 * before is taken. LS_INPUT where there are some and all are damaged; LS_FAILED where the system
 * does not let one be read: it may be good. */
LS_CHECKED ls_status ls_checkpoint_newest(ls_arena *arena, const char *out, int64_t below,
                                          const char **folder, int64_t *step, ls_error *error);

/* The same with every byte looked at (ls_checkpoint_verify). */
LS_CHECKED ls_status ls_checkpoint_newest_whole(ls_arena *arena, const char *out,
                                                const char **folder, int64_t *step,
                                                ls_error *error);

/* The refusal where all are damaged. */
ls_status ls_checkpoint_none_good(const char *out, ls_error *error);

/* Gives their names back to checkpoints that a kill left without, amid publishing on a file system
 * that cannot exchange names. Of the process that has OUT's lock. */
LS_CHECKED ls_status ls_checkpoint_recover(const char *out, ls_error *error);

/* Renames the checkpoints of OUT above a step to step-N.damaged, which nothing overwrites or
 * removes: training goes past them once more. */
LS_CHECKED ls_status ls_checkpoint_set_aside(const char *out, int64_t above, ls_error *error);

/* What state.json says. */
typedef struct ls_checkpoint_state {
  int64_t step, tokens, sequences, seed;
  char loss_scale[LS_LOSS_SCALE_BYTES]; /* ls_loss_scale_read takes it; empty: none */
  char corpus[LS_CORPUS_NAME_BYTES];    /* fingerprint of the dataset; empty: not known */
  char base[LS_CHECKSUM_DIGITS + 1];    /* of the weights it needs beside it; empty: not known */
  ls_best_evaluation best;              /* all 0: none */
  int64_t bytes_read;                   /* of tensors, by this rank: ls_checkpoint_load */
} ls_checkpoint_state;

/* Reads and checks state.json; files of tensors are not looked at. LS_INPUT: damaged. */
LS_CHECKED ls_status ls_checkpoint_state_read(const char *folder, ls_checkpoint_state *state,
                                              ls_error *error);

/* What of a checkpoint is looked at: all of it, or what one needs who starts from its weights. */
typedef enum ls_sealed_part { LS_SEALED_ALL, LS_SEALED_WEIGHTS } ls_sealed_part;

/* Size and checksum of every file, too. LS_INPUT names the file that does not fit; one that no run
 * needs (a tokenizer's, the run file) costs a warning. LS_FAILED: one cannot be read. */
LS_CHECKED ls_status ls_checkpoint_verify(const char *folder, ls_sealed_part which,
                                          ls_error *error);

/* The same by all ranks, each of which reads its part of every file. Collective: all ranks, which
 * all return the same. */
LS_CHECKED ls_status ls_checkpoint_verify_together(ls_rank *rank, const char *folder,
                                                   ls_sealed_part which, ls_error *error);

/* Whether a folder of weights has checksums: that a run wrote it. */
bool ls_checkpoint_is_sealed(ls_arena *arena, const char *folder);

/* The folder that a word of the command line means: a checkpoint or model folder is itself, a run's
 * folder is its newest good checkpoint. Its weights are verified where they have checksums; with
 * `trust` they are not, and a warning says so. In the arena. */
LS_CHECKED ls_status ls_checkpoint_find(ls_arena *arena, const char *word, bool trust,
                                        const char **folder, ls_error *error);

/* The same without a look at checksums and without a word: where another process looks at them, or
 * they are looked at as the weights are read. */
LS_CHECKED ls_status ls_checkpoint_locate(ls_arena *arena, const char *word, const char **folder,
                                          ls_error *error);

/* Fills parameters and moments from a checkpoint, whatever layout wrote it, and gives its state.
 * A rank reads the bytes of its own shards alone, and uses LS_TILE_MEMORY beside them. LS_INPUT
 * names the tensor, shape or number where it is of another model. Does not verify checksums. Not
 * collective: every rank calls it. */
LS_CHECKED ls_status ls_checkpoint_load(const ls_session *session, ls_rank *rank,
                                        const char *folder, ls_checkpoint_state *state,
                                        ls_error *error);

/* OUT/best: a link to the checkpoint of the lowest validation loss, in one instant another one's.
 * Of the process that has OUT's lock. LS_INPUT where something else has its name. */
#define LS_BEST_NAME "best"
LS_CHECKED ls_status ls_checkpoint_check_best(const char *out, ls_error *error);
LS_CHECKED ls_status ls_checkpoint_point_best(const char *out, int64_t step, ls_error *error);
void ls_checkpoint_forget_best(const char *out);

/* The step it names, whether its checkpoint is there or not; -1: there is no link. */
int64_t ls_checkpoint_best_step(const char *out);

/* Leaves the `keep` newest checkpoints of OUT (all where keep is 0) and its best. Only those are
 * counted and removed that state.json seals, and of those only the files that it names; what else
 * lies in one is kept as step-N.rest. What cannot be removed costs a warning. Of one process at a
 * time. */
void ls_checkpoint_prune(const char *out, int64_t keep);

/* All of them, likewise: what is not of a run stays. */
void ls_checkpoint_remove_all(const char *out);

/* Removes what earlier processes left half-written. Of the process that has OUT's lock, not while
 * it saves. */
void ls_checkpoint_clear(const char *out);

/* A thread that prunes when it is asked to: a drive may take longer than other ranks wait. NULL,
 * with a warning, where it cannot be made; the calls take NULL. */
typedef struct ls_pruner ls_pruner;
ls_pruner *ls_pruner_start(const char *out, int64_t keep);
void ls_pruner_ask(ls_pruner *pruner);
void ls_pruner_stop(ls_pruner **pruner); /* after what it was asked */

#endif
