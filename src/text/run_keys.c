#include "text/run_keys.h"

#include <stdio.h>
#include <string.h>

#define AT(field) .offset = offsetof(ls_run_file, field)
#define COUNT_LIMIT 2147483647.0 /* counts must fit an int32 tensor index */

const ls_run_key ls_run_keys[] = {
    {"model", LS_RUN_TEXT, AT(model), .standard = "", .path = LS_RUN_MAY_BE_PATH,
     .help = "a preset, a checkpoint's folder, or a config.json (its shape only)"},
    {"init", LS_RUN_CHOICE, AT(init), .standard = "auto", .words = "auto weights scratch",
     .help = "start from weights or from scratch; auto: weights where there are any"},

    {"data.text", LS_RUN_TEXTS, AT(data.text), .standard = "[]", .path = LS_RUN_IS_PATH,
     .effect = LS_RUN_LAYOUT, /* what the texts are is told by their fingerprint */
     .help =
         "texts or token files: path, glob, folder or list of them; {path: GLOB, weight: 2} mixes"},
    {"data.text_key", LS_RUN_TEXT, AT(data.text_key), .standard = "text",
     .help = "JSON lines: the key whose string is the document"},
    {"data.tokenizer", LS_RUN_TEXT, AT(data.tokenizer), .standard = "auto",
     .path = LS_RUN_MAY_BE_PATH,
     .help = "auto: the model's own, else bytes; bytes; or a folder or file of a tokenizer"},
    {"data.seq_len", LS_RUN_INTEGER, AT(data.seq_len), .standard = "512", .low = 1, .high = 1 << 24,
     .help = "tokens of a sequence"},
    {"data.validation", LS_RUN_VALIDATION, AT(data.validation), .standard = "0.01",
     .path = LS_RUN_IS_PATH, .low = 0, .high = 1, .below_high = true,
     .help = "the part of the text kept for evaluation, or files of its own"},
    {"data.split", LS_RUN_CHOICE, AT(data.split), .standard = "auto", .words = "auto document tail",
     .help = "what is kept: documents, by their hash, or the tail; auto: the first that can be"},
    {"data.documents", LS_RUN_CHOICE, AT(data.documents), .standard = "stream",
     .words = "stream masked", .later = "pad",
     .help = "of a sequence: one stream; masked: attention and positions stay in each of them"},
    {"data.on_bad_line", LS_RUN_CHOICE, AT(data.on_bad_line), .standard = "stop",
     .words = "stop skip", .help = "what to do with a line of JSON that cannot be read"},
    {"data.on_change", LS_RUN_CHOICE, AT(data.on_change), .standard = "stop", .words = "stop allow",
     .effect = LS_RUN_LOGGING, .help = "resuming a run whose text is another one by now"},
    {"data.cache_limit", LS_RUN_SIZE, AT(data.cache_limit), .standard = "100GiB", .word = "none",
     .low = 1, .high = 0x1p53, .effect = LS_RUN_LOGGING,
     .help = "of all cached token files; what was used longest ago is removed"},
    {"data.seed", LS_RUN_INTEGER, AT(data.seed), .standard = "1", .low = 0, .high = 0x1p53,
     .help = "of the order of the sequences"},

    {"mesh.pp", LS_RUN_INTEGER, AT(mesh.pp), .standard = "1", .word = "-1", .word_value = -1,
     .low = 1, .high = LS_RUN_MOST_DEVICES, .effect = LS_RUN_LAYOUT, .help = "pipeline stages"},
    {"mesh.dp_replicate", LS_RUN_INTEGER, AT(mesh.dp_replicate), .standard = "1", .word = "-1",
     .word_value = -1, .low = 1, .high = LS_RUN_MOST_DEVICES, .effect = LS_RUN_LAYOUT,
     .help = "data-parallel replicas that hold whole shard groups (DDP)"},
    {"mesh.dp_shard", LS_RUN_INTEGER, AT(mesh.dp_shard), .standard = "-1", .word = "-1",
     .word_value = -1, .low = 1, .high = LS_RUN_MOST_DEVICES, .effect = LS_RUN_LAYOUT,
     .help = "data-parallel ranks that shard what `zero` says; -1: what is left of -n"},
    {"mesh.cp", LS_RUN_INTEGER, AT(mesh.cp), .standard = "1", .word = "-1", .word_value = -1,
     .low = 1, .high = LS_RUN_MOST_DEVICES, .only_standard = true, .effect = LS_RUN_LAYOUT,
     .help = "context parallelism: ranks along the sequence"},
    {"mesh.tp", LS_RUN_INTEGER, AT(mesh.tp), .standard = "1", .word = "-1", .word_value = -1,
     .low = 1, .high = LS_RUN_MOST_DEVICES, .effect = LS_RUN_LAYOUT,
     .help = "tensor parallelism: ranks inside each layer"},
    {"mesh.ep", LS_RUN_INTEGER, AT(mesh.ep), .standard = "1", .low = 1, .high = LS_RUN_MOST_DEVICES,
     .only_standard = true, .effect = LS_RUN_LAYOUT,
     .help = "expert parallelism; divides dp_shard x cp x tp"},

    {"zero", LS_RUN_INTEGER, AT(zero), .standard = "3", .low = 0, .high = 3,
     .effect = LS_RUN_LAYOUT,
     .help = "what dp_shard shards: 1 optimizer, 2 and gradients, 3 and parameters, 0 nothing"},
    {"wrap", LS_RUN_INTEGER, AT(wrap), .standard = "layer", .word = "layer", .word_value = 1,
     .low = 1, .high = 1 << 20, .effect = LS_RUN_LAYOUT,
     .help = "the unit of gathering: a layer, or that many layers"},
    {"sequence_parallel", LS_RUN_BOOL, AT(sequence_parallel), .standard = "true",
     .effect = LS_RUN_LAYOUT, .help = "with tp > 1: cut the tokens between blocks as well"},
    {"schedule", LS_RUN_TEXT, AT(schedule), .standard = "1f1b", .path = LS_RUN_MAY_BE_PATH,
     .effect = LS_RUN_LAYOUT,
     .help = "sequential gpipe 1f1b interleaved zbh1 zbh2 zbv vhalf vmin dualpipev, or a .csv"},
    {"stages", LS_RUN_GLOBS, AT(stages), .standard = "auto", .effect = LS_RUN_LAYOUT,
     .help = "layers of each chunk of the pipeline, as [0-6, 7-13]; auto: cut by cost"},
    {"chunks", LS_RUN_INTEGER, AT(chunks), .standard = "auto", .word = "auto", .low = 1,
     .high = 1 << 20, .effect = LS_RUN_LAYOUT, .help = "parts of a pipeline stage"},
    {"post_validation", LS_RUN_BOOL, AT(post_validation), .standard = "false",
     .effect = LS_RUN_LAYOUT,
     .help = "stages begin the next step before the gradient norm is known; repeated if it clips"},
    {"gather", LS_RUN_CHOICE, AT(gather), .standard = "auto", .words = "auto microbatch step",
     .effect = LS_RUN_MEMORY,
     .help = "zero 3: weights gathered for each microbatch, or kept for the step"},
    {"reduce", LS_RUN_CHOICE, AT(reduce), .standard = "auto", .words = "auto microbatch step",
     .effect = LS_RUN_MEMORY, .help = "gradients reduced after each microbatch, or once a step"},
    {"recompute", LS_RUN_GLOBS, AT(recompute), .standard = "none", .effect = LS_RUN_MEMORY,
     .help =
         "made again: none, full, selective (norms, activations), budget or ops: [attention, ...]"},
    {"recompute_layers", LS_RUN_INTEGER, AT(recompute_layers), .standard = "1", .low = 1,
     .high = 1 << 20, .effect = LS_RUN_MEMORY, .help = "layers that are made again together"},
    {"logits_rows", LS_RUN_INTEGER, AT(logits_rows), .standard = "auto", .word = "auto", .low = 1,
     .high = COUNT_LIMIT, .effect = LS_RUN_MEMORY,
     .help = "tokens whose logits a device has at once; auto: by their size"},

    {"offload.optimizer", LS_RUN_CHOICE, AT(offload.optimizer), .standard = "none",
     .words = "none host nvme", .effect = LS_RUN_MEMORY,
     .help = "where the optimizer's state waits; the host updates it"},
    {"offload.optimizer_fraction", LS_RUN_NUMBER, AT(offload.optimizer_fraction), .standard = "1.0",
     .low = 0, .high = 1, .effect = LS_RUN_MEMORY,
     .help = "how much of it; the rest stays on the device"},
    {"offload.parameters", LS_RUN_CHOICE, AT(offload.parameters), .standard = "none",
     .words = "none host nvme", .effect = LS_RUN_MEMORY,
     .help = "where parameters wait; fetched before use"},
    {"offload.activations", LS_RUN_CHOICE, AT(offload.activations), .standard = "none",
     .words = "none host nvme", .effect = LS_RUN_MEMORY,
     .help = "where activations wait for backward"},
    {"offload.path", LS_RUN_TEXT, AT(offload.path), .standard = "", .path = LS_RUN_IS_PATH,
     .effect = LS_RUN_MEMORY, .help = "folder on the NVMe drive, for a file of each device"},

    {"dtype", LS_RUN_CHOICE, AT(dtype), .standard = "auto", .words = "auto fp32 bf16 fp16 fp64",
     .later = "fp8",
     .help = "of compute; auto: bf16 where the device multiplies it natively, else fp32"},
    {"grad_dtype", LS_RUN_CHOICE, AT(grad_dtype), .standard = "fp32", .words = "fp32 bf16",
     .help = "of gradients that are added up and reduced"},
    {"numerics", LS_RUN_CHOICE, AT(numerics), .standard = "fast", .words = "fast exact",
     .effect = LS_RUN_LAYOUT,
     .help = "exact: the same bits whatever device.threads is; fast: for each number of threads"},
    {"dropout", LS_RUN_NUMBER, AT(dropout), .standard = "auto", .word = "auto", .word_value = -1,
     .low = 0, .high = 0, .help = "auto: as the model's configuration says; 0: none"},

    {"device.kind", LS_RUN_CHOICE, AT(device.kind), .standard = "auto", .words = "auto cpu",
     .later = "cuda", .effect = LS_RUN_LAYOUT, .help = "what computes"},
    {"device.memory", LS_RUN_SIZE, AT(device.memory), .standard = "auto", .word = "auto", .low = 1,
     .high = 0x1p53, .effect = LS_RUN_MEMORY, .help = "limit of each device, such as 2GiB"},
    {"device.threads", LS_RUN_INTEGER, AT(device.threads), .standard = "auto", .word = "auto",
     .low = 1, .high = 4096, .effect = LS_RUN_LAYOUT,
     .help = "of each CPU device; auto: the usable cores, shared out"},

    {"host.memory", LS_RUN_SIZE, AT(host.memory), .standard = "auto", .word = "auto", .low = 1,
     .high = 0x1p53, .effect = LS_RUN_MEMORY,
     .help = "limit of what each device offloads to its host; auto: the machine's memory"},

    {"train.steps", LS_RUN_INTEGER, AT(train.steps), .standard = "1000", .low = 1, .high = 0x1p53,
     .excludes = "train.epochs", .effect = LS_RUN_DURATION, .help = "optimizer steps"},
    {"train.epochs", LS_RUN_NUMBER, AT(train.epochs), .standard = "none", .word = "none", .low = 0,
     .high = 1e9, .above_low = true, .excludes = "train.steps", .effect = LS_RUN_DURATION,
     .help = "passes over the text, in place of steps"},
    {"train.batch", LS_RUN_INTEGER, AT(train.batch), .standard = "32", .low = 1,
     .high = COUNT_LIMIT, .help = "sequences a step over the whole mesh"},
    {"train.micro_batch", LS_RUN_INTEGER, AT(train.micro_batch), .standard = "auto", .word = "auto",
     .low = 1, .high = COUNT_LIMIT, .excludes = "train.microbatches", .effect = LS_RUN_MEMORY,
     .help = "sequences of a data-parallel rank at a time"},
    {"train.microbatches", LS_RUN_INTEGER, AT(train.microbatches), .standard = "auto",
     .word = "auto", .low = 1, .high = COUNT_LIMIT, .excludes = "train.micro_batch",
     .effect = LS_RUN_MEMORY, .help = "parts a step is done in, in place of micro_batch"},
    {"train.lr", LS_RUN_NUMBER, AT(train.lr), .standard = "auto", .word = "auto", .low = 0,
     .high = 1e30, .above_low = true,
     .help = "learning rate; auto: 3e-4 from scratch, 1e-5 from weights"},
    {"train.lr_min", LS_RUN_NUMBER, AT(train.lr_min), .standard = "0", .low = 0, .high = 1e30,
     .help = "where linear, cosine and wsd end"},
    {"train.lr_schedule", LS_RUN_CHOICE, AT(train.lr_schedule), .standard = "cosine",
     .words = "constant linear cosine wsd", .help = "after the warm-up"},
    {"train.warmup", LS_RUN_SPAN, AT(train.warmup), .standard = "100", .low = 0, .high = 0x1p53,
     .help = "steps, or a part of them such as 3%"},
    {"train.decay", LS_RUN_SPAN, AT(train.decay), .standard = "20%", .low = 0, .high = 0x1p53,
     .help = "wsd: the last steps, in which the rate falls"},
    {"train.clip", LS_RUN_NUMBER, AT(train.clip), .standard = "1.0", .low = 0, .high = 1e30,
     .help = "largest norm of the whole gradient; 0: no clipping"},
    {"train.seed", LS_RUN_INTEGER, AT(train.seed), .standard = "1", .low = 0, .high = 0x1p53,
     .help = "of the initial weights"},

    {"optimizer.name", LS_RUN_CHOICE, AT(optimizer.name), .standard = "adamw", .words = "adamw sgd",
     .help = "how gradients become updates"},
    {"optimizer.betas", LS_RUN_PAIR, AT(optimizer.betas), .standard = "[0.9, 0.95]", .low = 0,
     .high = 1, .below_high = true, .help = "adamw: decay of the two moments"},
    {"optimizer.eps", LS_RUN_NUMBER, AT(optimizer.eps), .standard = "1e-8", .low = 0, .high = 1,
     .above_low = true, .help = "adamw: added to the root of the second moment"},
    {"optimizer.weight_decay", LS_RUN_NUMBER, AT(optimizer.weight_decay), .standard = "0.1",
     .low = 0, .high = 1e30, .help = "decoupled, on parameters of two or more dimensions"},
    {"optimizer.momentum", LS_RUN_NUMBER, AT(optimizer.momentum), .standard = "0.9", .low = 0,
     .high = 1, .below_high = true, .help = "sgd"},

    {"eval.every", LS_RUN_INTEGER, AT(eval.every), .standard = "100", .low = 0, .high = 0x1p53,
     .effect = LS_RUN_LOGGING, .help = "steps between evaluations; 0: never"},
    {"eval.batches", LS_RUN_INTEGER, AT(eval.batches), .standard = "16", .low = 1,
     .high = COUNT_LIMIT, .effect = LS_RUN_LOGGING, .help = "batches of an evaluation, at most"},
    {"checkpoint.every", LS_RUN_INTEGER, AT(checkpoint.every), .standard = "500", .low = 0,
     .high = 0x1p53, .effect = LS_RUN_LOGGING,
     .help = "steps between checkpoints; 0: at the end only"},
    {"checkpoint.keep", LS_RUN_INTEGER, AT(checkpoint.keep), .standard = "2", .low = 1,
     .high = COUNT_LIMIT, .effect = LS_RUN_LOGGING, .help = "newest checkpoints kept"},
    {"comm.timeout", LS_RUN_NUMBER, AT(comm.timeout), .standard = "300", .low = 1, .high = 1e6,
     .effect = LS_RUN_LOGGING,
     .help = "seconds that a rank waits for another before the run ends; told after a tenth"},
    {"check", LS_RUN_BOOL, AT(check), .standard = "true", .effect = LS_RUN_LOGGING,
     .help = "prove the compiled program before it runs"},
    {"trace", LS_RUN_BOOL, AT(trace), .standard = "false", .effect = LS_RUN_LOGGING,
     .help = "time every instruction of the third step: trace.json and timeline.svg in `out`"},
    {"out", LS_RUN_TEXT, AT(out), .standard = "", .path = LS_RUN_IS_PATH, .effect = LS_RUN_LOGGING,
     .help = "folder of the run; runs/NAME for NAME.yaml where not given"},
};

const int ls_run_key_count = sizeof ls_run_keys / sizeof ls_run_keys[0];

const ls_run_key *ls_run_key_find(const char *name) {
  for (int i = 0; i < ls_run_key_count; i++) {
    if (strcmp(ls_run_keys[i].name, name) == 0) return &ls_run_keys[i];
  }
  return NULL;
}

bool ls_run_key_is_section(const char *name) {
  const size_t length = strlen(name);
  for (int i = 0; i < ls_run_key_count; i++) {
    const char *key = ls_run_keys[i].name;
    if (strncmp(key, name, length) == 0 && key[length] == '.') return true;
  }
  return false;
}
