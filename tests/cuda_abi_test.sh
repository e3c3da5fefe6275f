#!/bin/sh
# What src/device/cuda/*_calls.h repeat of NVIDIA's interfaces is what the real headers say: each
# value, each structure's size and places, and of each function the result and every argument by
# size, by what it points to. Where no header is found it is skipped; CUDA_HOME says where they are,
# NVML_INCLUDE where nvml.h is.
set -eu
include=
for folder in "${CUDA_HOME:-}/include" /usr/local/cuda/include /usr/include; do
  if [ -z "$include" ] && [ -f "$folder/cuda.h" ]; then include=$folder; fi
done
[ -n "$include" ] || { echo "skipped: no cuda.h (set CUDA_HOME)"; exit 77; }
cxx=${CXX:-c++}
command -v "$cxx" >/dev/null || { echo "skipped: no C++ compiler, whose templates take types apart"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

compile() { # SOURCES: the folder with device/cuda/*_calls.h
  "$cxx" -std=c++17 -Wno-invalid-offsetof -I"$include" ${NVML_INCLUDE:+-I"$NVML_INCLUDE"} -I"$1" \
    -fsyntax-only tests/support/stand_in/abi.cc 2>"$work/said"
}
compile src || { cat "$work/said"; exit 1; }

# It can fail: another value, a narrower argument, a missing member and a missing argument are seen.
can_fail() { # FILE SED
  rm -rf "$work/src"
  mkdir -p "$work/src/device"
  cp -r src/device/cuda "$work/src/device/cuda"
  sed -i "$2" "$work/src/device/cuda/$1"
  ! cmp -s "src/device/cuda/$1" "$work/src/device/cuda/$1" || { echo "nothing to alter: $2"; exit 1; }
  ! compile "$work/src" || { echo "not seen: $1: $2"; exit 1; }
  grep -q "static assertion failed\|static_assert failed\|no member named" "$work/said" ||
    { cat "$work/said"; exit 1; }
}
can_fail driver_calls.h 's/CUDA_ERROR_NO_DEVICE, 100/CUDA_ERROR_NO_DEVICE, 99/'
can_fail driver_calls.h 's/cuDeviceTotalMem_v2, (size_t/cuDeviceTotalMem_v2, (unsigned/'
can_fail driver_calls.h 's/  void \*win32HandleMetaData;//'
can_fail driver_calls.h 's/cuLibraryUnload, (CUlibrary library)/cuLibraryUnload, (void)/'
if [ -f "$include/nccl.h" ]; then
  can_fail nccl_calls.h "s/0xcafebeef/0xcafebeee/"
  can_fail nccl_calls.h "s/ncclInProgress, 7/ncclInProgress, 8/"
fi
for header in nvml cublasLt cudnn nccl; do
  found=no
  for folder in "$include" ${NVML_INCLUDE:+"$NVML_INCLUDE"}; do
    [ ! -f "$folder/$header.h" ] || found=yes
  done
  echo "$header.h: $([ $found = yes ] && echo compared || echo 'not found, not compared')"
done
