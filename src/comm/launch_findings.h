/* What `lockstep doctor` says of MPI and of how processes are started. */
#ifndef LS_COMM_LAUNCH_FINDINGS_H
#define LS_COMM_LAUNCH_FINDINGS_H

#include "cluster/findings.h"

/* The library, a launcher on PATH, and what the launcher of this process says. Initialises
 * nothing. */
void ls_launch_findings(ls_findings *all);

#endif
