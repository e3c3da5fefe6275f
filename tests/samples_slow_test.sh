#!/bin/sh
# What documents show of simulate, check, machines and models is what these print, and of plan the
# samples that take some seconds; `tools/refresh_samples.sh LOCKSTEP check` looks at all, in minutes.
set -eu
tools/refresh_samples.sh "$1" check README.md docs/simulate.md docs/proof.md docs/models.md \
  docs/plan.md:2xRTX4090
