#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "cli/command.h"
#include "generate/generate.h"
#include "text/utf8.h"
#include "tokenizer/tokenizer.h"

static const char help[] =
    "usage: lockstep generate RUN_OR_CHECKPOINT \"PROMPT\" [flags] [dtype=WORD]\n\n"
    "Continues the prompt and prints both as the text comes. The first word is a run's folder\n"
    "(its newest good checkpoint is taken), a checkpoint, or a Hugging Face folder with its\n"
    "tokenizer. A prompt of - is read from standard input.\n\n"
    "  --temperature X     0 takes the likeliest token, 1 the model's own chances (default 0.8)\n"
    "  --top-k K           only the K likeliest tokens; 0: all (default)\n"
    "  --top-p P           only the likeliest tokens that sum to P (default 0.9)\n"
    "  --greedy            the likeliest token, always: --temperature 0\n"
    "  --seed N            the same seed gives the same text (default 1)\n"
    "  --max-new-tokens N  default 200\n"
    "  --trust             do not look at the checkpoint's checksums\n"
    "  --json              one object: prompt, text, tokens, tokens_per_second (after the first),\n"
    "                      prompt_tokens, prompt_tokens_per_second (up to the first new token)\n"
    "  --help              this text\n\n"
    "dtype is fp32 unless bf16, fp16 or fp64 is asked for; device.threads sets the threads "
    "(default:\n"
    "all cores for models that gain from them).\n\n"
    "examples:\n"
    "  lockstep generate runs/quickstart \"In the beginning\"\n"
    "  lockstep generate runs/quickstart \"And God said\" --temperature 0.8 --top-p 0.9 --seed 7\n"
    "  lockstep generate runs/quickstart/checkpoints/step-500 - --greedy < prompt.txt\n"
    "  lockstep generate runs/quickstart \"In the\" --max-new-tokens 50 --json | jq -r .text\n";

enum { PROMPT_BLOCK = 1 << 16 };

/* The words as they were given. */
typedef struct request {
  const char *model, *prompt;
  size_t prompt_bytes;
  ls_sampling sampling;
  int64_t most;
  bool json, trust;
  ls_dtype compute;
  int threads; /* 0: what suits the model */
} request;

typedef struct printer {
  const ls_tokenizer *tokenizer;
  ls_utf8_stream stream;
  FILE *to; /* with --json memory, until the end */
  int64_t tokens, prompt_tokens;
  double begin, first, last; /* s: when it began, and when the tokens were there */
} printer;

/* Tokens of the prompt until the first new one, and of those behind it, a second. */
static double prompt_rate(const printer *out) {
  const double seconds = out->first - out->begin;
  return seconds > 0 ? (double)out->prompt_tokens / seconds : 0;
}
static double token_rate(const printer *out) {
  const double seconds = out->last - out->first;
  return seconds > 0 ? (double)(out->tokens - 1) / seconds : 0;
}

static ls_status put(const printer *out, const char *text, size_t bytes, ls_error *error) {
  if (fwrite(text, 1, bytes, out->to) == bytes && fflush(out->to) == 0) return LS_OK;
  return ls_fail(error, LS_FAILED, "the text cannot be written: %s", strerror(errno));
}

static ls_status put_token(void *context, int32_t id, ls_error *error) {
  printer *out = context;
  enum { AT_ONCE = 256 };
  char small[AT_ONCE], text[LS_UTF8_MOST(AT_ONCE)];
  size_t bytes = 0;
  const char *piece = ls_tokenizer_piece(out->tokenizer, id, small, &bytes);
  out->last = ls_now_s();
  if (out->tokens++ == 0) out->first = out->last;
  if (!piece || ls_tokenizer_is_special(out->tokenizer, id)) return LS_OK;
  while (bytes) {
    const size_t taken = bytes < AT_ONCE ? bytes : AT_ONCE;
    LS_TRY(put(out, text, ls_utf8_push(&out->stream, piece, taken, text), error));
    piece += taken;
    bytes -= taken;
  }
  return LS_OK;
}

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

static ls_status read_prompt(ls_arena *arena, request *asked, ls_error *error) {
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

/* Of the run file's keys those that mean something here. */
static ls_status read_keys(ls_arena *arena, const ls_words *words, request *asked,
                           ls_error *error) {
  ls_run_file *run, *standard;
  LS_TRY(ls_run_file_read(arena, NULL, words->keys, words->key_count, &run, error));
  LS_TRY(ls_run_file_read(arena, NULL, NULL, 0, &standard, error));
  const ls_run_differences found = ls_run_file_diff(arena, standard, run);
  for (int i = 0; i < found.count; i++)
    if (strcmp(found.items[i].key, "dtype") != 0 && strncmp(found.items[i].key, "device.", 7) != 0)
      return ls_fail(error, LS_INPUT, "%s: has no effect on generating: leave it out",
                     found.items[i].key);
  switch (run->dtype) {
    case LS_RUN_DTYPE_BF16: asked->compute = LS_BF16; break;
    case LS_RUN_DTYPE_FP16: asked->compute = LS_F16; break;
    case LS_RUN_DTYPE_FP64: asked->compute = LS_F64; break;
    case LS_RUN_DTYPE_AUTO:
    case LS_RUN_DTYPE_FP32: asked->compute = LS_F32; break;
  }
  asked->threads = (int)run->device.threads;
  return LS_OK;
}

/* A folder without a tokenizer is taken for bytes only if it has their count. Close it. */
static ls_status find_tokenizer(const char *folder, const ls_model_config *config,
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

/* Any bytes as a JSON string. */
static json_t *json_text(const char *bytes, size_t count) {
  char *text = malloc(LS_UTF8_MOST(count) + LS_UTF8_MOST(0));
  if (!text) return NULL;
  ls_utf8_stream stream = {0};
  size_t length = ls_utf8_push(&stream, bytes, count, text);
  length += ls_utf8_end(&stream, text + length);
  json_t *string = json_stringn(text, length);
  free(text);
  return string;
}

static ls_status print_json(const request *asked, const char *text, size_t bytes,
                            const printer *out, ls_error *error) {
  json_t *root = json_pack(
      "{s:o, s:o, s:I, s:f, s:I, s:f}", "prompt", json_text(asked->prompt, asked->prompt_bytes),
      "text", json_text(text, bytes), "tokens", (json_int_t)out->tokens, "tokens_per_second",
      token_rate(out), "prompt_tokens", (json_int_t)out->prompt_tokens, "prompt_tokens_per_second",
      prompt_rate(out));
  if (!root) return ls_fail(error, LS_FAILED, "out of memory");
  const int failed = json_dumpf(root, stdout, 0);
  json_decref(root);
  if (!failed && putchar('\n') != EOF && fflush(stdout) == 0) return LS_OK;
  return ls_fail(error, LS_FAILED, "the text cannot be written: %s", strerror(errno));
}

static void tell_end(const printer *out, ls_generate_end end, int64_t positions) {
  fprintf(stderr, "prompt of %lld tokens, %.1f a second; %lld tokens, %.1f a second",
          (long long)out->prompt_tokens, prompt_rate(out), (long long)out->tokens, token_rate(out));
  if (end == LS_GENERATE_END_ID) fprintf(stderr, "; the model ended the text");
  if (end == LS_GENERATE_POSITIONS)
    fprintf(stderr, "; stopped at the %lld positions the model is made for", (long long)positions);
  fprintf(stderr, "\n");
}

/* Prints prompt, text and how it went; to memory only the text. */
static ls_status print_text(ls_generator *generator, const request *asked,
                            const ls_generate_request *what, printer *out, ls_error *error) {
  char text[LS_UTF8_MOST(0)];
  if (!asked->json) LS_TRY(put(out, asked->prompt, asked->prompt_bytes, error));
  out->prompt_tokens = what->prompt_count;
  out->begin = ls_now_s();
  ls_generate_end end;
  LS_TRY(ls_generate(generator, what, &end, error));
  LS_TRY(put(out, text, ls_utf8_end(&out->stream, text), error));
  if (!asked->json) LS_TRY(put(out, "\n", 1, error));
  if (!asked->json || end == LS_GENERATE_POSITIONS)
    tell_end(out, end, ls_generator_config(generator)->positions);
  return LS_OK;
}

static ls_status print_all(ls_generator *generator, const request *asked,
                           const ls_generate_request *what, printer *out, ls_error *error) {
  out->to = stdout;
  if (!asked->json) return print_text(generator, asked, what, out, error);
  char *text = NULL;
  size_t bytes = 0;
  out->to = open_memstream(&text, &bytes);
  if (!out->to) return ls_fail(error, LS_FAILED, "out of memory");
  ls_status status = print_text(generator, asked, what, out, error);
  fclose(out->to);
  if (status == LS_OK) status = print_json(asked, text, bytes, out, error);
  free(text);
  return status;
}

static ls_status generate_ids(ls_generator *generator, const request *asked, printer *out,
                              const ls_ids *ids, ls_error *error) {
  const int64_t rows = ls_generator_rows(generator);
  if (ids->count > rows)
    return ls_fail(error, LS_INPUT,
                   "the prompt has %lld tokens; the model is made for %lld: shorten it",
                   (long long)ids->count, (long long)rows);
  const ls_generate_request what = {.prompt = ids->items,
                                    .prompt_count = ids->count,
                                    .most = asked->most,
                                    .sampling = asked->sampling,
                                    .token = put_token,
                                    .context = out};
  return print_all(generator, asked, &what, out, error);
}

static ls_status generate_with(ls_generator *generator, const char *folder, const request *asked,
                               ls_error *error) {
  printer out = {0};
  ls_ids ids = {0};
  LS_TRY(find_tokenizer(folder, ls_generator_config(generator), &out.tokenizer, error));
  ls_status status = ls_tokenizer_append(out.tokenizer, asked->prompt, (int64_t)asked->prompt_bytes,
                                         LS_TOKENS_SPECIAL | LS_TOKENS_MORE, &ids, error);
  if (status == LS_OK) status = generate_ids(generator, asked, &out, &ids, error);
  ls_ids_free(&ids);
  ls_tokenizer_close(&out.tokenizer);
  return status;
}

static ls_status generate_text(ls_arena *arena, const request *asked, ls_error *error) {
  const char *folder;
  LS_TRY(ls_sampling_check(&asked->sampling, error));
  LS_TRY(ls_checkpoint_find(arena, asked->model, asked->trust, &folder, error));
  /* A prompt has about as many tokens as bytes at most; those before it come to that. */
  const int64_t prompt = 2 * (int64_t)asked->prompt_bytes + 16;
  const int64_t most = INT64_MAX - prompt;
  const int64_t rows = prompt + (asked->most < most ? asked->most : most);
  ls_generator *generator;
  LS_TRY(ls_generator_create(
      arena,
      &(ls_generator_options){
          .folder = folder, .compute = asked->compute, .threads = asked->threads, .rows = rows},
      &generator, error));
  const ls_status status = generate_with(generator, folder, asked, error);
  ls_generator_destroy(&generator);
  return status;
}

typedef struct generate_flags {
  const char *temperature, *top_k, *top_p, *seed, *most;
  bool greedy, json, trust;
} generate_flags;

static ls_status read_request(ls_arena *arena, const ls_words *words, const generate_flags *given,
                              request *asked, ls_error *error) {
  if (words->positional_count != 2)
    return ls_fail(
        error, LS_INPUT,
        "found %d word%s; expected a run or checkpoint and a prompt in quotes (see --help)",
        words->positional_count, words->positional_count == 1 ? "" : "s");
  asked->model = words->positional[0];
  asked->prompt = words->positional[1];
  asked->most = 200;
  asked->sampling = (ls_sampling){.temperature = 0.8, .top_p = 0.9};
  int64_t seed = 1;
  LS_TRY(read_number(given->temperature, "--temperature", &asked->sampling.temperature, error));
  LS_TRY(read_whole(given->top_k, "--top-k", 0, &asked->sampling.top_k, error));
  LS_TRY(read_number(given->top_p, "--top-p", &asked->sampling.top_p, error));
  LS_TRY(read_whole(given->seed, "--seed", 0, &seed, error));
  LS_TRY(read_whole(given->most, "--max-new-tokens", 1, &asked->most, error));
  asked->sampling.seed = (uint64_t)seed;
  if (given->greedy) asked->sampling.temperature = 0;
  asked->json = given->json;
  asked->trust = given->trust;
  LS_TRY(read_keys(arena, words, asked, error));
  return read_prompt(arena, asked, error);
}

static ls_status generate(ls_arena *arena, const ls_words *words, void *flags, ls_error *error) {
  request asked = {0};
  LS_TRY(read_request(arena, words, flags, &asked, error));
  return generate_text(arena, &asked, error);
}

int ls_command_generate(int count, char **words) {
  generate_flags asked = {0};
  const ls_command_flag flags[] = {{"--temperature", &asked.temperature, NULL},
                                   {"--top-k", &asked.top_k, NULL},
                                   {"--top-p", &asked.top_p, NULL},
                                   {"--seed", &asked.seed, NULL},
                                   {"--max-new-tokens", &asked.most, NULL},
                                   {"--greedy", NULL, &asked.greedy},
                                   {"--json", NULL, &asked.json},
                                   {"--trust", NULL, &asked.trust}};
  return ls_command_run(
      &(ls_command){"generate", help, false, flags, sizeof flags / sizeof *flags, generate, &asked},
      count, words);
}
