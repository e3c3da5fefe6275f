#!/bin/sh
# Tunes the quick start's model on chats, with adapters, and shows its answers before and after.
#
#   tools/finetune.sh                the chats in examples/finetune, into runs/finetune
#   tools/finetune.sh chats.jsonl    any other chats
#   tools/finetune.sh --fresh        forget what was trained before
#   tools/finetune.sh key=value      any key of the run file, too
#
# Questions are those of examples/finetune/questions.txt, none of which was trained on. With the
# chats there an answer is in the form that was taught where it begins with "Peace be with thee." and
# ends with "Amen.".
set -eu
chats='' fresh='' keys=''
for argument in "$@"; do
  case $argument in
    --fresh) fresh=--fresh ;;
    -*) echo "finetune.sh: $argument: expected --fresh or a file of chats" >&2; exit 2 ;;
    *=*) keys="$keys $argument" ;;
    '') ;;
    /*) chats=$argument ;;
    *) chats=$PWD/$argument ;;
  esac
done
if [ -n "$chats" ] && [ ! -s "$chats" ]; then
  echo "finetune.sh: $chats: missing or empty; expected a file of chats" >&2
  exit 2
fi
cd "$(dirname "$0")/.."
lockstep=${LOCKSTEP:-build/lockstep}
base=${BASE:-runs/quickstart}
out=${OUT:-runs/finetune}
form='^Peace be with thee\. .*Amen\.$'
if [ ! -d "$base" ]; then
  echo "finetune.sh: no model in $base; \`make quickstart\` trains one, in 4 minutes" >&2
  exit 2
fi

say() { printf '\n$ %s\n' "$*" >&2; }
answer() { # MODEL FILE more...: the questions with their answers
  model=$1 file=$2
  shift 2
  say "lockstep generate $model --prompts examples/finetune/questions.txt --chat --greedy $*"
  $lockstep generate "$model" --prompts examples/finetune/questions.txt --chat --greedy \
    --max-new-tokens 120 --json "$@" 2>/dev/null >"$file"
  sed 's/^{"prompt": "\(.*\)", "text": "\(.*\)", "tokens": [0-9]*, .*/  \1\n    -> \2/' "$file"
  sed 's/^{.*, "text": "\(.*\)", "tokens": [0-9]*, .*/\1/' "$file" |
    awk -v form="$form" '$0 ~ form { good++ } END { printf "%d of %d answers in the form that is taught\n", good, NR }'
}
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
answer "$base" "$made/before.jsonl" --template examples/chat/chatml.jinja

say "lockstep train examples/finetune/finetune.yaml model=$base out=$out -n 2 $fresh$keys"
status=0
# shellcheck disable=SC2086
$lockstep train examples/finetune/finetune.yaml "model=$base" ${chats:+"data.text=$chats"} "out=$out" \
  -n 2 $fresh $keys || status=$?
if [ $status = 4 ]; then
  echo "Stopped and saved: the same command goes on from there." >&2
  exit 4
fi
[ $status = 0 ] || exit $status
answer "$out/best" "$made/after.jsonl"

cat <<END

The adapters are in $out/best. Try next:
  build/lockstep generate $out/best --interactive
  build/lockstep export $out/best adapters/          # as PEFT loads it
  build/lockstep export $out/best merged/ --merge    # a model
END
