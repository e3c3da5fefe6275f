#!/bin/sh
# Runs every fuzz target of a build folder for FUZZ_SECONDS each; new inputs join tests/corpus/NAME.
set -u
build=$1
failed=0
ran=0
for target in "$build"/*_fuzz; do
  [ -x "$target" ] || continue
  name=$(basename "$target" _fuzz)
  mkdir -p "build/corpus/$name" "tests/corpus/$name"
  echo "== $name for ${FUZZ_SECONDS:-600} s"
  "$target" -max_total_time="${FUZZ_SECONDS:-600}" -timeout=10 -rss_limit_mb=2048 \
    -print_final_stats=1 -verbosity=0 -artifact_prefix="build/corpus/$name-" \
    "build/corpus/$name" "tests/corpus/$name" || failed=1
  # Keep the few inputs that reach all that was reached, so that the tests replay them.
  "$target" -merge=1 -verbosity=0 "tests/corpus/$name" "build/corpus/$name" \
    >"build/corpus/$name.merge" 2>&1 || { cat "build/corpus/$name.merge"; failed=1; }
  ran=$((ran + 1))
done
[ $ran -gt 0 ] || { echo "fuzz.sh: no fuzz target in $build" >&2; exit 1; }
echo "$ran fuzz targets ran$([ $failed = 0 ] || echo ', some failed: see above')"
exit $failed
