# What tests share that train one run file, run.yaml of $steps steps, on the CPU (out=cpu) and on GPUs
# (out=gpu-run); sourced behind stand_ins.sh.

# compare BAND words...: losses and norms of the gradient of both runs of these words, step by step.
compare() {
  band=$1
  shift
  found=$(paste cpu/metrics.jsonl gpu-run/metrics.jsonl | sed 's/[{},"]/ /g' |
    awk -v band="$band" -v steps="$steps" '
    { n = 0; delete seen
      for (i = 1; i < NF; i++) if ($i == "loss" || $i == "grad_norm") seen[n++] = $(i + 2)
      if (n != 4) next
      found++
      for (k = 0; k < 2; k++) { d = seen[k] / seen[k + 2] - 1; if (d < 0) d = -d; if (d > worst) worst = d } }
    END { printf "%d steps, worst %.1e\n", found, worst; exit !(found == steps && worst <= band) }') ||
    fail "$*: GPUs differ from the CPU: $found"
  echo "$*: $found"
}

# both BAND words...: on the CPU and on GPUs.
both() {
  band=$1
  shift
  rm -rf cpu gpu-run
  run 0 train run.yaml out=cpu "$@"
  on_gpu 0 train run.yaml out=gpu-run device.kind=cuda "$@"
  compare "$band" "$@"
}
