"""Makes the training traces of tests/data/traces with PyTorch and transformers.

    python3 -m venv venv && venv/bin/pip install torch==2.15.0 transformers==5.23.0
    bible -f gen1:1-50:26 | sed 's/^[^ ]* //' > genesis.txt      # Debian package bible-kjv
    venv/bin/python tools/reference/make_traces.py --text genesis.txt --out tests/data/traces

Each trace is a folder: config.json and model.safetensors (the start, as transformers saves it),
tokens.u16le, step0.safetensors (logits of the first row, gradients of step 0) and trace.json
(hyper-parameters, every step's loss and gradient norm in float64 and float32, summaries of every
parameter after the last step, and how far float32 is from float64).

The float32 run is transformers as it is. The float64 run is the same code with every mention of
float32 read as float64, since transformers computes norms, softmax and rotary tables in float32
whatever the model's type. Both start from the same float32 numbers.
"""

import argparse
import fnmatch
import json
import math
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file
from torch.overrides import TorchFunctionMode

# The gradient of GPT-2's key biases is 0 but for rounding, which AdamW divides by its own size: an
# epsilon of 1e-8 would put noise of the learning rate's size into the final parameters.
BETAS, EPSILON, WEIGHT_DECAY, CLIP = (0.9, 0.95), 1e-6, 0.1, 1.0

GPT2 = dict(
    vocab_size=203, n_positions=32, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0,
    embd_pdrop=0.0, attn_pdrop=0.0, initializer_range=0.08, bos_token_id=0, eos_token_id=0)
LLAMA = dict(
    num_hidden_layers=2, max_position_embeddings=64, rms_norm_eps=1e-5, initializer_range=0.08)

# Of the families below: sizes that few counts of ranks divide, a trace of tens of kilobytes.
SMALL = dict(
    vocab_size=67, hidden_size=16, intermediate_size=22, num_hidden_layers=2,
    num_attention_heads=4, max_position_embeddings=32, initializer_range=0.15, bos_token_id=0,
    eos_token_id=0, pad_token_id=None)
GROUPED = dict(SMALL, num_key_value_heads=2)
HEADS = dict(GROUPED, head_dim=6)
PARTIAL = dict(SMALL, hidden_size=24)
FALCON = {k: v for k, v in SMALL.items() if k != "intermediate_size"}
FALCON["ffn_hidden_size"] = 22
BLOOM = {k: v for k, v in SMALL.items() if k not in (
    "intermediate_size", "max_position_embeddings", "num_attention_heads")}


def small(kind, seed, config, **others):
    return dict(dict(kind=kind, config=config, seed=seed, steps=5, B=4, T=12, micro_batches=1,
                     lr=3e-3), **others)


# Vocabularies and MLP widths are such that few counts of ranks divide them; heads, so that these
# tensor-parallel sizes are legal: 1, 2, 4; 1, 3, 6; 1, 2, 4.
TRACES = {
    "gpt2-tied": dict(
        kind="GPT2", config=GPT2, seed=1, steps=8, B=4, T=32, micro_batches=2, lr=3e-3,
        min_lr=3e-4, warmup=3),
    "llama-gqa-free": dict(
        kind="Llama", config=dict(
            LLAMA, vocab_size=199, hidden_size=36, intermediate_size=86, num_attention_heads=6,
            num_key_value_heads=3, tie_word_embeddings=False),
        seed=2, steps=8, B=6, T=32, micro_batches=1, lr=3e-3),
    "llama-gqa-tied": dict(
        kind="Llama", config=dict(
            LLAMA, vocab_size=201, hidden_size=40, intermediate_size=90, num_attention_heads=4,
            num_key_value_heads=2, head_dim=10, tie_word_embeddings=True, attention_bias=True,
            mlp_bias=True, rope_parameters=dict(
                rope_type="linear", factor=2.5, rope_theta=500.0)),
        seed=3, steps=6, B=12, T=16, micro_batches=1, lr=3e-3),
    # Long: rounding has many steps to grow in.
    "llama-long": small("Llama", 24, dict(GROUPED), steps=150, B=2, T=8, lr=1e-3),
    "llama-yarn": small("Llama", 4, dict(GROUPED, rope_parameters=dict(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=8, rope_theta=100.0,
        beta_fast=4.0, beta_slow=1.0))),
    "llama-dynamic": small("Llama", 5, dict(GROUPED, max_position_embeddings=8, rope_parameters=dict(
        rope_type="dynamic", factor=2.0, rope_theta=100.0))),
    # Frozen: the embedding, the first of three layers, all norms.
    "llama-frozen": small("Llama", 25, dict(GROUPED, num_hidden_layers=3), frozen=(
        "model.embed_tokens.*", "model.layers.0.*", "*norm.weight")),
    "mistral": small("Mistral", 6, dict(HEADS, sliding_window=5)),
    "qwen2": small("Qwen2", 7, dict(
        GROUPED, use_sliding_window=True, sliding_window=5, max_window_layers=1)),
    # Losses that balance experts are off, as they are unless router logits are asked for.
    "mixtral": small("Mixtral", 31, dict(GROUPED, num_local_experts=5, num_experts_per_tok=2)),
    "qwen3-moe": small("Qwen3Moe", 32, dict(
        HEADS, moe_intermediate_size=10, num_experts=6, num_experts_per_tok=3,
        norm_topk_prob=False)),
    # The second of three layers has no experts.
    "qwen2-moe": small("Qwen2Moe", 33, dict(
        GROUPED, num_hidden_layers=3, moe_intermediate_size=10, shared_expert_intermediate_size=14,
        num_experts=6, num_experts_per_tok=3, norm_topk_prob=True, mlp_only_layers=[1],
        use_sliding_window=False)),
    # The first of three layers has no experts.
    "qwen3-moe-dense": small("Qwen3Moe", 36, dict(
        HEADS, num_hidden_layers=3, moe_intermediate_size=10, num_experts=6, num_experts_per_tok=2,
        norm_topk_prob=True, mlp_only_layers=[0])),
    "glm4-moe": small("Glm4Moe", 37, dict(
        HEADS, num_hidden_layers=3, head_dim=8, moe_intermediate_size=10, n_routed_experts=6,
        num_experts_per_tok=2, n_shared_experts=2, n_group=3, topk_group=2, first_k_dense_replace=1,
        routed_scaling_factor=1.7, attention_bias=True, use_qk_norm=True, rope_parameters=dict(
            rope_type="default", rope_theta=100.0, partial_rotary_factor=0.5))),
    "glm4-moe-unnormed": small("Glm4Moe", 38, dict(
        HEADS, head_dim=8, moe_intermediate_size=9, n_routed_experts=6, num_experts_per_tok=3,
        n_shared_experts=1, n_group=1, topk_group=1, first_k_dense_replace=1, norm_topk_prob=False,
        attention_bias=False, use_qk_norm=False)),
    # Some gates and ups lie beyond the limit.
    "gpt-oss": small("GptOss", 51, dict(
        HEADS, intermediate_size=12, num_local_experts=6, num_experts_per_tok=3, sliding_window=5,
        swiglu_limit=0.4, rope_parameters=dict(
            rope_type="yarn", factor=4.0, original_max_position_embeddings=8, rope_theta=100.0,
            beta_fast=4.0, beta_slow=1.0, truncate=False))),
    "olmoe": small("Olmoe", 34, dict(GROUPED, num_experts=6, num_experts_per_tok=3)),
    # With the loss that balances experts.
    "mixtral-aux": small("Mixtral", 35, dict(
        GROUPED, num_local_experts=6, num_experts_per_tok=2, output_router_logits=True,
        router_aux_loss_coef=0.05)),
    "qwen3": small("Qwen3", 8, dict(HEADS, attention_bias=True, use_sliding_window=False)),
    "gemma": small("Gemma", 9, dict(HEADS)),
    "gemma2": small("Gemma2", 10, dict(
        HEADS, query_pre_attn_scalar=9, sliding_window=5, attn_logit_softcapping=2.0,
        final_logit_softcapping=3.0)),
    "gemma3": small("Gemma3", 23, dict(
        HEADS, num_hidden_layers=3, query_pre_attn_scalar=9, sliding_window=5,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        rope_parameters=dict(
            full_attention=dict(rope_type="linear", factor=4.0, rope_theta=1000.0),
            sliding_attention=dict(rope_type="default", rope_theta=10.0)))),
    "phi": small("Phi", 12, dict(PARTIAL, partial_rotary_factor=0.7)),
    "phi3": small("Phi3", 13, dict(
        PARTIAL, num_key_value_heads=2, original_max_position_embeddings=8, sliding_window=7, rope_parameters=dict(
            rope_type="longrope", short_factor=[1.0, 1.1], long_factor=[1.2, 3.0],
            rope_theta=100.0, partial_rotary_factor=0.7))),
    "gpt-neox": small("GPTNeoX", 14, dict(PARTIAL, rope_parameters=dict(
        rope_theta=100.0, rope_type="default", partial_rotary_factor=0.7))),
    "gpt-neox-sequential": small("GPTNeoX", 15, dict(
        SMALL, use_parallel_residual=False, attention_bias=False, rope_parameters=dict(
            rope_theta=100.0, rope_type="default", partial_rotary_factor=0.5))),
    "olmo2": small("Olmo2", 16, dict(GROUPED)),
    "smollm3": small("SmolLM3", 17, dict(GROUPED, no_rope_layers=[1, 0], tie_word_embeddings=True)),
    "bloom": small("Bloom", 18, dict(BLOOM, hidden_size=18, n_head=6)),
    "falcon-single": small("Falcon", 19, dict(FALCON)),
    "falcon-grouped": small("Falcon", 20, dict(
        FALCON, new_decoder_architecture=True, num_kv_heads=2)),
    "falcon-sequential": small("Falcon", 21, dict(
        FALCON, multi_query=False, parallel_attn=False, bias=True, tie_word_embeddings=False)),
    "starcoder2": small("Starcoder2", 22, dict(GROUPED, sliding_window=5)),
    # Latent attention without experts. Values are narrower than keys, and wider.
    "deepseek-v3": small("DeepseekV3", 41, dict(
        SMALL, num_key_value_heads=4, first_k_dense_replace=2, q_lora_rank=10, kv_lora_rank=7,
        qk_nope_head_dim=5, qk_rope_head_dim=4, v_head_dim=6, attention_bias=True,
        rope_parameters=dict(
            rope_type="yarn", factor=4.0, original_max_position_embeddings=8, rope_theta=100.0,
            beta_fast=4.0, beta_slow=1.0, mscale=0.7, mscale_all_dim=0.9))),
    "deepseek-v3-halves": small("DeepseekV3", 42, dict(
        SMALL, num_key_value_heads=4, first_k_dense_replace=2, q_lora_rank=9, kv_lora_rank=8,
        qk_nope_head_dim=3, qk_rope_head_dim=4, v_head_dim=7, rope_interleave=False,
        tie_word_embeddings=True)),
    "deepseek-v2-lite": small("DeepseekV2", 43, dict(
        SMALL, num_key_value_heads=4, first_k_dense_replace=2, q_lora_rank=None, kv_lora_rank=6,
        qk_nope_head_dim=4, qk_rope_head_dim=2, v_head_dim=9)),
}


class Wide(TorchFunctionMode):
    """Reads float32 as float64."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.float:
            function = torch.Tensor.double
        wider = {torch.float32: torch.float64}
        args = tuple(wider.get(a, a) if isinstance(a, torch.dtype) else a for a in args)
        kwargs = {k: wider.get(v, v) if isinstance(v, torch.dtype) else v
                  for k, v in (kwargs or {}).items()}
        return function(*args, **kwargs)


def corrections_of(model):
    """Of routers: what is added to the scores by which experts are chosen."""
    return {n: b for n, b in model.named_buffers() if n.endswith("e_score_correction_bias")}


def make_model(trace):
    """The start: the family's own initialisation, with biases and norms made uneven."""
    torch.manual_seed(trace["seed"])
    kind = trace["kind"]
    config_class = getattr(transformers, "Gemma3TextConfig" if kind == "Gemma3" else kind + "Config")
    model_class = getattr(transformers, kind + (
        "LMHeadModel" if kind == "GPT2" else "ForCausalLM"))
    model = model_class._from_config(
        config_class(**trace["config"]), attn_implementation="eager", experts_implementation="eager",
        dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1 or name.endswith("_bias"):
                parameter += 0.1 * torch.randn_like(parameter)
        for correction in corrections_of(model).values():
            correction += 0.1 * torch.randn_like(correction)
    return model


def clone(model, dtype):
    """A copy of the model in `dtype`."""
    copy = type(model)._from_config(
        model.config, attn_implementation="eager", experts_implementation="eager", dtype=dtype)
    copy.load_state_dict(model.state_dict())
    copy.tie_weights()
    copy.eval()
    return copy


def learning_rate(trace, step):
    if "warmup" not in trace:
        return trace["lr"]
    if step < trace["warmup"]:
        return trace["lr"] * (step + 1) / trace["warmup"]
    part = (step - trace["warmup"]) / (trace["steps"] - trace["warmup"])
    return trace["min_lr"] + 0.5 * (1 + math.cos(math.pi * part)) * (trace["lr"] - trace["min_lr"])


def batch(trace, tokens, step, micro):
    rows, width = trace["B"], trace["T"]
    start = (step * trace["micro_batches"] + micro) * rows * width
    x = tokens[start:start + rows * width].view(rows, width)
    y = tokens[start + 1:start + rows * width + 1].view(rows, width)
    return x, y


def parameters_of(model):
    """By the names in files, of which the modules' differ in one family."""
    neox = isinstance(model, transformers.GPTNeoXForCausalLM)
    return {n.replace("lm_head.", "embed_out.") if neox else n: p
            for n, p in model.named_parameters()}


# Of mixtures of experts: where a file has them, and what it calls each expert's gate, up and down.
MIXTURES = {"MixtralForCausalLM": ("block_sparse_moe", "w1", "w3", "w2"),
            "Qwen2MoeForCausalLM": ("mlp", "gate_proj", "up_proj", "down_proj"),
            "Glm4MoeForCausalLM": ("mlp", "gate_proj", "up_proj", "down_proj"),
            "OlmoeForCausalLM": ("mlp", "gate_proj", "up_proj", "down_proj"),
            "Qwen3MoeForCausalLM": ("mlp", "gate_proj", "up_proj", "down_proj")}


def stored(model, named):
    """Tensors by the names in files: of a mixture one for each expert, which modules stack."""
    if type(model).__name__ not in MIXTURES:
        return named
    part, gate, up, down = MIXTURES[type(model).__name__]
    result = {}
    for name, tensor in named.items():
        layer, _, of = name.partition(".mlp.")
        if of == "experts.gate_up_proj":
            for e, both in enumerate(tensor):
                for called, half in zip((gate, up), both.chunk(2)):
                    result[f"{layer}.{part}.experts.{e}.{called}.weight"] = half
        elif of == "experts.down_proj":
            for e, each in enumerate(tensor):
                result[f"{layer}.{part}.experts.{e}.{down}.weight"] = each
        else:
            result[f"{layer}.{part}.{of}" if of else name] = tensor
    return result


def is_frozen(trace, name):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in trace.get("frozen", ()))


def share_of_aux(trace):
    """How often the loss that balances experts counts."""
    config = trace["config"]
    return config.get("router_aux_loss_coef") if config.get("output_router_logits") else None


def train(trace, model, tokens):
    """All steps; what each gave, the first row's logits and the gradients of step 0."""
    for name, parameter in parameters_of(model).items():
        parameter.requires_grad_(not is_frozen(trace, name))
    decayed = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [dict(params=decayed, weight_decay=WEIGHT_DECAY), dict(params=others, weight_decay=0.0)],
        lr=trace["lr"], betas=BETAS, eps=EPSILON)
    steps, logits0, gradients = [], None, None
    for step in range(trace["steps"]):
        rate = learning_rate(trace, step)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        total = 0.0
        for micro in range(trace["micro_batches"]):
            x, y = batch(trace, tokens, step, micro)
            made = model(input_ids=x, use_cache=False)
            logits = made.logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
            if share_of_aux(trace):
                loss = loss + share_of_aux(trace) * made.aux_loss
            (loss / trace["micro_batches"]).backward()
            total += loss.item() / trace["micro_batches"]
            if logits0 is None:
                logits0 = logits[0].detach().clone()
        if gradients is None:
            gradients = stored(model, {n: torch.zeros_like(p) if p.grad is None else p.grad.clone()
                                       for n, p in parameters_of(model).items()})
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        steps.append((rate, total, norm.item()))
    return steps, logits0, gradients


def largest_difference(wide, narrow):
    return max((wide[name] - narrow[name].double()).abs().max().item() for name in wide)


def summary(tensor):
    flat = tensor.detach().flatten()
    return dict(
        l2=flat.norm().item(), sum=flat.sum().item(), first4=flat[:4].tolist(),
        last4=flat[-4:].tolist())


def describe(trace, model, wide, narrow, wide_model, narrow_model):
    hyper = {key: trace[key] for key in ("steps", "micro_batches", "B", "T", "lr")}
    if "warmup" in trace:
        hyper.update(
            min_lr=trace["min_lr"], warmup=trace["warmup"],
            schedule="warmup_cosine: lr*(s+1)/warmup for s<warmup, else "
            "min_lr+0.5*(1+cos(pi*(s-warmup)/(steps-warmup)))*(lr-min_lr)")
    else:
        hyper.update(schedule="constant")
    hyper.update(betas=BETAS, eps=EPSILON, weight_decay=WEIGHT_DECAY, grad_clip=CLIP)
    final_wide = stored(wide_model, parameters_of(wide_model))
    if "frozen" in trace:
        hyper.update(frozen=[n for n in sorted(final_wide) if is_frozen(trace, n)])
    return {
        "source": f"PyTorch {torch.__version__.split('+')[0]}, transformers "
        f"{transformers.__version__} {type(model).__name__}, torch.optim.AdamW",
        "hyper": hyper,
        "batch_layout": "row b of micro-batch m of step s starts at "
        "((s*micro_batches+m)*B+b)*T; x = tokens[start:start+T], y = tokens[start+1:start+T+1]",
        "loss": "mean cross-entropy over B*T positions" + (
            f" + {share_of_aux(trace)} * aux" if share_of_aux(trace) else "")
        + ", averaged over micro-batches",
        "weight_decay_on": "parameters with 2 or more dimensions (embeddings included), none on "
        "1-D parameters",
        "tied_embeddings": bool(model.config.tie_word_embeddings),
        "reference_noise_f32_vs_f64": {
            "logits_max_abs": (wide[1] - narrow[1].double()).abs().max().item(),
            "grads_max_abs": largest_difference(wide[2], narrow[2]),
            "final_params_max_abs": largest_difference(
                final_wide, stored(narrow_model, parameters_of(narrow_model))),
        },
        "tokenizer": "bytes, modulo the vocabulary; the book of Genesis from its start (King James)",
        "initial": f"random (torch seed {trace['seed']}; 1-D parameters perturbed so that biases "
        "and norms are not trivial)",
        "final_params_f64": {name: summary(final_wide[name]) for name in sorted(final_wide)},
        "steps": [
            dict(step=s, lr=a[0], loss_f64=a[1], grad_norm_f64=a[2], loss_f32=b[1],
                 grad_norm_f32=b[2]) for s, (a, b) in enumerate(zip(wide[0], narrow[0]))],
    }


def make(name, trace, text, out):
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    count = trace["steps"] * trace["micro_batches"] * trace["B"] * trace["T"] + 1
    if len(text) < count:
        sys.exit(f"{name}: needs {count} bytes of text")
    text = bytes(byte % trace["config"]["vocab_size"] for byte in text[:count])
    tokens = torch.tensor(list(text), dtype=torch.long)
    model = make_model(trace)
    model.config.save_pretrained(folder)
    named = stored(model, parameters_of(model) | corrections_of(model))
    narrow_model = clone(model, torch.float32)
    with Wide():
        wide_model = clone(model, torch.float64)
        wide = train(trace, wide_model, tokens)
    narrow = train(trace, narrow_model, tokens)
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = [type(model).__name__]
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file({n: named[n].detach().contiguous() for n in sorted(named)},
              folder / "model.safetensors", metadata={"format": "pt"})
    first = {f"grad.{n}": g.float().contiguous() for n, g in wide[2].items()}
    first["logits.row0"] = wide[1].float().contiguous()
    save_file(first, folder / "step0.safetensors", metadata={
        "note": "computed in float64, rounded to float32; grads are the mean over micro-batches "
        "before clipping"})
    (folder / "tokens.u16le").write_bytes(b"".join(b.to_bytes(2, "little") for b in text[:count]))
    for file in folder.iterdir():
        file.chmod(0o644)
    told = describe(trace, model, wide, narrow, wide_model, narrow_model)
    (folder / "trace.json").write_text(json.dumps(told, indent=1) + "\n")
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{name}: {size} bytes, losses {wide[0][0][1]:.6f} to {wide[0][-1][1]:.6f}, "
          f"{told['reference_noise_f32_vs_f64']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", required=True, help="ASCII text; its first bytes are the tokens")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("names", nargs="*", help="of the traces to make; none: all")
    options = parser.parse_args()
    torch.set_num_threads(1)
    text = pathlib.Path(options.text).read_bytes()
    for name, trace in TRACES.items():
        if not options.names or name in options.names:
            make(name, trace, text, options.out)


if __name__ == "__main__":
    main()
