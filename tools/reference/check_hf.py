"""Takes every family through Lockstep and transformers and back, and compares what arrives.

    python3 -m venv venv && venv/bin/pip install -r tools/reference/requirements.txt
    venv/bin/python tools/reference/check_hf.py build/lockstep [FAMILY ... | tokenizers]

`make check-hf` does both. For each folder of tests/data/traces, whose weights transformers saved:

- two steps from these weights on one device, on four, from scratch and from bf16 weights, exported;
- from_pretrained loads each export, with no tensor missing, left over or of another shape;
- what transformers then computes from the export (logits, loss, every gradient, two steps of AdamW)
  `lockstep verify` computes from the same files, to rounding in fp32 and to 1e-12 in fp64;
- what transformers saves again is computed with in the same way, and exported bit-equal;
- exports of one device and of four agree to rounding, and to fp32's last bit where the training
  was in fp64; they have the source's names and type;
- --dtype is torch's own rounding, --max-shard-size loses nothing, in both directions;
- config.json says of the model what the source's says; the tokenizer's files are the run's, and
  AutoTokenizer gives the ids that `lockstep tokenize` gives with them.

And for tokenizers of every kind (those of tests/data/tokenizers, one trained here, GPT-2's two
files, bytes): AutoTokenizer gives an export's ids and text as `lockstep tokenize` does.

Exit status 0: all hold; else 1, and each line that does not.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"  # everything is in folders here

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import make_traces

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRACES = ROOT / "tests" / "data" / "traces"
STEPS, BATCH, LEARNING_RATE = 2, 4, 3e-3
SHARD, SHARD_BYTES = "10KB", 10000  # several files of even the smallest of these models

# Its 6 heads share 3 KV heads, which 2 ranks cannot have evenly; all others take both.
BOTH = ("mesh.dp_shard=2", "mesh.tp=2")
LAYOUTS = {"llama-gqa-free": ("mesh.dp_shard=4",)}

# fp32 sums in another order, twice through AdamW, whose epsilon is make_traces.EPSILON: where a
# gradient is 0 but for rounding (1e-9), that moves a parameter by up to a thousandth of a step.
TOLERANCE = 1e-2 * LEARNING_RATE

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp64": torch.float64}


class Failure(Exception):
    pass


def expect(holds, what):
    if not holds:
        raise Failure(what)


def make_tokenizer(folder):
    """Byte-level BPE over what `make_text` leaves of a text, of fewer ids than any model here."""
    vocabulary = {symbol: i for i, symbol in enumerate(
        ["<|end|>"] + list("abcdefghijklmnopqrstuvwxyz.,") + ["\u0120"])}
    merges = [["t", "h"], ["i", "n"], ["e", "r"], ["a", "n"], ["\u0120", "th"], ["\u0120th", "e"]]
    for pair in merges:
        vocabulary["".join(pair)] = len(vocabulary)
    by_bytes = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    end = dict(id=0, content="<|end|>", single_word=False, lstrip=False, rstrip=False,
               normalized=False, special=True)
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(dict(
        version="1.0", truncation=None, padding=None, added_tokens=[end], normalizer=None,
        pre_tokenizer=by_bytes, post_processor=None, decoder=by_bytes,
        model=dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None,
                   end_of_word_suffix=None, fuse_unk=False, byte_fallback=False,
                   ignore_merges=False, vocab=vocabulary, merges=merges))))
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(
        tokenizer_class="PreTrainedTokenizerFast", eos_token="<|end|>", model_max_length=32)))


def make_text():
    return re.sub("[^a-z.,]+", " ", (ROOT / "ARCHITECTURE.md").read_text().lower())[:8000]


class Room:
    """One family's folders, and the command that fills them."""

    def __init__(self, name, command, shared, work):
        self.name, self.command, self.shared, self.work = name, command, shared, work
        self.trace = json.loads((TRACES / name / "trace.json").read_text())["hyper"]

    def run(self, *words):
        done = subprocess.run(
            [str(self.command), *map(str, words)], capture_output=True, text=True, check=False)
        expect(done.returncode == 0, f"lockstep {' '.join(map(str, words))}: exit status "
               f"{done.returncode}: {(done.stderr or done.stdout).strip()[-500:]}")
        return done.stdout

    def train(self, name, model, *words):
        """A run of two steps; its export's folder."""
        self.run(
            "train", f"model={model}", f"data.text={self.shared / 'text.txt'}",
            f"data.tokenizer={self.shared / 'tokenizer'}", f"data.seq_len={self.trace['T']}",
            "data.validation=0", f"train.steps={STEPS}", f"train.batch={BATCH}",
            f"train.lr={LEARNING_RATE}", "train.warmup=0", f"optimizer.eps={make_traces.EPSILON}",
            "eval.every=0", "dtype=fp32", f"out={self.work / name}-run", *words)
        return self.export(f"{name}-run", name)

    def export(self, source, name, *words):
        self.run("export", self.work / source, self.work / name, *words)
        return self.work / name


def load(folder, dtype=torch.float32):
    model, about = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, attn_implementation="eager", dtype=dtype)
    wrong = {what: sorted(map(str, names)) for what, names in about.items() if names}
    expect(not wrong, f"from_pretrained of {folder.name}: {wrong}")
    return model.eval()


def tensors_of(folder):
    """All of a folder's files together."""
    found = {}
    for file in sorted(folder.glob("model*.safetensors")):
        tensors = load_file(file)
        expect(not found.keys() & tensors.keys(), f"{folder.name}: a tensor stands there twice")
        found.update(tensors)
    expect(found, f"{folder.name}: no tensors")
    return found


def bits(tensor):
    return tensor.detach().contiguous().flatten().view(torch.uint8)


def same_bits(what, found, expected):
    expect(found.keys() == expected.keys(),
           f"{what}: other names: {sorted(found.keys() ^ expected.keys())[:4]}")
    for name, tensor in expected.items():
        other = found[name]
        same = other.dtype == tensor.dtype and other.shape == tensor.shape
        expect(same and torch.equal(bits(other), bits(tensor)), f"{what}: {name} differs")


def write_trace(room, model, folder):
    """What transformers computes with the model, beside the files in `folder`."""
    config = json.loads((folder / "config.json").read_text())
    trace = dict(room.trace, seed=0, steps=STEPS, micro_batches=1, config=config)
    trace.pop("warmup", None)
    shutil.copy(TRACES / room.name / "tokens.u16le", folder)
    raw = (folder / "tokens.u16le").read_bytes()
    count = STEPS * trace["B"] * trace["T"] + 1
    tokens = torch.frombuffer(bytearray(raw[:2 * count]), dtype=torch.int16).long()
    (folder / "tokens.u16le").write_bytes(raw[:2 * count])
    narrow_model = make_traces.clone(model, torch.float32)
    with make_traces.Wide():
        wide_model = make_traces.clone(model, torch.float64)
        wide = make_traces.train(trace, wide_model, tokens)
    narrow = make_traces.train(trace, narrow_model, tokens)
    first = {f"grad.{n}": g.float().contiguous() for n, g in wide[2].items()}
    first["logits.row0"] = wide[1].float().contiguous()
    save_file(first, folder / "step0.safetensors")
    (folder / "trace.json").write_text(json.dumps(make_traces.describe(
        trace, model, wide, narrow, wide_model, narrow_model)))


def check_numbers(room, folder, dtypes=("fp64",)):
    """Both compute the same from a folder's files."""
    aside = room.work / f"{folder.name}-trace"
    shutil.copytree(folder, aside)
    write_trace(room, load(folder), aside)
    for dtype in dtypes:
        room.run("verify", "--trace", aside, f"dtype={dtype}")


def distance(one, other):
    """The largest difference of two exports in fp32, and that in fp32's own steps."""
    a, b = tensors_of(one), tensors_of(other)
    expect(a.keys() == b.keys(), f"{one.name} and {other.name} have other names")
    expect(all(t.dtype == torch.float32 for t in [*a.values(), *b.values()]), "not all is fp32")
    apart = {name: (a[name].double() - b[name].double()).abs() for name in a}
    step = {name: torch.nextafter(a[name].abs(), torch.tensor(torch.inf)).double()
            - a[name].abs().double() for name in a}
    return (max(each.max().item() for each in apart.values()),
            max((apart[name] / step[name]).max().item() for name in a))


def check_config(room, folder):
    """The export says of the model what its source says, as transformers reads both."""
    said = [transformers.AutoConfig.from_pretrained(each).to_dict()
            for each in (folder, TRACES / room.name)]
    for each in said:
        for about_files in ("dtype", "transformers_version", "_name_or_path"):
            each.pop(about_files, None)
    apart = {key for key in said[0].keys() | said[1].keys() if said[0].get(key) != said[1].get(key)}
    expect(not apart, f"{folder.name}: config.json: " + ", ".join(
        f"{key}: {said[0].get(key)} for {said[1].get(key)}" for key in sorted(apart)))


def check_layouts(room, one):
    """Of the export of four ranks, the largest difference from that of one."""
    words = LAYOUTS.get(room.name, BOTH)
    four = room.train("four", TRACES / room.name, "-n", "4", *words)
    load(four)
    check_config(room, four)
    worst, _ = distance(one, four)
    expect(worst <= TOLERANCE, f"exports of one device and of four differ by {worst}")
    _, ulps = distance(room.train("one-wide", TRACES / room.name, "dtype=fp64"),
                       room.train("four-wide", TRACES / room.name, "dtype=fp64", "-n", "4", *words))
    expect(ulps <= 1, f"trained in fp64, exports of one device and of four differ by {ulps} ulp")
    a, source = tensors_of(one), tensors_of(TRACES / room.name)
    expect(a.keys() == source.keys(), "the source's names are not kept")
    expect(any(not torch.equal(a[name], source[name]) for name in a), "nothing was trained")
    return worst


def check_saved_again(room, one):
    """transformers saves it, whole and in shards; Lockstep computes with it and exports it."""
    model = load(one)
    model.save_pretrained(room.work / "again")
    check_numbers(room, room.work / "again")
    kept = tensors_of(one)
    same_bits("saved again", tensors_of(room.export("again", "back", "--names", one)), kept)
    expect((one / "model.safetensors").read_bytes() ==
           (room.work / "back" / "model.safetensors").read_bytes(), "saved again: other bytes")
    saved = tensors_of(room.work / "again")
    same_bits("saved again, as named there", tensors_of(room.export("again", "plain")), saved)
    model.save_pretrained(room.work / "pieces", max_shard_size=SHARD)
    expect((room.work / "pieces" / "model.safetensors.index.json").exists(),
           "transformers wrote no shards")
    same_bits("saved in shards", tensors_of(room.export("pieces", "joined", "--names", one)), kept)
    room.run("inspect", room.work / "pieces")


def check_types(room, one):
    kept = tensors_of(one)
    for word, dtype in DTYPES.items():
        folder = room.export("one-run", word, "--dtype", word)
        same_bits(f"--dtype {word}", tensors_of(folder), {n: t.to(dtype) for n, t in kept.items()})
        model = load(folder, "auto")
        expect(model.dtype == dtype, f"--dtype {word}: from_pretrained takes it as {model.dtype}")
    folder = room.export("one-run", "shards", "--max-shard-size", SHARD)
    files = sorted(folder.glob("model*.safetensors"))
    expect(len(files) > 1, f"--max-shard-size {SHARD}: one file")
    for file in files:
        with safe_open(file, "pt") as opened:
            held = [opened.get_tensor(name).nbytes for name in opened.keys()]
        expect(len(held) == 1 or sum(held) <= SHARD_BYTES,
               f"--max-shard-size {SHARD}: {file.name} has {sum(held)} bytes")
    same_bits("--max-shard-size", tensors_of(folder), kept)
    plain, sharded = load(one), load(folder)
    same_bits("--max-shard-size, loaded", sharded.state_dict(), plain.state_dict())


def check_half(room, one):
    """A source in bf16 stays that: names and types."""
    load(one).to(torch.bfloat16).save_pretrained(room.work / "half-source")
    half = room.train("half", room.work / "half-source")
    source = tensors_of(room.work / "half-source")
    found = tensors_of(half)
    expect(found.keys() == source.keys(), "a source in bf16: its names are not kept")
    expect(all(t.dtype == torch.bfloat16 for t in found.values()), "a source in bf16 is not kept")
    load(half, "auto")
    check_numbers(room, half)


def check_tokenizer(room, one):
    for file in (room.shared / "tokenizer").iterdir():
        expect((one / file.name).read_bytes() == file.read_bytes(), f"{file.name} is another one")
    text = (room.shared / "text.txt").read_text()
    ids = [int(word) for word in room.run(
        "tokenize", room.shared / "text.txt", "--tokenizer", one, "--ids").split()]
    tokenizer = transformers.AutoTokenizer.from_pretrained(one)
    theirs = tokenizer(text, add_special_tokens=False)["input_ids"]
    expect(ids == theirs, f"AutoTokenizer gives {len(theirs)} ids, lockstep {len(ids)}, or others")
    expect(tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text,
           "AutoTokenizer decodes another text")
    expect(tokenizer.eos_token == "<|end|>", f"AutoTokenizer ends with {tokenizer.eos_token}")


# SentencePiece's own library gives others than transformers where a model's normalization is not
# Llama's, whose is the only one of these that LlamaTokenizer knows.
SENTENCEPIECE = ("sentencepiece-bpe",)
NASTY = "Hello  world, it's 123 \u00e9t\u00e9 don't.\n\n \u65e5\u672c\u8a9e x\u0301 \u2581 <0x41>\t\n"


def make_tokenizers(room):
    """Folders of tokenizers by name; None: bytes."""
    made = {"bytes": None}
    for folder in sorted((ROOT / "tests" / "data" / "tokenizers").iterdir()):
        if (folder / "tokenizer.json").exists():
            made[folder.name] = folder
    try:
        import google.protobuf
        import sentencepiece
    except ImportError:
        print(f"no sentencepiece and protobuf: {len(SENTENCEPIECE)} tokenizer not compared")
    else:
        for name in SENTENCEPIECE:
            shutil.copytree(ROOT / "tests" / "data" / "tokenizers" / name, room.work / name)
            (room.work / name / "tokenizer_config.json").write_text(
                '{"tokenizer_class": "LlamaTokenizer"}')
            made[name] = room.work / name
    room.run("tokenizer", "train", room.shared / "text.txt", "--vocab", "400", "-o",
             room.work / "trained")
    made["trained"] = room.work / "trained"
    model = json.loads((room.work / "trained" / "tokenizer.json").read_text())["model"]
    (room.work / "merges").mkdir()
    (room.work / "merges" / "vocab.json").write_text(json.dumps(model["vocab"]))
    (room.work / "merges" / "merges.txt").write_text("#version: 0.2\n" + "".join(
        (pair if isinstance(pair, str) else " ".join(pair)) + "\n" for pair in model["merges"]))
    made["merges"] = room.work / "merges"
    return made


def check_kind(room, name, folder):
    """A run with this tokenizer, exported: transformers finds it there, and the same ids."""
    text = room.work / "nasty.txt"
    text.write_text(NASTY)
    out = room.train(f"with-{name}", room.work / "config.json", "train.steps=1", "init=scratch",
                     f"data.tokenizer={folder or 'bytes'}")
    ids = [int(word) for word in room.run("tokenize", text, "--tokenizer", out, "--ids").split()]
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    theirs = tokenizer(NASTY, add_special_tokens=False)["input_ids"]
    expect(ids == theirs, f"tokenizer {name}: AutoTokenizer gives {theirs}, lockstep {ids}")
    (room.work / "ids.txt").write_text(" ".join(map(str, ids)))
    ours = room.run("tokenize", room.work / "ids.txt", "--tokenizer", out, "--decode", "--special")
    again = tokenizer.decode(ids, clean_up_tokenization_spaces=False)
    expect(ours == again, f"tokenizer {name}: AutoTokenizer decodes {again!r}, lockstep {ours!r}")


def check_tokenizers(room):
    (room.work / "config.json").write_text(json.dumps(dict(
        model_type="llama", architectures=["LlamaForCausalLM"], vocab_size=1000, hidden_size=8,
        intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
        max_position_embeddings=64)))
    made = make_tokenizers(room)
    for name, folder in made.items():
        check_kind(room, name, folder)
    return len(made)


def check_family(room):
    one = room.train("one", TRACES / room.name)
    check_config(room, one)
    check_numbers(room, one, ("fp32", "fp64"))
    worst = check_layouts(room, one)
    check_saved_again(room, one)
    check_types(room, one)
    check_half(room, one)
    scratch = room.train("scratch", TRACES / room.name / "config.json")
    check_config(room, scratch)
    check_numbers(room, scratch)
    check_tokenizer(room, one)
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("lockstep", type=pathlib.Path, help="the command")
    parser.add_argument(
        "names", nargs="*", help="folders of tests/data/traces, or tokenizers; none: all")
    options = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    present = sorted(make_traces.TRACES)  # others are of adapters and pairs
    names = options.names or [*present, "tokenizers"]
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        shared = pathlib.Path(folder)
        make_tokenizer(shared / "tokenizer")
        (shared / "text.txt").write_text(make_text())
        for name in names:
            work = shared / f"{name}-room"
            work.mkdir()
            try:
                if name == "tokenizers":
                    room = Room(present[0], options.lockstep.resolve(), shared, work)
                    print(f"tokenizers: {check_tokenizers(room)} ok", flush=True)
                else:
                    worst = check_family(Room(name, options.lockstep.resolve(), shared, work))
                    print(f"{name}: ok; one device and four differ by {worst:.1e}", flush=True)
            except Failure as failure:
                failed += 1
                print(f"{name}: FAILED: {failure}", flush=True)
            shutil.rmtree(work)
    print(f"{len(names) - failed} of {len(names)} (families, and tokenizers as one) go round, with "
          f"PyTorch {torch.__version__} and transformers {transformers.__version__}")
    return failed > 0 or not names


if __name__ == "__main__":
    sys.exit(main())
