#include "train/agree.h"

#include <string.h>

ls_status ls_agree(ls_rank *rank, ls_status own, ls_error *error) {
  ls_group *all = ls_rank_world_group(rank);
  const int64_t size = ls_group_size(all);
  ls_error said = {0};
  if (own != LS_OK) ls_fail(&said, own, "%s", error ? error->text : "a rank failed");
  int64_t first = own == LS_OK ? 0 : size - ls_rank_number(rank); /* the largest is the first */
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
