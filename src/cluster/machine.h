/* This machine as a process may use it, and how the process was launched.
 *
 *   const ls_machine machine = ls_machine_probe();
 *   const ls_launcher launcher = ls_launcher_detect();
 *   LS_TRY(ls_launcher_check(&launcher, processes, error));
 *
 * Limits are those of the affinity mask, of cgroups (v1 and v2) and of Slurm; cores are told from
 * hardware threads by sysfs. Threads are pinned nowhere: they run where the mask lets them, and who
 * starts several processes binds each (mpirun --bind-to, srun --cpu-bind, numactl). Nothing here is
 * cached; thread-safe as long as nobody changes the environment. */
#ifndef LS_CLUSTER_MACHINE_H
#define LS_CLUSTER_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "lockstep/status.h"

typedef struct ls_machine {
  int threads;          /* hardware threads that may be used */
  int cores;            /* of these, on different cores: as many threads as computing gains from */
  int64_t memory_bytes; /* the machine's or the cgroup's, whichever is less; 0: not known */
} ls_machine;

ls_machine ls_machine_probe(void);

/* Hardware threads by the kernel's numbers, a bit each. */
enum { LS_THREAD_WORDS = 128 };
typedef struct ls_thread_set {
  uint64_t words[LS_THREAD_WORDS];
} ls_thread_set;

/* The affinity mask of this process. */
ls_thread_set ls_machine_allowed(void);

/* Part `part` of `parts` of the set, by whole cores, as even as they go; empty where it has fewer
 * cores. `root`: as below, or "". */
ls_thread_set ls_machine_part(const char *root, const ls_thread_set *set, int part, int parts);

/* Has this thread, and what it starts, run on these alone; false where the kernel does not let it.
 */
bool ls_machine_bind(const ls_thread_set *set);

/* How many of the set can run at once: all, or what the cgroup lets. `root`: as below, or "". */
int ls_machine_threads_of(const char *root, const ls_thread_set *set);

/* The same from files under `root` (proc/meminfo, sys/fs/cgroup ...), for hardware threads
 * [0, threads) and a value of SLURM_CPUS_PER_TASK (or NULL): machines recorded elsewhere. */
ls_machine ls_machine_probe_at(const char *root, int threads, const char *slurm_cpus);

/* Memory that can be had now, and what limits it. */
typedef struct ls_memory_there {
  int64_t bytes;    /* INT64_MAX: not known */
  const char *what; /* "MemAvailable", "memory of the cgroup", "ulimit -v" */
} ls_memory_there;

/* For all processes of this machine together: what /proc/meminfo calls available, and what is left
 * of the cgroup and of those around it (pages of files that it can drop are left). `root`: as
 * above. */
ls_memory_there ls_machine_memory_there(const char *root);

/* For this process alone: what is left of its limits of address space and data. */
ls_memory_there ls_process_memory_there(void);

/* What the processor calls itself, and its family, model and stepping: "AMD EPYC 9R14, family 25,
 * model 17, stepping 1"; "unknown" where /proc/cpuinfo does not say. `root`: as above, or "". */
enum { LS_PROCESSOR_BYTES = 192 };
void ls_machine_processor(const char *root, char text[LS_PROCESSOR_BYTES]);

/* Bytes of the processor's largest cache, of those that one core can reach; 0: not known. */
int64_t ls_machine_cache_bytes(const char *root);

/* ls_machine_probe().cores. */
int ls_machine_cores(void);

/* Whether this process has cores for itself: bound to some by its launcher. */
bool ls_machine_is_bound(void);

/* How many tasks a launcher says it started. */
typedef struct ls_launcher {
  int tasks;            /* 1 where no launcher says anything */
  const char *variable; /* the environment variable that says so; NULL: none */
} ls_launcher;

/* The variable nearest to the process: OMPI_COMM_WORLD_SIZE, PMI_SIZE, SLURM_NTASKS, WORLD_SIZE. */
ls_launcher ls_launcher_detect(void);

/* This process's number among the launcher's tasks, by the variable beside that one; 0 where
 * nothing says it. For what one process can do alone: it asks no MPI. */
int ls_launcher_rank(const ls_launcher *launcher);

/* LS_INPUT where the launcher started more tasks than MPI joined into `processes`: each would be a
 * run of its own, all in one folder. */
LS_CHECKED ls_status ls_launcher_check(const ls_launcher *launcher, int processes, ls_error *error);

#endif
