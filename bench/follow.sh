#!/usr/bin/env bash
# Whether the quick start's losses in bf16 and fp16 follow those in fp32 over its whole run: every
# step within 8 %, means of 50 steps within 0.02 nats. Prints the distances; exit 1 outside.
#   bench/follow.sh TEXT [DTYPE ...]       Works on build/lockstep, some minutes for each type.
set -euo pipefail
text=${1:?usage: bench/follow.sh TEXT [DTYPE ...]}
shift
lockstep=${LOCKSTEP:-build/lockstep}
scratch=${SCRATCH:-$(mktemp -d)}

losses() {
  [ -e "$scratch/$1/metrics.jsonl" ] ||
    "$lockstep" train examples/quickstart.yaml data.text="$text" dtype="$1" out="$scratch/$1" -n 2 \
      >/dev/null 2>"$scratch/$1.log" || { cat "$scratch/$1.log" >&2; exit 1; }
  sed 's/.*"loss": *\([0-9.e+-]*\).*/\1/' "$scratch/$1/metrics.jsonl"
}

losses fp32 >"$scratch/fp32.losses"
outside=0
for dtype in "${@:-bf16}"; do
  losses "$dtype" >"$scratch/$dtype.losses"
  paste "$scratch/fp32.losses" "$scratch/$dtype.losses" | awk -v dtype="$dtype" '
    { d = $2 - $1; part = (d < 0 ? -d : d) / $1; if (part > worst) worst = part
      sum += d
      if (NR % 50 == 0) { m = sum / 50; if (m < 0) m = -m; if (m > mean) mean = m; sum = 0 } }
    END { printf "%s: %d steps, each within %.1f %% of fp32, means of 50 within %.3f nats\n",
            dtype, NR, 100 * worst, mean
          exit worst > 0.08 || mean > 0.02 }' || outside=1
done
exit $outside
