#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "cli/command.h"
#include "cluster/machine.h"
#include "data/word_counts_texts.h"
#include "tokenizer/bpe_train.h"

static const char help[] =
    "usage: lockstep tokenizer train TEXT... -o FOLDER [flags]\n\n"
    "Trains a tokenizer, byte-level BPE as GPT-2 has it, on texts: files, patterns (\"**\": any\n"
    "depth) and folders, plain text and JSON lines (.jsonl, .ndjson), each also as .gz and .zst.\n"
    "Writes tokenizer.json and tokenizer_config.json, which Hugging Face's tokenizers and\n"
    "transformers read, and lockstep's data.tokenizer and --tokenizer. The merges are those of\n"
    "Hugging Face's BpeTrainer with the ByteLevel pre-tokenizer, each document being one text.\n\n"
    "  -o FOLDER          where it is written: a new or an empty folder\n"
    "  --vocab N          how many tokens, bytes and special ones among them (default 32000);\n"
    "                     fewer where the texts give no more\n"
    "  --min-frequency N  the least times a pair is there to be merged (default 2)\n"
    "  --special A,B      special tokens, ids from 0 on; the first is the end of text\n"
    "                     (default <|endoftext|>; --special \"\": none)\n"
    "  --text-key KEY     where JSON lines have their text (default text)\n"
    "  --threads N        (default: all cores)\n"
    "  --help             this text\n\n"
    "Bytes that are no UTF-8 are read as U+FFFD, and a broken line of JSON lines ends it. Memory\n"
    "grows with the different words of the texts, not with the texts.\n\n"
    "examples:\n"
    "  lockstep tokenizer train book.txt --vocab 8000 -o tok\n"
    "  lockstep tokenizer train 'corpus/**/*.jsonl.zst' --vocab 32000 -o tok\n"
    "  lockstep train run.yaml data.tokenizer=tok data.text='corpus/**/*.jsonl.zst'\n";

typedef struct request {
  const char *out, *vocabulary, *least, *special, *text_key, *threads;
} request;

typedef struct progress {
  const char *doing, *unit;
  int64_t scale;
} progress;

static void print_progress(void *context, int64_t done, int64_t all) {
  const progress *self = context;
  if (!isatty(STDERR_FILENO)) return;
  fprintf(stderr, "\r%s: %lld of %lld %s\033[K", self->doing, (long long)(done / self->scale),
          (long long)(all / self->scale), self->unit);
}

static void end_progress(void) {
  if (isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
}

static ls_status read_number(const char *flag, const char *text, int64_t least, int64_t most,
                             int64_t *number, ls_error *error) {
  if (!text) return LS_OK;
  char *end;
  const long long value = strtoll(text, &end, 10);
  if (*end || end == text || value < least || value > most) {
    return ls_fail(error, LS_INPUT, "%s: found \"%s\"; expected a number from %lld to %lld", flag,
                   text, (long long)least, (long long)most);
  }
  *number = value;
  return LS_OK;
}

/* "A,B" taken apart. */
static void read_special(ls_arena *arena, const char *text, ls_bpe_train_options *options) {
  char *rest = ls_arena_strdup(arena, text ? text : "<|endoftext|>");
  const char **tokens = LS_NEW_ARRAY(arena, const char *, strlen(rest) + 1);
  options->special = tokens;
  while (rest && *rest) {
    char *comma = strchr(rest, ',');
    if (comma) *comma = '\0';
    tokens[options->special_count++] = rest;
    rest = comma ? comma + 1 : NULL;
  }
}

static ls_status check_words(const ls_words *words, ls_error *error) {
  if (words->key_count)
    return ls_fail(error, LS_INPUT, "%s: tokenizer takes no keys of a run file", words->keys[0]);
  if (words->positional_count == 0 || strcmp(words->positional[0], "train") != 0) {
    return ls_fail(error, LS_INPUT, "found %s%s%s; expected the word train (see --help)",
                   words->positional_count ? "\"" : "no word",
                   words->positional_count ? words->positional[0] : "",
                   words->positional_count ? "\"" : "");
  }
  if (words->positional_count == 1)
    return ls_fail(error, LS_INPUT, "found no text; expected the name of one (see --help)");
  return LS_OK;
}

static ls_status train(ls_arena *arena, const ls_words *words, void *flags, ls_error *error) {
  const request *asked = flags;
  LS_TRY(check_words(words, error));
  int64_t threads = ls_machine_cores(), pieces = 32000, least = 2;
  LS_TRY(read_number("--threads", asked->threads, 1, 256, &threads, error));
  LS_TRY(read_number("--vocab", asked->vocabulary, 1, LS_VOCABULARY_MOST, &pieces, error));
  LS_TRY(read_number("--min-frequency", asked->least, 0, INT64_MAX, &least, error));
  if (!asked->out) return ls_fail(error, LS_INPUT, "-o is missing; expected a folder to write");
  LS_TRY(ls_directory_check_new(asked->out, error));
  ls_text_files files;
  LS_TRY(ls_text_files_find(arena, "texts", words->positional + 1, words->positional_count - 1,
                            &files, error));

  progress shown = {"counting words", "MB", 1000000};
  ls_bpe_train_options training = {
      .pieces = pieces, .least_count = least, .progress = print_progress, .context = &shown};
  read_special(arena, asked->special, &training);
  LS_TRY(ls_bpe_train_check(&training, error));
  const double begin = ls_now_s();
  const ls_word_counts_options reading = {.text_key = asked->text_key ? asked->text_key : "text",
                                          .threads = (int)threads,
                                          .progress = print_progress,
                                          .context = &shown};
  ls_word_counts *counts = ls_word_counts_create(arena);
  const ls_status counted = ls_word_counts_texts(&reading, &files, counts, error);
  end_progress();
  LS_TRY(counted);
  const double middle = ls_now_s();

  shown = (progress){"merging", "tokens", 1};
  ls_bpe_trained trained;
  const ls_status merged = ls_bpe_train(arena, counts, &training, &trained, error);
  end_progress();
  LS_TRY(merged);
  LS_TRY(ls_bpe_trained_write(&trained, asked->out, error));
  fprintf(stderr,
          "%s: %d tokens, %d merges, of %d different words in %.1f MB; counting %.1f s, merging "
          "%.1f s\n",
          asked->out, trained.vocabulary->count, trained.rule_count, counts->count,
          (double)files.bytes / 1e6, middle - begin, ls_now_s() - middle);
  return LS_OK;
}

int ls_command_tokenizer(int count, char **words) {
  request asked = {0};
  const ls_command_flag flags[] = {{"-o", &asked.out, NULL},
                                   {"--vocab", &asked.vocabulary, NULL},
                                   {"--min-frequency", &asked.least, NULL},
                                   {"--special", &asked.special, NULL},
                                   {"--text-key", &asked.text_key, NULL},
                                   {"--threads", &asked.threads, NULL}};
  return ls_command_run(
      &(ls_command){"tokenizer", help, false, flags, sizeof flags / sizeof *flags, train, &asked},
      count, words);
}
