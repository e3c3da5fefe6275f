"""Holds exports of vectors of texts to sentence-transformers.

    venv/bin/pip install sentence-transformers
    venv/bin/python tools/reference/check_sentence.py build/lockstep

A BERT, by the mean and behind a prompt, and a Qwen3, by the last token, are trained for a few steps
on pairs with a wrong answer each, and exported. Of what sentence-transformers loads from the folder
the loss over all pairs, and how many find their answer, are what `lockstep evaluate` tells.
"""

import argparse
import json
import pathlib
import random
import subprocess
import tempfile

import tokenizers
import torch
import transformers
from sentence_transformers import SentenceTransformer

PAIRS, SEED = 60, 1
SMALL = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             max_position_embeddings=64)
KEYS = ["data.text=pairs.jsonl", "data.seq_len=64", "embed.negatives=1", "embed.pairs=4",
        "dtype=fp32"]


def make_tokenizer(folder):
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)] + [":"]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + letters + ["##" + c for c in letters]
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(
        {word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    made.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]",
        sep_token="[SEP]", mask_token="[MASK]").save_pretrained(folder)
    return len(words)


def make_model(name, folder):
    vocabulary = make_tokenizer(folder)
    if name == "bert":
        model = transformers.BertForMaskedLM(transformers.BertConfig(
            **SMALL, vocab_size=vocabulary, hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0))
    else:
        model = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(
            **SMALL, vocab_size=vocabulary, num_key_value_heads=2, head_dim=8,
            tie_word_embeddings=False, bos_token_id=None, eos_token_id=3))
    model.save_pretrained(folder)


def make_pairs(path):
    """No two answers are the same: of equal ones the first is found, and orders differ."""
    draw = random.Random(SEED)
    words = ["".join(draw.choice("abcdefghij") for _ in range(draw.randint(4, 7)))
             for _ in range(PAIRS)]
    assert len(set(words)) == PAIRS
    rows = [dict(anchor=f"{words[i]} {words[i * 7 % PAIRS]}", positive=f"{words[i][::-1]} x",
                 negative=f"{words[(i + 1) % PAIRS]} y") for i in range(PAIRS)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


def told_by_sentence_transformers(folder, rows):
    model = SentenceTransformer(str(folder), device="cpu")
    asking, right, wrong = (
        torch.tensor(model.encode([row[key] for row in rows], prompt_name=prompt))
        for key, prompt in (("anchor", "query"), ("positive", "document"),
                            ("negative", "document")))
    scores, own = 20 * asking @ torch.cat([right, wrong]).T, torch.arange(len(rows))
    return (torch.nn.functional.cross_entropy(scores, own).item(),
            (scores.argmax(1) == own).sum().item())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("lockstep", type=pathlib.Path)
    lockstep = parser.parse_args().lockstep.resolve()
    torch.manual_seed(SEED)
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)

        def run(*words):
            return subprocess.run([lockstep, *words], cwd=place, check=True, capture_output=True,
                                  text=True).stdout

        rows = make_pairs(place / "pairs.jsonl")
        for name, more in (("bert", ["embed.query_prompt=query:"]), ("qwen", [])):
            make_model(name, place / name)
            run("train", f"model={name}", "task=embed", *KEYS, *more, "data.validation=0",
                "train.batch=4", "train.steps=6", "train.lr=1e-3", "train.warmup=0",
                "eval.every=0", f"out=run-{name}")
            run("export", f"run-{name}", f"out-{name}")
            ours = json.loads(run("evaluate", f"out-{name}", *KEYS, "train.batch=64", "--json"))
            theirs = told_by_sentence_transformers(place / f"out-{name}", rows)
            print(f"{name}: loss {ours['loss']:.6f}, {theirs[0]:.6f}; found {ours['correct']}, "
                  f"{theirs[1]} of {PAIRS}")
            assert abs(ours["loss"] - theirs[0]) < 1e-4 and ours["correct"] == theirs[1]


if __name__ == "__main__":
    main()
