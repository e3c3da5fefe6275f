#!/bin/sh
# Finds what the build and the tests miss, by trying; root installs it, others are told.
#
#   tools/install_dependencies.sh           build and tests
#   tools/install_dependencies.sh --text    and the quick start's text
#   tools/install_dependencies.sh --fuzz    and clang's fuzzer
#   tools/install_dependencies.sh --hf      and what makes Python's virtual environments
#   tools/install_dependencies.sh --bench   and what counts instructions
#   tools/install_dependencies.sh --print   only says what is missing
#
# Package names are those of Debian 12 and 13 and of Ubuntu 22.04 and 24.04, which agree. Libraries
# under other prefixes (CMAKE_PREFIX_PATH, CPATH, LIBRARY_PATH, PKG_CONFIG_PATH) count as found.
set -u
with_fuzzer=0
with_text=0
with_python=0
with_valgrind=0
only_print=0
for argument in "$@"; do
  case $argument in
    --fuzz) with_fuzzer=1 ;;
    --text) with_text=1 ;;
    --hf) with_python=1 ;;
    --bench) with_valgrind=1 ;;
    --print) only_print=1 ;;
    *)
      echo "install_dependencies.sh: '$argument': expected --text, --fuzz, --hf, --bench or --print" >&2
      exit 2
      ;;
  esac
done

missing=
need() { missing="$missing $1"; }
has() { command -v "$1" >/dev/null 2>&1; }

old_ifs=$IFS
IFS=:\;
for prefix in ${CMAKE_PREFIX_PATH:-}; do
  CPATH=$prefix/include${CPATH:+:$CPATH}
  PKG_CONFIG_PATH=$prefix/lib/pkgconfig:$prefix/share/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
done
IFS=$old_ifs
export CPATH PKG_CONFIG_PATH

# header FILE: the compiler finds it.
header() { echo "#include <$1>" | "${CC:-cc}" -E -x c - >/dev/null 2>&1; }
module() { pkg-config --exists "$1" 2>/dev/null; }

has "${CC:-cc}" && has make || need build-essential
has c++ || need g++
has cmake || need cmake
has pkg-config || need pkg-config
if has "${CC:-cc}"; then
  header oneapi/dnnl/dnnl.h || need libdnnl-dev
else
  need libdnnl-dev
fi
module jansson || need libjansson-dev
module yaml-0.1 || need libyaml-dev
module libpcre2-8 || need libpcre2-dev
module zlib || need zlib1g-dev
module libzstd || need libzstd-dev
module libutf8proc || need libutf8proc-dev
module cmocka || need libcmocka-dev
module liburing || need liburing-dev
has mpicc || need libopenmpi-dev
has mpirun || has mpiexec || need openmpi-bin
has clang-format || need clang-format
has git || need git
# One of the test suites beside the repository, where there is one, is packed with it.
[ ! -e ../shared/data/json/JSONTestSuite.tar.zst ] || has zstd || need zstd
[ $with_text = 0 ] || has bible || need bible-kjv
[ $with_valgrind = 0 ] || has valgrind || need valgrind
[ $with_python = 0 ] || python3 -c 'import ensurepip, venv' 2>/dev/null || need python3-venv

if [ $with_fuzzer = 1 ]; then
  has clang || need clang
  if has clang && ! echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n);
      int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d && n ? 0 : 0; }' |
      clang -x c -fsanitize=fuzzer,address -o /dev/null - 2>/dev/null; then
    # Ubuntu 22.04 has no such package: there the fuzzer comes with clang itself.
    need "libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev"
  fi
fi

[ -n "$missing" ] || exit 0
line="apt-get install -y --no-install-recommends$missing"
if [ $only_print = 1 ]; then
  echo "$line"
  exit 0
fi
if ! has apt-get; then
  echo "Missing (names of Debian's packages):$missing" >&2
  echo "Install them with this system's package manager, or point CMAKE_PREFIX_PATH at them." >&2
  exit 1
fi
if [ "$(id -u)" != 0 ]; then
  echo "Missing packages. Ask an administrator for:" >&2
  echo "  $line" >&2
  exit 1
fi
round=$((${LS_INSTALL_ROUND:-0} + 1))
if [ $round -gt 2 ]; then
  echo "Still missing after they were installed:$missing" >&2
  exit 1
fi
echo "+ $line"
export DEBIAN_FRONTEND=noninteractive
# A list older than the packages fails to install: refresh it and try once more.
# shellcheck disable=SC2086
apt-get install -y -qq --no-install-recommends $missing >/dev/null 2>&1 ||
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing; } || {
    echo "Could not install them: check the network and the package sources, then run again." >&2
    exit 1
  }
# Look again: what was installed must be found, and clang's fuzzer is known by clang's version only.
LS_INSTALL_ROUND=$round exec "$0" "$@"
