#!/bin/sh
# `machines`: the catalog, a row, a cluster, the user's own rows and prices, JSON, and refusals.
set -eu
. "$(dirname "$0")/support/small_run.sh"

run 0 machines
says "h100-sxm-80 "
says "mi300x-192 "
run 0 machines rtx40
[ "$(grep -c "^rtx40" output)" = 5 ] || fail "other rows: $(cat output)"
run 0 machines H100-sxm-80
says "NVIDIA H100 datasheet"
says "an hour, typical           2.95 USD"
says "can be compiled for        sm_90"
run 0 machines 64xH100-SXM:4
says "64 devices on 16 hosts of 4"
says "an hour of all             188.80 USD"
run 0 machines links nvlink4
says "nvlink4-switch "
run 0 machines l40 --json
grep -q '"bytes_per_s"' output && fail "a link among accelerators"
grep -q '"id": "l40s"' output || fail "no JSON: $(cat output)"
run 1 machines here
says "nothing is kept of this machine: this machine and build were not measured yet; lockstep bench measures it"

mkdir -p config/lockstep
printf 'accelerators:\n  h100-sxm-80:\n    prices: [{region: north, hour: 2.10, currency: EUR, date: 2026-11-20}]\n' \
  > config/lockstep/machines.yaml
run 0 machines h100-sxm-80
says "an hour, north             2.1 EUR, 2026-11-20"
says "an hour, typical           2.95 USD"
printf 'accelerator: h100-sxm-80\ndevices: 16\nnetwork: {link: roce-400, nics: 4}\nprice: {region: north}\n' > ours.yaml
run 0 machines ours.yaml
says "NICs a host                4"
says "an hour of all             33.60 EUR"
run 0 check keys.yaml train.batch=16 --on ours.yaml
says "on 16 devices"

printf 'accelerators:\n  h100-sxm-80:\n    wats: 3\n' > config/lockstep/machines.yaml
run 2 machines
says "machines.yaml:3: accelerators.h100-sxm-80.wats: no such key; the nearest is watts"
run 2 check keys.yaml --on 8xh100-sxm
says "machines.yaml:3:"
rm config/lockstep/machines.yaml
run 2 machines h100x
says "no such accelerator; the nearest are"
run 2 machines links tin
says "no such link"
run 2 machines a b
says "expected one word"
run 2 machines 12xh100-sxm
says "expected 8 or 16"
printf 'accelerator: l4\nhosts: 3\n' > ours.yaml
run 2 machines ours.yaml
says "ours.yaml:2: hosts: no such key"
