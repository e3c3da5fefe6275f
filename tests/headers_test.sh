#!/bin/sh
# Every public header compiles alone, in C17 and in C++17; every header of the rooms in C17.
set -u
failed=0
cc=${CC:-cc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

compiles_c() { "$cc" -std=c17 -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only -x c "$1"; }
compiles_cxx() { c++ -std=c++17 -Wall -Wextra -Werror -Iinclude -fsyntax-only -x c++ "$1"; }

# It can fail: a header that needs another, and one with a C++ keyword.
printf 'size_t f(void);\n' >"$work/needs.h"
printf 'int f(int class);\n' >"$work/keyword.h"
if compiles_c "$work/needs.h" 2>/dev/null || ! compiles_c "$work/keyword.h" ||
  compiles_cxx "$work/keyword.h" 2>/dev/null; then
  echo "the compilers did not tell a good header from a bad one"
  exit 1
fi
count=0
for header in include/lockstep/*.h; do
  compiles_c "$header" || { echo "$header: does not compile alone in C17"; failed=1; }
  compiles_cxx "$header" || { echo "$header: does not compile alone in C++17"; failed=1; }
  count=$((count + 1))
done
for header in $(find src -name '*.h'); do
  case $header in src/device/cpu/vector*) continue ;; esac # compiled once for each instruction set
  echo "#include \"${header#src/}\"" >"$work/alone.c"
  "$cc" -std=gnu17 -D_GNU_SOURCE -Wall -Wextra -Werror -Iinclude -Isrc -fsyntax-only \
    "$work/alone.c" || { echo "$header: does not compile alone"; failed=1; }
  count=$((count + 1))
done
echo "$count headers"
[ $count -gt 0 ] || failed=1
exit $failed
