#!/bin/sh
# The CPU device's kernels against the reference under smaller instruction sets than this machine's:
# oneDNN reads ONEDNN_MAX_CPU_ISA once per process, and our own kernels follow what it reports. Cases
# that are many of a kind are thinned (support/thinned.h); `make check-full` runs all.
set -eu
tests="${LS_BUILD_DIR:?}/tests"
if [ ! -x "$tests/cpu_test" ]; then
  echo "skipped: cpu_test is not built (it needs cmocka)"
  exit 77
fi
export LS_TEST_FEWER=1
smaller="SSE41 AVX2 AVX512_CORE"
grep -qw avx512bw /proc/cpuinfo || smaller=SSE41 # the other tests run as AVX2
for isa in $smaller; do
  echo "== ONEDNN_MAX_CPU_ISA=$isa"
  ONEDNN_MAX_CPU_ISA=$isa "$tests/cpu_test"
  ONEDNN_MAX_CPU_ISA=$isa "$tests/cpu_table_test"
  ONEDNN_MAX_CPU_ISA=$isa "$tests/recipe_test"
  ONEDNN_MAX_CPU_ISA=$isa "$tests/places_test"
done
