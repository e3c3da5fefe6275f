#!/usr/bin/env python3
"""Common beliefs about parallel training, checked: prints docs/atlas.md from runs of lockstep.

    bench/atlas.py build/lockstep > docs/atlas.md

--quick leaves out what the planner is asked, which takes minutes.
Every figure of the page comes from a command that is run here and shown there. What the page says of
a claim is asserted beside its figures, so a change of the compiler or of the simulator that turns a
verdict ends this script instead of leaving a wrong page.
"""

import json
import shlex
import subprocess
import sys

LOCKSTEP = sys.argv[1]
RUN = "bench/atlas.yaml"
GIB = 2**30
DDP = "zero=0 mesh.dp_shard=1 mesh.dp_replicate={}"
done = {}


def lockstep(command):
    """Status and output of a command; each is run once."""
    if command not in done:
        ran = subprocess.run([LOCKSTEP] + shlex.split(command), capture_output=True, text=True)
        done[command] = (ran.returncode, ran.stdout if ran.returncode == 0 else ran.stderr)
    return done[command]


def read(command):
    status, text = lockstep(command + " --json")
    if status != 0:
        sys.exit(f"{command}: {text}")
    return json.loads(text)


def show(keys, devices):
    return read(f"show {RUN} {keys} -n {devices} --memory")


def simulate(keys, on):
    return read(f"simulate {RUN} {keys} --on {on}")


def wait(simulated, name):
    return next(w for w in simulated["waits"] if w["name"] == "waiting: " + name)


def fits(keys, on):
    """Seconds of a step; None: it does not fit."""
    status, text = lockstep(f"simulate {RUN} {keys} --on {on} --json")
    if status == 0:
        return json.loads(text)["step_seconds"]
    if "a device needs" not in text:
        sys.exit(f"simulate {keys} --on {on}: {text}")
    return None


def layout_text(of):
    """A layout of plan's JSON in the words of its table."""
    words = []
    if of["pp"] > 1:
        words.append(f"pp {of['pp']} ({of['schedule']})")
    if of["tp"] > 1:
        words.append(f"tp {of['tp']}")
    if of["cp"] > 1:
        words.append(f"cp {of['cp']}" + (f" ({of['context']})" if of["context"] != "gather" else ""))
    replicas = f"{of['dp_replicate']} x " if of["dp_replicate"] > 1 and of["dp_shard"] > 1 else ""
    data = of["dp_shard"] if of["dp_shard"] > 1 else of["dp_replicate"]
    if data > 1:
        words.append(f"dp {replicas}{data}" + (f" zero-{of['zero']}" if of["zero"] else ""))
    if of["recompute"] != "none":
        words.append(f"recompute {of['recompute']}")
    if of["offload_optimizer"] != "device":
        words.append(f"optimizer on the {of['offload_optimizer']}")
    return ", ".join(words) or "one device"


def plan(words):
    """The first choice; None where nothing fits, with the line that says so."""
    status, text = lockstep(f"plan {words} --json")
    if status == 1:
        return None, text.strip().splitlines()[-1].split(": ", 2)[-1]
    if status != 0:
        sys.exit(f"plan {words}: {text}")
    return json.loads(text)[0]["layouts"][0], None


def entry(title, source, verdict, command, text):
    print(f"\n## {title}\n\n*Told by:* {source}\n\n*Found:* **{verdict}**\n\n    $ lockstep {command}\n\n{text}")


def table(heads, rows):
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join(lines + ["| " + " | ".join(str(c) for c in row) + " |" for row in rows]) + "\n"


def seconds(value):
    if value is None:
        return "does not fit"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.1f} ms"


def all_reduce():
    parameters = 8030261248
    rows, last = [], 0
    for n in (2, 8, 64, 512, 1024):
        sent = show(DDP.format(n) + f" train.batch={n}", n)["bytes_sent"] / (4 * parameters)
        took = simulate(f"model=llama3.2-1b {DDP.format(n)} train.batch={n}", f"{n}xH100-SXM")
        rows.append((n, f"{sent:.4f} K", seconds(wait(took, "dp_replicate, all-reduce")["under_way_s"])))
        assert abs(sent - 2 * (n - 1) / n) < 1e-6 and sent > last
        last = sent
    entry("An all-reduce sends about 2K bytes a device, however many devices",
          "ring all-reduce (Patarasuk and Yuan 2009); ZeRO, section 7 (1910.02054)",
          "true: 2K (N - 1) / N, and the time hardly grows while every device has a NIC",
          f"show {RUN} {DDP.format(8)} -n 8 --collectives",
          "K is the size of llama3-8b's gradients in fp32. Beside it, simulated, how long the all-reduces of llama3.2-1b are\n"
          "under way on H100s with eight NICs a host: inside hosts and between them at once. Small ones pay latencies, which do\n"
          "grow with the number of hosts, and hosts that share one NIC pay its rate (`--link network=0.125`).\n\n"
          + table(("devices", "sent by one", "all-reduces under way, 1.2 B parameters"), rows))


def sixteen_bytes():
    parameters = 8030261248
    rows = []
    for n in (8, 16, 64, 512):
        m = show(f"zero=3 train.batch={n}", n)["memory_bytes"]
        state = m["parameters"] + m["master weights"] + m["optimizer moments"]
        assert abs(state * n / parameters - 14) < 0.01
        rows.append((n, f"{state * n / parameters:.2f} / {n}", f"{state / GIB:.2f}",
                     f"{(m['gradients'] + m['gathered parameters']) / GIB:.2f}",
                     f"{(m['activations kept'] + m['temporaries']) / GIB:.2f}", f"{m['sum'] / GIB:.2f}"))
    assert float(rows[-1][3]) > 10 * float(rows[-1][2])
    entry("ZeRO-3 needs 16 bytes a parameter, divided by N", "ZeRO (1910.02054), figure 1",
          "true of what is kept between steps (14 / N here); at 64 devices it is a small part of the memory",
          f"show {RUN} zero=3 train.batch=64 -n 64 --memory",
          "llama3-8b in bf16 with one sequence of 4,096 tokens a device. Weights, master weights and moments are 2 + 4 + 8\n"
          "bytes; gradients (4 bytes here, 2 in the paper) are reduced unit by unit in backward, so at the peak a unit's or two\n"
          "are whole, whatever N is, and so are the gathered weights. Activations do not depend on N at all.\n\n"
          + table(("devices", "bytes a parameter", "state, GiB", "units gathered and not yet reduced",
                   "activations", "all"), rows))


def zero_saves():
    rows, shares = [], []
    for model, sequence, again in (("llama3.2-1b", 4096, "none"), ("llama3.2-1b", 4096, "full"),
                                   ("llama3-8b", 4096, "none"), ("llama3-8b", 4096, "full")):
        for n in (8, 64):
            keys = f"model={model} data.seq_len={sequence} recompute={again} train.batch={n} "
            sums = [show(keys + (f"zero={z}" if z else DDP.format(n)), n)["memory_bytes"]["sum"] for z in range(4)]
            saved = [1 - s / sums[0] for s in sums[1:]]
            shares.append((saved[0], sums[0] / sums[3]))
            rows.append((model, again, n, f"{sums[0] / GIB:.1f}", *(f"{100 * s:.0f} %" for s in saved),
                         f"{sums[0] / sums[3]:.1f}"))
    assert min(s[0] for s in shares) < 0.63 < max(s[0] for s in shares)
    assert min(s[1] for s in shares) < 7.8 < max(s[1] for s in shares)
    entry("ZeRO saves up to 63 %; FSDP needs up to 7.8 times less memory",
          "figures of single measurements that are passed on as properties of the method",
          "conditional: one point each of a range; ZeRO-1 reaches 63 %, ZeRO-3 far more, and both can give less",
          f"show {RUN} model=llama3.2-1b recompute=full zero=1 train.batch=64 -n 64 --memory",
          "Memory of a device at the peak against DDP, one sequence of 4,096 tokens a device. ZeRO-1 leaves weights and\n"
          "gradients, so with 14 bytes of state it saves at most 12 / 14 of the state; how much of the whole that is, activations\n"
          "decide. With few activations ZeRO-3's factor grows with N, with many it stays below 3.\n\n"
          + table(("model", "recompute", "devices", "DDP, GiB", "ZeRO-1 saves", "ZeRO-2", "ZeRO-3", "DDP / ZeRO-3"),
                  rows))


def recomputation():
    rows, costs = [], {}
    keys = f"{DDP.format(8)} model=llama3.2-1b data.seq_len={{}} train.batch=64 recompute={{}}"
    for sequence in (2048, 8192):
        base = simulate(keys.format(sequence, "none") + " train.micro_batch=1", "8xH100-SXM")
        for again in ("none", "selective", "full"):
            d = simulate(keys.format(sequence, again) + " train.micro_batch=1", "8xH100-SXM")
            computing = sum(d["compute_s"].values()) / sum(base["compute_s"].values()) - 1
            costs[sequence, again] = d["step_seconds"] / base["step_seconds"] - 1
            rows.append((sequence, again, f"{100 * computing:+.1f} %",
                         f"{100 * costs[sequence, again]:+.1f} %", f"{d['memory_bytes'] / GIB:.1f}"))
    kept = []
    for layers in (1, 2, 4, 8, 10, 20, 40):
        m = show(f"model=llama3.1-70b data.seq_len=32768 zero=3 recompute=full recompute_layers={layers} train.batch=64", 64)
        kept.append((layers, m["memory_bytes"]["sum"] / GIB))
    least = min(kept, key=lambda k: k[1])[0]
    assert 1 < least < 80**0.5 and all(0.1 < costs[s, "full"] < 0.33 for s in (2048, 8192))
    entry("Recomputation costs 33 % and needs O(sqrt N) memory",
          "Chen et al. 2016 (1604.06174): one more forward pass; a checkpoint every sqrt N layers",
          "an upper bound of the time; of memory the rule is right for layers that keep no more than a checkpoint",
          f"simulate {RUN} {keys.format(2048, 'full')} train.micro_batch=1 --on 8xH100-SXM",
          "Simulated, llama3.2-1b, eight sequences a device, one at a time. A forward pass is a third of forward and backward; the\n"
          "head, which is a fifth of this model, is not made again, and what is waited for is not either.\n\n"
          + table(("tokens", "recompute", "computing", "step", "memory, GiB"), rows)
          + "\nThe square root holds where a layer keeps as much as a checkpoint is. A transformer's layer keeps some 17 times its\n"
          f"input, so llama3-70b, 80 layers, with 32,768 tokens a device needs least with a checkpoint every {least} layers, not every 9:\n\n"
          + table(("layers between checkpoints", "memory, GiB"), [(k, f"{v:.2f}") for k, v in kept]))


def bubble():
    rows, idle = [], {}
    for pp, m in ((4, 4), (4, 16), (4, 64), (8, 8), (8, 32), (8, 128)):
        for model in ("llama2-13b", "llama3-8b"):
            keys = f"model={model} recompute=full mesh.pp={pp} mesh.dp_shard=1 zero=0 train.batch={m} train.micro_batch=1"
            d = simulate(keys, f"{pp}xB200")
            idle[model, pp, m] = 1 - sum(d["compute_s"].values()) / d["step_seconds"]
        rows.append((pp, m, f"{m / pp:g} d", f"{100 * (pp - 1) / (m + pp - 1):.1f} %",
                     *(f"{100 * idle[model, pp, m]:.1f} %" for model in ("llama2-13b", "llama3-8b"))))
    assert all(0.12 < idle[model, pp, 4 * pp] < 0.3 for model, pp, _ in idle)
    assert all(i > (pp - 1) / (m + pp - 1) - 0.02 for (_, pp, m), i in idle.items())
    picture = (f"show {RUN} model=llama2-13b recompute=full mesh.pp=4 mesh.dp_shard=1 zero=0 train.batch=8 "
               "train.micro_batch=1 -n 4 --timeline docs/atlas_bubble.svg")
    assert lockstep(picture)[0] == 0
    entry("The bubble is (d - 1) / (m + d - 1), and m > 4d makes it negligible", "GPipe (1811.06965), section 2.3",
          "the formula is right for equal stages and a lower bound for others; at 4d the bubble is not negligible",
          f"simulate {RUN} model=llama3-8b recompute=full mesh.pp=8 mesh.dp_shard=1 zero=0 train.batch=32 "
          "train.micro_batch=1 --on 8xB200",
          "Simulated, 1F1B. At m = 4d the formula itself says (d - 1) / (5d - 1), which goes to 20 %. Beyond it stages are never\n"
          "equal: layers do not divide, the head weighs as much as some layers, and all wait for the slowest. Zero-bubble\n"
          "schedules fill most of this ([plan.md](plan.md)). With equal costs the simulation equals the formulas to the last digit (`simulation_test`).\n\n"
          + table(("stages d", "microbatches m", "m", "formula", "llama2-13b, simulated", "llama3-8b"), rows)
          + "\nFour equal stages with eight microbatches, by the tool (`lockstep show ... --timeline`):\n\n"
          "![Four pipeline stages: a staircase up, a staircase down, and idle triangles at both ends](atlas_bubble.svg)\n")


def ddp_faster():
    rows, ratios = [], []
    for on, n in (("8xH100-SXM", 8), ("64xA100-SXM-80", 64), ("8xA100-PCIE-80", 8), ("2xRTX4090", 2)):
        for each in (1, 8):
            keys = f"model=llama3.2-1b data.seq_len=1024 recompute=full train.batch={each * n} "
            took = [simulate(keys + (f"zero={z}" if z else DDP.format(n)), on)["step_seconds"] for z in (0, 1, 3)]
            ratios.append(took[2] / took[0])
            rows.append((on, each, *(seconds(t) for t in took), f"{took[2] / took[0]:.2f}"))
    assert max(ratios) < 1.2
    entry("DDP is 2 to 3 times faster than sharding", "comparisons of small models with frameworks' defaults",
          "wrong here: where both fit, sharding is as fast or faster",
          f"simulate {RUN} model=llama3.2-1b data.seq_len=1024 recompute=full zero=3 train.batch=8 --on 8xH100-SXM",
          "Simulated. DDP sends 2K bytes of fp32 gradients; ZeRO-1 sends K of them and K / 2 of bf16 weights, and ZeRO-3 gathers\n"
          "these twice, beside compute. Under DDP every device also updates the whole state, which takes as long as reading and\n"
          "writing it. DDP could win where gathers cannot run beside compute, or where gradients were reduced in bf16.\n\n"
          + table(("on", "sequences a device", "DDP", "ZeRO-1", "ZeRO-3", "ZeRO-3 / DDP"), rows))


def eleven_billion():
    rows, rates = [], {}
    for each in (1, 8):
        for n in (8, 64, 512):
            d = simulate(f"model=falcon3-10b data.seq_len=512 recompute=full zero=3 train.batch={n * each}",
                         f"{n}xA100-SXM-80")
            rates[each, n] = d["tokens_per_second"] / n
            rows.append((each * 512, n, f"{rates[each, n]:.0f}", f"{100 * (rates[each, n] / rates[each, 8] - 1):+.1f} %"))
    lost = [1 - rates[each, 512] / rates[each, 8] for each in (1, 8)]
    assert lost[1] < 0.05 and 0.35 < lost[0] < 0.45
    entry("An 11 B model loses 7 % from 8 to 512 GPUs", "PyTorch FSDP (2304.11277), section 5.4: T5-11B",
          "conditional: next to nothing with 4,096 tokens a device, two fifths with 512",
          f"simulate {RUN} model=falcon3-10b data.seq_len=512 recompute=full zero=3 train.batch=4096 --on 512xA100-SXM-80",
          "Simulated with falcon3-10b (10.3 B; T5's encoder cannot be built yet) on A100s with 8 x 200 Gbit/s a host: tokens/s of\n"
          "a device. The simulated network has no stragglers, no jitter and no congestion, and those are what a job of 512 meets:\n"
          "a lower bound of the loss (`--slow`, `--link` try them).\n\n"
          + table(("tokens a device", "devices", "tokens/s of one", "against 8"), rows))


def tensor_in_a_host():
    rows, took = [], {}
    for on, model, n, batch in (("64xH100-SXM", "llama3-70b", 64, 64), ("64xGB200", "llama3-70b", 64, 64),
                                ("8xA100-PCIE-80", "llama3-8b", 8, 16)):
        for tp in (1, 2, 4, 8, 16, 32):
            if tp > n:
                break
            keys = f"model={model} recompute=full zero=3 mesh.tp={tp} train.batch={batch} train.micro_batch={min(tp, batch // (n // tp))}"
            took[on, tp] = fits(keys, on)
            rows.append((on, model, tp, seconds(took[on, tp])))
    assert took["64xH100-SXM", 32] > 1.5 * took["64xH100-SXM", 8]
    assert took["64xH100-SXM", 8] < 1.25 * took["64xH100-SXM", 4] < 2 * took["64xH100-SXM", 1]
    assert 1.4 < took["64xH100-SXM", 16] / took["64xH100-SXM", 8] < 1.6
    assert took["64xGB200", 32] > 1.5 * took["64xGB200", 8]
    entry("Tensor parallelism stays within a host", "Megatron-LM (2104.04473), takeaway 1",
          "good advice: a doubling costs a tenth to a fifth in a host, and half over its border",
          f"simulate {RUN} model=llama3-70b recompute=full zero=3 mesh.tp=16 train.batch=64 train.micro_batch=16 --on 64xH100-SXM",
          "Simulated, ZeRO-3 over the other devices. With eight NICs a host, tp 16 over two hosts takes half as long again\n"
          "as tp 8 in one, and so does tp 32 beside 16. In a rack whose 72 devices share NVLink large tp costs as well, as\n"
          "products get narrow: tensor parallelism is for memory, and for batches too small for the devices, not for speed.\n\n"
          + table(("on", "model", "tp", "step"), rows))


def combined():
    rows, best = [], {}
    ways = (("one: zero-3", "zero=3", 1), ("one: tp 8", "zero=0 mesh.dp_shard=1 mesh.tp=8 train.micro_batch=4", 1),
            ("one: pp 8", "zero=0 mesh.dp_shard=1 mesh.pp=8 train.micro_batch=1", 1),
            ("two: tp 2, zero-3 over 4", "zero=3 mesh.tp=2", 2),
            ("two: pp 2, zero-3 over 4", "zero=3 mesh.pp=2 train.micro_batch=1", 2),
            ("three: pp 2, tp 2, zero-1 over 2", "zero=1 mesh.pp=2 mesh.tp=2 train.micro_batch=1", 2))
    for on in ("8xH100-SXM", "8xA100-SXM-40", "8xL40S"):
        for name, keys, axes in ways:
            took = fits(f"{keys} recompute=full train.batch=32", on)
            rows.append((on, name, seconds(took)))
            if took and took < best.get((on, axes), 1e9):
                best[on, axes] = took
    gains = [best[on, 1] / best[on, 2] for on in ("8xH100-SXM", "8xA100-SXM-40", "8xL40S")]
    assert max(gains) < 2
    entry("Combining axes halves the time of an 8 B model on 8 GPUs", "tutorials on 3D parallelism",
          f"wrong for these: the best combination is {min(gains):.2f} to {max(gains):.2f} times as fast as the best single axis",
          f"simulate {RUN} zero=3 recompute=full train.batch=32 --on 8xH100-SXM",
          "Simulated, llama3-8b, 32 sequences of 4,096 tokens a step. Against the *worst* single axis a combination does halve\n"
          "the time. `lockstep plan llama3-8b --on 8xH100-SXM` looks at all of them.\n\n" + table(("on", "axes", "step"), rows))


def decoding():
    status, text = lockstep("generate --help")
    assert status == 0 and "mesh.cp" in text
    entry("Tensor and context parallelism make decoding 1.4 times faster", "serving guides", "not yet checked",
          "generate --help",
          "Decoding runs over `mesh.tp` and `mesh.cp`, on CPU devices. Its programs are not simulated for GPUs yet, of which\n"
          "the guides speak: there is nothing to compare.\n")


def one_billion():
    rows, needed = [], {}
    for sequence, again in ((512, "none"), (2048, "none"), (8192, "none"), (8192, "full")):
        m = show(f"model=llama3.2-1b {DDP.format(1)} data.seq_len={sequence} train.batch=1 recompute={again}", 1)["memory_bytes"]
        billions = 1235814400 / 1e9
        needed[sequence, again] = m["sum"] / 1e9 / billions
        rows.append((sequence, again, f"{m['sum'] / 1e9:.1f}", f"{needed[sequence, again]:.1f}"))
    assert all(n > 16 for n in needed.values())
    took = fits(f"model=llama3.2-1b {DDP.format(1)} data.seq_len=2048 train.batch=1 recompute=full", "1xRTX4080")
    assert took is None and fits(f"model=llama3.2-1b {DDP.format(1)} data.seq_len=2048 train.batch=1 recompute=full "
                                 "offload.optimizer=host", "1xRTX4080")
    entry("One billion parameters need 16 GB to train", "16 bytes a parameter: bf16 weights and gradients, fp32 master and moments",
          "a lower bound: 18 with fp32 gradients, before activations; a card of 16 GB is too small",
          f"show {RUN} model=llama3.2-1b {DDP.format(1)} data.seq_len=2048 train.batch=1 -n 1 --memory",
          "llama3.2-1b (1.24 B) on one device, GB of 10^9 bytes:\n\n"
          + table(("tokens", "recompute", "GB", "GB a billion parameters"), rows)
          + f"\nOn 1xRTX4080 (16 GB) it {seconds(took)}; with `offload.optimizer=host` it does.\n")


def by_size():
    rows, found = [], {}
    for model in ("llama3-8b", "phi-4", "qwen2.5-32b", "llama3-70b", "llama3.1-405b"):
        for on in ("64xH100-SXM", "512xH100-SXM"):
            best, why = plan(f"{model} --task pretrain --on {on}")
            found[model, on] = best
            rows.append((model, on, layout_text(best) if best else why, seconds(best["step_seconds"]) if best else ""))
    tensor = {m for (m, on), best in found.items() if best["tp"] > 1}
    cut = {m for (m, on), best in found.items() if best["cp"] > 1}
    assert not tensor & {"llama3-8b", "phi-4", "qwen2.5-32b"} and "llama3-70b" in tensor
    assert {"phi-4", "qwen2.5-32b", "llama3-70b"} <= cut and "llama3-8b" not in cut
    entry("8 to 15 B: data parallelism suffices; 15 to 70 B: tensor and data; above: 3D", "rules of thumb of training guides",
          "right for 8 B but for 0.2 %; from 14 B on sequences are cut (context parallelism) before tensors are; 70 B takes all four",
          "plan llama3-70b --task pretrain --on 64xH100-SXM",
          "The planner's first choice (compiled, simulated and proved) for 4 Mi tokens a step:\n\n"
          + table(("model", "on", "first choice", "step"), rows))


def how_many():
    rows = []
    for model, counts in (("llama2-7b", (1, 2)), ("llama3-70b", (4, 8, 16)), ("llama3.1-405b", (64, 128))):
        for n in counts:
            best, why = plan(f"{model} --on {n}xH100-SXM")
            rows.append((model, n, layout_text(best) if best else why))
            assert n > counts[0] or best["offload_optimizer"] == "host"
    entry("A 7 B fits one 80 GB card, a 70 B needs 4 to 8, a 405 B 64", "sizes of weights in 16 bits, which hold for inference",
          "for training too, with the optimizer on the host",
          "plan llama3-70b --on 8xH100-SXM",
          "The planner's first choice for 64 sequences of at most 4,096 tokens a step:\n\n"
          + table(("model", "80 GB cards", "first choice"), rows))


def trillion():
    keys = ("model=megatron-1t data.seq_len=2048 zero=3 recompute=full prefetch=0 offload.optimizer=nvme "
            "offload.parameters=nvme offload.activations=host offload.path=/nvme train.batch={0} train.micro_batch={1}")
    rows = []
    for batch in (16, 64):
        d = simulate(keys.format(batch, batch // 16), "bench/atlas_drives.yaml")
        assert 0.5 < wait(d, "move")["exposed_s"] / d["step_seconds"]
        rows.append((batch, seconds(d["step_seconds"]), f"{d['tokens_per_second']:.0f}", f"{d['memory_bytes'] / GIB:.1f}",
                     f"{300e9 / d['tokens_per_second'] / 86400 / 365:.0f} years"))
    entry("One trillion parameters train on 16 GPUs with NVMe", "ZeRO-Infinity (2104.07857): one DGX-2 of 16",
          "it fits; what it takes in time makes it a way to fine-tune at best",
          f"simulate {RUN} {keys.format(16, 1)} --on bench/atlas_drives.yaml",
          "Simulated on two hosts of eight H100s, whose drives read 55 and write 34 GB/s. Each step reads and writes all\n"
          "state there, and most of the step waits for that. The last column is GPT-3's 300 B tokens.\n\n"
          + table(("sequences a step", "step", "tokens/s", "GiB a device", "300 B tokens"), rows))


PAGE = """# Common beliefs, checked

What is often said about parallel training, each with the command that checks it and when it holds. **Simulated** means
that the compiled program was gone through event by event on the catalog's rates ([simulate.md](simulate.md) says how
far to trust that); bytes and memory are the program's own and exact. Where nothing else is said the run is
[bench/atlas.yaml](../bench/atlas.yaml): llama3-8b in bf16, sequences of 4,096 tokens, AdamW. The page is made by
`bench/atlas.py build/lockstep > docs/atlas.md`, which ends with an error where a figure no longer bears out what is said."""

print(PAGE)
quick = (all_reduce, sixteen_bytes, zero_saves, recomputation, bubble, ddp_faster, eleven_billion, tensor_in_a_host,
         combined, decoding, one_billion, trillion)
for check in quick if "--quick" in sys.argv else quick + (by_size, how_many):
    check()
    sys.stdout.flush()
