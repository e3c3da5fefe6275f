#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/tokenize_chats.h"
#include "cli/tokenize_folder.h"
#include "cluster/machine.h"
#include "tokenizer/tokenizer_stream.h"

static const char help[] =
    "usage: lockstep tokenize TEXT... --tokenizer PATH -o FOLDER [flags]\n"
    "       lockstep tokenize TEXT... --tokenizer PATH (--ids | --count | --decode) [flags]\n"
    "       lockstep tokenize CHATS... --tokenizer PATH --template (--show | --count) [flags]\n\n"
    "Texts to token ids and back, with the ids of the tokenizer's own library. PATH is a folder\n"
    "or one file: tokenizer.json (BPE of bytes or of characters), tokenizer.model "
    "(SentencePiece's\n"
    "BPE and Unigram), vocab.json beside merges.txt (GPT-2's), or a *.tiktoken file. A text of -\n"
    "is standard input. What a file holds that is not supported is refused by its name.\n\n"
    "  --tokenizer PATH  the tokenizer; bytes: an id for each byte, as models without one have\n"
    "  -o FOLDER         write token files to train on, with data.text=FOLDER: one of each TEXT,\n"
    "                    which may be a file, a pattern in quotes or a folder, plain text and "
    "JSON\n"
    "                    lines (.jsonl, .ndjson), each also as .gz and .zst\n"
    "  --text-key KEY    with -o: where JSON lines have their text (default text)\n"
    "  --on-bad-line WORD  with -o: stop (default) or skip, which counts them\n"
    "  --ids             print each text's ids, a line of numbers with spaces between them\n"
    "  --count           print how many they are, with the text's name where there are several\n"
    "  --decode          the texts are ids: print the text that they are\n"
    "  --special         with the beginning's and end's tokens as a model is given them, and with\n"
    "                    tiktoken's special tokens where the text spells them; decoding: written\n"
    "                    out instead of left out\n"
    "  --pattern REGEX   how a *.tiktoken file cuts words, if its name is none of r50k_base,\n"
    "                    p50k_base, cl100k_base, o200k_base\n"
    "  --template        the texts are chats or pairs of answers (.jsonl, or a list in .json),\n"
    "                    rendered with the tokenizer's chat template, as training does\n"
    "  --template-file F the same with the template in this file\n"
    "  --show            print each chat's tokens with bars between them: what is trained in\n"
    "                    colour, or in brackets where the output is no terminal\n"
    "  --loss-on WORD    what is trained: answers (default), all or last\n"
    "  --threads N       (default: all cores)\n"
    "  --help            this text\n\n"
    "Training on token files is training on their texts: the same documents, each with its end of\n"
    "text, validation and losses. A token file whose texts did not change is left as it is; an\n"
    "interrupt leaves nothing half-written. Memory does not grow with the texts.\n\n"
    "Bytes that are no UTF-8 are read as U+FFFD: one for each longest beginning of a character,\n"
    "for tokenizer.model one for each byte, as the libraries do it.\n\n"
    "examples:\n"
    "  lockstep tokenize books/ 'web/**/*.jsonl.zst' --tokenizer path/to/gpt2 -o tokens/\n"
    "  lockstep train run.yaml data.tokenizer=path/to/gpt2 data.text=tokens/\n"
    "  lockstep tokenize book.txt --tokenizer path/to/Qwen2.5-0.5B --count\n"
    "  lockstep tokenize book.txt --tokenizer tokenizer.model --ids --special\n"
    "  lockstep tokenize - --tokenizer cl100k_base.tiktoken --ids < book.txt\n"
    "  lockstep tokenize ids.txt --tokenizer path/to/gpt2 --decode\n"
    "  lockstep tokenize chats.jsonl --tokenizer path/to/Qwen2.5-0.5B --template --show\n";

typedef struct request {
  const char *tokenizer, *pattern, *threads, *out, *text_key, *on_bad_line;
  const char *template_file, *loss_on;
  bool ids, count, decode, special, template, show;
} request;

/* What is made of one text. */
typedef struct result {
  const request *asked;
  int64_t count;
} result;

static ls_status fail_output(ls_error *error) {
  return ls_fail(error, LS_FAILED, "the result cannot be written: %s", strerror(errno));
}

static ls_status take_ids(void *context, const int32_t *ids, int64_t count, ls_error *error) {
  enum { AT_ONCE = 512, DIGITS = 12 };
  char text[AT_ONCE * DIGITS];
  result *self = context;
  for (int64_t i = 0; self->asked->ids && i < count;) {
    size_t used = 0;
    for (int k = 0; k < AT_ONCE && i < count; k++, i++) {
      if (self->count + i > 0) text[used++] = ' ';
      used += (size_t)snprintf(text + used, sizeof text - used, "%d", ids[i]);
    }
    if (fwrite(text, 1, used, stdout) != used) return fail_output(error);
  }
  self->count += count;
  return LS_OK;
}

static ls_status encode(const ls_tokenizer *tokenizer, const request *asked, int threads,
                        FILE *file, const char *name, int64_t *count, ls_error *error) {
  result made = {.asked = asked};
  const ls_token_stream stream = {.tokenizer = tokenizer,
                                  .threads = threads,
                                  .flags = asked->special ? LS_TOKENS_SPECIAL : 0,
                                  .take = take_ids,
                                  .context = &made};
  LS_TRY(ls_token_stream_run(&stream, file, name, error));
  *count = made.count;
  if (asked->ids && putchar('\n') == EOF) return fail_output(error);
  return LS_OK;
}

/* Decimal numbers with white space between them. */
static ls_status read_ids(FILE *file, const char *name, ls_arena *arena, int32_t **ids,
                          int64_t *count, ls_error *error) {
  LS_LIST(int32_t) list = {0};
  char word[16];
  int got;
  while ((got = fscanf(file, "%15s", word)) == 1) {
    char *end;
    errno = 0;
    const long value = strtol(word, &end, 10);
    if (*end || end == word || errno || value < 0 || value > INT32_MAX) {
      return ls_fail(error, LS_INPUT, "%s: id %d: found \"%s\"; expected a whole number", name,
                     list.count + 1, word);
    }
    if (list.count == INT32_MAX / 2) {
      return ls_fail(error, LS_INPUT, "%s: more than %d ids; cut the file", name, INT32_MAX / 2);
    }
    *LS_APPEND(arena, &list) = (int32_t)value;
  }
  if (ferror(file)) {
    return ls_fail(error, LS_INPUT, "%s: cannot be read: %s", name, strerror(errno));
  }
  *ids = list.items;
  *count = list.count;
  return LS_OK;
}

static ls_status decode(const ls_tokenizer *tokenizer, const request *asked, FILE *file,
                        const char *name, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  int32_t *ids = NULL;
  int64_t count = 0;
  char *text = NULL;
  size_t bytes = 0;
  ls_status status = read_ids(file, name, arena, &ids, &count, error);
  if (status == LS_OK) {
    status = ls_tokenizer_text(tokenizer, ids, count, asked->special ? LS_TOKENS_SPECIAL : 0, &text,
                               &bytes, error);
    if (status == LS_INPUT) ls_error_prefix(error, "%s", name);
  }
  if (status == LS_OK && fwrite(text, 1, bytes, stdout) != bytes) status = fail_output(error);
  free(text);
  ls_arena_destroy(&arena);
  return status;
}

static ls_status each_text(const ls_tokenizer *tokenizer, const request *asked, int threads,
                           const char *name, bool several, ls_error *error) {
  const bool input = strcmp(name, "-") == 0;
  FILE *file = input ? stdin : fopen(name, "rb");
  if (!file) {
    return ls_fail(error, LS_INPUT, "%s: cannot be read: %s; expected a text", name,
                   strerror(errno));
  }
  int64_t count = 0;
  ls_status status = asked->decode ? decode(tokenizer, asked, file, name, error)
                                   : encode(tokenizer, asked, threads, file, name, &count, error);
  if (!input) fclose(file);
  if (status != LS_OK || !asked->count) return status;
  const int printed =
      several ? printf("%lld %s\n", (long long)count, name) : printf("%lld\n", (long long)count);
  return printed < 0 ? fail_output(error) : LS_OK;
}

static ls_status read_threads(const char *text, int *threads, ls_error *error) {
  *threads = ls_machine_cores();
  if (!text) return LS_OK;
  char *end;
  const long value = strtol(text, &end, 10);
  if (*end || end == text || value < 1 || value > 256) {
    return ls_fail(error, LS_INPUT, "--threads: found \"%s\"; expected a number from 1 to 256",
                   text);
  }
  *threads = (int)value;
  return LS_OK;
}

static ls_status check(const ls_words *words, const request *asked, ls_error *error) {
  if (words->key_count) {
    return ls_fail(error, LS_INPUT, "%s: tokenize takes no keys of a run file", words->keys[0]);
  }
  if (!asked->tokenizer) {
    return ls_fail(error, LS_INPUT,
                   "--tokenizer is missing; expected a folder or file of a tokenizer");
  }
  const bool chats = asked->template || asked->template_file;
  if (chats && (asked->ids || asked->decode || asked->out || asked->special ||
                asked->show + asked->count != 1))
    return ls_fail(error, LS_INPUT, "--template: expected one of --show and --count with it");
  if (!chats && (asked->show || asked->loss_on))
    return ls_fail(error, LS_INPUT, "%s: expected --template with it, for chats",
                   asked->show ? "--show" : "--loss-on");
  if (!chats && asked->ids + asked->count + asked->decode + (asked->out != NULL) != 1) {
    return ls_fail(error, LS_INPUT,
                   "expected one of --ids, --count, --decode and -o FOLDER (see --help)");
  }
  if (!words->positional_count) {
    return ls_fail(error, LS_INPUT, "found no text; expected the name of one, or - (see --help)");
  }
  if (asked->out && asked->special) {
    return ls_fail(error, LS_INPUT,
                   "--special: token files have the end of text alone, as training does; expected "
                   "--ids or --decode");
  }
  if (!asked->out && (asked->text_key || asked->on_bad_line)) {
    return ls_fail(error, LS_INPUT, "%s: expected it with -o, which reads JSON lines",
                   asked->text_key ? "--text-key" : "--on-bad-line");
  }
  const char *word = asked->on_bad_line;
  if (word && strcmp(word, "stop") != 0 && strcmp(word, "skip") != 0) {
    return ls_fail(error, LS_INPUT, "--on-bad-line: found \"%s\"; expected stop or skip", word);
  }
  return LS_OK;
}

static ls_status each_way(ls_arena *arena, const ls_words *words, const request *asked, int threads,
                          const ls_tokenizer *tokenizer, ls_error *error) {
  if (asked->template || asked->template_file) {
    const ls_tokenize_chats chats = {.words = words,
                                     .template = asked->template_file,
                                     .loss_on = asked->loss_on,
                                     .show = asked->show,
                                     .count = asked->count};
    return ls_tokenize_chats_print(arena, &chats, tokenizer, error);
  }
  if (asked->out) {
    const ls_tokenize_folder to = {
        .folder = asked->out,
        .words = words,
        .text_key = asked->text_key,
        .skip_bad_lines = asked->on_bad_line && strcmp(asked->on_bad_line, "skip") == 0,
        .threads = threads};
    return ls_tokenize_to_folder(arena, &to, tokenizer, error);
  }
  for (int i = 0; i < words->positional_count; i++) {
    LS_TRY(each_text(tokenizer, asked, threads, words->positional[i], words->positional_count > 1,
                     error));
  }
  return LS_OK;
}

static ls_status tokenize(ls_arena *arena, const ls_words *words, void *flags, ls_error *error) {
  const request *asked = flags;
  int threads;
  LS_TRY(read_threads(asked->threads, &threads, error));
  LS_TRY(check(words, asked, error));
  const ls_tokenizer *tokenizer = ls_tokenizer_bytes();
  const char *name = asked->tokenizer;
  if (strcmp(name, "bytes") != 0 || ls_file_exists(name) || ls_directory_exists(name))
    LS_TRY(ls_tokenizer_open(name, &(ls_tokenizer_options){.pattern = asked->pattern}, &tokenizer,
                             error));
  ls_status status = each_way(arena, words, asked, threads, tokenizer, error);
  ls_tokenizer_close(&tokenizer);
  if (status == LS_OK && fflush(stdout) != 0) status = fail_output(error);
  return status;
}

int ls_command_tokenize(int count, char **words) {
  request asked = {0};
  const ls_command_flag flags[] = {{"--tokenizer", &asked.tokenizer, NULL},
                                   {"--pattern", &asked.pattern, NULL},
                                   {"--threads", &asked.threads, NULL},
                                   {"-o", &asked.out, NULL},
                                   {"--text-key", &asked.text_key, NULL},
                                   {"--on-bad-line", &asked.on_bad_line, NULL},
                                   {"--ids", NULL, &asked.ids},
                                   {"--count", NULL, &asked.count},
                                   {"--decode", NULL, &asked.decode},
                                   {"--special", NULL, &asked.special},
                                   {"--template", NULL, &asked.template},
                                   {"--template-file", &asked.template_file, NULL},
                                   {"--show", NULL, &asked.show},
                                   {"--loss-on", &asked.loss_on, NULL}};
  return ls_command_run(
      &(ls_command){"tokenize", help, false, flags, sizeof flags / sizeof *flags, tokenize, &asked},
      count, words);
}
