#!/bin/sh
# Counts the instructions of some kernels and of the compiler, and compares them with those that are
# kept: a guard against going back that no busy machine disturbs.
#
#   tools/bench_check.sh BUILD [write]      # write: keep what is counted now
#
# Counts are of one compiler: of another there may be none, which is said and no failure. callgrind
# knows no AVX-512, so kernels are the AVX2 and the plain C builds. 10 % either way is told; more
# instructions than that are a failure, fewer ask for new counts.
set -u
build=${1:?"expected the build folder"}
mode=${2:-compare}
program=$build/bench/instructions
kept=bench/instructions.csv
command -v valgrind >/dev/null 2>&1 || {
  echo "bench-check: skipped: valgrind is not installed (tools/install_dependencies.sh --bench)"
  exit 0
}
[ "$(uname -m)" = x86_64 ] || { echo "bench-check: skipped: counts are of x86-64"; exit 0; }
[ -x "$program" ] || { echo "bench-check: $program is not built: run make first" >&2; exit 2; }
compiler=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
version=$("${compiler:-cc}" -dumpversion | cut -d. -f1)
case $("${compiler:-cc}" --version | head -1) in
  *clang*) compiler=clang-$version ;;
  *) compiler=gcc-$version ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# count CASE ISA: instructions of the case with the kernels that oneDNN's ISA leaves; empty: failed.
count() {
  ONEDNN_MAX_CPU_ISA=$2 OMP_NUM_THREADS=1 valgrind --tool=callgrind --collect-atstart=no \
    --toggle-collect=counted_work --callgrind-out-file="$work/out" \
    "$program" "$1" >"$work/said" 2>"$work/errors" || return 1
  sed -n 's/.*Collected : \([0-9]*\).*/\1/p' "$work/errors"
}

failed=0
new=0
"$program" >"$work/cases" || exit 1
while read -r name; do
  for isa in AVX2 SSE41; do
    set_name=$([ "$isa" = AVX2 ] && echo avx2 || echo plain)
    if [ "${name%% *}" = compile ]; then
      [ "$isa" = AVX2 ] || continue
      set_name=-
    fi
    found=$(count "$name" "$isa" </dev/null)
    if [ -z "$found" ] || [ "$found" = 0 ]; then
      echo "bench-check: $name could not be counted:" >&2
      tail -3 "$work/errors" >&2
      exit 1
    fi
    if [ "$set_name" != - ] && ! grep -q "^kernels: $set_name$" "$work/said"; then
      echo "bench-check: $name: $(cat "$work/said"), expected $set_name: skipped"
      continue
    fi
    echo "$compiler,$name,$set_name,$found" >>"$work/counts"
    before=$(awk -F, -v c="$compiler" -v n="$name" -v s="$set_name" \
      '$1 == c && $2 == n && $3 == s { print $4 }' "$kept" 2>/dev/null)
    if [ -z "$before" ]; then
      new=$((new + 1))
      printf '%-26s %-6s %12d\n' "$name" "$set_name" "$found"
      continue
    fi
    change=$(awk -v a="$before" -v b="$found" 'BEGIN { printf "%+.1f", 100 * (b - a) / a }')
    verdict=$(awk -v c="$change" 'BEGIN { print (c + 0 > 10 ? " MORE" : c + 0 < -10 ? " fewer" : "") }')
    printf '%-26s %-6s %12d  was %12d  %7s %%%s\n' "$name" "$set_name" "$found" "$before" \
      "$change" "$verdict"
    [ "$verdict" != " MORE" ] || failed=$((failed + 1))
    [ "$verdict" != " fewer" ] || echo "  better: keep it with: make bench-check COUNTS=write"
  done
done <"$work/cases"
if [ "$mode" = write ]; then
  {
    echo "compiler,case,kernels,instructions"
    {
      grep -v "^$compiler," "$kept" 2>/dev/null | tail -n +2
      cat "$work/counts"
    } | sort
  } >"$work/new" && cp "$work/new" "$kept"
  echo "bench-check: kept in $kept"
  exit 0
fi
[ $new -eq 0 ] || echo "bench-check: $new counts are not kept for $compiler: make bench-check COUNTS=write"
[ $failed -eq 0 ] || echo "bench-check: $failed took over 10 % more instructions than before" >&2
[ $failed -eq 0 ]
