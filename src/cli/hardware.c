#include "cli/hardware.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "run/measure.h"
#include "text/yaml.h"

/* "2xcpu-avx512_bf16": a CPU with that set of instructions, of which no memory is known. */
static const ls_device_facts *find_cpu(const char *text, int *count) {
  static const char prefix[] = "cpu-";
  char *word;
  const long value = strtol(text, &word, 10);
  if (word != text && *word == 'x') word++;
  if (strncasecmp(word, prefix, sizeof prefix - 1) != 0 || value < 0 || value > INT_MAX)
    return NULL;
  *count = (int)value;
  return ls_device_facts_cpu(word + sizeof prefix - 1);
}

static ls_status find_accelerator(ls_arena *arena, const char *text, ls_device_facts *facts,
                                  ls_cluster **found, ls_error *error) {
  ls_catalog *catalog;
  LS_TRY(ls_catalog_open(arena, &catalog, error));
  if (ls_cluster_read(catalog, text, found, error) != LS_OK) return ls_error_prefix(error, "--on");
  if (!ls_device_facts_of((*found)->accelerator, facts))
    return ls_fail(
        error, LS_INPUT,
        "--on %s: no recipe is known for the %s; expected one of NVIDIA's from sm_80 on, "
        "as h100-sxm-80",
        text, (*found)->accelerator->name);
  return LS_OK;
}

/* A machine that lockstep bench measured elsewhere: a file with its form. A cluster's has none. */
static ls_status find_measured(ls_arena *arena, const char *text, ls_device_facts *facts,
                               const ls_rates **rates, ls_error *error) {
  ls_yaml *root;
  ls_error unread = {0};
  *rates = NULL;
  if (!ls_file_exists(text) || ls_yaml_read(arena, text, &root, &unread) != LS_OK ||
      !ls_yaml_get(root, "form"))
    return LS_OK;
  LS_TRY(ls_rates_open(arena, text, rates, error));
  const char *sets = (*rates)->key.instructions, *last = strrchr(sets, ' ');
  const ls_device_facts *cpu = ls_device_facts_cpu(last ? last + 1 : sets);
  if (!cpu)
    return ls_yaml_fail(ls_yaml_get(root, "instructions"),
                        "instructions of a CPU that is known, as avx512_core, avx512", error);
  *facts = *cpu;
  return LS_OK;
}

static bool is_here(const char *text) {
  return !text || strcmp(text, "here") == 0;
}

static ls_status check_count(const char *devices, const char *on, int count, ls_error *error) {
  if (count && devices && strtol(devices, NULL, 10) > count)
    return ls_fail(error, LS_INPUT, "-n %s beside --on %s: expected at most %d", devices, on,
                   count);
  return LS_OK;
}

static ls_status find(ls_arena *arena, const char *text, const ls_device_facts **facts,
                      const char **devices, ls_cluster **cluster, const ls_rates **rates,
                      ls_error *error) {
  *facts = NULL;
  *cluster = NULL;
  *rates = NULL;
  if (is_here(text)) return LS_OK;
  int count = 0;
  ls_device_facts *made = LS_NEW(arena, ls_device_facts);
  const ls_device_facts *cpu = find_cpu(text, &count);
  LS_TRY(find_measured(arena, text, made, rates, error));
  if (cpu)
    *made = *cpu;
  else if (!*rates)
    LS_TRY(find_accelerator(arena, text, made, cluster, error));
  if (*cluster) count = (*cluster)->devices;
  LS_TRY(check_count(*devices, text, count, error));
  if (count && !*devices) *devices = ls_arena_printf(arena, "%d", count);
  *facts = made;
  return LS_OK;
}

ls_status ls_hardware_find(ls_arena *arena, const char *text, const ls_device_facts **facts,
                           const char **devices, ls_error *error) {
  ls_cluster *cluster;
  const ls_rates *rates;
  return find(arena, text, facts, devices, &cluster, &rates, error);
}

static ls_status find_gpus(ls_arena *arena, const ls_device_facts **facts, const char *devices,
                           ls_cluster **cluster, const ls_rates **rates, ls_error *error) {
  ls_device_facts *made = LS_NEW(arena, ls_device_facts);
  LS_TRY(ls_hardware_gpus_here(arena, cluster, error));
  (void)ls_device_facts_of((*cluster)->accelerator, made); /* it has been opened */
  *facts = made;
  *rates = NULL;
  return check_count(devices, "here", (*cluster)->devices, error);
}

ls_status ls_hardware_find_cluster(ls_arena *arena, const char *text, const ls_run_file *run,
                                   const ls_device_facts **facts, const char **devices,
                                   ls_cluster **cluster, const ls_rates **rates, ls_error *error) {
  if (is_here(text) && ls_hardware_takes_gpus(arena, run))
    return find_gpus(arena, facts, *devices, cluster, rates, error);
  LS_TRY(find(arena, text, facts, devices, cluster, rates, error));
  if (*facts && !*cluster && !*rates)
    return ls_fail(error, LS_INPUT,
                   "--on %s: how fast it is is not known; expected an accelerator, what lockstep "
                   "bench -o wrote, or here for this machine",
                   text);
  return LS_OK;
}

static double sheet_peak(const ls_accelerator *of, ls_dtype compute) {
  const double *flops = of->flops_per_s;
  return compute == LS_BF16  ? flops[LS_CATALOG_BF16]
         : compute == LS_F16 ? flops[LS_CATALOG_FP16]
                             : flops[LS_CATALOG_FP32];
}

ls_status ls_hardware_rates_here(ls_arena *arena, const ls_rates **rates, ls_error *error) {
  const ls_rates_key key = ls_measure_key(arena);
  const char *why;
  *rates = ls_rates_read(arena, &key, &why);
  if (*rates && !(*rates)->ops.count) why = "what ops take in a step was not measured yet";
  if (!why) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "this machine: %s; run `lockstep bench` first, or name others with --on", why);
}

int ls_hardware_threads(const ls_rates *rates, int devices) {
  return rates->key.cores > devices ? rates->key.cores / devices : 1;
}

ls_status ls_hardware_performance(ls_arena *arena, const ls_device_facts *facts,
                                  const ls_cluster *cluster, const ls_rates *rates,
                                  ls_dtype compute, int devices, ls_performance *performance,
                                  double *peak, ls_error *error) {
  if (cluster) {
    *peak = sheet_peak(cluster->accelerator, compute);
    return ls_performance_of(facts, cluster, performance, error);
  }
  if (!rates) LS_TRY(ls_hardware_rates_here(arena, &rates, error));
  const int cores = rates->key.cores;
  *performance = ls_performance_here(rates, facts, cores, devices);
  const double wanted = (double)devices * facts->threads;
  *peak = performance->flops_per_s[compute] * (wanted > cores ? cores / wanted : 1);
  return LS_OK;
}

ls_status ls_hardware_check_tiers(const char *on, const ls_performance *performance, bool host,
                                  bool drives, ls_error *error) {
  if (!on) on = "this machine";
  if ((host || drives) && !(performance->host_per_s > 0))
    return ls_fail(error, LS_INPUT,
                   "--on %s: how fast devices reach their host is not known; give host.gb_per_s in "
                   "a cluster's file, or host.link in ~/.config/lockstep/machines.yaml",
                   on);
  if (!drives || (performance->drive_read_per_s > 0 && performance->drive_write_per_s > 0))
    return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "--on %s: how fast its hosts' drives are is not known; give drive.read_gb_per_s "
                 "and drive.write_gb_per_s in a cluster's file (lockstep machines --help)",
                 on);
}

static double mib(int64_t bytes) {
  return (double)bytes / 1048576;
}

static void print_row(const char *what, int64_t bytes, const char *source) {
  printf("  %-34s %10.1f%s%s\n", what, mib(bytes), *source ? "  " : "", source);
}

static int64_t arena_of(const ls_session *session, int stage) {
  const ls_program *programs[LS_SESSION_PROGRAMS];
  for (int p = 0; p < session->compiled.count; p++) programs[p] = session->stages[p][stage];
  return ls_rank_bytes_needed(programs, session->compiled.count, LS_TIER_DEVICE);
}

void ls_hardware_print(const ls_session *session, int stage) {
  const ls_device_facts *facts = session->on;
  if (!facts) return;
  const int64_t arena = arena_of(session, stage);
  printf("%s (%s), MiB of a device", facts->name, facts->set);
  printf(session->layout.pp > 1 ? " of stage %d:\n" : ":\n", stage);
  print_row("arena", arena, "its programs");
  print_row("workspace of kernels", session->workspace[stage], facts->workspace_source);
  for (int o = 0; o < facts->overhead_count; o++) {
    const ls_overhead *each = &facts->overheads[o];
    const int times = ls_session_overhead_times(session, stage, each);
    char name[64];
    snprintf(name, sizeof name, times == 1 ? "%s" : "%s, %d times", each->name, times);
    if (times) print_row(name, each->bytes * times, each->source);
  }
  print_row("in all", arena + session->workspace[stage] + session->overhead[stage], "");
  if (facts->memory_bytes)
    print_row(facts->memory_reported ? "it has" : "it has by its data sheet", facts->memory_bytes,
              facts->memory_source);
}

static json_t *row_json(int64_t bytes, const char *source) {
  return json_pack("{s:I, s:s}", "bytes", (json_int_t)bytes, "source", source);
}

json_t *ls_hardware_json(const ls_session *session, int stage) {
  const ls_device_facts *facts = session->on;
  json_t *root = json_object(), *overheads = json_object();
  json_object_set_new(root, "name", json_string(facts->name));
  json_object_set_new(root, "set", json_string(facts->set));
  if (facts->memory_bytes)
    json_object_set_new(root, "memory", row_json(facts->memory_bytes, facts->memory_source));
  json_object_set_new(root, "arena", row_json(arena_of(session, stage), "its programs"));
  json_object_set_new(root, "workspace",
                      row_json(session->workspace[stage], facts->workspace_source));
  for (int o = 0; o < facts->overhead_count; o++) {
    const ls_overhead *each = &facts->overheads[o];
    const int times = ls_session_overhead_times(session, stage, each);
    json_object_set_new(overheads, each->name, row_json(each->bytes * times, each->source));
  }
  json_object_set_new(root, "overheads", overheads);
  return root;
}
