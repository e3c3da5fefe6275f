"""Makes the training traces of vectors of texts, tests/data/traces/llama-texts and bert-texts.

    venv/bin/python tools/reference/make_text_trace.py --text genesis.txt --out tests/data/traces

LlamaModel (last token, a wrong answer with each pair) and BertModel (mean of the tokens) of
transformers, trained by torch.optim.AdamW on the loss of sentence-transformers'
MultipleNegativesRankingLoss: each text by itself, without padding. Pairs lie in rows, at most so
many in each; so many rows are a group, among whose answers each text that asks finds its own.
Settings, files and trace.json are as in make_traces.py, whose float64 this is. batches.safetensors
has for each token which text of the step its vector is made of (src/graph/op_table_texts.c):
pairs of rows one after another, and their texts; at the last token of a text that asks its number,
elsewhere -2 - number; -1: none.
"""

import argparse
import json
import pathlib

import torch
import transformers
from safetensors.torch import save_file

from make_traces import (
    BETAS, CLIP, EPSILON, WEIGHT_DECAY, Wide, clone, largest_difference, summary)

STEPS, ROWS, WIDTH, RATE, SEED = 6, 4, 24, 3e-3, 43
SMALL = dict(
    vocab_size=67, hidden_size=16, intermediate_size=22, num_hidden_layers=2,
    num_attention_heads=4, max_position_embeddings=32, initializer_range=0.15)
TRACES = {
    "llama-texts": dict(
        prefix="model.", pairs=2, texts=3, group=4, scale=20.0, mean=False,
        model=lambda: transformers.LlamaModel._from_config(
            transformers.LlamaConfig(
                **SMALL, num_key_value_heads=2, rms_norm_eps=1e-5, bos_token_id=0, eos_token_id=0,
                pad_token_id=None, tie_word_embeddings=False),
            attn_implementation="eager", dtype=torch.float32)),
    "bert-texts": dict(
        prefix="bert.", pairs=3, texts=2, group=2, scale=10.0, mean=True,
        model=lambda: transformers.BertModel._from_config(
            transformers.BertConfig(
                **SMALL, type_vocab_size=2, hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0, pad_token_id=0),
            attn_implementation="eager", dtype=torch.float32)),
}


def parameters_of(model):
    """Those that a vector is made with: nothing reads BERT's pooler."""
    return {n: p for n, p in model.named_parameters() if not n.startswith("pooler.")}


def make_texts(text, form):
    """By step, row and pair its texts, of two to four tokens each; some rows have fewer pairs."""
    ids, at, steps = [1 + b % 66 for b in text], 0, []
    for step in range(STEPS):
        rows = []
        for row in range(ROWS):
            pairs = []
            for pair in range(form["pairs"] - (row % 3 == 1)):
                texts = []
                for which in range(form["texts"]):
                    length = 2 + (step + row + 2 * pair + which) % 3
                    texts.append(ids[at:at + length])
                    at += length
                pairs.append(texts)
            rows.append(pairs)
        steps.append(rows)
    return steps


def lay(steps, form):
    """The rows as they are packed: ids, positions, and of which text each token is."""
    ids = torch.zeros(STEPS, 1, ROWS, WIDTH, dtype=torch.int32)
    positions, texts = torch.zeros_like(ids), torch.full_like(ids, -1)
    for s, rows in enumerate(steps):
        for r, pairs in enumerate(rows):
            at = 0
            for p, pair in enumerate(pairs):
                for k, text in enumerate(pair):
                    number = (r * form["pairs"] + p) * form["texts"] + k
                    for t, token in enumerate(text):
                        last = t == len(text) - 1
                        ids[s, 0, r, at], positions[s, 0, r, at] = token, t
                        if last or form["mean"]:
                            texts[s, 0, r, at] = number if last and k == 0 else -2 - number
                        at += 1
            positions[s, 0, r, at:] = torch.arange(WIDTH - at)
    return dict(input_ids=ids, position_ids=positions, texts=texts)


def vector(model, text, mean):
    hidden = model(input_ids=torch.tensor([text])).last_hidden_state[0]
    return hidden.mean(0) if mean else hidden[-1]


def loss_of(model, rows, form):
    """The sum over a group's pairs, how many find their answer, and all vectors."""
    pairs = [pair for row in rows for pair in row]
    made = [torch.stack([vector(model, pair[k], form["mean"]) for pair in pairs])
            for k in range(form["texts"])]
    made = [torch.nn.functional.normalize(each) for each in made]
    scores = form["scale"] * made[0] @ torch.cat(made[1:]).T
    labels = torch.arange(len(pairs))
    loss = torch.nn.functional.cross_entropy(scores, labels, reduction="sum")
    return loss, (scores.argmax(-1) == labels).sum().item(), torch.cat(made)


def train(model, steps, form):
    decayed = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [dict(params=decayed, weight_decay=WEIGHT_DECAY), dict(params=others, weight_decay=0.0)],
        lr=RATE, betas=BETAS, eps=EPSILON)
    told, vectors, gradients = [], None, None
    for rows in steps:
        optimizer.zero_grad()
        groups = [loss_of(model, rows[g:g + form["group"]], form)
                  for g in range(0, ROWS, form["group"])]
        pairs = sum(len(row) for row in rows)
        loss = sum(group[0] for group in groups) / pairs
        loss.backward()
        if gradients is None:
            vectors = torch.cat([group[2] for group in groups]).detach().clone()
            gradients = {n: p.grad.clone() for n, p in parameters_of(model).items()}
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        told.append((loss.item(), norm.item(), sum(group[1] for group in groups) / pairs))
    return told, vectors, gradients


def make_trace(name, text, folder, form):
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(SEED)
    steps, model, prefix = make_texts(text, form), form["model"](), form["prefix"]
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter += 0.1 * torch.randn_like(parameter)
    model.config.save_pretrained(folder)
    narrow_model = clone(model, torch.float32)
    with Wide():
        wide_model = clone(model, torch.float64)
        wide = train(wide_model, steps, form)
    narrow = train(narrow_model, steps, form)
    start = sorted(parameters_of(model).items())
    save_file({prefix + n: p.detach().contiguous() for n, p in start},
              folder / "model.safetensors", metadata={"format": "pt"})
    save_file({f"grad.{prefix}{n}": g.float().contiguous() for n, g in wide[2].items()},
              folder / "step0.safetensors")
    save_file(lay(steps, form), folder / "batches.safetensors")
    final = parameters_of(wide_model)
    told = {
        "kind": "embed",
        "source": f"PyTorch {torch.__version__.split('+')[0]}, transformers "
        f"{transformers.__version__} {type(model).__name__}, torch.optim.AdamW",
        "hyper": dict(steps=STEPS, micro_batches=1, B=ROWS, T=WIDTH, lr=RATE, schedule="constant",
                      betas=BETAS, eps=EPSILON, weight_decay=WEIGHT_DECAY, grad_clip=CLIP,
                      **{key: form[key] for key in ("pairs", "texts", "group", "scale")}),
        "batch_layout": "batches.safetensors, int32: input_ids, position_ids, texts [steps, "
        "micro_batches, B, T]; at the last token of a text that asks its number in the step, at "
        "others of which vectors are made -2 - number; -1: none",
        "loss": "mean over the texts that ask of -log softmax(scale cosine) of their answer, over "
        "the answers of the group, wrong ones too; vectors are "
        + ("means of the tokens" if form["mean"] else "the last tokens"),
        "weight_decay_on": "parameters with 2 or more dimensions (embeddings included), none on "
        "1-D parameters",
        "tied_embeddings": False,
        "reference_noise_f32_vs_f64": {
            "logits_max_abs": (wide[1] - narrow[1].double()).abs().max().item(),
            "grads_max_abs": largest_difference(wide[2], narrow[2]),
            "final_params_max_abs": largest_difference(final, parameters_of(narrow_model)),
        },
        "tokenizer": "bytes, modulo 66, plus 1; the book of Genesis from its start (King James)",
        "initial": f"random (torch seed {SEED}; 1-D parameters perturbed)",
        "final_params_f64": {prefix + name: summary(final[name]) for name in sorted(final)},
        "steps": [dict(step=s, lr=RATE, loss_f64=a[0], grad_norm_f64=a[1], loss_f32=b[0],
                       grad_norm_f32=b[1], accuracy_f64=a[2])
                  for s, (a, b) in enumerate(zip(wide[0], narrow[0]))],
    }
    (folder / "trace.json").write_text(json.dumps(told, indent=1) + "\n")
    for file in folder.iterdir():
        file.chmod(0o644)
    print(f"{name}: losses {wide[0][0][0]:.6f} to {wide[0][-1][0]:.6f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", required=True)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    text = pathlib.Path(options.text).read_bytes()
    for name, form in TRACES.items():
        make_trace(name, text, options.out / name, form)


if __name__ == "__main__":
    main()
