"""Makes the training trace of odds ratio preferences, tests/data/traces/orpo-llama.

    venv/bin/python tools/reference/make_orpo_trace.py --text genesis.txt --out tests/data/traces

A LlamaForCausalLM of transformers, trained by torch.optim.AdamW on the loss of Hong, Lee and Thorne
(arXiv 2403.07691): the log odds ratio is written as TRL's ORPOTrainer.odds_ratio_loss has it, of
means over an answer's tokens, and beside it the chosen answer's mean loss, of its own tokens (the
paper's; TRL's takes the prompt's too, and one mean over a batch). Answers are of differing length,
each with its prompt padded on the right. The rest is as in make_traces.py, whose float64 this is.
"""

import argparse
import json
import pathlib

import torch
import transformers
from safetensors.torch import save_file

from make_traces import (
    BETAS, CLIP, EPSILON, GROUPED, WEIGHT_DECAY, Wide, clone, largest_difference, summary)

STEPS, ROWS, WIDTH, PROMPT, RATE, LAMBDA, SEED = 8, 4, 12, 4, 3e-3, 0.3, 43
CONFIG = dict(GROUPED)


def make_batches(text):
    """[steps, rows, width] of ids, labels and masks of each side."""
    vocabulary = CONFIG["vocab_size"]
    numbers = torch.tensor([1 + b % (vocabulary - 1) for b in text[:2 * STEPS * ROWS * WIDTH]])
    chosen, rejected = numbers.view(2, STEPS, ROWS, WIDTH)
    rejected = torch.cat([chosen[..., :PROMPT], rejected[..., PROMPT:]], -1)
    place, row = torch.arange(WIDTH), torch.arange(ROWS)[:, None]
    made = {}
    for name, ids, length in (("chosen", chosen, WIDTH - row), ("rejected", rejected, WIDTH - 2 * row)):
        mask = (place < length).expand(STEPS, ROWS, WIDTH)
        asked = mask & (place >= PROMPT)
        made[f"{name}_ids"] = ids * mask
        made[f"{name}_mask"] = mask.int()
        made[f"{name}_labels"] = torch.where(asked, ids, -100)
    return made


def answers(model, batches, side, step):
    """The mean log-probability of each answer's tokens."""
    ids, labels = batches[f"{side}_ids"][step], batches[f"{side}_labels"][step][:, 1:]
    logits = model(input_ids=ids, attention_mask=batches[f"{side}_mask"][step].long(),
                   use_cache=False).logits
    each = logits[:, :-1].log_softmax(-1).gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    asked = labels >= 0
    return (each * asked).sum(-1) / asked.sum(-1), logits


def train(model, batches):
    decayed = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [dict(params=decayed, weight_decay=WEIGHT_DECAY), dict(params=others, weight_decay=0.0)],
        lr=RATE, betas=BETAS, eps=EPSILON)
    steps, logits0, gradients, logps0 = [], None, None, None
    for step in range(STEPS):
        optimizer.zero_grad()
        (chosen, logits), (rejected, _) = (answers(model, batches, side, step)
                                           for side in ("chosen", "rejected"))
        log_odds = (chosen - rejected) - (
            torch.log1p(-torch.exp(chosen)) - torch.log1p(-torch.exp(rejected)))
        loss = (-chosen - LAMBDA * torch.nn.functional.logsigmoid(log_odds)).mean()
        loss.backward()
        if logits0 is None:
            logits0, logps0 = logits[0].detach().clone(), (chosen.tolist(), rejected.tolist())
            gradients = {n: p.grad.clone() for n, p in model.named_parameters()}
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        steps.append((loss.item(), norm.item(), LAMBDA * chosen.mean().item(),
                      LAMBDA * rejected.mean().item(),
                      (chosen > rejected).double().mean().item()))
    return steps, logits0, gradients, logps0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", required=True)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    options = parser.parse_args()
    folder = options.out / "orpo-llama"
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    batches = make_batches(pathlib.Path(options.text).read_bytes())
    model = transformers.LlamaForCausalLM._from_config(
        transformers.LlamaConfig(**CONFIG), attn_implementation="eager", dtype=torch.float32)
    model.config.save_pretrained(folder)
    narrow_model = clone(model, torch.float32)
    with Wide():
        wide_model = clone(model, torch.float64)
        wide = train(wide_model, batches)
    narrow = train(narrow_model, batches)
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = [type(model).__name__]
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file({n: p.detach().contiguous() for n, p in sorted(model.named_parameters())},
              folder / "model.safetensors", metadata={"format": "pt"})
    first = {f"grad.{n}": g.float().contiguous() for n, g in wide[2].items()}
    first["logits.row0"] = wide[1].float().contiguous()
    save_file(first, folder / "step0.safetensors")
    save_file({n: t.int().unsqueeze(1).contiguous() for n, t in batches.items()},
              folder / "batches.safetensors")
    final = dict(wide_model.named_parameters())
    told = {
        "kind": "orpo",
        "source": f"PyTorch {torch.__version__.split('+')[0]}, transformers "
        f"{transformers.__version__} {type(model).__name__}, torch.optim.AdamW",
        "hyper": dict(steps=STEPS, micro_batches=1, B=ROWS, T=WIDTH, lr=RATE, schedule="constant",
                      betas=BETAS, eps=EPSILON, weight_decay=WEIGHT_DECAY, grad_clip=CLIP,
                      beta=LAMBDA, loss_type="orpo"),
        "batch_layout": "batches.safetensors, int32 [steps, micro_batches, B, T]: chosen_ids, "
        "rejected_ids (prompt and answer, padded on the right with id 0), chosen_mask, "
        "rejected_mask (1 on tokens), chosen_labels, rejected_labels (the ids on the answer, -100 "
        "on prompt and padding)",
        "loss": "mean over the step's micro_batches*B pairs of -lc - beta*log sigmoid(log odds "
        "ratio); lc, lr: the mean log-probability of an answer's tokens; log odds ratio = (lc - "
        "lr) - (log(1 - exp lc) - log(1 - exp lr))",
        "step0_logps_micro0_f64": {side: {"policy": each} for side, each in
                                   zip(("chosen", "rejected"), wide[3])},
        "weight_decay_on": "parameters with 2 or more dimensions (embeddings included), none on "
        "1-D parameters",
        "tied_embeddings": bool(model.config.tie_word_embeddings),
        "reference_noise_f32_vs_f64": {
            "logits_max_abs": (wide[1] - narrow[1].double()).abs().max().item(),
            "grads_max_abs": largest_difference(wide[2], narrow[2]),
            "final_params_max_abs": largest_difference(final, dict(narrow_model.named_parameters())),
        },
        "tokenizer": "bytes, modulo 66, plus 1; the book of Genesis from its start (King James)",
        "initial": f"random (torch seed {SEED})",
        "final_params_f64": {name: summary(final[name]) for name in sorted(final)},
        "steps": [dict(step=s, lr=RATE, loss_f64=a[0], grad_norm_f64=a[1], loss_f32=b[0],
                       grad_norm_f32=b[1], reward_chosen_f64=a[2], reward_rejected_f64=a[3],
                       accuracy_f64=a[4])
                  for s, (a, b) in enumerate(zip(wide[0], narrow[0]))],
    }
    (folder / "trace.json").write_text(json.dumps(told, indent=1) + "\n")
    for file in folder.iterdir():
        file.chmod(0o644)
    print(f"orpo-llama: losses {wide[0][0][0]:.6f} to {wide[0][-1][0]:.6f}")


if __name__ == "__main__":
    main()
