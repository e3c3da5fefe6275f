#!/bin/sh
# Trains a small model from scratch on real text and samples from it: quickstart.sh [TEXT_FILE]
set -eu
cd "$(dirname "$0")/.."
text=${1:-}
[ -x build/lockstep ] || make
mkdir -p build/quickstart
if [ -z "$text" ]; then
  text=build/quickstart/kjv.txt
  # The King James Bible, each verse without its "Genesis 1:1" prefix.
  bible -f gen1:1-rev22:21 | sed 's/^[^ ]* //' >"$text"
elif [ ! -s "$text" ]; then
  echo "quickstart.sh: $text: missing or empty; expected a text file" >&2
  exit 2
fi
build/lockstep train examples/quickstart.yaml data.text="$text"
