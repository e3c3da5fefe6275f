/* Findings as a list, and those of this host and of a process's limits. */
#include "cluster/findings.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "cluster/machine.h"
#include "cluster/rates.h"
#include "text/number.h"

const char *ls_verdict_name(ls_verdict verdict) {
  static const char *const names[] = {"ok", "warning", "fail"};
  return names[verdict];
}

void ls_find(ls_findings *all, ls_verdict verdict, const char *subject, const char *remedy,
             const char *format, ...) {
  char text[1024];
  va_list values;
  va_start(values, format);
  vsnprintf(text, sizeof text, format, values);
  va_end(values);
  *LS_APPEND(all->arena, &all->list) =
      (ls_finding){.about = all->about,
                   .subject = ls_arena_strdup(all->arena, subject),
                   .found = ls_arena_strdup(all->arena, text),
                   .remedy = remedy ? ls_arena_strdup(all->arena, remedy) : NULL,
                   .verdict = verdict};
}

ls_verdict ls_findings_worst(const ls_findings *all) {
  ls_verdict worst = LS_VERDICT_OK;
  for (int f = 0; f < all->list.count; f++)
    if (all->list.items[f].verdict > worst) worst = all->list.items[f].verdict;
  return worst;
}

/* A small file of /proc or /sys, without its last newline; NULL: it is not there. */
static char *read_line(ls_arena *arena, const char *root, const char *path) {
  char *text;
  size_t bytes;
  if (ls_file_read(arena, ls_arena_printf(arena, "%s%s", root, path), &text, &bytes, NULL) != LS_OK)
    return NULL;
  text[strcspn(text, "\n")] = 0;
  return text;
}

static void find_cores(ls_findings *all, const char *root) {
  char name[LS_PROCESSOR_BYTES];
  const ls_machine machine = ls_machine_probe();
  const int there = (int)sysconf(_SC_NPROCESSORS_ONLN);
  ls_machine_processor(root, name);
  ls_find(all, LS_VERDICT_OK, "processor", NULL, "%s", name);
  ls_find(all, LS_VERDICT_OK, "cores", NULL, "%d core%s may be used, %d of %d hardware threads%s",
          machine.cores, machine.cores == 1 ? "" : "s", machine.threads, there,
          machine.threads < there ? " (by affinity mask, cgroup or SLURM_CPUS_PER_TASK)" : "");
}

static void find_nodes(ls_findings *all, const char *root) {
  char **paths;
  int nodes;
  if (ls_file_glob(all->arena,
                   ls_arena_printf(all->arena, "%s/sys/devices/system/node/node*/cpulist", root),
                   &paths, &nodes, NULL) != LS_OK)
    nodes = 0;
  if (nodes > 1 && !ls_machine_is_bound())
    ls_find(all, LS_VERDICT_WARNING, "NUMA nodes",
            "one process for each, bound: mpirun --bind-to numa --map-by numa, or srun --cpu-bind",
            "%d, and this process is bound to none: threads run far from their memory", nodes);
  else
    ls_find(all, LS_VERDICT_OK, "NUMA nodes", NULL, "%d", nodes > 1 ? nodes : 1);
}

static void find_memory(ls_findings *all, const char *root) {
  char whole[LS_NUMBER_BYTES] = "of unknown size", left[LS_NUMBER_BYTES] = "unknown";
  const ls_machine machine = ls_machine_probe();
  const ls_memory_there there = ls_machine_memory_there(root);
  if (machine.memory_bytes) ls_size_show(whole, (double)machine.memory_bytes);
  if (there.bytes != INT64_MAX) ls_size_show(left, (double)there.bytes);
  ls_find(all, there.bytes ? LS_VERDICT_OK : LS_VERDICT_FAIL, "memory",
          there.bytes ? NULL : "end other programs, or raise the cgroup's limit",
          "%s for all processes, %s left (%s)", whole, left, there.what);
}

/* The arena asks for huge pages by madvise. */
static void find_pages(ls_findings *all, const char *root) {
  const char *says = read_line(all->arena, root, "/sys/kernel/mm/transparent_hugepage/enabled");
  const char *begin = says ? strchr(says, '[') : NULL, *end = begin ? strchr(begin, ']') : NULL;
  if (!end) {
    ls_find(all, LS_VERDICT_OK, "huge pages", NULL, "the kernel does not say");
  } else if (strncmp(begin, "[never]", 7) == 0) {
    ls_find(all, LS_VERDICT_WARNING, "huge pages",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
            "never: more misses of the TLB");
  } else {
    ls_find(all, LS_VERDICT_OK, "huge pages", NULL, "%.*s", (int)(end - begin - 1), begin + 1);
  }
}

/* What is found of a folder, or of the nearest one above it that is there. */
static const char *nearest_folder(ls_arena *arena, const char *folder) {
  char *path = ls_arena_strdup(arena, folder);
  while (!ls_directory_exists(path)) {
    char *slash = strrchr(path, '/');
    if (!slash || slash == path) return "/";
    *slash = 0;
  }
  return path;
}

/* Numbers of <linux/magic.h>. */
static const char *file_system(const char *folder) {
  struct statfs info;
  if (statfs(folder, &info)) return "";
  switch ((unsigned long)info.f_type) {
    case 0x6969: return ", NFS";
    case 0x0BD00BD0: return ", Lustre";
    case 0x01021994: return ", in memory: lost with the machine";
    default: return "";
  }
}

static void find_caches(ls_findings *all) {
  const char *folder = ls_rates_folder(all->arena);
  if (!folder) {
    ls_find(all, LS_VERDICT_WARNING, "caches", "set HOME or XDG_CACHE_HOME",
            "no folder: what is measured and tokenized is not kept");
    return;
  }
  const char *there = nearest_folder(all->arena, folder);
  struct statvfs drive;
  char left[LS_NUMBER_BYTES];
  if (access(there, W_OK) || statvfs(there, &drive)) {
    ls_find(all, LS_VERDICT_WARNING, "caches", "set XDG_CACHE_HOME to a folder of yours",
            "%s cannot be written to", folder);
    return;
  }
  ls_size_show(left, (double)drive.f_bavail * (double)drive.f_frsize);
  if (drive.f_bavail == 0)
    ls_find(all, LS_VERDICT_WARNING, "caches", "make room, or set XDG_CACHE_HOME",
            "%s: its drive is full", folder);
  else
    ls_find(all, LS_VERDICT_OK, "caches", NULL, "%s, %s free%s", folder, left, file_system(there));
}

void ls_host_findings(ls_findings *all, const char *root) {
  all->about = "host";
  find_cores(all, root);
  find_nodes(all, root);
  find_memory(all, root);
  find_pages(all, root);
  find_caches(all);
}

/* InfiniBand's libraries lock what they register. */
static void find_memlock(ls_findings *all, const char *root) {
  struct rlimit limit;
  char shown[LS_NUMBER_BYTES] = "unlimited";
  char **adapters;
  int count;
  if (getrlimit(RLIMIT_MEMLOCK, &limit)) return;
  if (ls_file_glob(all->arena,
                   ls_arena_printf(all->arena, "%s/sys/class/infiniband/*/node_type", root),
                   &adapters, &count, NULL) != LS_OK)
    count = 0;
  if (limit.rlim_cur != RLIM_INFINITY) ls_size_show(shown, (double)limit.rlim_cur);
  if (limit.rlim_cur != RLIM_INFINITY && count)
    ls_find(all, LS_VERDICT_WARNING, "memlock",
            "ulimit -l unlimited, docker run --ulimit memlock=-1, or limits.conf of Slurm's nodes",
            "%s, and %d InfiniBand adapter%s here: registering memory fails beyond it", shown,
            count, count == 1 ? "" : "s");
  else
    ls_find(all, LS_VERDICT_OK, "memlock", NULL, "%s%s", shown,
            count ? "" : " (no InfiniBand adapter wants more)");
}

/* NCCL's guide (Troubleshooting, Docker) asks for --shm-size=1g. */
static void find_shm(ls_findings *all, const char *root) {
  enum { WANTED = 1 << 30 };
  struct statvfs drive;
  char size[LS_NUMBER_BYTES];
  const char *folder = ls_arena_printf(all->arena, "%s/dev/shm", root);
  const char *remedy = "docker run --shm-size=1g, or mount -o remount,size=1g /dev/shm";
  if (statvfs(folder, &drive)) {
    ls_find(all, LS_VERDICT_WARNING, "shared memory", remedy, "no /dev/shm: MPI and NCCL use it");
    return;
  }
  const double bytes = (double)drive.f_blocks * (double)drive.f_frsize;
  ls_size_show(size, bytes);
  if (bytes < WANTED)
    ls_find(all, LS_VERDICT_WARNING, "shared memory", remedy,
            "/dev/shm has %s: processes of one host may fail to meet", size);
  else
    ls_find(all, LS_VERDICT_OK, "shared memory", NULL, "/dev/shm has %s", size);
}

static void find_space(ls_findings *all) {
  const ls_memory_there there = ls_process_memory_there();
  char left[LS_NUMBER_BYTES];
  if (there.bytes == INT64_MAX) {
    ls_find(all, LS_VERDICT_OK, "address space", NULL, "unlimited");
    return;
  }
  ls_size_show(left, (double)there.bytes);
  ls_find(all, LS_VERDICT_WARNING, "address space", "ulimit -v unlimited; ulimit -d unlimited",
          "%s leaves %s: GPUs reserve far more than they use", there.what, left);
}

void ls_limit_findings(ls_findings *all, const char *root) {
  all->about = "limits";
  find_memlock(all, root);
  find_shm(all, root);
  find_space(all);
}
