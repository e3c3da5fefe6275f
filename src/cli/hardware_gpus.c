/* This machine's GPUs: what their driver and the catalog say of them, and what bench measured. */
#include <string.h>

#include "cli/hardware.h"
#include "cluster/machine.h"
#include "device/gpus.h"
#include "run/measure.h"

static ls_status cluster_of(ls_arena *arena, const ls_gpus *gpus, ls_cluster **cluster,
                            ls_error *error) {
  ls_catalog *catalog;
  LS_TRY(ls_catalog_open(arena, &catalog, error));
  const ls_accelerator *first = &gpus->first, *like = ls_catalog_like(catalog, first);
  if (!like)
    return ls_fail(
        error, LS_INPUT,
        "this machine's %s (sm_%lld, %lld processors, %lld MiB) is none that the catalog "
        "knows: add it to ~/.config/lockstep/machines.yaml, or name others with --on",
        first->name, (long long)first->architecture, (long long)first->processors,
        (long long)first->memory_mib);
  const char *text = ls_arena_printf(arena, "%dx%s:%d", gpus->count, like->id, gpus->count);
  LS_TRY(ls_cluster_read(catalog, text, cluster, error));
  const ls_machine host = ls_machine_probe();
  (*cluster)->name = "this machine";
  (*cluster)->here = true;
  (*cluster)->peer_access = gpus->peers;
  (*cluster)->host_cores = host.cores;
  (*cluster)->host_memory_bytes = (double)host.memory_bytes;
  (*cluster)->said.host_memory = host.memory_bytes > 0;
  return LS_OK;
}

/* What bench has kept: of the GPUs, and with --cpu of the drive. */
static void take_measured(ls_arena *arena, const ls_gpus *gpus, ls_cluster *cluster) {
  const ls_rates_key key = ls_measure_key(arena);
  const char *why, *kept = ls_gpus_kept(arena, gpus);
  const ls_rates *host = ls_rates_read(arena, &key, &why);
  if (kept && !ls_cluster_take_reached(cluster, kept))
    ls_warn("what is kept of %s cannot be read: lockstep bench measures it again",
            gpus->first.name);
  if (!host || !host->disk.folder) return;
  cluster->drive_read_per_s = host->disk.read.best;
  cluster->drive_write_per_s = host->disk.write.best;
}

const char *ls_hardware_take_gpus(ls_arena *arena, ls_dtype compute, ls_run_device *device) {
  bool taken = false;
  if (device->kind != LS_RUN_DEVICE_AUTO) return NULL;
  const char *said = ls_gpus_choose(arena, compute, &taken);
  device->taken = taken ? LS_RUN_DEVICE_CUDA : LS_RUN_DEVICE_AUTO;
  return said;
}

const char *ls_hardware_take_run_gpus(ls_arena *arena, ls_run_file *run) {
  return ls_hardware_take_gpus(arena, run->dtype == LS_RUN_DTYPE_FP64 ? LS_F64 : LS_F32,
                               &run->device);
}

bool ls_hardware_takes_gpus(ls_arena *arena, const ls_run_file *run) {
  ls_run_file asked = *run;
  (void)ls_hardware_take_run_gpus(arena, &asked);
  return ls_run_device_is_gpu(&asked.device);
}

ls_status ls_hardware_gpus_here(ls_arena *arena, ls_cluster **cluster, ls_error *error) {
  ls_gpus gpus;
  LS_TRY(ls_gpus_here(arena, &gpus, error));
  LS_TRY(cluster_of(arena, &gpus, cluster, error));
  take_measured(arena, &gpus, *cluster);
  return ls_cluster_resize(*cluster, gpus.count, error); /* says what is assumed anew */
}
