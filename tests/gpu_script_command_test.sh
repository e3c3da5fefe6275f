#!/bin/sh
# bench/gpu.sh, which people run where there is a GPU, part by part on stand-ins of NVIDIA's libraries
# and on a tiny model: each part comes to its end and says what it is there to say. The programs that
# it starts beside ours are stubs here. $1: the lockstep program.
set -u
tests=$(cd "$(dirname "$0")" && pwd)
. "$tests/support/small_run.sh"
. "$tests/support/stand_ins.sh"

mkdir shapes bin build build/tests
cat >shapes/gpt2.json <<'END'
{"model_type": "gpt2", "vocab_size": 262, "n_embd": 48, "n_layer": 2, "n_head": 3,
 "n_positions": 64, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
END
ln -s "$plain" build/lockstep
cat >build/tests/cuda_kernels_test <<'END'
#!/bin/sh
[ "$LS_NATIVE_GPU" = 1 ] && echo "[  PASSED  ] 1 test(s)."
END
cat >bin/nvidia-smi <<'END'
#!/bin/sh
case $1 in --query-gpu=memory.used) echo 4711 ;; *) echo "Stand-in GPU, $1" ;; esac
END
cat >bin/compute-sanitizer <<'END'
#!/bin/sh
while [ "${1#/}" = "$1" ]; do shift; done
"$@" && echo "========= ERROR SUMMARY: 0 errors"
END
cat >bin/python <<'END'
#!/bin/sh
case $1 in -c) exec python3 "$@" ;; esac
[ -s "$2" ] && shift && echo "PyTorch does $*"
END
chmod +x bin/* build/tests/cuda_kernels_test
for name in attention products plans; do cp build/tests/cuda_kernels_test build/tests/cuda_${name}_test; done

# part NAME PATTERN COUNT [ENVIRONMENT...]: so many lines of what the part says have the pattern.
part() {
  name=$1 pattern=$2 count=$3
  shift 3
  [ -e "said-$name" ] ||
    env PATH="$work/bin:$PATH" LD_LIBRARY_PATH="$stand_in" LS_STAND_IN=gpus=1,ways=8 BUILD=build SHAPES=shapes ONLY=gpt2 \
      MODELS=gpt2.json BATCH=1 LENGTH=16 STEPS=4 SEQ=16 EQUAL_STEPS=2 PROMPT=20 NEW=8 RUN_SECONDS=60 \
      TORCH_PYTHON=python TEXT=text.txt "$@" bash "$tests/../bench/gpu.sh" results "${name%-*}" >"said-$name" 2>&1
  [ "$(grep -c -e "$pattern" "said-$name")" = "$count" ] ||
    fail "$name: not $count lines with $pattern: $(cat "said-$name")"
  grep -q "^part: ${name%-*}, " "said-$name" || fail "$name did not end: $(cat "said-$name")"
  passed=$((passed + 1))
}
part doctor "^Stand-in GPU, --query-gpu=name" 1
part doctor "GPU 0 kind  *Stand-in GPU, sm_90" 1
part tests "^cuda_[a-z]*: status 0, \[  PASSED  \] 1 test" 4
part sanitize "^[a-z]*check of cuda_[a-z]*: status 0, \[  PASSED  \].*SUMMARY: 0 errors" 4
part equal "^gpt2: .*: 2 steps, loss within .*: ok$" 4
part loopback "^gpt2: .* mesh.tp=3 .*: 2 steps, .*: ok$" 1
part equal-without "^gpt2: .*: FAILED: .*no GPU is visible" 4 LS_STAND_IN=gpus=0
part generate "^gpt2, .*: status 0, .*; 8 tokens" 4
part generate "^gpt2, fp32: the same text$" 1
part generate "^gpt2.json, bf16, [a-z.=]*: .*; 8 tokens" 3
part generate-none "the same text" 0 PROMPT=100
part speed "^speed-gpt2.json: status 137, .* NVML's peak 4711 MiB, step " 1
part speed "^  \(mfu\|tokens_per_second\|memory_bytes\|\"[a-z_]*\"\) median .* (.* to .*)$" 3
part tune "^timed the kernels of [0-9]* products" 1
part tune "^gpt2.json: kept[a-z-]* has the losses of timed$" 2
part torch "^torch gpt2.json autocast: PyTorch does config.json 1 16 4 autocast$" 1
! command -v python3 >/dev/null || part torch-named "^torch llama-3m autocast: PyTorch does config.json 1 16 4" 1 MODELS=llama-3m
if command -v xz >/dev/null; then
  part trace "^trace-gpt2.json: status 137" 1
  xz -dc results/trace-gpt2.json.json.xz | grep -q '"ph"' || fail "no trace: $(ls results)"
fi
echo "$passed checks"
