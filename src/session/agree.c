#include "session/agree.h"

#include <string.h>
#include <unistd.h>

#include "run/rank_threads.h"

/* `number`: of this rank in the group. */
static ls_status agree(ls_group *all, int number, ls_status own, ls_error *error) {
  const int64_t size = ls_group_size(all);
  ls_error said = {0};
  if (own != LS_OK) ls_fail(&said, own, "%s", error ? error->text : "a rank failed");
  int64_t first = own == LS_OK ? 0 : size - number; /* the largest is the first */
  ls_comm_about(ls_group_comm(all), "whether all ranks are well");
  LS_TRY(ls_all_reduce(all, &first, 1, LS_I64, LS_MAX, error));
  if (first == 0) return LS_OK;
  int32_t message[(sizeof(ls_error) + sizeof(int32_t) - 1) / sizeof(int32_t)] = {0};
  memcpy(message, &said, sizeof said);
  LS_TRY(ls_broadcast(all, message, (int64_t)(sizeof message / sizeof *message), LS_I32,
                      (int)(size - first), error));
  memcpy(&said, message, sizeof said);
  return ls_fail(error, said.status, "%s", said.text);
}

ls_status ls_agree(ls_rank *rank, ls_status own, ls_error *error) {
  return agree(ls_rank_world_group(rank), ls_rank_number(rank), own, error);
}

ls_status ls_agree_any(ls_rank *rank, bool own, const char *about, bool *any, ls_error *error) {
  int64_t flag = own;
  ls_comm_about(ls_group_comm(ls_rank_world_group(rank)), about);
  LS_TRY(ls_all_reduce(ls_rank_world_group(rank), &flag, 1, LS_I64, LS_MAX, error));
  *any = flag != 0;
  return LS_OK;
}

/* The status and text of this process, and the agreed ones. */
typedef struct meeting {
  ls_world *world;
  ls_error own, agreed;
} meeting;

/* Who reads it elsewhere is to know where to look. */
static void name_source(int number, ls_error *error) {
  char host[64] = "its host";
  if (error->status == LS_OK || number == 0) return;
  (void)!gethostname(host, sizeof host - 1);
  ls_error_prefix(error, "rank %d on %s", number, host);
}

/* Each rank here contributes this process's status; the first rank here keeps the agreed one. */
static ls_status meet(ls_comm *comm, void *context, ls_error *error) {
  meeting *self = context;
  const int size = ls_world_size(self->world), number = ls_comm_rank(comm);
  ls_arena *arena = ls_arena_create();
  int *members = LS_NEW_ARRAY(arena, int, size);
  for (int r = 0; r < size; r++) members[r] = r;
  ls_group *all;
  ls_error said = self->own;
  name_source(number, &said);
  ls_status status = ls_comm_group(comm, members, size, &all, error);
  ls_arena_destroy(&arena);
  LS_TRY(status);
  status = agree(all, number, said.status, &said);
  if (number != ls_world_first_here(self->world)) return LS_OK;
  self->agreed = said;
  self->agreed.status = status;
  return LS_OK;
}

ls_status ls_world_agree(ls_world *world, ls_status own, ls_error *error) {
  if (ls_world_count_here(world) == ls_world_size(world)) return own;
  meeting all = {.world = world};
  if (own != LS_OK) ls_fail(&all.own, own, "%s", error ? error->text : "a process failed");
  LS_TRY(ls_rank_threads_run(world, meet, &all, error));
  if (all.agreed.status == LS_OK) return LS_OK;
  return ls_fail(error, all.agreed.status, "%s", all.agreed.text);
}
