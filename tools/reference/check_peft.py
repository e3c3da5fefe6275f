"""Takes adapters with a head over classes, of texts or of words, through Lockstep and PEFT and back.

    venv/bin/pip install -r tools/reference/requirements.txt
    venv/bin/python tools/reference/check_peft.py build/lockstep [FAMILY ...]

For each family a base is drawn by transformers; then, on the same texts:

- Lockstep trains adapters and a head and exports them: PEFT loads the folder, and transformers
  computes the loss that `lockstep evaluate` tells;
- PEFT saves them again, in a folder without a config.json: Lockstep tells the same;
- the merged export is a model of transformers with the same loss.

And "text": adapters of a model of text, with ranks of their own (rank_pattern, alpha_pattern), in
the same way; and two of them merged, one half, as PEFT merges them.

Exit status 0: all hold; else 1, and each line that does not.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from peft import PeftModel

WIDE = {"vocab_size": 256, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "max_position_embeddings": 40, "pad_token_id": 0}
FAMILIES = {
    "llama": (WIDE, "q_proj,down_proj"),
    "qwen2": (WIDE | {"num_key_value_heads": 2}, "k_proj,up_proj"),
    "bert": (WIDE | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
             "query,output.dense"),
    "roberta": (WIDE | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
                        "type_vocab_size": 1, "max_position_embeddings": 42}, "value,intermediate.dense"),
    "distilbert": ({"vocab_size": 256, "dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4,
                    "max_position_embeddings": 40, "pad_token_id": 0, "dropout": 0.0,
                    "attention_dropout": 0.0}, "q_lin,lin2"),
    "modernbert": (WIDE | {"classifier_pooling": "mean", "cls_token_id": 1, "sep_token_id": 2},
                   "Wqkv,Wi,mlp.Wo"),
    "llama tokens": (WIDE, "q_proj,down_proj"),
    "qwen2 tokens": (WIDE | {"num_key_value_heads": 2, "classifier_dropout": 0.0}, "k_proj,up_proj"),
    "gpt2 tokens": ({"vocab_size": 256, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 40,
                     "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "pad_token_id": 0},
                    "c_attn,c_fc"),
    "falcon tokens": ({"vocab_size": 256, "hidden_size": 32, "num_hidden_layers": 2,
                       "num_attention_heads": 4, "alibi": False, "pad_token_id": 0}, "query_key_value,dense"),
}
FAMILIES |= {
    "phi3": (WIDE | {"num_key_value_heads": 2}, "qkv_proj,gate_up_proj"),
    "gpt_neox": (WIDE, "query_key_value,dense_h_to_4h"),
    "bloom": ({"vocab_size": 256, "hidden_size": 32, "n_layer": 2, "n_head": 4, "pad_token_id": 0},
              "query_key_value,dense"),
}
DECODERS = ("llama", "qwen2", "gpt2", "falcon", "phi3", "gpt_neox", "bloom")
# Adapters of text, of several ranks and alphas; the second of these is merged with the first, half.
TEXT_ADAPTERS = {
    "a": ("lora.rank=2", "lora.groups=[{match: down_proj, rank: 5}, "
          "{match: layers.1.self_attn, rank: 3, alpha: 4}]"),
    "b": ("lora.rank=4", "lora.targets=[q_proj, o_proj]", "lora.alpha=6", "lora.rslora=true"),
}
TEXTS = [("an %s text, number %d" % (word, n), label) for n in range(20)
         for label, word in enumerate(("early", "late", "odd"))]
TOLERANCE = 1e-6  # the base is in fp32


def classes_of(text, label):
    """Of words: at the first byte of every other one, which is the blank before it."""
    words = text.split()
    return words, [None if w % 2 else (label + w) % 3 for w in range(len(words))]


def loss_of(model, tokens):
    model = model.double().eval()
    total = count = 0
    for text, label in TEXTS:
        ids = torch.tensor([list(text.encode())])
        logits = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
        labels = torch.tensor([label])
        if tokens:
            labels, at = torch.full((len(text),), -100), 0
            for word, own in zip(*classes_of(text, label)):
                labels[at - (at > 0)] = -100 if own is None else own
                at += len(word) + 1
        total += torch.nn.functional.cross_entropy(
            logits.view(-1, 3), labels, reduction="sum").item()
        count += (labels >= 0).sum().item()
    return total / count


class Room:
    def __init__(self, lockstep, folder):
        self.lockstep, self.folder = lockstep, folder
        with open(folder / "texts.jsonl", "w") as file:
            for text, label in TEXTS:
                file.write(json.dumps({"text": text, "label": label}) + "\n")
        with open(folder / "words.jsonl", "w") as file:
            for text, label in TEXTS:
                words, classes = classes_of(text, label)
                file.write(json.dumps({"text": words, "label": classes}) + "\n")

    def run(self, *words):
        done = subprocess.run([self.lockstep, *map(str, words)], cwd=self.folder,
                              capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
        return done.stdout

    def told(self, model, text):
        return json.loads(self.run("evaluate", model, f"data.text={text}", "data.seq_len=40",
                                   "data.tokenizer=bytes", "dtype=fp64", "--json"))["loss"]


def check(room, name):
    sizes, targets = FAMILIES[name]
    family, _, tokens = name.partition(" ")
    text = "words.jsonl" if tokens else "texts.jsonl"
    torch.manual_seed(7)
    config = transformers.AutoConfig.for_model(family, **sizes)
    config.num_labels = 3
    base = room.folder / f"{name}-base"
    kind = (transformers.AutoModelForCausalLM if family in DECODERS
            else transformers.AutoModelForMaskedLM)
    classifier = (transformers.AutoModelForTokenClassification if tokens
                  else transformers.AutoModelForSequenceClassification)
    kind.from_config(config).save_pretrained(base)
    room.run("train", f"model={base}", "task=classify", f"data.text={text}",
             f"classes.pooling={tokens or 'auto'}", "data.seq_len=40", "data.validation=0",
             "data.tokenizer=bytes", "lora.rank=2",
             f"lora.targets=[{targets}]", "train.steps=6", "train.batch=4", "train.lr=1e-2",
             "train.warmup=0", "eval.every=0", "dtype=fp64", f"out={name}-run")
    ours, merged = room.folder / f"{name}-adapters", room.folder / f"{name}-merged"
    room.run("export", f"{name}-run", ours)
    room.run("export", f"{name}-run", merged, "--merge")
    told = room.told(ours, text)
    config = transformers.AutoConfig.from_pretrained(ours)
    head = classifier.from_pretrained(base, config=config)
    model = PeftModel.from_pretrained(head, str(ours))
    again = room.folder / f"{name}-again"
    losses = {"PEFT": loss_of(model, tokens)}
    model.save_pretrained(again)
    losses["Lockstep, of what PEFT saved"] = room.told(again, text)
    losses["transformers, merged"] = loss_of(classifier.from_pretrained(merged), tokens)
    wrong = [f"{name}: {who} has a loss of {loss:.9f}; Lockstep {told:.9f}"
             for who, loss in losses.items() if not abs(loss - told) < TOLERANCE]
    print(f"{name}: {'holds' if not wrong else 'differs'}, loss {told:.6f}", flush=True)
    return wrong


def text_loss(model, folder):
    """As `lockstep evaluate` cuts a text: each token but the first is asked for once."""
    model = model.double().eval()
    ids = list((folder / "plain.txt").read_bytes())
    rows = [ids[n:n + 41] for n in range(0, (len(ids) - 1) // 40 * 40, 40)]
    rows = torch.tensor(rows)
    logits = model(input_ids=rows[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()).item()


def check_text(room):
    """A model of text: PEFT loads each folder of adapters, and saves it again; both are merged."""
    torch.manual_seed(8)
    base = room.folder / "text-base"
    config = transformers.AutoConfig.for_model("llama", **WIDE)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(base)
    (room.folder / "plain.txt").write_text(" ".join(text for text, _ in TEXTS))
    load = transformers.AutoModelForCausalLM.from_pretrained
    wrong = []

    def compare(what, told, loss):
        if not abs(loss - told) < TOLERANCE:
            wrong.append(f"text: {what} has a loss of {loss:.9f}; Lockstep {told:.9f}")

    for name, keys in TEXT_ADAPTERS.items():
        room.run("train", f"model={base}", "data.text=plain.txt", "data.seq_len=40",
                 "data.validation=0", "data.tokenizer=bytes", *keys, "train.steps=6",
                 "train.batch=4", "train.lr=1e-2", "train.warmup=0", "eval.every=0", "dtype=fp64",
                 f"out=text-{name}-run")
        ours, again = room.folder / f"text-{name}", room.folder / f"text-{name}-again"
        room.run("export", f"text-{name}-run", ours)
        told = room.told(ours, "plain.txt")
        model = PeftModel.from_pretrained(load(base), str(ours))
        compare(f"PEFT, of {name},", told, text_loss(model, room.folder))
        model.save_pretrained(again)
        compare(f"Lockstep, of what PEFT saved of {name},", told, room.told(again, "plain.txt"))
    room.run("export", room.folder / "text-a", room.folder / "text-merged", "--merge", "--also",
             "text-b=0.5")
    told = room.told("text-merged", "plain.txt")
    compare("transformers, of both merged,", told, text_loss(load(room.folder / "text-merged"),
                                                             room.folder))
    model = PeftModel.from_pretrained(load(base).double(), str(room.folder / "text-a"))
    model = model.merge_and_unload()
    model = PeftModel.from_pretrained(model, str(room.folder / "text-b"))
    for module in model.modules():
        if isinstance(getattr(module, "scaling", None), dict) and module.scaling:
            module.scaling["default"] *= 0.5
    compare("PEFT, of both,", told, text_loss(model.merge_and_unload(), room.folder))
    print(f"text: {'holds' if not wrong else 'differs'}, merged loss {told:.6f}", flush=True)
    return wrong


def main():
    transformers.logging.set_verbosity_error()
    lockstep = str(pathlib.Path(sys.argv[1]).resolve())
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        room = Room(lockstep, pathlib.Path(folder))
        for name in sys.argv[2:] or ["text", *FAMILIES]:
            try:
                wrong += check_text(room) if name == "text" else check(room, name)
            except Exception as error:  # each family by itself
                wrong.append(f"{name}: {error}")
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
