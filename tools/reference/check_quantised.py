"""Takes a model in bitsandbytes' formats of 4 bits through Lockstep and transformers and back.

    venv/bin/pip install -r tools/reference/requirements.txt
    venv/bin/python tools/reference/check_quantised.py build/lockstep [FORMAT ...]

For each format a model is drawn (of GPT-2's, whose matrices are stored transposed, too), and saved by transformers plain and as bitsandbytes quantises it:

- what `lockstep export --quantize` writes of the plain one has the same tensors, bit by bit, but for
  the mean of scales that are quantised again, and what is measured from there: these to an ulp of it;
- what it writes of the quantised one has the same bits;
- transformers loads it as the same weights, and computes the loss that `lockstep evaluate` tells of
  either.

Exit status 0: all hold; else 1, and each line that does not.
"""

import json
import os
import pathlib
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from safetensors.torch import load_file

from check_peft import Room

SIZES = {"vocab_size": 256, "hidden_size": 128, "intermediate_size": 320, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
GPT2 = {"vocab_size": 256, "n_embd": 128, "n_inner": 320, "n_layer": 2, "n_head": 4, "n_positions": 64}
FORMATS = ("nf4", "fp4", "nf4-double", "fp4-double", "gpt2-nf4", "gpt2-fp4")
TOLERANCE = 1e-6


def load(folder, **others):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **others)
    return model.eval()


def loss_of(folder):
    model = load(folder).dequantize().double()
    with open(pathlib.Path(folder).parent / "plain.txt") as file:
        ids = list(file.read().encode())
    total, rows = 0.0, [ids[n:n + 33] for n in range(0, 8 * 32, 32)]
    for row in rows:
        row = torch.tensor([row])
        logits = model(input_ids=row[:, :-1]).logits
        total += torch.nn.functional.cross_entropy(logits[0], row[0, 1:]).item()
    return total / len(rows)


def same(name, a, b, exact):
    """Of scales that are quantised again the mean is a sum, whose order is the machine's."""
    if not exact and name.endswith(".nested_absmax"):
        return torch.allclose(a, b, rtol=1e-5, atol=0)
    return torch.equal(a, b)


def same_state(a, b, exact):
    means = [each.pop("nested_offset", 0.0) for each in (a, b)]
    return a == b and abs(means[0] - means[1]) <= (0 if exact else 2e-7 * abs(means[1]))


def differences(ours, theirs, exact):
    a, b = (load_file(pathlib.Path(folder) / "model.safetensors") for folder in (ours, theirs))
    for name in sorted(set(a) ^ set(b)):
        yield f"{name} is in one alone"
    for name in sorted(set(a) & set(b)):
        if ".quant_state." in name:
            said = [json.loads(bytes(each[name].tolist())) for each in (a, b)]
            if not same_state(dict(said[0]), dict(said[1]), exact):
                yield f"{name}: {said[0]} and {said[1]}"
        elif a[name].dtype != b[name].dtype or a[name].shape != b[name].shape:
            yield f"{name}: {a[name].dtype} {a[name].shape}, and {b[name].dtype} {b[name].shape}"
        elif not same(name, a[name], b[name], exact):
            yield f"{name}: {(a[name] != b[name]).sum()} of {a[name].numel()} elements differ"


def check(room, form):
    asked = form.removeprefix("gpt2-")
    kind, _, double = asked.partition("-")
    torch.manual_seed(7)
    plain, theirs = room.folder / f"{form}-plain", room.folder / f"{form}-theirs"
    ours, again = room.folder / f"{form}-ours", room.folder / f"{form}-again"
    config = transformers.GPT2Config(**GPT2) if asked != form else transformers.LlamaConfig(**SIZES)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(plain)
    load(plain, quantization_config=transformers.BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type=kind, bnb_4bit_use_double_quant=bool(double),
        bnb_4bit_compute_dtype=torch.float32)).save_pretrained(theirs)
    room.run("export", plain, ours, "--quantize", asked)
    room.run("export", theirs, again, "--quantize", asked)
    wrong = [f"{form}: exported: {what}" for what in differences(ours, theirs, False)]
    wrong += [f"{form}: exported again: {what}" for what in differences(again, theirs, True)]
    losses = {"transformers": loss_of(theirs), "transformers, of ours": loss_of(ours)}
    for who, folder in (("Lockstep", theirs), ("Lockstep, of ours", ours)):
        losses[who] = json.loads(room.run(
            "evaluate", folder, "data.text=plain.txt", "data.seq_len=32", "data.tokenizer=bytes",
            "train.batch=8", "eval.batches=1", "dtype=fp64", "--json"))["loss"]
    told = losses["transformers"]
    wrong += [f"{form}: {who} has a loss of {loss:.9f}; transformers {told:.9f}"
              for who, loss in losses.items() if not abs(loss - told) < TOLERANCE]
    print(f"{form}: {'holds' if not wrong else 'differs'}, loss {told:.6f}", flush=True)
    return wrong


def main():
    transformers.logging.set_verbosity_error()
    lockstep = str(pathlib.Path(sys.argv[1]).resolve())
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        room = Room(lockstep, pathlib.Path(folder))
        with open(room.folder / "plain.txt", "w") as file:
            file.write("".join(f"line {n} of a text that says {n * n}. " for n in range(40)))
        for form in sys.argv[2:] or FORMATS:
            try:
                wrong += check(room, form)
            except Exception as error:  # each format by itself
                wrong.append(f"{form}: {error}")
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
