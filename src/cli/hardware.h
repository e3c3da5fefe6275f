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
 * was measured elsewhere; all NULL of this one, which is "here" or nothing said. LS_INPUT also of
 * CPUs whose speed is not known. */
LS_CHECKED ls_status ls_hardware_find_cluster(ls_arena *arena, const char *text,
                                              const ls_device_facts **facts, const char **devices,
                                              ls_cluster **cluster, const ls_rates **rates,
                                              ls_error *error);

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

/* What a device of the stage needs and has, each with its source; nothing of this machine's. */
void ls_hardware_print(const ls_session *session, int stage);
json_t *ls_hardware_json(const ls_session *session, int stage);

#endif
