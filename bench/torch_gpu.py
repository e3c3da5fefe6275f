#!/usr/bin/env python3
"""PyTorch on one GPU as the peer: GPT-2 and Llama shapes in bf16 over fp32 weights, each block compiled.

    python3 bench/torch_gpu.py CONFIG.json BATCH SEQ STEPS [autocast|fsdp] [checkpoint]

CONFIG.json is a Hugging Face config.json of model_type gpt2 or llama. autocast: torch.autocast over
fp32 parameters; fsdp: fully_shard over one rank with MixedPrecisionPolicy(bf16, reduce fp32).
Fused AdamW, clipping to 1, flash attention by scaled_dot_product_attention. Prints one line of JSON
of the steps after the third: median tokens/s and step time, peak memory, the first and last loss.
"""
import json
import os
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


class Rms(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight, 1e-5)


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        kind, width, heads, kv, ffn, dim = shape
        bias = kind == "gpt2"
        norm = nn.LayerNorm if bias else Rms
        self.gpt2, self.heads, self.kv, self.dim = bias, heads, kv, dim
        self.norm1, self.norm2 = norm(width), norm(width)
        self.qkv = nn.Linear(width, (heads + 2 * kv) * dim, bias=bias)
        self.out = nn.Linear(heads * dim, width, bias=bias)
        self.up = nn.Linear(width, ffn if bias else 2 * ffn, bias=bias)
        self.down = nn.Linear(ffn, width, bias=bias)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, t, -1, self.dim)
        q, k, v = (a.transpose(1, 2) for a in qkv.split([self.heads, self.kv, self.kv], 2))
        if not self.gpt2:
            turn = lambda a: torch.cat((-a[..., self.dim // 2:], a[..., :self.dim // 2]), -1)
            q, k = ((a * cos + turn(a) * sin).to(v.dtype) for a in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, -1))
        y = self.up(self.norm2(x))
        if self.gpt2:
            y = F.gelu(y, approximate="tanh")
        else:
            gate, y = y.chunk(2, -1)
            y = F.silu(gate) * y
        return x + self.down(y)


class Model(nn.Module):
    def __init__(self, config, seq, checkpointed):
        super().__init__()
        self.gpt2 = config["model_type"] == "gpt2"
        get = lambda a, b: config[a if self.gpt2 else b]
        width, layers, heads = get("n_embd", "hidden_size"), get("n_layer", "num_hidden_layers"), get("n_head", "num_attention_heads")
        kv = heads if self.gpt2 else config["num_key_value_heads"]
        dim = config.get("head_dim") or width // heads
        ffn = 4 * width if self.gpt2 else config["intermediate_size"]
        self.vocab, self.checkpointed = config["vocab_size"], checkpointed
        self.embed = nn.Embedding(self.vocab, width)
        if self.gpt2:
            self.places = nn.Embedding(seq, width)
        shape = (config["model_type"], width, heads, kv, ffn, dim)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(layers))
        self.norm = (nn.LayerNorm if self.gpt2 else Rms)(width)
        self.head = nn.Linear(width, self.vocab, bias=False)
        if self.gpt2 or config.get("tie_word_embeddings"):
            self.head.weight = self.embed.weight
        angle = torch.arange(seq).float()[:, None] * 10000.0 ** (-torch.arange(0, dim, 2).float() / dim)
        self.register_buffer("cos", torch.cat((angle.cos(), angle.cos()), -1), False)
        self.register_buffer("sin", torch.cat((angle.sin(), angle.sin()), -1), False)

    def loss(self, x, y):
        return F.cross_entropy(self.head(self.norm(x)).view(-1, self.vocab).float(), y.reshape(-1))

    def forward(self, tokens, labels):
        x = self.embed(tokens)
        if self.gpt2:
            x = x + self.places.weight
        for block in self.blocks:
            if self.checkpointed:
                x = checkpoint(block, x, self.cos, self.sin, use_reentrant=False)
            else:
                x = block(x, self.cos, self.sin)
        return self.loss(x, labels)


def main():
    config = json.load(open(sys.argv[1]))
    batch, seq, steps = map(int, sys.argv[2:5])
    fsdp = "fsdp" in sys.argv
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    with torch.device("cuda"):
        model = Model(config, seq, "checkpoint" in sys.argv)
        for p in model.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
    for block in model.blocks:
        block.compile()
    model.loss = torch.compile(model.loss)
    if fsdp:
        import torch.distributed as dist
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
        dist.init_process_group("nccl", rank=0, world_size=1)
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
        for block in model.blocks:
            fully_shard(block, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
    tokens = torch.randint(0, 256, (steps, batch, seq + 1), device="cuda")
    times, losses = [], []
    for step in range(steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16, enabled=not fsdp):
            loss = model(tokens[step, :, :-1], tokens[step, :, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
        losses.append(loss.item())
    median = statistics.median(times[3:])
    print(json.dumps({"tokens_per_second": batch * seq / median, "step_ms": 1000 * median, "spread_ms": [1000 * min(times[3:]), 1000 * max(times[3:])],
                      "peak_gib": torch.cuda.max_memory_allocated() / 2**30, "reserved_gib": torch.cuda.max_memory_reserved() / 2**30,
                      "losses": [losses[0], losses[-1]], "torch": torch.__version__}))


if __name__ == "__main__":
    main()
