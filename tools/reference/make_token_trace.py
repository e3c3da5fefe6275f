"""Makes the training traces of classes, tests/data/traces/bert-tokens and its kin.

    venv/bin/python tools/reference/make_token_trace.py --text genesis.txt --out tests/data/traces

BertFor...Classification and LlamaForTokenClassification of transformers, trained by
torch.optim.AdamW on rows padded on the right: a token a byte. bert-tokens has a class at two of three tokens, as labels what make_traces.py has no
text for: a token's number modulo the classes, -100 being none; bert-weighted the same by the
weighted mean of torch.nn.CrossEntropyLoss(weight=...), which transformers' Trainer is given by a
compute_loss of one's own; bert-several any of the classes for each row, by the loss of
problem_type="multi_label_classification"; bert-sets any of 40, by BCEWithLogitsLoss(pos_weight=...);
llama-tokens is as bert-tokens, of a decoder. Settings, files and trace.json are as in make_traces.py,
whose float64 this is; logits.row0 are those of the first labelled token.
"""

import argparse
import json
import pathlib

import torch
import transformers
from safetensors.torch import save_file

from make_traces import (
    BETAS, CLIP, EPSILON, WEIGHT_DECAY, Wide, clone, largest_difference, summary)

STEPS, ROWS, WIDTH, RATE, CLASSES, SEED = 6, 4, 12, 3e-3, 3, 41
CONFIG = dict(
    vocab_size=67, hidden_size=16, intermediate_size=22, num_hidden_layers=2,
    num_attention_heads=4, max_position_embeddings=16, type_vocab_size=2, initializer_range=0.15,
    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, pad_token_id=0, num_labels=CLASSES)
LLAMA = dict(
    vocab_size=67, hidden_size=16, intermediate_size=22, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=16,
    initializer_range=0.15, classifier_dropout=0.0, pad_token_id=0, num_labels=CLASSES)
TRACES = {
    "bert-tokens": dict(model=transformers.BertForTokenClassification),
    "bert-weighted": dict(model=transformers.BertForTokenClassification, weights=[0.25, 1.5, 4.0]),
    "bert-several": dict(model=transformers.BertForSequenceClassification, several=CLASSES),
    "bert-sets": dict(
        model=transformers.BertForSequenceClassification, several=40,
        weights=[0.25 + c % 5 for c in range(40)]),
    "llama-tokens": dict(model=transformers.LlamaForTokenClassification),
}


def make_batches(text, several):
    """Rows of differing length; the first is whole. Of several labels a column for each class."""
    ids = torch.tensor([1 + b % 66 for b in text[:STEPS * ROWS * WIDTH]]).view(STEPS, ROWS, WIDTH)
    place = torch.arange(WIDTH)
    length = WIDTH - torch.arange(ROWS) * 2
    mask = (place < length[:, None]).expand(STEPS, ROWS, WIDTH).int()
    labels = torch.where((place % 3 == 2) | (mask == 0), -100, ids % CLASSES)
    if several:
        each = torch.arange(several)
        labels = (ids[:, :, each % WIDTH] // (1 + each // WIDTH) % 2).double()
    return (ids * mask), mask, labels


def loss_and_right(model, made, labels, weights):
    """The loss, and how many labels, or rows of them, the logits tell."""
    if labels.is_floating_point():
        right = ((made.logits > 0) == (labels > 0)).all(-1).sum().item()
        if not weights:
            return made.loss, right
        weights = torch.tensor(weights, dtype=made.logits.dtype)
        return torch.nn.BCEWithLogitsLoss(pos_weight=weights)(made.logits, labels), right
    right = ((made.logits.argmax(-1) == labels) & (labels >= 0)).sum().item()
    if not weights:
        return made.loss, right
    loss = torch.nn.CrossEntropyLoss(weight=torch.tensor(weights, dtype=made.logits.dtype))
    return loss(made.logits.flatten(0, 1), labels.flatten()), right


def train(model, batches, weights):
    decayed = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [dict(params=decayed, weight_decay=WEIGHT_DECAY), dict(params=others, weight_decay=0.0)],
        lr=RATE, betas=BETAS, eps=EPSILON)
    steps, logits0, gradients = [], None, None
    for ids, mask, labels in zip(*batches):
        optimizer.zero_grad()
        if labels.is_floating_point():
            labels = labels.to(next(model.parameters()).dtype)
        made = model(input_ids=ids, attention_mask=mask.long(), labels=labels)
        loss, right = loss_and_right(model, made, labels, weights)
        loss.backward()
        if logits0 is None:
            logits0 = made.logits.detach().reshape(-1, made.logits.shape[-1])[0].clone()
            gradients = {n: p.grad.clone() for n, p in model.named_parameters()}
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        steps.append((loss.item(), norm.item(), right))
    return steps, logits0, gradients


def words_of(family, weights, several):
    """What trace.json says of its labels and its loss."""
    if several:
        words = ", words]: bit c % 32 of word c // 32" if several > 31 else "]: bit c"
        return (
            "bert_classification",
            f"labels [steps, micro_batches, B{words} is set where a row has class c; rows padded on "
            "the right with id 0, whose attention_mask is 0",
            f"binary cross-entropy of the {several} logits, a mean over the rows of the step and the "
            "classes" + (", each times its class's weight where a row has it" if weights else ""))
    layout = ("labels [steps, micro_batches, B, T]; rows padded on the right with id 0, whose "
              "attention_mask is 0; label -100: none")
    mean = "divided by the sum of these weights" if weights else "divided by their number"
    return (
        f"{family}_token_classification", layout,
        f"cross-entropy of the {CLASSES} logits, summed over all labelled tokens of the step"
        + (", each times its class's weight," if weights else "") + " and " + mean)


def packed(labels):
    """Bits of int32 words; of a single one no dimension of them."""
    words = -(-labels.shape[-1] // 32)
    labels = torch.nn.functional.pad(labels.long(), (0, 32 * words - labels.shape[-1]))
    labels = (labels.unflatten(-1, (words, 32)) << torch.arange(32)).sum(-1)
    return labels.to(torch.int32) if words > 1 else labels.squeeze(-1).int()


def config_of(family, several):
    if family == "llama":
        return transformers.LlamaConfig(**LLAMA)
    if not several:
        return transformers.BertConfig(**CONFIG)
    return transformers.BertConfig(
        **dict(CONFIG, problem_type="multi_label_classification", num_labels=several))


def make_trace(name, text, folder, model, weights=None, several=0):
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(SEED)
    batches = make_batches(text, several)
    family = model.config_class.model_type
    model = model._from_config(
        config_of(family, several), attn_implementation="eager", dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter += 0.1 * torch.randn_like(parameter)
    model.config.save_pretrained(folder)
    narrow_model = clone(model, torch.float32)
    with Wide():
        wide_model = clone(model, torch.float64)
        wide = train(wide_model, batches, weights)
    narrow = train(narrow_model, batches, weights)
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = [type(model).__name__]
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file({n: p.detach().contiguous() for n, p in sorted(model.named_parameters())},
              folder / "model.safetensors", metadata={"format": "pt"})
    first = {f"grad.{n}": g.float().contiguous() for n, g in wide[2].items()}
    first["logits.row0"] = wide[1].float().contiguous()
    save_file(first, folder / "step0.safetensors")
    ids, mask, labels = batches
    if several:
        labels = packed(labels)
    ids, mask, labels = (each.int().unsqueeze(1).contiguous() for each in (ids, mask, labels))
    types = {} if family == "llama" else dict(token_type_ids=torch.zeros_like(ids))
    save_file(dict(input_ids=ids, attention_mask=mask, labels=labels, **types),
              folder / "batches.safetensors")
    final = dict(wide_model.named_parameters())
    kind, layout, loss = words_of(family, weights, several)
    told = {
        "kind": kind,
        "source": f"PyTorch {torch.__version__.split('+')[0]}, transformers "
        f"{transformers.__version__} {type(model).__name__}, torch.optim.AdamW",
        "hyper": dict(steps=STEPS, micro_batches=1, B=ROWS, T=WIDTH, lr=RATE, schedule="constant",
                      betas=BETAS, eps=EPSILON, weight_decay=WEIGHT_DECAY, grad_clip=CLIP,
                      **(dict(class_weights=weights) if weights else {})),
        "batch_layout": "batches.safetensors, int32: input_ids, attention_mask, "
        + ("" if family == "llama" else "token_type_ids, ") + layout,
        "loss": loss,
        "weight_decay_on": "parameters with 2 or more dimensions (embeddings included), none on "
        "1-D parameters",
        "tied_embeddings": False,
        "reference_noise_f32_vs_f64": {
            "logits_max_abs": (wide[1] - narrow[1].double()).abs().max().item(),
            "grads_max_abs": largest_difference(wide[2], narrow[2]),
            "final_params_max_abs": largest_difference(final, dict(narrow_model.named_parameters())),
        },
        "tokenizer": "bytes, modulo 66, plus 1; the book of Genesis from its start (King James)",
        "initial": f"random (torch seed {SEED}; 1-D parameters perturbed)",
        "final_params_f64": {name: summary(final[name]) for name in sorted(final)},
        "steps": [dict(step=s, lr=RATE, loss_f64=a[0], grad_norm_f64=a[1], loss_f32=b[0],
                       grad_norm_f32=b[1], correct_f64=float(a[2]))
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
        make_trace(name, text, options.out / name, **form)


if __name__ == "__main__":
    main()
