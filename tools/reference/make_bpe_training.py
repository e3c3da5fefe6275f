#!/usr/bin/env python3
"""What Hugging Face's BpeTrainer learns from small texts, for bpe_train_test.

    python3 tools/reference/make_bpe_training.py tests/data/bpe-training.json

Made with tokenizers 0.23.3: byte-level BPE, ByteLevel's whole alphabet, each text one document. The
texts have many pairs that are as frequent as others, runs of equal letters, and special tokens that
merges make too, for which the trainer writes more merges than new pieces.
"""
import json
import random
import sys

import tokenizers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from make_tokenizers import STRINGS


def prose():
    with open("CONTRIBUTING.md", encoding="utf-8") as file:
        return file.read() + "\n".join(STRINGS)


def random_text(source, letters, longest):
    words = ["".join(source.choice(letters) for _ in range(source.randint(1, longest)))
             for _ in range(source.randint(5, 60))]
    return " ".join(source.choice(words) for _ in range(source.randint(20, 200))) + "\n" * source.randint(0, 3)


def train(text, vocabulary, least, special):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, min_frequency=least, special_tokens=special,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
    tokenizer.train_from_iterator([text], trainer)
    model = json.loads(tokenizer.to_str())["model"]
    pieces = sorted(model["vocab"], key=model["vocab"].get)
    assert [model["vocab"][piece] for piece in pieces] == list(range(len(pieces)))
    return {"text": text, "vocab": vocabulary, "min_frequency": least, "special": special, "pieces": pieces,
            "merges": model["merges"], "ids": tokenizer.encode(text).ids}


def main(target):
    cases = [train(prose(), 1200, 2, ["<|endoftext|>"]), train(prose(), 4000, 0, []), train("", 300, 0, ["<s>"])]
    for seed in range(24):
        source = random.Random(seed)
        text = random_text(source, ("a", "ab", "abc=")[seed % 3], (9, 30)[seed % 2])
        special = ["<|endoftext|>", "<pad>"] if seed % 5 else ["ab", "a", "aba"]
        cases.append(train(text, source.choice((300, 340, 900)), source.choice((0, 1, 2, 3)), special))
    with open(target, "w", encoding="ascii") as file:
        json.dump({"by": "tokenizers " + tokenizers.__version__, "cases": cases}, file, separators=(",", ":"))
        file.write("\n")
    print(len(cases), sum(len(case["merges"]) for case in cases))


if __name__ == "__main__":
    main(sys.argv[1])
