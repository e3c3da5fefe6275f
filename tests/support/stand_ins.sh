# What tests of commands on GPUs share, where stand-ins of NVIDIA's libraries are in place of them;
# sourced behind small_run.sh. $plain: the lockstep command itself; $stand_in: their folder. Without
# them, or where they run no kernels, the test is skipped.
plain=$lockstep
stand_in=$(dirname "$lockstep")/tests/stand_in
[ -e "$stand_in/libcuda.so.1" ] || { echo "skipped: the stand-ins are not built"; exit 77; }
nm -D "$stand_in/libcuda.so.1" | grep -q cuLaunchKernelEx ||
  { echo "skipped: no C++ compiler, so no stand-in runs kernels"; exit 77; }
unset CUDA_HOME VIRTUAL_ENV CUDA_VISIBLE_DEVICES

# on_gpu STATUS words...: `run` where the GPUs are that $settings says.
settings=gpus=4
cat >gpu <<END
#!/bin/sh
LD_LIBRARY_PATH="$stand_in" LS_STAND_IN="\$(cat "$work/settings")" exec "$plain" "\$@"
END
chmod +x gpu
on_gpu() {
  printf '%s' "$settings" >settings
  lockstep=$work/gpu
  run "$@"
  lockstep=$plain
}
