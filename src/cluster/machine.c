#include "cluster/machine.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MAX_THREADS = LS_THREAD_WORDS * 64, PATH_BYTES = 4096, TEXT_BYTES = 8192 };

static bool has(const ls_thread_set *set, int thread) {
  return set->words[thread / 64] >> (thread % 64) & 1;
}

static void add(ls_thread_set *set, int thread) {
  set->words[thread / 64] |= UINT64_C(1) << (thread % 64);
}

/* The start of root + path, NUL-terminated; false where it cannot be read. */
static bool read_text(const char *root, const char *path, char text[TEXT_BYTES]) {
  char full[PATH_BYTES];
  if (snprintf(full, sizeof full, "%s%s", root, path) >= (int)sizeof full) return false;
  FILE *file = fopen(full, "r");
  if (!file) return false;
  const size_t bytes = fread(text, 1, TEXT_BYTES - 1, file);
  fclose(file);
  text[bytes] = 0;
  return bytes > 0;
}

static bool read_whole(const char *root, const char *path, long long *value) {
  char text[TEXT_BYTES];
  return read_text(root, path, text) && sscanf(text, "%lld", value) == 1;
}

/* The path of this process in the hierarchy of a controller ("" for cgroup v2); false where
 * /proc/self/cgroup does not name it. Lines are "4:cpu,cpuacct:/path". */
static bool cgroup_path(const char *root, const char *controller, char path[PATH_BYTES]) {
  char text[TEXT_BYTES];
  if (!read_text(root, "/proc/self/cgroup", text)) return false;
  char *rest = text;
  for (char *line; (line = strsep(&rest, "\n"));) {
    strsep(&line, ":");
    char *names = line ? strsep(&line, ":") : NULL;
    if (!names || !line) continue;
    bool found = !*controller && !*names;
    for (char *name; *controller && (name = strsep(&names, ","));) {
      found = found || strcmp(name, controller) == 0;
    }
    if (!found) continue;
    snprintf(path, PATH_BYTES, "%s", strcmp(line, "/") == 0 ? "" : line);
    return true;
  }
  return false;
}

/* Reads one cgroup's limit from its folder; false where it has none. */
typedef bool limit_reader(const char *root, const char *folder, double *limit);

static bool cores_v2(const char *root, const char *folder, double *limit) {
  char path[PATH_BYTES], text[TEXT_BYTES];
  double quota, period;
  snprintf(path, sizeof path, "%.4000s/cpu.max", folder);
  if (!read_text(root, path, text)) return false;
  if (sscanf(text, "%lf %lf", &quota, &period) != 2 || period <= 0) return false; /* "max ..." */
  *limit = quota / period;
  return true;
}

static bool cores_v1(const char *root, const char *folder, double *limit) {
  char path[PATH_BYTES];
  long long quota, period;
  snprintf(path, sizeof path, "%.4000s/cpu.cfs_quota_us", folder);
  if (!read_whole(root, path, &quota) || quota <= 0) return false; /* -1: none */
  snprintf(path, sizeof path, "%.4000s/cpu.cfs_period_us", folder);
  if (!read_whole(root, path, &period) || period <= 0) return false;
  *limit = (double)quota / (double)period;
  return true;
}

static bool memory_v2(const char *root, const char *folder, double *limit) {
  char path[PATH_BYTES];
  long long bytes;
  snprintf(path, sizeof path, "%.4000s/memory.max", folder);
  if (!read_whole(root, path, &bytes)) return false; /* "max" */
  *limit = (double)bytes;
  return true;
}

static bool memory_v1(const char *root, const char *folder, double *limit) {
  char path[PATH_BYTES];
  long long bytes;
  snprintf(path, sizeof path, "%.4000s/memory.limit_in_bytes", folder);
  if (!read_whole(root, path, &bytes)) return false;
  *limit = (double)bytes;
  return true;
}

/* The smallest limit of a process's cgroup and of those around it. In a container the names in
 * /proc may be the host's while the mounted tree begins at ours: then only the root is there. */
static double smallest_limit(const char *root, const char *mount, const char *controller,
                             limit_reader *reader, double limit) {
  char path[PATH_BYTES], folder[PATH_BYTES];
  if (!cgroup_path(root, controller, path)) return limit;
  for (;;) {
    double found;
    snprintf(folder, sizeof folder, "%s%.3900s", mount, path);
    if (reader(root, folder, &found) && found < limit) limit = found;
    char *slash = strrchr(path, '/');
    if (!slash) return limit;
    *slash = 0;
  }
}

static double cores_limit(const char *root, double limit) {
  limit = smallest_limit(root, "/sys/fs/cgroup", "", cores_v2, limit);
  limit = smallest_limit(root, "/sys/fs/cgroup/cpu,cpuacct", "cpu", cores_v1, limit);
  return smallest_limit(root, "/sys/fs/cgroup/cpu", "cpu", cores_v1, limit);
}

static double memory_limit(const char *root) {
  char text[TEXT_BYTES];
  long long kilobytes = 0;
  double limit = 0x1p62;
  if (read_text(root, "/proc/meminfo", text) &&
      sscanf(text, "MemTotal: %lld kB", &kilobytes) == 1) {
    limit = (double)kilobytes * 1024;
  }
  limit = smallest_limit(root, "/sys/fs/cgroup", "", memory_v2, limit);
  limit = smallest_limit(root, "/sys/fs/cgroup/memory", "memory", memory_v1, limit);
  return limit < 0x1p62 ? limit : 0;
}

/* "inactive_file 123" of a memory.stat: pages that the cgroup gives up before it runs out. */
static double droppable(const char *root, const char *folder, const char *key) {
  char path[PATH_BYTES], text[TEXT_BYTES], line[64];
  snprintf(path, sizeof path, "%.4000s/memory.stat", folder);
  if (!read_text(root, path, text)) return 0;
  snprintf(line, sizeof line, "\n%s ", key);
  const char *found = strstr(text, line);
  return found ? strtod(found + strlen(line), NULL) : 0;
}

static bool left_of(const char *root, const char *folder, const char *most, const char *used,
                    const char *key, double *left) {
  char path[PATH_BYTES];
  long long limit, now;
  snprintf(path, sizeof path, "%.4000s/%s", folder, most);
  if (!read_whole(root, path, &limit) || limit <= 0 || limit >= 1LL << 60) return false;
  snprintf(path, sizeof path, "%.4000s/%s", folder, used);
  if (!read_whole(root, path, &now)) return false;
  *left = (double)(limit - now) + droppable(root, folder, key);
  if (*left < 0) *left = 0;
  return true;
}

static bool left_v2(const char *root, const char *folder, double *left) {
  return left_of(root, folder, "memory.max", "memory.current", "inactive_file", left);
}

static bool left_v1(const char *root, const char *folder, double *left) {
  return left_of(root, folder, "memory.limit_in_bytes", "memory.usage_in_bytes",
                 "total_inactive_file", left);
}

ls_memory_there ls_machine_memory_there(const char *root) {
  ls_memory_there there = {INT64_MAX, "nothing that is known"};
  char text[TEXT_BYTES];
  long long kilobytes;
  const char *line = read_text(root, "/proc/meminfo", text) ? strstr(text, "MemAvailable:") : NULL;
  if (line && sscanf(line, "MemAvailable: %lld kB", &kilobytes) == 1)
    there = (ls_memory_there){kilobytes * 1024, "MemAvailable"};
  double left = 0x1p62;
  left = smallest_limit(root, "/sys/fs/cgroup", "", left_v2, left);
  left = smallest_limit(root, "/sys/fs/cgroup/memory", "memory", left_v1, left);
  if (left < 0x1p62 && left < (double)there.bytes)
    there = (ls_memory_there){(int64_t)left, "memory that is left of the cgroup"};
  return there;
}

ls_memory_there ls_process_memory_there(void) {
  ls_memory_there there = {INT64_MAX, "nothing that is known"};
  const struct {
    unsigned resource; /* as the enum of glibc's getrlimit */
    int column;
    const char *what;
  } limits[] = {{RLIMIT_AS, 0, "ulimit -v"}, {RLIMIT_DATA, 5, "ulimit -d"}};
  char text[TEXT_BYTES];
  long long pages[7] = {0};
  if (read_text("", "/proc/self/statm", text))
    (void)sscanf(text, "%lld %lld %lld %lld %lld %lld", &pages[0], &pages[1], &pages[2], &pages[3],
                 &pages[4], &pages[5]);
  for (int i = 0; i < 2; i++) {
    struct rlimit limit;
    if (getrlimit(limits[i].resource, &limit) || limit.rlim_cur == RLIM_INFINITY) continue;
    const int64_t used = pages[limits[i].column] * sysconf(_SC_PAGESIZE);
    const int64_t most = limit.rlim_cur < INT64_MAX ? (int64_t)limit.rlim_cur : INT64_MAX;
    const int64_t left = most > used ? most - used : 0;
    if (left < there.bytes) there = (ls_memory_there){left, limits[i].what};
  }
  return there;
}

/* The first hardware thread of the set on this one's core. */
static int first_of_core(const char *root, const ls_thread_set *threads, int thread) {
  char path[PATH_BYTES], text[TEXT_BYTES];
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
           thread);
  if (!read_text(root, path, text)) return thread;
  char *rest = text;
  for (char *range; (range = strsep(&rest, ","));) { /* "0,64" or "0-1" */
    int first, last;
    const int read = sscanf(range, "%d-%d", &first, &last);
    if (read < 1) return thread;
    if (read < 2) last = first;
    for (int i = first; i <= last && i < thread; i++) {
      if (i >= 0 && i < MAX_THREADS && has(threads, i)) return i;
    }
  }
  return thread;
}

static int at_most(int count, double limit) {
  if (limit >= count) return count;
  return limit < 1 ? 1 : (int)limit;
}

static ls_machine probe(const char *root, const ls_thread_set *threads, const char *slurm_cpus) {
  ls_machine machine = {0};
  for (int i = 0; i < MAX_THREADS; i++) {
    if (!has(threads, i)) continue;
    machine.threads++;
    if (first_of_core(root, threads, i) == i) machine.cores++;
  }
  double limit = cores_limit(root, MAX_THREADS);
  const double slurm = slurm_cpus ? strtod(slurm_cpus, NULL) : 0;
  if (slurm >= 1 && slurm < limit) limit = slurm;
  machine.threads = at_most(machine.threads > 0 ? machine.threads : 1, limit);
  machine.cores = at_most(machine.cores > 0 ? machine.cores : 1, limit);
  machine.memory_bytes = (int64_t)memory_limit(root);
  return machine;
}

ls_machine ls_machine_probe_at(const char *root, int threads, const char *slurm_cpus) {
  ls_thread_set set = {0};
  for (int i = 0; i < threads && i < MAX_THREADS; i++) add(&set, i);
  return probe(root, &set, slurm_cpus);
}

ls_thread_set ls_machine_allowed(void) {
  ls_thread_set set = {0};
  cpu_set_t allowed[MAX_THREADS / CPU_SETSIZE];
  CPU_ZERO_S(sizeof allowed, allowed);
  if (sched_getaffinity(0, sizeof allowed, allowed) != 0) return set;
  for (int i = 0; i < MAX_THREADS; i++)
    if (CPU_ISSET_S((size_t)i, sizeof allowed, allowed)) add(&set, i);
  return set;
}

ls_thread_set ls_machine_part(const char *root, const ls_thread_set *set, int part, int parts) {
  ls_thread_set made = {0};
  int cores = 0, core_of[MAX_THREADS] = {0};
  for (int i = 0; i < MAX_THREADS; i++) {
    if (!has(set, i)) continue;
    const int first = first_of_core(root, set, i);
    core_of[i] = first == i ? cores++ : core_of[first];
  }
  const int begin = part * cores / parts, end = (part + 1) * cores / parts;
  for (int i = 0; i < MAX_THREADS; i++)
    if (has(set, i) && core_of[i] >= begin && core_of[i] < end) add(&made, i);
  return made;
}

bool ls_machine_bind(const ls_thread_set *set) {
  cpu_set_t allowed[MAX_THREADS / CPU_SETSIZE];
  CPU_ZERO_S(sizeof allowed, allowed);
  for (int i = 0; i < MAX_THREADS; i++)
    if (has(set, i)) CPU_SET_S((size_t)i, sizeof allowed, allowed);
  return sched_setaffinity(0, sizeof allowed, allowed) == 0;
}

int ls_machine_threads_of(const char *root, const ls_thread_set *set) {
  return probe(root, set, NULL).threads;
}

ls_machine ls_machine_probe(void) {
  const ls_thread_set set = ls_machine_allowed();
  return probe("", &set, getenv("SLURM_CPUS_PER_TASK"));
}

/* The value of "key : value" in the first processor's lines; false where there is none. */
static bool processor_line(const char *cpuinfo, const char *key, char value[LS_PROCESSOR_BYTES]) {
  const size_t length = strlen(key);
  for (const char *line = cpuinfo; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
    if (strncmp(line, key, length) != 0) continue;
    const char *at = line + length + strspn(line + length, " \t");
    if (*at != ':') continue; /* "model" is not "model name" */
    at += 1 + strspn(at + 1, " \t");
    snprintf(value, LS_PROCESSOR_BYTES, "%.*s", (int)strcspn(at, "\n"), at);
    return *value != 0;
  }
  return false;
}

void ls_machine_processor(const char *root, char text[LS_PROCESSOR_BYTES]) {
  /* Of x86-64, then of ARM64, whose processors have numbers in place of names. */
  static const struct {
    const char *key, *shown;
  } lines[] = {{"model name", ""},
               {"cpu family", "family "},
               {"model", "model "},
               {"stepping", "stepping "},
               {"CPU implementer", "ARM implementer "},
               {"CPU part", "part "},
               {"CPU variant", "variant "},
               {"CPU revision", "revision "}};
  char cpuinfo[TEXT_BYTES], value[LS_PROCESSOR_BYTES];
  text[0] = 0;
  if (!read_text(root, "/proc/cpuinfo", cpuinfo)) cpuinfo[0] = 0;
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    const size_t used = strlen(text);
    if (processor_line(cpuinfo, lines[i].key, value))
      snprintf(text + used, LS_PROCESSOR_BYTES - used, "%s%s%s", used ? ", " : "", lines[i].shown,
               value);
  }
  if (!*text) snprintf(text, LS_PROCESSOR_BYTES, "unknown");
}

int64_t ls_machine_cache_bytes(const char *root) {
  enum { CACHES = 8 };
  int64_t most = 0;
  for (int i = 0; i < CACHES; i++) {
    char path[PATH_BYTES], text[TEXT_BYTES], unit = 0;
    long long size = 0;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
    if (!read_text(root, path, text) || sscanf(text, "%lld%c", &size, &unit) < 1) continue;
    const int64_t bytes = size * (unit == 'M' ? 1 << 20 : unit == 'K' ? 1 << 10 : 1);
    if (bytes > most) most = bytes;
  }
  return most;
}

int ls_machine_cores(void) {
  return ls_machine_probe().cores;
}

bool ls_machine_is_bound(void) {
  cpu_set_t allowed[MAX_THREADS / CPU_SETSIZE];
  CPU_ZERO_S(sizeof allowed, allowed);
  if (getenv("SLURM_CPUS_PER_TASK")) return true;
  return sched_getaffinity(0, sizeof allowed, allowed) == 0 &&
         CPU_COUNT_S(sizeof allowed, allowed) < sysconf(_SC_NPROCESSORS_ONLN);
}

/* What launchers say, the nearest to the process first. */
static const struct {
  const char *tasks, *rank;
} launchers[] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                 {"PMI_SIZE", "PMI_RANK"},
                 {"SLURM_NTASKS", "SLURM_PROCID"},
                 {"WORLD_SIZE", "RANK"}};

enum { LAUNCHERS = sizeof launchers / sizeof *launchers };

/* A whole number from `low` to `high` in an environment variable; -1: there is none. */
static int number_in(const char *variable, int low, int high) {
  const char *value = getenv(variable);
  if (!value) return -1;
  char *end;
  const long number = strtol(value, &end, 10);
  return end == value || *end || number < low || number > high ? -1 : (int)number;
}

ls_launcher ls_launcher_detect(void) {
  for (int i = 0; i < LAUNCHERS; i++) {
    const int tasks = number_in(launchers[i].tasks, 1, 1 << 24);
    if (tasks > 0) return (ls_launcher){tasks, launchers[i].tasks};
  }
  return (ls_launcher){1, NULL};
}

int ls_launcher_rank(const ls_launcher *launcher) {
  for (int i = 0; i < LAUNCHERS && launcher->variable; i++) {
    if (strcmp(launcher->variable, launchers[i].tasks) != 0) continue;
    const int rank = number_in(launchers[i].rank, 0, launcher->tasks - 1);
    return rank > 0 ? rank : 0;
  }
  return 0;
}

ls_status ls_launcher_check(const ls_launcher *launcher, int processes, ls_error *error) {
  if (launcher->tasks <= processes) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s is %d, but MPI joined %d process%s: start with \"mpirun -n %d lockstep ...\" "
                 "or \"srun --mpi=pmix\" and a build that found MPI; for one process unset %s",
                 launcher->variable, launcher->tasks, processes, processes == 1 ? "" : "es",
                 launcher->tasks, launcher->variable);
}
