/* --on: devices that need not be here.
 *
 *   const ls_device_facts *facts;
 *   LS_TRY(ls_hardware_find(arena, "64xH100-SXM", &facts, &devices, error));
 *
 * The commands that compile for them share it. */
#ifndef LS_CLI_HARDWARE_H
#define LS_CLI_HARDWARE_H

#include <jansson.h>

#include "cost/performance.h"
#include "session/session.h"

/* The facts of the devices that `text` names, NULL where it is NULL; *devices, the text of -n,
 * becomes their count where that is said and *devices is NULL. LS_INPUT: fewer than -n has, no such
 * device, with the nearest named, or none that can be compiled for. */
LS_CHECKED ls_status ls_hardware_find(ls_arena *arena, const char *text,
                                      const ls_device_facts **facts, const char **devices,
                                      ls_error *error);

/* The same with the cluster that they are in, NULL of CPUs, and with the rates of a machine that
 * was measured elsewhere. This one is "here" or nothing said: its GPUs where the run takes them,
 * else all are NULL. LS_INPUT also of
 * CPUs whose speed is not known. */
LS_CHECKED ls_status ls_hardware_find_cluster(ls_arena *arena, const char *text,
                                              const ls_run_file *run, const ls_device_facts **facts,
                                              const char **devices, ls_cluster **cluster,
                                              const ls_rates **rates, ls_error *error);

/* Has what is computed in this type take this machine's GPUs, where device.kind leaves it open and
 * they can be used; and the line that says so or why not (ls_gpus_choose), NULL where it says which
 * or there are none. */
const char *ls_hardware_take_gpus(ls_arena *arena, ls_dtype compute, ls_run_device *device);
const char *ls_hardware_take_run_gpus(ls_arena *arena, ls_run_file *run);

/* Whether the run takes this machine's GPUs: device.kind asks for them, or leaves it open and they
 * can be used. */
bool ls_hardware_takes_gpus(ls_arena *arena, const ls_run_file *run);

/* The GPUs of this machine as a cluster of one host, with what lockstep bench has kept of them.
 * LS_INPUT: there are none that could train, or the catalog has no accelerator like them. */
LS_CHECKED ls_status ls_hardware_gpus_here(ls_arena *arena, ls_cluster **cluster, ls_error *error);

/* What is kept of this machine. LS_INPUT: it was not measured, or without its ops. */
LS_CHECKED ls_status ls_hardware_rates_here(ls_arena *arena, const ls_rates **rates,
                                            ls_error *error);

/* Threads of a device where so many share the cores of a measured machine. */
int ls_hardware_threads(const ls_rates *rates, int devices);

/* How fast these devices are, and in *peak the flops a second that MFU is of: of one device, by its
 * data sheet, or of a CPU by its rates (NULL: of this machine, as lockstep bench has kept them),
 * where `devices` ranks share its cores. LS_INPUT: the catalog lacks a rate, or this machine was
 * not measured. */
LS_CHECKED ls_status ls_hardware_performance(ls_arena *arena, const ls_device_facts *facts,
                                             const ls_cluster *cluster, const ls_rates *rates,
                                             ls_dtype compute, int devices,
                                             ls_performance *performance, double *peak,
                                             ls_error *error);

/* LS_INPUT: a layout puts something on the hosts or on drives, and how fast these are reached is
 * not known. on NULL: this machine. */
LS_CHECKED ls_status ls_hardware_check_tiers(const char *on, const ls_performance *performance,
                                             bool host, bool drives, ls_error *error);

/* What a device of the stage needs and has, each with its source; nothing of this machine's. */
void ls_hardware_print(const ls_session *session, int stage);
json_t *ls_hardware_json(const ls_session *session, int stage);

#endif
