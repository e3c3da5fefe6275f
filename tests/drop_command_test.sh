#!/bin/sh
# Experts that drop what is above their capacity, as a user trains with them: as many rows are
# dropped, and losses are the same, on every layout; evaluations drop nothing; and what cannot be is
# refused with what can, before anything starts.
set -eu
. "$(dirname "$0")/support/small_run.sh"

mixture() { # LAYERS
  cat >mixture-$1.json <<JSON
{"model_type": "mixtral", "vocab_size": 256, "hidden_size": 16, "intermediate_size": 12,
 "num_hidden_layers": $1, "num_attention_heads": 2, "num_key_value_heads": 2,
 "max_position_embeddings": 32, "num_local_experts": 6, "num_experts_per_tok": 2,
 "sliding_window": null}
JSON
}
mixture 1
mixture 2
words="data.tokenizer=bytes data.seq_len=16 data.validation=0 train.batch=8"
words="$words train.warmup=0 train.steps=3 eval.every=0 checkpoint.every=0 dtype=fp32"
text="model=mixture-2.json data.text=text.txt $words"
of() { sed "s/.*\"$2\": *\([^,}]*\)[,}].*/\1/" "$1/metrics.jsonl"; } # RUN KEY: by step
# same RUN OTHER: as many rows are dropped, and losses are equal, step by step.
same() {
  for key in loss dropped; do
    of "$1" $key >a
    of "$2" $key >b
    paste a b | awk '{ n++; if (($1 - $2) ^ 2 > 1e-10) bad = 1 } END { exit bad || n != 3 }' ||
      fail "$1 and $2, $key: $(paste a b)"
  done
}

run 0 train $text out=plain
! grep -q dropped plain/metrics.jsonl || fail "plain tells of what is dropped"
run 0 train $text out=held experts.drop=0.9
grep -q '  dropped [1-9]' log || fail "the progress line: $(cat log)"
[ "$(of held dropped | head -n 1)" -gt 20 ] || fail "dropped $(of held dropped)"
[ "$(of plain loss | head -n 1)" != "$(of held loss | head -n 1)" ] || fail "what is dropped counts"
run 0 train $text out=gathered experts.drop=0.9 mesh.cp=2 mesh.ep=2 mesh.tp=2 -n 4
same held gathered
run 0 train $text out=sent experts.drop=0.9 mesh.dp_shard=3 mesh.ep=3 experts.exchange=all_to_all \
  train.batch=6 -n 3
run 0 train $text out=sent-one experts.drop=0.9 train.batch=6
same sent-one sent
run 0 train $text out=stages experts.drop=0.9 mesh.pp=2 train.microbatches=4 -n 2
same held stages

# An expert has room for every token of a sequence: losses are those without a capacity, to the bit.
run 0 train $text out=roomy experts.drop=3
[ "$(of plain loss)" = "$(of roomy loss)" ] || fail "$(of plain loss) but $(of roomy loss)"
[ "$(of roomy dropped | tr '\n' ' ')" = "0 0 0 " ] || fail "dropped $(of roomy dropped)"

# Tokens that are all alike go to the same two experts, of which each takes ceil(2 x 16 / 6) = 6 of
# the 16 of a sequence; none drops anything where no loss is made of it.
yes aaaaaaaaaaaaaaa | tr -d '\n' | head -c 4000 >alike.txt
run 0 train model=mixture-1.json data.text=alike.txt $words out=alike experts.drop=1
[ "$(of alike dropped | head -n 1)" = 160 ] || fail "dropped $(of alike dropped), not 8 x 2 x 10"
run 0 evaluate held/checkpoints/step-3 data.text=alike.txt data.seq_len=16
cut -d ';' -f 1 output >all
run 0 evaluate held/checkpoints/step-3 data.text=alike.txt data.seq_len=16 experts.drop=0.1
cut -d ';' -f 1 output | cmp -s all || fail "an evaluation drops: $(cat all output)"
run 0 check $text experts.drop=1.25 mesh.dp_shard=4 mesh.cp=2 mesh.ep=2 -n 8

run 2 train keys.yaml experts.drop=1.25 data.tokenizer=bytes out=no
says "experts.drop: given for a model without experts; expected off"
run 2 train $text experts.drop=0 out=no
says "experts.drop"
run 2 train $text experts.drop=1 out=no post_validation=true mesh.pp=2 train.microbatches=4 -n 2
says "found with experts.drop, which counts rows that would count twice"
run 2 train $text experts.aux_loss=1 experts.aux_form=sequence out=no post_validation=true \
  mesh.pp=2 train.microbatches=4 -n 2
says "found with experts.aux_loss, which counts rows that would count twice"
run 2 train $text experts.drop=1 task=dpo out=no
says "experts.drop: found with task=dpo, whose reference drops nothing; expected off"
[ ! -e no ] || fail "a refused run made its folder"
echo "drop_command_test: $passed commands"
