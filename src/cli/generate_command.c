#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "cli/command.h"
#include "cli/generate.h"
#include "cli/hardware.h"
#include "cli/tuning.h"
#include "device/gpus.h"
#include "session/agree.h"
#include "session/fit.h"
#include "store/adapters.h"

static const char help[] =
    "usage: lockstep generate RUN_OR_CHECKPOINT \"PROMPT\" [flags] [dtype=WORD] [-n DEVICES]\n"
    "       lockstep generate RUN_OR_CHECKPOINT --prompts FILE [--batch B] [flags]\n"
    "       lockstep generate RUN_OR_CHECKPOINT --interactive [flags]\n\n"
    "Continues the prompt and prints both as the text comes. The first word is a run's folder\n"
    "(its newest good checkpoint is taken), a checkpoint, or a Hugging Face folder with its\n"
    "tokenizer. A prompt of - is read from standard input.\n\n"
    "  --chat              the prompt is a question: the model's own chat template is put around\n"
    "                      it, and the answer alone is printed, up to the token that ends it\n"
    "  --interactive       a conversation: each line is a question, and what was said stays with\n"
    "                      the model; /reset begins a new one, /quit or Ctrl-D ends, Ctrl-C ends\n"
    "                      an answer\n"
    "  --prompts FILE      many prompts: the lines of a text, or .jsonl (.json, .gz, .zst) of\n"
    "                      {\"prompt\": \"...\"} or {\"messages\": [...]}, which is a question\n"
    "  --batch B           of them decoded at once, at most 32 (default: as many as fit); where "
    "one\n"
    "                      ends the next begins, and each gives what it gives alone\n"
    "  -n DEVICES          the model is cut over so many devices (mesh.tp), threads of this "
    "process\n"
    "                      or the processes of a launcher: heads must divide among them;\n"
    "                      mesh.cp=N has N share a text's tokens and the rows of its caches,\n"
    "                      mesh.pp=N gives each of N stages its layers\n"
    "  --draft WHAT        tokens are drafted, and the model verifies several at once: by a "
    "smaller\n"
    "                      model of the same vocabulary (a run, checkpoint or folder), by the\n"
    "                      model's own first layers (layers=N), or by what stood in the text\n"
    "                      behind the same tokens before (ngram). --greedy gives the same text,\n"
    "                      sampling tokens of the same chances; the draft runs on one device\n"
    "  --draft-tokens K    drafted at once, at most 16 (default 4)\n"
    "  --system TEXT       of questions: the system prompt, where they have none of their own\n"
    "  --template FILE     of questions: another template (Jinja) than the model's\n"
    "  --context N         tokens that a conversation may have (default 4096, or what the model "
    "is\n"
    "                      made for where that is less)\n"
    "  --temperature X     0 takes the likeliest token, 1 the model's own chances (default 0.8)\n"
    "  --top-k K           only the K likeliest tokens; 0: all (default)\n"
    "  --top-p P           only the likeliest tokens that sum to P (default 0.9)\n"
    "  --greedy            the likeliest token, always: --temperature 0\n"
    "  --seed N            the same seed gives the same text (default 1)\n"
    "  --max-new-tokens N  of each text (default 200)\n"
    "  --trust             do not look at the checkpoint's checksums\n"
    "  --json              an object a prompt: prompt, text, tokens, tokens_per_second (after the\n"
    "                      first), prompt_tokens, prompt_tokens_per_second (up to the first new\n"
    "                      token), finish_reason (stop: the model ended the text; length); with\n"
    "                      --draft also rounds, drafted_tokens, kept_tokens\n"
    "  --help              this text\n\n"
    "GPUs that are visible are taken, as train takes them, else the CPU; device.kind=cpu or cuda\n"
    "says which. dtype is fp32 unless bf16, fp16 or fp64 is asked for; device.threads sets the\n"
    "threads (default: all cores for models that gain from them).\n\n"
    "examples:\n"
    "  lockstep generate runs/quickstart \"In the beginning\"\n"
    "  lockstep generate runs/quickstart \"And God said\" --temperature 0.8 --top-p 0.9 --seed 7\n"
    "  lockstep generate runs/quickstart/checkpoints/step-500 - --greedy < prompt.txt\n"
    "  lockstep generate runs/quickstart \"In the\" --max-new-tokens 50 --json | jq -r .text\n"
    "  lockstep generate runs/chat \"Say it backwards: blue\" --chat --greedy\n"
    "  lockstep generate runs/chat --interactive --system \"Answer in one line.\"\n"
    "  lockstep generate runs/chat --prompts questions.jsonl --json > answers.jsonl\n"
    "  lockstep generate runs/quickstart \"In the beginning\" mesh.tp=2\n"
    "  lockstep generate runs/long - mesh.tp=2 mesh.cp=2 -n 4 < book.txt\n"
    "  lockstep generate runs/large \"In the\" --draft runs/small --draft-tokens 6\n"
    "  mpirun -n 2 lockstep generate runs/quickstart \"In the beginning\"\n";

enum { PROMPT_BLOCK = 1 << 16, CONTEXT = 4096 };

static ls_status read_whole(const char *text, const char *flag, int64_t low, int64_t *value,
                            ls_error *error) {
  if (!text) return LS_OK;
  char *end;
  errno = 0;
  const long long read = strtoll(text, &end, 10);
  if (end == text || *end || errno || read < low)
    return ls_fail(error, LS_INPUT, "%s: found \"%s\"; expected a whole number, %lld or more", flag,
                   text, (long long)low);
  *value = read;
  return LS_OK;
}

static ls_status read_number(const char *text, const char *flag, double *value, ls_error *error) {
  if (!text) return LS_OK;
  char *end;
  *value = strtod(text, &end);
  if (end == text || *end)
    return ls_fail(error, LS_INPUT, "%s: found \"%s\"; expected a number", flag, text);
  return LS_OK;
}

static ls_status read_prompt(ls_arena *arena, ls_generate_asked *asked, ls_error *error) {
  asked->prompt_bytes = strlen(asked->prompt);
  if (strcmp(asked->prompt, "-") == 0) {
    char *text = NULL;
    size_t used = 0, capacity = 0, got;
    do {
      if (used == capacity) {
        char *larger = ls_arena_alloc(arena, 2 * capacity + PROMPT_BLOCK);
        if (used) memcpy(larger, text, used);
        text = larger;
        capacity = 2 * capacity + PROMPT_BLOCK;
      }
      got = fread(text + used, 1, capacity - used, stdin);
      used += got;
    } while (got);
    asked->prompt = text;
    asked->prompt_bytes = used;
  }
  if (asked->prompt_bytes) return LS_OK;
  return ls_fail(error, LS_INPUT, "the prompt is empty; expected at least one character");
}

static bool begins_with(const char *text, const char *with) {
  return strncmp(text, with, strlen(with)) == 0;
}

/* What mesh.pp and mesh.cp leave of the devices is mesh.tp's. */
static ls_status refuse_axis(const ls_run_file *run, const char *axis, int64_t size, int devices,
                             ls_error *error) {
  return ls_fail(error, LS_INPUT,
                 "mesh.%s=%lld: generating cuts a model over mesh.tp, mesh.cp and mesh.pp: use "
                 "mesh.tp=%lld",
                 axis, (long long)size, (long long)(devices / (run->mesh.pp * run->mesh.cp)));
}

/* All devices cut the model: without a mesh all are tp's. */
static ls_status read_mesh(ls_run_file *run, const char *devices, bool given,
                           ls_generate_asked *asked, ls_error *error) {
  LS_TRY(ls_command_devices(devices, run, &asked->devices, error));
  if (!given) run->mesh.tp = asked->devices;
  LS_TRY(ls_run_file_resolve_mesh(run, asked->devices, error));
  for (int a = 0; a < LS_LAYOUT_AXES; a++) {
    const char *axis = ls_layout_axis(a);
    const int64_t size = ls_run_file_mesh_size(run, axis);
    if (size > 1 && begins_with(axis, "dp"))
      return refuse_axis(run, axis, size, asked->devices, error);
  }
  asked->pp = (int)run->mesh.pp;
  asked->cp = (int)run->mesh.cp;
  return run->mesh.ep > 1 ? refuse_axis(run, "ep", run->mesh.ep, asked->devices, error) : LS_OK;
}

/* Of the run file's keys those that mean something here. */
static ls_status read_keys(ls_arena *arena, const ls_words *words, const char *devices,
                           ls_generate_asked *asked, ls_error *error) {
  ls_run_file *run, *standard;
  bool mesh = false;
  LS_TRY(ls_run_file_read(arena, NULL, words->keys, words->key_count, &run, error));
  LS_TRY(ls_run_file_read(arena, NULL, NULL, 0, &standard, error));
  const ls_run_differences found = ls_run_file_diff(arena, standard, run);
  for (int k = 0; k < words->key_count; k++)
    mesh |= begins_with(words->keys[k] + strspn(words->keys[k], "-"), "mesh");
  for (int i = 0; i < found.count; i++) {
    const char *key = found.items[i].key;
    if (strcmp(key, "dtype") != 0 && strcmp(key, "comm.timeout") != 0 &&
        !begins_with(key, "device.") && !begins_with(key, "mesh."))
      return ls_fail(error, LS_INPUT, "%s: has no effect on generating: leave it out", key);
  }
  switch (run->dtype) {
    case LS_RUN_DTYPE_BF16: asked->compute = LS_BF16; break;
    case LS_RUN_DTYPE_FP16: asked->compute = LS_F16; break;
    case LS_RUN_DTYPE_FP64: asked->compute = LS_F64; break;
    case LS_RUN_DTYPE_AUTO:
    case LS_RUN_DTYPE_FP32: asked->compute = LS_F32; break;
    case LS_RUN_DTYPE_FP8:
      return ls_fail(error, LS_INPUT,
                     "dtype: fp8 is built for training and evaluation; expected bf16, fp16, fp32 "
                     "or fp64");
  }
  asked->timeout = run->comm.timeout;
  asked->device = run->device;
  asked->gpus = ls_hardware_take_gpus(arena, asked->compute, &asked->device);
  return read_mesh(run, devices, mesh, asked, error);
}

ls_status ls_generate_find_tokenizer(const char *folder, const ls_model_config *config,
                                     const ls_tokenizer **tokenizer, ls_error *error) {
  LS_TRY(ls_tokenizer_of(folder, tokenizer, error));
  if (*tokenizer == ls_tokenizer_bytes() && config->base) /* adapters may come without one */
    LS_TRY(ls_tokenizer_of(config->base, tokenizer, error));
  const int64_t ids = (*tokenizer)->vocabulary;
  const bool given = *tokenizer != ls_tokenizer_bytes();
  if (given ? config->vocabulary >= ids : config->vocabulary == ids) return LS_OK;
  const char *name = given ? (*tokenizer)->name : "no tokenizer";
  ls_fail(error, LS_INPUT,
          "%s: a vocabulary of %lld and %s; expected a tokenizer of at most that many ids (without "
          "one tokens are bytes, %lld ids)",
          folder, (long long)config->vocabulary, name, (long long)ls_tokenizer_bytes()->vocabulary);
  ls_tokenizer_close(tokenizer);
  return LS_INPUT;
}

/* A template that refuses a system prompt says so before anything else is done. */
static ls_status try_system(const ls_generate_opened *opened, ls_error *error) {
  ls_ids ids = {0};
  if (!opened->asked->system) return LS_OK;
  json_t *question = json_pack("{s:s, s:s}", "prompt", "a", "system", opened->asked->system);
  if (!question) return ls_fail(error, LS_INPUT, "--system: no UTF-8; expected text in UTF-8");
  const ls_status status = ls_chat_ask(opened->chat, question, &ids, error);
  json_decref(question);
  ls_ids_free(&ids);
  return status == LS_OK ? LS_OK : ls_error_prefix(error, "--system");
}

static ls_status open_chat(ls_arena *arena, ls_generate_opened *opened, ls_error *error) {
  const ls_chat_options options = {.tokenizer = opened->tokenizer,
                                   .template = opened->asked->template,
                                   .folder = opened->folder,
                                   .remedy = "--template FILE.jinja"};
  LS_TRY(ls_chat_open(&options, &opened->chat, error));
  LS_TRY(try_system(opened, error));
  return ls_chat_find_end(arena, opened->chat, &opened->end, error);
}

/* LS_INPUT where a folder has no tokenizer that fits its model. */
static ls_status open_model(ls_arena *arena, const ls_generate_asked *asked,
                            ls_generate_opened *opened, ls_error *error) {
  LS_TRY(ls_sampling_check(&asked->sampling, error));
  LS_TRY(ls_checkpoint_find(arena, asked->model, asked->trust, &opened->folder, error));
  LS_TRY(ls_adapters_read(arena, opened->folder, &opened->config, error));
  LS_TRY(ls_generate_find_tokenizer(opened->folder, &opened->config, &opened->tokenizer, error));
  if (asked->chat || asked->interactive) return open_chat(arena, opened, error);
  /* Only a file with messages needs one; it is refused where it has some. */
  if (asked->prompts && open_chat(arena, opened, &opened->chatless) != LS_OK)
    ls_chat_close(&opened->chat);
  return LS_OK;
}

ls_text_writer ls_generate_writer(const ls_generate_opened *opened, FILE *to) {
  return (ls_text_writer){.tokenizer = opened->tokenizer,
                          .end = opened->end,
                          .sampling = opened->asked->sampling,
                          .most = opened->asked->most,
                          .to = to};
}

void ls_generate_tell(const ls_text_writer *writer, const ls_generate_opened *opened,
                      ls_generate_end end, int64_t rows) {
  fprintf(stderr, "prompt of %lld tokens, ", (long long)writer->prompt_tokens);
  if (writer->reused) fprintf(stderr, "%lld of them kept, ", (long long)writer->reused);
  fprintf(stderr, "%.1f a second; %lld tokens, %.1f a second", ls_text_writer_prompt_rate(writer),
          (long long)writer->tokens, ls_text_writer_token_rate(writer));
  if (end == LS_GENERATE_END_ID) fprintf(stderr, "; the model ended the text");
  if (end == LS_GENERATE_ENOUGH) fprintf(stderr, "; stopped");
  if (end == LS_GENERATE_POSITIONS)
    fprintf(stderr, "; stopped at the %lld positions %s", (long long)rows,
            rows == opened->config.positions ? "the model is made for" : "of --context");
  if (opened->asked->draft) ls_generate_tell_draft(&writer->drafts);
  fprintf(stderr, "\n");
}

/* What is generated, and where it stands. */
typedef struct generating {
  ls_arena *arena;
  ls_generate_asked asked;
  ls_generate_opened opened;
  ls_world *world;
  ls_prompts prompts;
  ls_generator_options options;
  ls_draft_options draft;  /* tokens 0: none */
  ls_arena *draft_arena;   /* of its generator, which ends with the other */
  ls_generator *generator; /* while it is used */
  int64_t tokens;          /* of all texts */
  ls_draft_counts drafts;
} generating;

static ls_status print_json(const ls_text *made, bool drafts, ls_error *error) {
  const ls_text_writer *out = made->writer;
  json_t *root =
      json_pack("{s:O, s:s%, s:I, s:f, s:I, s:f, s:s}", "prompt", made->prompt->asked, "text",
                made->text, made->bytes, "tokens", (json_int_t)out->tokens, "tokens_per_second",
                ls_text_writer_token_rate(out), "prompt_tokens", (json_int_t)out->prompt_tokens,
                "prompt_tokens_per_second", ls_text_writer_prompt_rate(out), "finish_reason",
                made->end == LS_GENERATE_END_ID ? "stop" : "length");
  if (!root) return ls_fail(error, LS_FAILED, "out of memory");
  if (drafts) {
    json_object_set_new(root, "rounds", json_integer((json_int_t)out->drafts.rounds));
    json_object_set_new(root, "drafted_tokens", json_integer((json_int_t)out->drafts.drafted));
    json_object_set_new(root, "kept_tokens", json_integer((json_int_t)out->drafts.kept));
  }
  const int failed = json_dumpf(root, stdout, 0);
  json_decref(root);
  if (!failed && putchar('\n') != EOF && fflush(stdout) == 0) return LS_OK;
  return ls_fail(error, LS_FAILED, "the text cannot be written: %s", strerror(errno));
}

static ls_status print_made(void *context, int number, const ls_text *made, ls_error *error) {
  generating *self = context;
  const ls_generate_opened *opened = &self->opened;
  const int64_t rows = ls_generator_rows(self->generator);
  (void)number;
  self->tokens += made->writer->tokens;
  self->drafts.rounds += made->writer->drafts.rounds;
  self->drafts.drafted += made->writer->drafts.drafted;
  self->drafts.kept += made->writer->drafts.kept;
  if (opened->asked->json) {
    LS_TRY(print_json(made, self->draft.tokens > 0, error));
    if (made->end == LS_GENERATE_POSITIONS) ls_generate_tell(made->writer, opened, made->end, rows);
    return LS_OK;
  }
  const ls_text_writer out = ls_generate_writer(opened, stdout);
  LS_TRY(ls_text_writer_put_prompt(&out, made->prompt, error));
  LS_TRY(ls_text_writer_put(&out, made->text, made->bytes, error));
  LS_TRY(ls_text_writer_put(&out, "\n", 1, error));
  ls_generate_tell(made->writer, opened, made->end, rows);
  return LS_OK;
}

/* Texts as they come, one prompt after the other. */
static ls_status stream_prompts(generating *self, ls_error *error) {
  for (int p = 0; p < self->prompts.list.count; p++) {
    const ls_prompt *prompt = &self->prompts.list.items[p];
    ls_generate_end end;
    ls_text_writer out = ls_generate_writer(&self->opened, stdout);
    out.repeats = true;
    ls_status status = ls_text_writer_run(&out, self->generator, prompt, false, &end, error);
    if (status == LS_OK) status = ls_text_writer_put(&out, "\n", 1, error);
    if (status != LS_OK)
      return prompt->where ? ls_error_prefix(error, "%s", prompt->where) : status;
    ls_generate_tell(&out, &self->opened, end, ls_generator_rows(self->generator));
  }
  return LS_OK;
}

static ls_status print_prompts(generating *self, ls_error *error) {
  const int64_t sequences = ls_generator_sequences(self->generator);
  const bool one = sequences == 1;
  if (one && !self->opened.asked->json) return stream_prompts(self, error);
  const ls_text_batch batch = {.writer = ls_generate_writer(&self->opened, NULL),
                               .prompts = self->prompts.list.items,
                               .count = self->prompts.list.count,
                               .take = print_made,
                               .context = self};
  const double begin = ls_now_s();
  LS_TRY(ls_text_batch_run(&batch, self->generator, error));
  if (one) return LS_OK;
  const double seconds = ls_now_s() - begin;
  fprintf(stderr, "%d prompts, %lld at once: %lld tokens in %.1f s, %.1f a second", batch.count,
          (long long)sequences, (long long)self->tokens, seconds, (double)self->tokens / seconds);
  if (self->draft.tokens) ls_generate_tell_draft(&self->drafts);
  fprintf(stderr, "\n");
  return LS_OK;
}

static ls_status read_prompts(ls_arena *arena, const ls_generate_opened *opened,
                              ls_prompts *prompts, ls_error *error) {
  const ls_generate_asked *asked = opened->asked;
  const ls_prompts_options options = {.key = "--prompts",
                                      .tokenizer = opened->tokenizer,
                                      .chat = opened->chat,
                                      .chatless = opened->chatless.text,
                                      .asks = asked->chat,
                                      .system = asked->system,
                                      .positions = opened->config.positions};
  if (asked->prompts) return ls_prompts_read(arena, &options, asked->prompts, prompts, error);
  return ls_prompts_add(arena, &options, NULL, asked->prompt, asked->prompt_bytes, prompts, error);
}

/* Of a device, and of the draft on the first of them. */
static ls_status bytes_needed(const generating *self, ls_arena *arena, int64_t *each,
                              int64_t *drafts, ls_error *error) {
  *drafts = 0;
  LS_TRY(ls_generator_bytes(arena, &self->opened.config, &self->options, self->asked.devices, each,
                            error));
  if (!self->draft.folder) return LS_OK;
  ls_generator_options options = self->options;
  ls_model_config config;
  LS_TRY(ls_adapters_read(arena, self->draft.folder, &config, error));
  if (self->draft.layers) config.layers = self->draft.layers;
  options.ahead = 1;
  return ls_generator_bytes(arena, &config, &options, 1, drafts, error);
}

static bool has_room(const generating *self, ls_arena *arena, int64_t each, int64_t drafts) {
  const ls_run_device *device = &self->asked.device;
  ls_gpus gpus;
  if (device->memory && each + drafts > device->memory) return false;
  if (!ls_run_device_is_gpu(device))
    return ls_check_memory(each * ls_world_count_on_host(self->world) + drafts, "", NULL) == LS_OK;
  return ls_gpus_here(arena, &gpus, NULL) != LS_OK ||
         each + drafts <= gpus.first.memory_mib * (1 << 20);
}

/* All prompts at once, or half as many, as memory has it. */
static ls_status choose_sequences(generating *self, ls_error *error) {
  const int64_t asked = self->opened.asked->batch, count = self->prompts.list.count;
  int64_t *sequences = &self->options.sequences;
  *sequences = asked ? asked : LS_MOST_SEQUENCES;
  if (*sequences > count) *sequences = count;
  for (bool fits = asked > 0; *sequences > 1 && !fits;) {
    int64_t each, drafts;
    ls_arena *arena = ls_arena_create();
    const ls_status status = bytes_needed(self, arena, &each, &drafts, error);
    fits = status == LS_OK && has_room(self, arena, each, drafts);
    ls_arena_destroy(&arena);
    LS_TRY(status);
    if (!fits) *sequences /= 2;
  }
  return LS_OK;
}

/* Room for the longest prompt and what follows it, or for a conversation. */
static ls_status prepare_first(generating *self, ls_error *error) {
  ls_generate_asked *asked = &self->asked;
  if (!asked->prompts && !asked->interactive) LS_TRY(read_prompt(self->arena, asked, error));
  LS_TRY(open_model(self->arena, asked, &self->opened, error));
  self->options.folder = self->opened.folder;
  LS_TRY(ls_generate_open_draft(self->arena, &self->opened, &self->draft, error));
  self->options.rows = asked->context;
  if (asked->interactive) return LS_OK;
  LS_TRY(read_prompts(self->arena, &self->opened, &self->prompts, error));
  const int64_t longest = ls_prompts_longest(&self->prompts), most = INT64_MAX - longest;
  self->options.rows = longest + (asked->most < most ? asked->most : most);
  return choose_sequences(self, error);
}

/* The first process reads what is asked, and its standard input; the others need the weights. */
static ls_status prepare(void *context, ls_error *error) {
  generating *self = context;
  const ls_generate_asked *asked = &self->asked;
  self->options.compute = asked->compute;
  self->options.device = &asked->device;
  self->options.threads = (int)asked->device.threads;
  self->options.tuning = ls_tuning_tell;
  self->options.pp = asked->pp;
  self->options.cp = asked->cp;
  self->options.ahead = asked->draft_options.tokens;
  if (ls_world_first_here(self->world) == 0) return prepare_first(self, error);
  return ls_checkpoint_locate(self->arena, asked->model, &self->options.folder, error);
}

/* What a device of several has. */
static void tell_memory(const generating *self) {
  const double mib = 1 << 20;
  const ls_generator_memory memory = ls_generator_memory_of(self->generator);
  if (self->asked.devices > 1)
    fprintf(stderr, "%d devices of %.1f MiB: %lld of %lld rows of the caches, %.1f MiB\n",
            self->asked.devices, (double)memory.bytes / mib, (long long)memory.own_rows,
            (long long)memory.rows, (double)memory.cache_bytes / mib);
}

static ls_status use(void *context, ls_generator *generator, ls_error *error) {
  generating *self = context;
  self->generator = generator;
  if (self->asked.gpus) fprintf(stderr, "%s\n", self->asked.gpus);
  if (ls_run_device_is_gpu(&self->asked.device))
    ls_warn("generating on a GPU has run on stand-ins alone so far; compare with device.kind=cpu");
  ls_generate_show_reading(self->arena, generator);
  tell_memory(self);
  if (self->draft.tokens)
    LS_TRY(ls_generator_set_draft(self->draft_arena, generator, &self->draft, error));
  if (self->opened.asked->interactive) return ls_generate_talk(&self->opened, generator, error);
  return print_prompts(self, error);
}

static ls_status generate_text(ls_arena *arena, const ls_generate_asked *asked, ls_error *error) {
  generating self = {.arena = arena, .asked = *asked, .opened = {.end = {.id = -1, .text = ""}}};
  self.opened.asked = &self.asked;
  self.draft_arena = ls_arena_create();
  LS_TRY(ls_command_world(asked->devices, &self.world, error));
  ls_world_set_deadline(self.world, asked->timeout);
  ls_status status =
      ls_world_agree(self.world, ls_arena_guard(prepare, &self, false, error), error);
  if (status == LS_OK)
    status = ls_generator_run(arena, &self.options, self.world, use, &self, error);
  ls_arena_destroy(&self.draft_arena);
  ls_prompts_free(&self.prompts);
  ls_chat_close(&self.opened.chat);
  ls_tokenizer_close(&self.opened.tokenizer);
  ls_world_destroy(&self.world);
  return status;
}

typedef struct generate_flags {
  const char *temperature, *top_k, *top_p, *seed, *most, *context, *batch, *devices, *draft_tokens;
  bool greedy;
  ls_generate_asked asked;
} generate_flags;

static ls_status check_flags(const ls_words *words, const ls_generate_asked *asked,
                             ls_error *error) {
  const bool lines = asked->prompts || asked->interactive;
  if (asked->prompts && asked->interactive)
    return ls_fail(error, LS_INPUT, "--prompts and --interactive: expected one of them");
  if (asked->interactive && asked->json)
    return ls_fail(error, LS_INPUT,
                   "--json: has no effect on a conversation: give --prompts FILE, or leave it out");
  if (asked->system && !asked->chat && !lines)
    return ls_fail(error, LS_INPUT, "--system: expected --chat with it");
  if (asked->template && !asked->chat && !lines)
    return ls_fail(error, LS_INPUT, "--template: expected --chat with it");
  if (words->positional_count == (lines ? 1 : 2)) return LS_OK;
  return ls_fail(error, LS_INPUT, "found %d word%s; expected a run or checkpoint%s (see --help)",
                 words->positional_count, words->positional_count == 1 ? "" : "s",
                 lines ? " alone" : " and a prompt in quotes");
}

static ls_status read_request(ls_arena *arena, const ls_words *words, const generate_flags *given,
                              ls_generate_asked *asked, ls_error *error) {
  LS_TRY(check_flags(words, asked, error));
  asked->model = words->positional[0];
  asked->prompt = words->positional[1];
  asked->most = 200;
  asked->context = CONTEXT;
  asked->sampling = (ls_sampling){.temperature = 0.8, .top_p = 0.9};
  int64_t seed = 1;
  LS_TRY(read_number(given->temperature, "--temperature", &asked->sampling.temperature, error));
  LS_TRY(read_whole(given->top_k, "--top-k", 0, &asked->sampling.top_k, error));
  LS_TRY(read_number(given->top_p, "--top-p", &asked->sampling.top_p, error));
  if (asked->sampling.top_p == 0)
    return ls_fail(error, LS_INPUT,
                   "--top-p: found %s; expected a number above 0, up to 1 for all tokens",
                   given->top_p);
  LS_TRY(read_whole(given->seed, "--seed", 0, &seed, error));
  LS_TRY(read_whole(given->most, "--max-new-tokens", 1, &asked->most, error));
  LS_TRY(read_whole(given->context, "--context", 2, &asked->context, error));
  if (given->context && !asked->interactive)
    return ls_fail(error, LS_INPUT, "--context: expected --interactive with it");
  LS_TRY(read_whole(given->batch, "--batch", 1, &asked->batch, error));
  if (given->batch && !asked->prompts)
    return ls_fail(error, LS_INPUT, "--batch: expected --prompts with it");
  if (asked->batch > LS_MOST_SEQUENCES)
    return ls_fail(error, LS_INPUT, "--batch: found %lld; expected at most %d",
                   (long long)asked->batch, (int)LS_MOST_SEQUENCES);
  LS_TRY(read_whole(given->draft_tokens, "--draft-tokens", 1, &asked->draft_options.tokens, error));
  LS_TRY(ls_generate_read_draft(asked, error));
  asked->sampling.seed = (uint64_t)seed;
  if (given->greedy) asked->sampling.temperature = 0;
  return read_keys(arena, words, given->devices, asked, error);
}

static ls_status generate(ls_arena *arena, const ls_words *words, void *flags, ls_error *error) {
  generate_flags *given = flags;
  LS_TRY(read_request(arena, words, given, &given->asked, error));
  return generate_text(arena, &given->asked, error);
}

int ls_command_generate(int count, char **words) {
  generate_flags given = {0};
  ls_generate_asked *asked = &given.asked;
  const ls_command_flag flags[] = {{"--temperature", &given.temperature, NULL},
                                   {"--top-k", &given.top_k, NULL},
                                   {"--top-p", &given.top_p, NULL},
                                   {"--seed", &given.seed, NULL},
                                   {"--max-new-tokens", &given.most, NULL},
                                   {"--context", &given.context, NULL},
                                   {"--batch", &given.batch, NULL},
                                   {"-n", &given.devices, NULL},
                                   {"--draft", &asked->draft, NULL},
                                   {"--draft-tokens", &given.draft_tokens, NULL},
                                   {"--prompts", &asked->prompts, NULL},
                                   {"--system", &asked->system, NULL},
                                   {"--template", &asked->template, NULL},
                                   {"--greedy", NULL, &given.greedy},
                                   {"--chat", NULL, &asked->chat},
                                   {"--interactive", NULL, &asked->interactive},
                                   {"--json", NULL, &asked->json},
                                   {"--trust", NULL, &asked->trust}};
  return ls_command_run(
      &(ls_command){"generate", help, false, flags, sizeof flags / sizeof *flags, generate, &given},
      count, words);
}
