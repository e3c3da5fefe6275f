"""Takes adapters with a head over classes through Lockstep and PEFT and back.

    venv/bin/pip install -r tools/reference/requirements.txt
    venv/bin/python tools/reference/check_peft.py build/lockstep [FAMILY ...]

For each family a base is drawn by transformers; then, on the same texts:

- Lockstep trains adapters and a head and exports them: PEFT loads the folder, and transformers
  computes the loss that `lockstep evaluate` tells;
- PEFT saves them again, in a folder without a config.json: Lockstep tells the same;
- the merged export is a model of transformers with the same loss.

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
                   "Wo"),
}
TEXTS = [("an %s text, number %d" % (word, n), label) for n in range(20)
         for label, word in enumerate(("early", "late", "odd"))]
TOLERANCE = 1e-6  # the base is in fp32


def loss_of(model):
    model = model.double().eval()
    total = 0.0
    for text, label in TEXTS:
        ids = torch.tensor([list(text.encode())])
        logits = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
        total += torch.nn.functional.cross_entropy(logits, torch.tensor([label])).item()
    return total / len(TEXTS)


class Room:
    def __init__(self, lockstep, folder):
        self.lockstep, self.folder = lockstep, folder
        with open(folder / "texts.jsonl", "w") as file:
            for text, label in TEXTS:
                file.write(json.dumps({"text": text, "label": label}) + "\n")

    def run(self, *words):
        done = subprocess.run([self.lockstep, *map(str, words)], cwd=self.folder,
                              capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
        return done.stdout

    def told(self, model):
        return json.loads(self.run("evaluate", model, "data.text=texts.jsonl", "data.seq_len=40",
                                   "data.tokenizer=bytes", "dtype=fp64", "--json"))["loss"]


def check(room, family):
    sizes, targets = FAMILIES[family]
    torch.manual_seed(7)
    config = transformers.AutoConfig.for_model(family, **sizes)
    config.num_labels = 3
    base = room.folder / f"{family}-base"
    decoder = family in ("llama", "qwen2")
    kind = transformers.AutoModelForCausalLM if decoder else transformers.AutoModelForMaskedLM
    kind.from_config(config).save_pretrained(base)
    room.run("train", f"model={base}", "task=classify", "data.text=texts.jsonl",
             "data.seq_len=40", "data.validation=0", "data.tokenizer=bytes", "lora.rank=2",
             f"lora.targets=[{targets}]", "train.steps=6", "train.batch=4", "train.lr=1e-2",
             "train.warmup=0", "eval.every=0", "dtype=fp64", f"out={family}-run")
    ours, merged = room.folder / f"{family}-adapters", room.folder / f"{family}-merged"
    room.run("export", f"{family}-run", ours)
    room.run("export", f"{family}-run", merged, "--merge")
    told = room.told(ours)
    config = transformers.AutoConfig.from_pretrained(ours)
    head = transformers.AutoModelForSequenceClassification.from_pretrained(base, config=config)
    model = PeftModel.from_pretrained(head, str(ours))
    again = room.folder / f"{family}-again"
    losses = {"PEFT": loss_of(model)}
    model.save_pretrained(again)
    losses["Lockstep, of what PEFT saved"] = room.told(again)
    whole = transformers.AutoModelForSequenceClassification.from_pretrained(merged)
    losses["transformers, merged"] = loss_of(whole)
    wrong = [f"{family}: {who} has a loss of {loss:.9f}; Lockstep {told:.9f}"
             for who, loss in losses.items() if not abs(loss - told) < TOLERANCE]
    print(f"{family}: {'holds' if not wrong else 'differs'}, loss {told:.6f}", flush=True)
    return wrong


def main():
    transformers.logging.set_verbosity_error()
    lockstep = str(pathlib.Path(sys.argv[1]).resolve())
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        room = Room(lockstep, pathlib.Path(folder))
        for family in sys.argv[2:] or FAMILIES:
            try:
                wrong += check(room, family)
            except Exception as error:  # each family by itself
                wrong.append(f"{family}: {error}")
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
