#!/bin/sh
# What docs/atlas.md says of common beliefs is asserted beside the figures of the commands it runs; the
# planner's entries take minutes and are left out.
set -eu
command -v python3 >/dev/null || exit 77
python3 bench/atlas.py "$1" --quick >/dev/null
