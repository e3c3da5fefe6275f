#!/bin/sh
# The CPU device's kernels against the reference under smaller instruction sets than this machine's:
# oneDNN reads ONEDNN_MAX_CPU_ISA once per process, and our own kernels follow what it reports.
set -eu
tests="${LS_BUILD_DIR:?}/tests"
if [ ! -x "$tests/cpu_test" ]; then
  echo "skipped: cpu_test is not built (it needs cmocka)"
  exit 77
fi
for isa in SSE41 AVX2 AVX512_CORE; do
  echo "== ONEDNN_MAX_CPU_ISA=$isa"
  ONEDNN_MAX_CPU_ISA=$isa "$tests/cpu_test"
  ONEDNN_MAX_CPU_ISA=$isa "$tests/cpu_table_test"
  ONEDNN_MAX_CPU_ISA=$isa "$tests/recipe_test"
done
