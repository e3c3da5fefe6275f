#!/bin/sh
# Installs into an empty prefix and builds a program on it, with the shared and the static library.
set -eu
build=${LS_BUILD_DIR:-$(dirname "$1")}
cc=${CC:-cc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/prefix" >"$work/log" || { cat "$work/log"; exit 1; }
PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name lockstep.pc)")
export PKG_CONFIG_PATH
# The file names the prefix of configuration: move it, as pkg-config can.
config() { pkg-config --define-variable=prefix="$work/prefix" "$@" lockstep; }

cat >"$work/user.c" <<'CODE'
#include <lockstep/dtype.h>
#include <lockstep/status.h>
#include <stdio.h>

int main(void) {
  ls_error error = {LS_OK, ""};
  ls_fail(&error, LS_INPUT, "%s", ls_dtype_name(LS_BF16));
  return puts(error.text) < 0;
}
CODE
# The sanitizers of this build must be linked into its users too.
sanitize=$(sed -n 's/^LS_SANITIZE:[A-Z]*=//p' "$build/CMakeCache.txt")
flags=${sanitize:+-fsanitize=$sanitize}
library=$(config --variable=libdir)

# shellcheck disable=SC2046,SC2086
"$cc" $flags $(config --cflags) "$work/user.c" $(config --libs) -Wl,-rpath,"$library" \
  -o "$work/shared"
[ "$("$work/shared")" = bf16 ] || { echo "the shared library does not work"; exit 1; }
# shellcheck disable=SC2046,SC2086
"$cc" $flags $(config --cflags) "$work/user.c" "$library/liblockstep.a" \
  $(config --static --libs | sed 's/-llockstep//') -o "$work/static"
[ "$("$work/static")" = bf16 ] || { echo "the static library does not work"; exit 1; }
[ ! -e "$1" ] || [ -x "$work/prefix/bin/lockstep" ] || { echo "no command installed"; exit 1; }
echo "installed, linked shared and static"
