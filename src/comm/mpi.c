/* Worlds of several processes under MPI. */
#include "comm/world.h"

#ifndef LS_HAVE_MPI
ls_status ls_world_create_mpi(const ls_mpi_options *options, ls_world **world, ls_error *error) {
  (void)options;
  *world = NULL;
  return ls_fail(error, LS_INPUT,
                 "this build has no MPI: install an MPI library (on Debian: libopenmpi-dev "
                 "openmpi-bin) and build again; without mpirun, ranks are threads");
}
#endif
