# What tests of training on GPUs by processes share, one GPU for each; sourced behind stand_ins.sh by a test in the folder $tests.
# $steps: of run.yaml. $GPUS: what the stand-ins are told, $GPUS_1: what rank 1's are, where that is
# something else. $APART: yes where each process takes itself for one of another host. $mpi: whether
# there are processes; where there are none, that is said.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" # memory that MPI keeps to its end
launcher=${MPIRUN:-mpirun}
flags=${MPIRUN_FLAGS:-}
[ -n "$flags" ] || ! "$launcher" --version 2>&1 | grep -q "Open MPI\|OpenRTE" || flags="--bind-to none"

# One process on a host with GPUs.
cat >gpu <<END
#!/bin/sh
export LD_LIBRARY_PATH="$stand_in\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}" LS_STAND_IN="\$GPUS"
[ "\${OMPI_COMM_WORLD_RANK:-\${PMI_RANK:-}}" != 1 ] || [ -z "\${GPUS_1:-}" ] || LS_STAND_IN="\$GPUS_1"
if [ "\${APART:-no}" = yes ]; then
  export LD_PRELOAD="$(dirname "$stand_in")/libfaults_preload.so" \
    LS_FAULT_HOST="\${OMPI_COMM_WORLD_RANK:-\${PMI_RANK:-0}}" \
    ASAN_OPTIONS="\${ASAN_OPTIONS:-}:verify_asan_link_order=0"
fi
echo \$\$ >"$work/pid-\${OMPI_COMM_WORLD_RANK:-\${PMI_RANK:-0}}"
exec "$plain" "\$@"
END
chmod +x gpu

. "$tests/support/gpu_models.sh"
sed -i 's/"num_hidden_layers": 4/"num_hidden_layers": 2/' llama.json
cat >tied.json <<'END'
{"model_type": "llama", "vocab_size": 259, "hidden_size": 32, "intermediate_size": 48,
 "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 32,
 "tie_word_embeddings": true}
END
cat >run.yaml <<END
model: llama.json
data: {text: text.txt, tokenizer: bytes, seq_len: 16, validation: 0}
train: {batch: 4, lr: 1e-3, steps: $steps, warmup: 1}
eval: {every: 0}
checkpoint: {every: 0}
comm: {timeout: 60} # what is right may wait long on a loaded machine
END

# under COUNT STATUS words...: ranks are processes; of several that fail the first to end gives
# mpirun its status.
under() {
  count=$1 expected=$2 code=0
  shift 2
  # shellcheck disable=SC2086
  timeout 120 "$launcher" $flags -n "$count" "$work/gpu" "$@" >output 2>log </dev/null || code=$?
  if grep -q "has no MPI\|without MPI" log; then echo "skipped: processes (no MPI)"; mpi=no; return; fi
  case " $expected " in *" $code "*) ;; *)
    fail "$count processes, $GPUS, $GPUS_1, $*: exit status $code, expected $expected: $(cat log)" ;;
  esac
  passed=$((passed + 1))
}
mpi=yes
command -v "$launcher" >/dev/null || { echo "skipped: processes (no $launcher)"; mpi=no; }
