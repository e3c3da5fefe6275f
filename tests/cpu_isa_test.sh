#!/bin/sh
# The CPU device's kernels against the reference under smaller instruction sets than this machine's:
# oneDNN reads ONEDNN_MAX_CPU_ISA once per process, and our own kernels follow what it reports. All
# cases run under AVX2, which most machines have; a half under the others.
set -eu
tests="${LS_BUILD_DIR:?}/tests"
if [ ! -x "$tests/cpu_test" ]; then
  echo "skipped: cpu_test is not built (it needs cmocka)"
  exit 77
fi
for isa in SSE41 AVX2 AVX512_CORE; do
  echo "== ONEDNN_MAX_CPU_ISA=$isa"
  case $isa in AVX2) unset LS_TEST_FEWER ;; *) export LS_TEST_FEWER=1 ;; esac
  ONEDNN_MAX_CPU_ISA=$isa "$tests/cpu_test"
  ONEDNN_MAX_CPU_ISA=$isa "$tests/cpu_table_test"
  ONEDNN_MAX_CPU_ISA=$isa "$tests/recipe_test"
  ONEDNN_MAX_CPU_ISA=$isa "$tests/places_test"
done
