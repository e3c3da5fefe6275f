#!/bin/sh
# Training under mpirun with a GPU for each process, on stand-ins of NVIDIA's libraries: a process
# takes the GPU of its number on the host, or the one its launcher shows it.
# $1: the lockstep program.
set -u
. "$(dirname "$0")/support/small_run.sh"
stand_in=$(dirname "$lockstep")/tests/stand_in
[ -e "$stand_in/libcuda.so.1" ] || { echo "skipped: the stand-ins are not built"; exit 77; }
nm -D "$stand_in/libcuda.so.1" | grep -q cuLaunchKernelEx ||
  { echo "skipped: no C++ compiler, so no stand-in runs kernels"; exit 77; }
launcher=${MPIRUN:-mpirun}
command -v "$launcher" >/dev/null || { echo "skipped: no $launcher"; exit 77; }
flags=${MPIRUN_FLAGS:-}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" # memory that MPI keeps to its end
[ -n "$flags" ] || ! "$launcher" --version 2>&1 | grep -q "Open MPI\|OpenRTE" || flags="--bind-to none"
unset CUDA_HOME VIRTUAL_ENV CUDA_VISIBLE_DEVICES

# A process on a host with GPUs; `shown` is one to which the launcher shows a GPU of its own.
cat >gpu <<END
#!/bin/sh
export LD_LIBRARY_PATH="$stand_in\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}" LS_STAND_IN="\$GPUS"
exec "$lockstep" "\$@"
END
cat >shown <<END
#!/bin/sh
export CUDA_VISIBLE_DEVICES="\${OMPI_COMM_WORLD_LOCAL_RANK:-\${MPI_LOCALRANKID:-0}}"
exec "$work/gpu" "\$@"
END
chmod +x gpu shown

launch() { # STATUS GPUS PROGRAM words...: two processes
  expected=$1 program=$3 code=0
  export GPUS="$2"
  shift 3
  # shellcheck disable=SC2086
  timeout 120 "$launcher" $flags -n 2 "$work/$program" train keys.yaml mesh.dp_shard=2 \
    checkpoint.every=0 device.kind=cuda "$@" >output 2>log </dev/null || code=$?
  if grep -q "has no MPI\|without MPI" log; then echo "skipped: this build has no MPI"; exit 77; fi
  case " $expected " in *" $code "*) ;; *)
    fail "$program with $GPUS: exit status $code, expected $expected: $(cat log)" ;;
  esac
}
losses() { grep -o '"loss": *[0-9.]*' "$1/metrics.jsonl"; }
same() { # BAND folder: the losses of a run as the CPU's
  losses cpu-run >one
  losses "$2" >other
  paste one other | awk -v band="$1" '
    { d = $2 / $4 - 1; if (d > band || d < -band) wrong = 1 }
    END { exit wrong || NR != 4 }' || fail "$2 differs from the CPU: $(paste one other)"
}

run 0 train keys.yaml out=cpu-run mesh.dp_shard=2 checkpoint.every=0
launch 0 gpus=2 gpu out=two
same 5e-6 two
launch 0 gpus=2 shown out=one-each
says "its GPU is not visible here: show all GPUs to all processes"
same 5e-6 one-each
# Of the two processes the first to end gives mpirun its status: 2, or 3 by the other's abort.
launch "2 or 3" gpus=1 gpu out=lacking
says "rank 1 of this host has no GPU of its own"
[ ! -s lacking/metrics.jsonl ] || fail "steps were made without a GPU"
echo "4 runs"
