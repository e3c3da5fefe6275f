/* Compiles one run file under several strategies and prints what each costs one device.
 *
 *   build/examples/00_compile examples/quickstart.yaml 4
 */
#include <stdio.h>
#include <stdlib.h>

#include "lockstep/lockstep.h"

typedef struct strategy {
  const char *name;
  const char *axis; /* of the mesh that all devices lie on */
  const char *zero;
} strategy;

static const strategy strategies[] = {
    {"DDP", "mesh.dp_replicate", "zero=0"},   {"ZeRO-1", "mesh.dp_shard", "zero=1"},
    {"ZeRO-2", "mesh.dp_shard", "zero=2"},    {"ZeRO-3", "mesh.dp_shard", "zero=3"},
    {"tensor parallel", "mesh.tp", "zero=0"},
};

static ls_status print_cost(const char *path, int devices, const strategy *as, ls_error *error) {
  char on_axis[64];
  snprintf(on_axis, sizeof on_axis, "%s=%d", as->axis, devices);
  const char *keys[] = {"mesh.dp_shard=1", on_axis, as->zero}; /* the last of a key wins */
  ls_run *run = NULL;
  LS_TRY(ls_run_open(path, keys, 3, devices, &run, error));
  int collectives;
  const double sent = ls_run_bytes_sent(run, &collectives);
  printf("%-16s needs %7.1f MiB, sends %6.1f MiB a step in %d collectives; most memory:", as->name,
         (double)ls_run_memory_bytes(run) / 1048576, sent / 1048576, collectives);
  ls_memory_part most = ls_run_memory_part(run, 0);
  for (int p = 1; p < ls_run_memory_parts(run); p++) {
    const ls_memory_part part = ls_run_memory_part(run, p);
    if (part.bytes > most.bytes) most = part;
  }
  printf(" %s, %.1f MiB\n", most.name, (double)most.bytes / 1048576);
  ls_run_close(&run);
  return LS_OK;
}

int main(int argc, char **argv) {
  const char *path = argc > 1 ? argv[1] : "examples/quickstart.yaml";
  const int devices = argc > 2 ? atoi(argv[2]) : 2;
  int possible = 0;
  for (size_t s = 0; s < sizeof strategies / sizeof *strategies; s++) {
    ls_error error = {LS_OK, ""};
    if (print_cost(path, devices, &strategies[s], &error) == LS_OK)
      possible++;
    else
      printf("%-16s cannot be: %s\n", strategies[s].name, error.text);
  }
  return possible ? 0 : 2;
}
