#!/usr/bin/env python3
"""Tokenizers side by side on one core: Lockstep, Hugging Face tokenizers, tiktoken.

    python3 bench/tokenizer_peers.py build/bench/tokenizer_speed FOLDER_OF_TOKENIZERS TEXT...

FOLDER has NAME/tokenizer.json for each tokenizer. Each program encodes each text several times in
one process, in turns with the others; the best round counts (of five, of large texts two), in processor time. The
others get the text at once and, as documents, line by line: the faster of the two is shown, and "x" is how many times
as fast Lockstep is, which gets it at once. tiktoken, which reads no tokenizer.json, gets the same pieces and pattern.
Equal: all ids of Lockstep and tokenizers, and tiktoken's count (its ids are other numbers for the same pieces).
"""
import json
import os
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
ROUNDS, ROUNDS_OF_LARGE, LARGE_MB = 5, 2, 5


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


def best(rounds, work):
    seconds = []
    for _ in range(rounds):
        begin = time.process_time()
        work()
        seconds.append(time.process_time() - begin)
    return min(seconds)


def main(program, folder, texts):
    print("load %.1f, %.1f, %.1f on %d cores" % (*os.getloadavg(), os.cpu_count()), file=sys.stderr)
    print("| tokenizer | text | Lockstep MB/s | tokenizers | x | tiktoken | x | ids equal |")
    print("|---|---|---:|---:|---:|---:|---:|---|")
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name, "tokenizer.json")
        if not os.path.exists(path):
            continue
        with open(path, encoding="utf-8") as file:
            form = json.load(file)
        theirs = Tokenizer.from_file(path)
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
            whole = best(rounds, lambda: theirs.encode(text, add_special_tokens=False))
            split = best(rounds, lambda: [theirs.encode(line, add_special_tokens=False) for line in lines])
            hugging = size / min(whole, split)
            row = "| %s | %s | %.1f | %.1f | %.1f |" % (name, os.path.basename(text_path), ours["mb_per_s"], hugging,
                                                        ours["mb_per_s"] / hugging)
            if ranks:
                equal = equal and len(ranks.encode_ordinary(text)) == ours["ids"]
                open_ai = size / min(best(rounds, lambda: ranks.encode_ordinary(text)),
                                     best(rounds, lambda: [ranks.encode_ordinary(line) for line in lines]))
                row += " %.1f | %.1f |" % (open_ai, ours["mb_per_s"] / open_ai)
            else:
                row += " | |"
            print(row + (" yes |" if equal else " NO |"), flush=True)
    print("load %.1f, %.1f, %.1f" % os.getloadavg(), file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
