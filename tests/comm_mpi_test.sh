#!/bin/sh
# Collectives under MPI give the bits and the byte counts they give over threads, with memory shared
# and without; a rank that aborts, is late or is killed ends the others, by name.
# LS_BUILD_DIR: where the test programs were built (tests/comm_plan_test). MPIRUN: the launcher.
# MPIRUN_FLAGS: its flags. Exits 77, as skipped, where there is no MPI.
set -eu

program=${LS_BUILD_DIR:-build}/tests/comm_plan_test
launcher=${MPIRUN:-mpirun}
seed=${LS_SEED:-20261128}

if ! command -v "$launcher" > /dev/null; then
  echo "skipped: no $launcher here"
  exit 77
fi
if [ ! -x "$program" ]; then
  echo "skipped: $program is not built (it needs cmocka)"
  exit 77
fi

# Open MPI alone refuses root and more ranks than cores, and pins ranks to one core.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
# Some MPI libraries keep memory to the end; that is theirs to free.
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"
flags=${MPIRUN_FLAGS:-}
if [ -z "$flags" ] && "$launcher" --version 2>&1 | grep -q "Open MPI\|OpenRTE"; then
  flags="--bind-to none"
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
echo "seed $seed (LS_SEED)"

fail() {
  echo "FAILED: $1"
  shift
  for file in "$@"; do sed "s/^/  $(basename "$file"): /" "$file" | head -30; done
  exit 1
}

# launch SECONDS PROCESSES ARGUMENT...: output and errors into files of the folder.
launch() {
  limit=$1
  processes=$2
  shift 2
  # shellcheck disable=SC2086
  timeout "$limit" "$launcher" $flags -n "$processes" "$program" mpi "$@" \
    > "$folder/output" 2> "$folder/errors"
}

if ! launch 300 1 1 shared "$seed"; then
  if grep -q "this build has no MPI" "$folder/errors"; then
    echo "skipped: this build has no MPI"
    exit 77
  fi
  fail "one process under $launcher" "$folder/output" "$folder/errors"
fi

# same PROCESSES RANKS-OF-EACH shared|refused RANKS-THAT-SHARE-MEMORY
same() {
  "$program" threads $(($1 * $2)) "$seed" > "$folder/threads"
  launch 650 "$1" "$2" "$3" "$seed" || fail "$1 processes of $2 ranks, $3" "$folder/errors"
  for kind in threads output; do grep "^rank" "$folder/$kind" | sort > "$folder/$kind.sorted"; done
  cmp -s "$folder/threads.sorted" "$folder/output.sorted" ||
    fail "$1 processes of $2 ranks, $3: not what threads give" "$folder/threads.sorted" \
      "$folder/output.sorted"
  grep -q "memory of $4 ranks" "$folder/output" ||
    fail "$1 processes of $2 ranks, $3: memory is not that of $4 ranks" "$folder/output"
  echo "same as threads: $1 processes of $2 ranks, $3"
}

for processes in 2 3 4; do
  same $processes 1 shared $processes
  same $processes 1 refused 1
done
same 2 2 shared 4
same 2 2 refused 2

# Whether ranks spin as they wait follows from the cores of all processes of the host, however they
# are bound.
threads=$(nproc)
bound() {
  all=$flags
  flags=$1
  launch 300 "$2" 1 shared "$seed" || fail "$2 processes, $1" "$folder/errors"
  flags=$all
  grep -q "who $3" "$folder/output" ||
    fail "$2 processes on $threads hardware threads, $1: they do not $3" "$folder/output"
  echo "$2 processes $3: $1"
}
if [ "$threads" -ge 2 ] && [ "$flags" = "--bind-to none" ]; then
  bound "--bind-to none" 2 spin
  bound "--bind-to hwthread" 2 spin
  if [ "$threads" -le 15 ]; then bound "--bind-to none" $((threads + 1)) yield; fi
fi

# ends WORD MODE PATTERN: rank 1 of 3 aborts, is late or dies; nobody may go on for long.
ends() {
  started=$(date +%s)
  if launch 300 3 1 "$2" "$seed" "$1" 1; then fail "$1, $2: nobody failed" "$folder/output"; fi
  seconds=$(($(date +%s) - started))
  # Far above what it takes on a loaded machine, far below the deadline of 600 s.
  [ $seconds -le 60 ] || fail "$1, $2: it took $seconds s" "$folder/errors"
  grep -q "$3" "$folder/errors" "$folder/output" ||
    fail "$1, $2: the rank is not named" "$folder/errors" "$folder/output"
  echo "ends by name within $seconds s: $1, $2"
}

# Calls of MPI that start or test a message fail in rank 1, one at a time: the run ends by name, or
# goes on where it was one that only looks.
preload=${LS_BUILD_DIR:-build}/tests/libfaults_preload.so
cat > "$folder/one" <<END
#!/bin/sh
[ "\${OMPI_COMM_WORLD_RANK:-\${PMI_RANK:-}}" != 1 ] || export LD_PRELOAD="$preload"
exec "$program" "\$@"
END
chmod +x "$folder/one"
export ASAN_OPTIONS="$ASAN_OPTIONS:verify_asan_link_order=0"
fails() { # CALL NUMBER
  started=$(date +%s)
  code=0
  whole=$program
  program=$folder/one
  LS_FAULT_CALLS=$1 LS_FAULT_AT=$2 LS_FAULT_ERRNO=16 launch 300 3 1 refused "$seed" || code=$?
  program=$whole
  seconds=$(($(date +%s) - started))
  [ $seconds -le 60 ] || fail "$1 $2 fails: it took $seconds s" "$folder/errors"
  if [ $code -eq 0 ]; then
    grep "^rank" "$folder/output" | sort | cmp -s - "$folder/whole" || fail "$1 $2 fails: other bits"
    return
  fi
  grep -q "rank [012]: MPI failed \(sending to\|receiving from\|in a message with\) rank [012]: " "$folder/errors" ||
    fail "$1 $2 fails: status $code, and no word of it" "$folder/errors" "$folder/output"
  failures=$((failures + 1))
}
"$program" threads 3 "$seed" | grep "^rank" | sort > "$folder/whole"
failures=0
fails MPI_Isend 1
fails MPI_Isend 20
fails MPI_Irecv 1 # that of aborts
fails MPI_Irecv 20
fails MPI_Test 100
[ $failures -ge 3 ] || fail "$failures of 5 failing calls of MPI ended a run" "$folder/errors"
echo "ended by $failures of 5 failing calls of MPI"

for mode in shared refused; do
  ends abort $mode "on rank 2: rank 1: the plan says so"
  # Whose memory is used again at once, while others may be reading it.
  ends reuse $mode "on rank 0: rank 1: the plan says so"
  ends late $mode "waited .* s for rank"
  # The launcher may end the others before they can say more than it does.
  ends die $mode "rank 1: its process .* died\|rank 1 .* signal 9\|EXIT CODE: 9"
done
