#include "session/offload_room.h"

#include <errno.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "cluster/machine.h"

static double mib(int64_t bytes) {
  return (double)bytes / 1048576;
}

ls_status ls_session_check_host(const ls_session *session, int ranks, bool here, ls_error *error) {
  int stage;
  const int64_t needed = ls_session_tier_bytes(session, LS_TIER_HOST, &stage);
  const int64_t limit = session->run->host.memory;
  const char *where = ls_run_file_where(session->run, "host.memory");
  if (limit && needed > limit)
    return ls_fail(error, LS_REFUTED,
                   "%s: a device offloads %.1f MiB to its host and may use %.1f: offload to nvme, "
                   "lower offload.optimizer_fraction, raise mesh.dp_shard, or allow more",
                   where, mib(needed), mib(limit));
  const int64_t machine = here && !limit ? ls_machine_probe().memory_bytes : 0;
  if (machine && needed > machine / ranks)
    return ls_fail(error, LS_REFUTED,
                   "%s: %d device%s of this machine offload %.1f MiB each to its memory of %.1f: "
                   "offload to nvme, lower offload.optimizer_fraction, or raise mesh.dp_shard",
                   where, ranks, ranks == 1 ? "" : "s", mib(needed), mib(machine));
  return LS_OK;
}

ls_status ls_session_check_offload(const ls_session *session, int ranks, ls_error *error) {
  LS_TRY(ls_session_check_host(session, ranks, true, error));
  int stage;
  const int64_t needed = ls_session_tier_bytes(session, LS_TIER_NVME, &stage);
  if (!needed) return LS_OK;
  const char *path = session->run->offload.path;
  const char *where = ls_run_file_where(session->run, "offload.path");
  if (!*path)
    return ls_fail(error, LS_INPUT,
                   "%s: none given, and nvme is to be offloaded to; expected a folder on the "
                   "drive, as offload.path=/mnt/nvme",
                   where);
  if (!ls_directory_exists(path))
    return ls_fail(error, LS_INPUT, "%s: %s is no folder; expected one on the drive", where, path);
  if (access(path, W_OK | X_OK) != 0)
    return ls_fail(error, LS_INPUT, "%s: %s: %s; expected a folder that can be written", where,
                   path, strerror(errno));
  struct statvfs about;
  if (statvfs(path, &about) != 0) return LS_OK; /* creating the file will say why */
  const int64_t room = (int64_t)(about.f_bavail * about.f_frsize);
  if (needed > room / ranks)
    return ls_fail(error, LS_REFUTED,
                   "%s: %s has %.1f MiB free, and %d device%s of this machine offload%s %.1f MiB "
                   "each: free some, name another folder, or offload less",
                   where, path, mib(room), ranks, ranks == 1 ? "" : "s", ranks == 1 ? "s" : "",
                   mib(needed));
  return LS_OK;
}
