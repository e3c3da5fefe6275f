# What both tests of `lockstep bench` share; sourced with the lockstep command as $1. Works in a folder
# of its own with a cache of its own.
case $1 in
  /*) lockstep=$1 ;;
  *) lockstep=$PWD/$1 ;;
esac
[ -x "$lockstep" ] || { echo "skipped: $lockstep is not built"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
unset OMPI_COMM_WORLD_SIZE PMI_SIZE SLURM_NTASKS WORLD_SIZE OMP_NUM_THREADS
export XDG_CACHE_HOME="$work/cache"
failed=0
fail() {
  echo "FAILED: $1"
  [ ! -s errors ] || sed 's/^/  stderr: /' errors | tail -5
  failed=1
}

# expect STATUS PATTERN WORDS...: the exit status, and a line of the output (both streams).
expect() {
  status=$1
  pattern=$2
  shift 2
  "$lockstep" "$@" >output 2>errors
  got=$?
  [ "$got" -eq "$status" ] || fail "$*: exit status $got; expected $status"
  cat output errors | grep -q -e "$pattern" || fail "$*: no line with $pattern"
  [ "$status" -ne 2 ] || [ "$(wc -l <errors)" -eq 1 ] || fail "$*: more than one line"
}
