#!/bin/sh
# Trains a small model from scratch on real text, samples from it and shows what its program costs.
#
#   tools/quickstart.sh                   the King James Bible, into runs/quickstart
#   tools/quickstart.sh book.txt          any other text, into runs/quickstart-book.txt
#   tools/quickstart.sh --fresh [FILE]    forget what an earlier quick start trained
#
# `make quickstart [TEXT=FILE] [FRESH=1]` installs and builds first. A second run goes on where the
# first one stopped; where that one had finished, it only samples again.
set -eu
text=
fresh=
for argument in "$@"; do
  case $argument in
    --fresh) fresh=--fresh ;;
    -*) echo "quickstart.sh: $argument: expected --fresh or a text file" >&2; exit 2 ;;
    '') ;;
    /*) text=$argument ;;
    *) text=$PWD/$argument ;;
  esac
done
if [ -n "$text" ] && [ ! -s "$text" ]; then
  echo "quickstart.sh: $text: missing or empty; expected a text file" >&2
  exit 2
fi

cd "$(dirname "$0")/.."
lockstep=build/lockstep
[ -x $lockstep ] || make release

if [ -z "$text" ]; then
  out=runs/quickstart
  text=build/quickstart/kjv.txt
  if [ ! -s $text ]; then
    command -v bible >/dev/null || {
      echo "quickstart.sh: the text comes from Debian's package bible-kjv: install it, or name a" \
        "text file" >&2
      exit 2
    }
    # Each verse without the "Ge1:1" before it; under its own name only once it is whole.
    mkdir -p build/quickstart
    bible -f gen1:1-rev22:21 | sed 's/^[^ ]* //' >$text.part
    [ -s $text.part ] || { echo "quickstart.sh: bible printed nothing" >&2; exit 3; }
    mv $text.part $text
  fi
  prompt="In the beginning"
else
  out=runs/quickstart-$(basename "$text" | tr -c "A-Za-z0-9._\n-" _)
  prompt=$(awk 'NF { print $1, $2, $3; exit }' "$text" | cut -c1-60)
fi

# say LINE: what is run, as a person would type it.
say() { printf '\n$ %s\n' "$*" >&2; }

say "lockstep train examples/quickstart.yaml data.text=\"$text\" out=$out -n 2 $fresh"
status=0
# shellcheck disable=SC2086
$lockstep train examples/quickstart.yaml "data.text=$text" "out=$out" -n 2 $fresh || status=$?
if [ $status = 4 ]; then
  echo "Stopped and saved: the same command goes on from there." >&2
  exit 4
elif [ $status != 0 ]; then
  echo "quickstart.sh: training ended with status $status (see above); --fresh starts anew" >&2
  exit $status
fi

say "lockstep generate $out \"$prompt\" --temperature 0.8 --top-p 0.9 --seed 1"
$lockstep generate "$out" "$prompt" --temperature 0.8 --top-p 0.9 --seed 1

say "lockstep show examples/quickstart.yaml --compare -n 4"
$lockstep show examples/quickstart.yaml --compare -n 4

cat <<END

The run is in $out: metrics.jsonl, resolved.yaml, and checkpoints in Hugging Face form. Try next:
  build/lockstep generate $out "And God said" --temperature 0.7 --seed 7
  build/lockstep train examples/quickstart.yaml data.text="$text" mesh.tp=2 out=runs/tp -n 2
  build/lockstep train examples/quickstart.yaml data.text="$text" model=llama-8m out=runs/8m -n 2
  build/lockstep show examples/quickstart.yaml -n 2 --memory --collectives
  build/lockstep show examples/quickstart.yaml model=gpt2-124m train.batch=8 --compare -n 8
END
