#!/bin/sh
# CUDA kernels spill no registers and take no more than is kept (bench/kernels.csv), where nvcc has
# built them; and the comparison can fail.
set -u
build="${LS_BUILD_DIR:?}"
tools/kernel_check.sh "$build" || exit $?
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bench"
version=$(sed -n '2s/,.*//p' bench/kernels.csv)
nvcc=$(sed -n 's/^LS_NVCC:[A-Z]*=//p' "$build/CMakeCache.txt")
case $version in nvcc-$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')) ;; *)
  echo "nothing is kept for this nvcc"
  exit 0
  ;;
esac
root=$PWD
fails() {
  if (cd "$work" && "$root/tools/kernel_check.sh" "$1" >/dev/null); then
    echo "FAILED: $2 were let pass"
    exit 1
  fi
}
# One register is kept for each: all have more.
sed '2,$s/^\([^,]*,[^,]*,[^,]*\),[0-9]*/\1,1/' bench/kernels.csv >"$work/bench/kernels.csv"
fails "$build" "kernels with more registers than are kept"
# A kernel that spills.
cp bench/kernels.csv "$work/bench"
mkdir -p "$work/build/cuda"
cp "$build/CMakeCache.txt" "$work/build"
cat >"$work/build/cuda/made.log" <<'LOG'
ptxas info    : Compiling entry function 'ls_made' for 'sm_80'
ptxas info    : Function properties for ls_made
    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers, 8 bytes cumulative stack size, 400 bytes cmem[0]
LOG
fails "$work/build" "spilled registers"
