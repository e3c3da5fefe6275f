#include "generate/decoder.h"

#include "session/agree.h"

/* What rank 0 says: the number of a program, or that there is nothing more; then of each of its
 * tokens the id, the position and the row of the caches. */
enum { DISMISSED = -1, NUMBERS = 3 };

struct ls_decoder {
  const ls_decoding *decoding;
  const ls_program *programs[LS_MAX_PROGRAMS]; /* of its stage */
  ls_rank *rank;
  ls_group *everyone;
  int64_t widest;   /* tokens of the widest program */
  int32_t *message; /* [1 + NUMBERS * widest] */
  void *part;       /* of the logits, as the device has them: one rank's */
  float *logits;    /* of rank 0: [tokens, vocabulary] */
};

/* The program of the stage that has logits, and whether a rank is of it. */
static const ls_program *last_stage(const ls_decoder *self, int which) {
  return self->decoding->stages[which][self->decoding->session.layout.pp - 1];
}

static bool has_logits(const ls_program *last, int rank) {
  return ls_mesh_stage(&last->mesh, rank) == last->stage;
}

/* Elements of a rank's part of the logits; the first of its stage has no fewer than any other. */
static int64_t part_elements(const ls_program *program, int rank) {
  const ls_local local = ls_program_local(program, rank, program->logits);
  return local.dims[0] * local.dims[1];
}

static ls_status load(ls_decoder *self, ls_arena *arena, const char *folder, ls_error *error) {
  const ls_decoding *decoding = self->decoding;
  const ls_program *last = last_stage(self, decoding->heads - 1);
  const ls_dtype dtype = last->values.items[last->logits].dtype;
  const int64_t elements = last->tokens * decoding->session.config.vocabulary;
  for (int p = 0; p < decoding->count; p++)
    if (ls_decoding_tokens(decoding, p) > self->widest)
      self->widest = ls_decoding_tokens(decoding, p);
  self->message = LS_NEW_ARRAY(arena, int32_t, 1 + NUMBERS * self->widest);
  self->part = ls_arena_alloc(
      arena,
      (size_t)part_elements(last, ls_mesh_ranks(&last->mesh) - ls_mesh_stage_ranks(&last->mesh)) *
          ls_dtype_bytes(dtype));
  if (ls_rank_number(self->rank) == 0) self->logits = LS_NEW_ARRAY(arena, float, elements);
  return ls_session_load_weights(&decoding->session, self->rank, folder, NULL, error);
}

ls_status ls_decoder_create(ls_arena *arena, const ls_decoding *decoding, ls_comm *comm,
                            const char *folder, ls_decoder **decoder, ls_error *error) {
  ls_decoder *made = LS_NEW(arena, ls_decoder);
  made->decoding = decoding;
  *decoder = made;
  const int stage = ls_mesh_stage(&decoding->stages[0][0]->mesh, ls_comm_rank(comm));
  for (int p = 0; p < decoding->count; p++) made->programs[p] = decoding->stages[p][stage];
  const ls_run_device *device = decoding->options.device;
  const ls_rank_options options = {.programs = made->programs,
                                   .program_count = decoding->count,
                                   .device = &decoding->device,
                                   .tune = device && device->tune == LS_RUN_TUNE_TRUE,
                                   .tuning = decoding->options.tuning,
                                   .context = decoding->options.tuning_context};
  LS_TRY(ls_rank_create(comm, &options, &made->rank, error));
  made->everyone = ls_rank_world_group(made->rank);
  return ls_agree(made->rank, load(made, arena, folder, error), error);
}

void ls_decoder_destroy(ls_decoder **decoder) {
  if (*decoder) ls_rank_destroy(&(*decoder)->rank);
  *decoder = NULL;
}

/* All of a message has one length, so that nobody needs to be told it. */
static ls_status share(ls_decoder *self, ls_error *error) {
  if (ls_group_size(self->everyone) == 1) return LS_OK;
  ls_comm_about(ls_group_comm(self->everyone), "which tokens are decoded next");
  return ls_broadcast(self->everyone, self->message, 1 + NUMBERS * self->widest, LS_I32, 0, error);
}

static ls_status run(ls_decoder *self, ls_error *error) {
  const int which = self->message[0];
  const ls_program *program = self->programs[which];
  const int64_t tokens = program->tokens;
  const int32_t *numbers = self->message + 1;
  const ls_view own = ls_rank_shape(self->rank, which, program->ids);
  const int input[NUMBERS] = {program->ids, program->positions, program->places};
  for (int i = 0; i < NUMBERS; i++)
    if (input[i] >= 0)
      LS_TRY(ls_rank_put(self->rank, which, input[i], 0, numbers + i * tokens + own.start[0],
                         own.valid[0], error));
  return ls_rank_run(self->rank, which, error);
}

/* A rank's part of the first `count` rows. */
static void place_part(ls_decoder *self, const ls_program *program, int rank, int64_t count) {
  const ls_local local = ls_program_local(program, rank, program->logits);
  const ls_dtype dtype = program->values.items[program->logits].dtype;
  const int64_t vocabulary = self->decoding->session.config.vocabulary;
  const char *rows = (const char *)self->part;
  for (int64_t n = 0; n < local.valid[0] && local.start[0] + n < count; n++)
    ls_convert(self->logits + (local.start[0] + n) * vocabulary + local.start[1], LS_F32,
               rows + n * local.dims[1] * (int64_t)ls_dtype_bytes(dtype), dtype, local.valid[1]);
}

/* Rank 0 takes the others' parts one after another. */
static ls_status gather(ls_decoder *self, int64_t count, ls_error *error) {
  const int which = self->message[0], own = ls_rank_number(self->rank);
  const ls_program *last = last_stage(self, which);
  if (which >= self->decoding->heads) return LS_OK;
  const ls_dtype dtype = last->values.items[last->logits].dtype;
  ls_comm_about(ls_group_comm(self->everyone), "logits");
  if (has_logits(last, own))
    LS_TRY(ls_rank_get(self->rank, which, last->logits, 0, self->part, part_elements(last, own),
                       error));
  for (int r = 0; r < ls_group_size(self->everyone); r++) {
    if (!has_logits(last, r)) continue;
    const int64_t elements = part_elements(last, r);
    if (own == 0 && r != 0)
      LS_TRY(ls_receive(self->everyone, self->part, elements, dtype, r, error));
    if (own == 0) place_part(self, last, r, count);
    if (own == r && r != 0) LS_TRY(ls_send(self->everyone, self->part, elements, dtype, 0, error));
  }
  return LS_OK;
}

ls_status ls_decoder_run(ls_decoder *decoder, int which, const ls_decoder_token *tokens,
                         int64_t count, const float **logits, ls_error *error) {
  const ls_decoding *decoding = decoder->decoding;
  const int64_t width = ls_decoding_tokens(decoding, which);
  int32_t *numbers = decoder->message + 1;
  LS_ASSERT(count > 0 && count <= width);
  decoder->message[0] = which;
  /* What is left of a program goes through a token again, which has no place where rows are dealt
   * to ranks. */
  const bool dealt = decoding->session.layout.cp > 1;
  for (int64_t n = 0; n < width; n++) {
    const ls_decoder_token *token = &tokens[n < count ? n : 0];
    const int64_t place = token->sequence * decoding->places + token->position;
    numbers[n] = token->id;
    numbers[width + n] = token->position;
    numbers[2 * width + n] = dealt && n >= count ? -1 : (int32_t)place;
  }
  LS_TRY(share(decoder, error));
  LS_TRY(run(decoder, error));
  LS_TRY(gather(decoder, count, error));
  *logits = which < decoding->heads ? decoder->logits : NULL;
  return LS_OK;
}

ls_status ls_decoder_serve(ls_decoder *decoder, ls_error *error) {
  ls_comm *comm = ls_group_comm(decoder->everyone);
  for (;;) {
    ls_comm_set_patient(comm, true); /* who reads a text slowly is no failure */
    LS_TRY(share(decoder, error));
    ls_comm_set_patient(comm, false);
    if (decoder->message[0] == DISMISSED) return LS_OK;
    LS_TRY(run(decoder, error));
    LS_TRY(gather(decoder, 0, error));
  }
}

ls_status ls_decoder_dismiss(ls_decoder *decoder, ls_error *error) {
  decoder->message[0] = DISMISSED;
  return share(decoder, error);
}
