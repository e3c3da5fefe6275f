#!/bin/sh
# Every family from Lockstep to transformers and back; skipped where `make check-hf` never made the
# environment with both. LS_HF_PYTHON names another Python that has them.
set -u
lockstep=$1
python=${LS_HF_PYTHON:-build/hf-venv/bin/python}
[ -x "$lockstep" ] || { echo "skipped: $lockstep is not built"; exit 77; }
if [ -z "${LS_HF_PYTHON:-}" ] && [ ! -e build/hf-venv/ready ]; then
  echo "skipped: no build/hf-venv; make check-hf makes it"
  exit 77
fi
export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
exec "$python" tools/reference/check_hf.py "$lockstep"
