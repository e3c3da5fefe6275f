#!/usr/bin/env python3
"""transformers and PEFT as the peer of bench/hf_peers.sh: adapts, evaluates or classifies on the CPU.

    python3 hf_peer.py make SHAPE FOLDER                   # random weights in bf16, config.json
    python3 hf_peer.py lora|qlora|evaluate|train|classify FOLDER --batch 4 --seq 512 --steps 5 [--compile]

One line of JSON: tokens_per_s (median of the steps after two to warm up), peak_rss_mib, loss.
Tokens are the bytes of --data. bf16: weights that are trained are fp32 under autocast, frozen ones
bf16; QLoRA's are bitsandbytes' NF4 with double quantisation. AdamW, gradients clipped at 1.
"""
import argparse
import json
import os
import resource
import statistics
import time

import torch
import transformers

LLAMA = dict(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
             num_key_value_heads=3, tie_word_embeddings=True, max_position_embeddings=8192)
QWEN2 = dict(vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
             num_key_value_heads=2, tie_word_embeddings=True, max_position_embeddings=32768)
MIXTRAL = dict(vocab_size=256, hidden_size=768, intermediate_size=1536, num_hidden_layers=8, num_attention_heads=12,
               num_key_value_heads=4, num_local_experts=8, num_experts_per_tok=2, max_position_embeddings=8192,
               router_aux_loss_coef=0.0)
SHAPES = {
    "smollm2-135m": lambda: transformers.LlamaConfig(**LLAMA),
    "qwen2.5-0.5b": lambda: transformers.Qwen2Config(**QWEN2),
    "mixtral-268m": lambda: transformers.MixtralConfig(**MIXTRAL),
    "bert-base": lambda: transformers.BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
}


def make(shape, folder):
    torch.manual_seed(0)
    config = SHAPES[shape]()
    kind = transformers.AutoModel if shape == "bert-base" else transformers.AutoModelForCausalLM
    model = kind.from_config(config, dtype=torch.float32)
    model.to(torch.bfloat16).save_pretrained(folder)
    if shape == "bert-base":
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + ["w%d" % i for i in range(995)]
        words += ["[unused%d]" % i for i in range(config.vocab_size - len(words))]
        with open(os.path.join(folder, "vocab.txt"), "w", encoding="utf-8") as file:
            file.write("\n".join(words) + "\n")
        transformers.BertTokenizerFast(os.path.join(folder, "vocab.txt")).save_pretrained(folder)
        os.remove(os.path.join(folder, "vocab.txt"))


def adapted(o):
    """A frozen base with LoRA of rank 16 on all products of its blocks."""
    import peft
    how = {"dtype": torch.bfloat16}
    if o.work == "qlora":
        how["quantization_config"] = transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.bfloat16)
    model = transformers.AutoModelForCausalLM.from_pretrained(o.folder, **how)
    if o.work == "qlora":
        model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    return peft.get_peft_model(model, peft.LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))


def model_of(o):
    if o.work in ("lora", "qlora"):
        return adapted(o)
    if o.work == "evaluate":
        return transformers.AutoModelForCausalLM.from_pretrained(o.folder, dtype=torch.bfloat16).eval()
    kind = transformers.AutoModelForSequenceClassification if o.work == "classify" else transformers.AutoModelForCausalLM
    return kind.from_pretrained(o.folder, dtype=torch.float32)


def batches(o):
    with open(o.data, "rb") as file:
        data = file.read()
    size = o.batch * (o.seq + 1)
    for step in range(o.steps):
        yield torch.tensor(list(data[step * size:(step + 1) * size])).view(o.batch, o.seq + 1)


def loss_of(model, ids, o):
    if o.work == "classify":
        return model(input_ids=ids[:, 1:] + 5, labels=ids[:, 0] % 2).loss
    logits = model(input_ids=ids[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.float().view(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))


def step(model, optimizer, ids, o):
    with torch.autocast("cpu", torch.bfloat16), torch.set_grad_enabled(o.work != "evaluate"):
        loss = loss_of(model, ids, o)
    if optimizer:
        loss.backward()
        torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return loss.item()


def main():
    a = argparse.ArgumentParser()
    a.add_argument("work")
    a.add_argument("folder")
    a.add_argument("more", nargs="?")
    for name, value in (("batch", 4), ("seq", 512), ("steps", 5)):
        a.add_argument("--" + name, type=int, default=value)
    a.add_argument("--data")
    a.add_argument("--compile", action="store_true")
    o = a.parse_args()
    if o.work == "make":
        make(o.folder, o.more)
        return
    torch.set_num_threads(os.cpu_count())
    torch.manual_seed(0)
    model = model_of(o)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = None if o.work == "evaluate" else torch.optim.AdamW(trained, lr=3e-4, weight_decay=0.0, fused=True)
    if o.work != "evaluate":
        model.train()
    run = torch.compile(model) if o.compile else model
    times, losses = [], []
    for ids in batches(o):
        began = time.perf_counter()
        losses.append(step(run, optimizer, ids, o))
        times.append(time.perf_counter() - began)
    print(json.dumps({"work": o.work, "tokens_per_s": o.batch * o.seq / statistics.median(times[2:]),
                      "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "loss": losses[-1]}))


if __name__ == "__main__":
    main()
