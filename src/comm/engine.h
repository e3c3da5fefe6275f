/* The engines that carry a run's transfers, as a table: a new one is a row here and a file.
 *
 *   ls_world *world;
 *   LS_TRY(ls_world_start(&device.facts, &(ls_world_options){.ranks = 4}, &world, error));
 *
 * Facts of a device say how messages queue in the engine that moves its data; `check` proves a
 * program for these queues, and a world is started on no engine that has others. */
#ifndef LS_COMM_ENGINE_H
#define LS_COMM_ENGINE_H

#include "comm/comm.h"

typedef struct ls_engine {
  const char *name;
  const ls_queues *queues; /* how its messages queue */
  bool processes;          /* it joins the ranks of several processes */
  ls_status (*start)(const ls_world_options *options, ls_world **world, ls_error *error);
} ls_engine;

extern const ls_engine ls_engines[];
extern const int ls_engine_count;

/* The first that moves data of devices with these facts; NULL: there is none. */
const ls_engine *ls_engine_find(const ls_device_facts *facts, bool processes);

/* Starts a world on it. LS_INPUT also where there is none. Owns: as ls_world_create_threads. */
LS_CHECKED ls_status ls_world_start(const ls_device_facts *facts, const ls_world_options *options,
                                    ls_world **world, ls_error *error);

#endif
