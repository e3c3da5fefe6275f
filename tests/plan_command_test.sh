#!/bin/sh
# `plan`: the layouts it finds, the run file it writes, comparisons, refusals.
set -eu
. "$(dirname "$0")/support/small_run.sh"
model="gpt2-124m train.batch=16 data.seq_len=512"

run 0 plan $model --on 4xA100-SXM-80 --tokens 1B -o best.yaml
says "the first is proved by check"
says "where the time goes"
says "what would buy more"
says "what it costs to change one choice"
step=$(sed -n 's/^ *\([0-9.]* ms\).*dp.*/\1/p' output | head -1)
run 0 simulate best.yaml --on 4xA100-SXM-80
says "step                   $step, simulated"
run 0 check best.yaml --on 4xA100-SXM-80 -n 4

run 0 plan $model --on 1xRTX4090 --on 2xRTX4090
says "2xRTX4090 against 1xRTX4090: "
run 0 plan $model --on 4xA100-SXM-80 --fix mesh.tp=2 --json
grep -q '"tp": 2' output || fail "what is fixed is not kept"
grep -q '"tp": [148]' output && fail "a layout that is not as fixed"
run 0 plan $model --on A100-SXM-80 --tokens 100B --within 3d
says "100B"

run 2 plan $model --on 4xA100-SXM-80 --fix mesh.tp=5
says "no layout of 4 devices has mesh.tp=5"
run 2 plan $model --on 4xA100-SXM-80 schedule=zbw
says "zbv"
run 2 plan $model --on 4xA100-SXM-80 recompute=budget
says "weighs none, selective and full"
run 2 plan $model --on 4xA100-SXM-80 train.microbatches=3
says "no layout of 4 devices has train.microbatches=3"
run 2 plan $model --on 4xA100-SXM-80 --within 3d
says "--within needs --tokens"
run 2 plan $model --on 4xA100-SXM-80 --objective speed
says "expected time, money or memory"
run 1 plan llama3-70b --on 1xRTX4090
says "no layout of 1 device fits"
run 1 plan $model --on A100-SXM-80 --tokens 100T --within 1h
says "no number of devices"
echo "plan: $passed commands"
