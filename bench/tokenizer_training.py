#!/usr/bin/env python3
"""Training of byte-level BPE side by side: Lockstep and Hugging Face tokenizers.

    python3 bench/tokenizer_training.py build/lockstep VOCABULARY THREADS TEXT...

Each text, plain or JSON lines, on its own, in turns, the best of three rounds in seconds of the clock: Lockstep's whole
command, start, reading and writing included; Hugging Face's train_from_iterator alone, of documents in memory.
"""
import json
import os
import subprocess
import sys
import tempfile
import time

LOCKSTEP, VOCABULARY, THREADS = sys.argv[1], int(sys.argv[2]), sys.argv[3]
os.environ["RAYON_NUM_THREADS"] = THREADS

from tokenizers import Tokenizer, models, pre_tokenizers, trainers  # noqa: E402

ROUNDS, SPECIAL = 3, "<|endoftext|>"


def documents(path):
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        if not path.endswith(".jsonl"):
            return [file.read()]
        return [json.loads(line)["text"] for line in file if line.strip()]


def theirs(texts):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, min_frequency=2, special_tokens=[SPECIAL], show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    begin = time.perf_counter()
    tokenizer.train_from_iterator(texts, trainer)
    return time.perf_counter() - begin, json.loads(tokenizer.to_str())


def ours(path):
    with tempfile.TemporaryDirectory() as folder:
        command = [LOCKSTEP, "tokenizer", "train", path, "--vocab", str(VOCABULARY), "--min-frequency", "2",
                   "--special", SPECIAL, "--threads", THREADS, "-o", folder]
        begin = time.perf_counter()
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        seconds = time.perf_counter() - begin
        with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as file:
            return seconds, json.load(file)


def merges(form):
    return [m.split(" ") if isinstance(m, str) else m for m in form["model"]["merges"]]


def main():
    print("| text | MB | merges | Lockstep s | tokenizers s | x | equal |")
    print("|---|---:|---:|---:|---:|---:|---|")
    for path in sys.argv[4:]:
        texts = documents(path)
        here, there = [], []
        for _ in range(ROUNDS):
            here.append(ours(path))
            there.append(theirs(texts))
        mine, form = min(here, key=lambda run: run[0])[0], here[0][1]
        other, expected = min(there, key=lambda run: run[0])[0], there[0][1]
        same = merges(form) == merges(expected) and form["model"]["vocab"] == expected["model"]["vocab"]
        print("| %s | %.1f | %d | %.2f | %.2f | %.1f | %s |" % (
            os.path.basename(path), os.path.getsize(path) / 1e6, len(merges(form)), mine, other, other / mine,
            "yes" if same else "NO"), flush=True)


if __name__ == "__main__":
    main()
