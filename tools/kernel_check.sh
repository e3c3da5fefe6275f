#!/bin/sh
# Registers, stack and shared memory of each CUDA kernel for each architecture, compared with those
# that are kept: a kernel that begins to spill is a failure long before anybody times it.
#
#   tools/kernel_check.sh BUILD [write]      # write: keep what is found now
#
# What is kept is of one nvcc: of another there may be none, which is said and no failure. A spilled
# register is a failure always, more of a stack or of shared memory than is kept too; more registers
# are told, and a failure from one in eight on.
set -u
build=${1:?"expected the build folder"}
mode=${2:-compare}
kept=bench/kernels.csv
nvcc=$(sed -n 's/^LS_NVCC:[A-Z]*=//p' "$build/CMakeCache.txt")
if [ -z "$(ls "$build"/cuda/*.log 2>/dev/null)" ]; then
  echo "kernel-check: skipped: this build has no CUDA kernels (cmake/cuda.cmake)"
  exit 77
fi
version=nvcc-$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
awk -v nvcc="$version" '
  /Compiling entry function/ { gsub("\047", ""); name = $7; architecture = $9 }
  /bytes stack frame/ { stack = $1; spilled = $5 + $9 }
  /Used [0-9]* registers/ {
    shared = 0
    for (i = 1; i < NF; i++) {
      if ($(i + 1) ~ /^registers/) registers = $i
      if ($(i + 1) == "bytes" && $(i + 2) ~ /^smem/) shared = $i
    }
    print nvcc "," name "," architecture "," registers "," stack "," spilled "," shared
  }' "$build"/cuda/*.log | sort -u >"$work/found"
[ -s "$work/found" ] || { echo "kernel-check: the logs of ptxas name no kernel" >&2; exit 1; }
if [ "$mode" = write ]; then
  {
    echo "nvcc,kernel,architecture,registers,stack,spilled,shared"
    { grep -v "^$version," "$kept" 2>/dev/null | tail -n +2; cat "$work/found"; } | sort
  } >"$work/new" && cp "$work/new" "$kept"
  echo "kernel-check: kept in $kept"
  exit 0
fi
awk -F, -v version="$version" '
  NR == FNR { kept[$1, $2, $3] = $0; next }
  $6 > 0 { print $2 " " $3 ": spills " $6 " bytes"; bad++; next }
  !(($1, $2, $3) in kept) { new++; next }
  {
    split(kept[$1, $2, $3], was, ",")
    if ($4 <= was[4] && $5 <= was[5] && $7 <= was[7]) next
    more = $4 > was[4] * 9 / 8 || $5 > was[5] || $7 > was[7]
    print $2 " " $3 ": " $4 " registers, " $5 " bytes of stack, " $7 " shared; kept are " was[4] \
      ", " was[5] ", " was[7] (more ? " MORE" : "")
    bad += more
  }
  END {
    print "kernel-check: " FNR " kernels, " new + 0 " of them not kept for " version
    if (bad) print "kernel-check: " bad " take more than they may"
    exit bad > 0
  }' "$kept" "$work/found"
