/* MPI and the launcher of this process, for `lockstep doctor`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cluster/machine.h"
#include "comm/launch_findings.h"
#ifdef LS_HAVE_MPI
#include <mpi.h>
#endif

/* The first of these programs that PATH has; NULL: none. */
static const char *find_launcher(ls_arena *arena) {
  static const char *const launchers[] = {"mpirun", "mpiexec", "srun"};
  const char *path = getenv("PATH");
  for (size_t l = 0; l < sizeof launchers / sizeof *launchers; l++) {
    char *rest = ls_arena_strdup(arena, path ? path : "");
    for (char *folder; (folder = strsep(&rest, ":"));) {
      const char *file = ls_arena_printf(arena, "%s/%s", folder, launchers[l]);
      if (*folder && access(file, X_OK) == 0) return file;
    }
  }
  return NULL;
}

static void find_library(ls_findings *all) {
#ifdef LS_HAVE_MPI
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(version, &length); /* of those that may be called before MPI_Init */
  version[strcspn(version, "\n,")] = 0;
  ls_find(all, LS_VERDICT_OK, "MPI", NULL, "%s", version);
#else
  ls_find(all, LS_VERDICT_WARNING, "MPI", "install libopenmpi-dev or libmpich-dev and build again",
          "not in this build: one process, one host");
#endif
}

static void find_tasks(ls_findings *all) {
  const ls_launcher launcher = ls_launcher_detect();
#ifdef LS_HAVE_MPI
  const bool joins = true;
#else
  const bool joins = false;
#endif
  if (!launcher.variable)
    ls_find(all, LS_VERDICT_OK, "started by", NULL,
            "no launcher: ranks are threads of one process");
  else if (launcher.tasks > 1 && !joins)
    ls_find(all, LS_VERDICT_FAIL, "started by",
            "a build that found MPI, or start one process without the launcher",
            "%s is %d, and this build has no MPI to join them", launcher.variable, launcher.tasks);
  else
    ls_find(all, LS_VERDICT_OK, "started by", NULL, "%s is %d", launcher.variable, launcher.tasks);
}

void ls_launch_findings(ls_findings *all) {
  all->about = "processes";
  find_library(all);
  const char *file = find_launcher(all->arena);
  if (file)
    ls_find(all, LS_VERDICT_OK, "launcher", NULL, "%s", file);
  else
    ls_find(all, LS_VERDICT_WARNING, "launcher",
            "install openmpi-bin or mpich, or add Slurm's srun to PATH",
            "found no mpirun, mpiexec or srun on PATH: one process only");
  find_tasks(all);
}
