#!/usr/bin/env python3
"""Tokenizers side by side on one core: Lockstep, Hugging Face tokenizers, tiktoken.

    python3 bench/tokenizer_peers.py build/bench/tokenizer_speed FOLDER_OF_TOKENIZERS TEXT...

FOLDER has NAME/tokenizer.json for each tokenizer. Medians of five rounds (of large texts three), in processor time; in
each round Lockstep and tokenizers are opened anew, so that none has a word of the text cached ("again": Lockstep, the
same text once more). The others get the text at once and, as documents, line by line: the faster of the two is shown,
and "x" is how many times as fast Lockstep is, which gets it at once. tiktoken, which keeps no words and reads no
tokenizer.json, gets the same pieces and pattern.
Equal: all ids of Lockstep and tokenizers, and tiktoken's count (its ids are other numbers for the same pieces).
"""
import json
import os
import statistics
import subprocess
import sys
import time
import zlib
from array import array

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import tiktoken  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
ROUNDS, ROUNDS_OF_LARGE, LARGE_MB = 5, 3, 5


def alphabet():
    printing = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    others = [b for b in range(256) if b not in printing]
    return {**{chr(b): b for b in printing}, **{chr(256 + i): b for i, b in enumerate(others)}}


def pattern_of(pre):
    steps = pre.get("pretokenizers", [pre])
    split = [s["pattern"]["Regex"] for s in steps if s["type"] == "Split"]
    return split[0] if split else GPT2


def as_tiktoken(form):
    letters = alphabet()
    model = form["model"]
    pieces = [p for p, _ in sorted(model["vocab"].items(), key=lambda item: item[1])]
    coded = [bytes(letters[c] for c in p) for p in pieces if all(c in letters for c in p)]
    order = {bytes([b]): b for b in range(256)}
    for merge in model["merges"]:
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        made = bytes(letters[c] for c in left + right)
        if made not in order:
            order[made] = len(order)
    del coded
    return tiktoken.Encoding("same", pat_str=pattern_of(form["pre_tokenizer"]), mergeable_ranks=order,
                             special_tokens={})


def median(rounds, opened, work):
    seconds = []
    for _ in range(rounds):
        tokenizer = opened()
        begin = time.process_time()
        work(tokenizer)
        seconds.append(time.process_time() - begin)
    return statistics.median(seconds)


def main(program, folder, texts):
    print("load %.1f, %.1f, %.1f on %d cores" % (*os.getloadavg(), os.cpu_count()), file=sys.stderr)
    print("| tokenizer | text | Lockstep MB/s | again | tokenizers | x | tiktoken | x | ids equal |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---|")
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name, "tokenizer.json")
        if not os.path.exists(path):
            continue
        with open(path, encoding="utf-8") as file:
            form = json.load(file)
        opened = lambda: Tokenizer.from_file(path)  # noqa: E731
        theirs = opened()
        ranks = as_tiktoken(form) if "ByteLevel" in json.dumps(form["pre_tokenizer"]) else None
        for text_path in texts:
            with open(text_path, encoding="utf-8", newline="") as file:
                text = file.read()
            size = len(text.encode()) / 1e6
            lines = text.splitlines(keepends=True)
            rounds = ROUNDS if size < LARGE_MB else ROUNDS_OF_LARGE
            out = subprocess.run([program, path, text_path, str(rounds)], capture_output=True, text=True, check=True)
            ours = json.loads(out.stdout)
            ids = theirs.encode(text, add_special_tokens=False).ids
            equal = zlib.crc32(array("i", ids).tobytes()) == ours["crc32"]
            whole = median(rounds, opened, lambda t: t.encode(text, add_special_tokens=False))
            split = median(rounds, opened, lambda t: [t.encode(line, add_special_tokens=False) for line in lines])
            hugging = size / min(whole, split)
            row = "| %s | %s | %.1f | %.1f | %.1f | %.1f |" % (name, os.path.basename(text_path), ours["mb_per_s"],
                                                               ours["again_mb_per_s"], hugging,
                                                               ours["mb_per_s"] / hugging)
            if ranks:
                equal = equal and len(ranks.encode_ordinary(text)) == ours["ids"]
                keep = lambda: ranks  # noqa: E731
                open_ai = size / min(median(rounds, keep, lambda t: t.encode_ordinary(text)),
                                     median(rounds, keep, lambda t: [t.encode_ordinary(line) for line in lines]))
                row += " %.1f | %.1f |" % (open_ai, ours["mb_per_s"] / open_ai)
            else:
                row += " | |"
            print(row + (" yes |" if equal else " NO |"), flush=True)
    print("load %.1f, %.1f, %.1f" % os.getloadavg(), file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
