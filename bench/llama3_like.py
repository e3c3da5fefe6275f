#!/usr/bin/env python3
"""A tokenizer.json like Llama 3's, whose own vocabulary may not be here: its published pattern and its
ignore_merges over another byte-level vocabulary.

    build/lockstep tokenizer train TEXT... --vocab 128000 -o trained/
    python3 bench/llama3_like.py trained/ FOLDER/llama3-like/
"""
import json
import os
import sys

PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def main(source, target):
    with open(os.path.join(source, "tokenizer.json"), encoding="utf-8") as file:
        form = json.load(file)
    form["normalizer"] = None
    form["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]}
    form["model"]["ignore_merges"] = True
    os.makedirs(target, exist_ok=True)
    with open(os.path.join(target, "tokenizer.json"), "w", encoding="utf-8") as file:
        json.dump(form, file, ensure_ascii=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
