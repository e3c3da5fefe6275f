#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/inspect.h"
#include "cli/command.h"

static const char help[] =
    "usage: lockstep inspect PATH [--json] [--tensors]\n\n"
    "What a folder or file holds, in words: a run or checkpoint of ours, a folder of a model or\n"
    "an adapter from the Hugging Face hub, a config.json, a .safetensors file or its index, a\n"
    "tokenizer, a token file or a folder of them. Files are checked as far as they are read: a\n"
    "checkpoint's and a token file by checksum.\n\n"
    "  --tensors   every tensor by name, type and shape\n"
    "  --json      one object\n"
    "  --help      this text\n\n"
    "examples:\n"
    "  lockstep inspect runs/quickstart\n"
    "  lockstep inspect model/ --tensors\n"
    "  lockstep inspect adapter/ --json | jq .adapter\n";

/* Names in files are others': their control characters are not for the terminal. */
static int print_text(const char *text) {
  int count = 0;
  for (; text[count]; count++)
    putchar((unsigned char)text[count] < ' ' || text[count] == 0x7f ? '?' : text[count]);
  return count;
}

static void print_value(const json_t *value) {
  if (json_is_string(value)) {
    print_text(json_string_value(value));
  } else {
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(7));
    printf("%s", text ? text : "");
    free(text);
  }
}

static void print_tensors(json_t *list) {
  const char *name;
  json_t *tensor;
  json_object_foreach(list, name, tensor) {
    printf("  ");
    const int room = 60 - print_text(name);
    printf("%*s %-5s ", room > 0 ? room : 0, "",
           json_string_value(json_object_get(tensor, "dtype")));
    print_value(json_object_get(tensor, "shape"));
    printf("\n");
  }
}

static void print_words(json_t *found) {
  const char *section, *key;
  json_t *about, *value;
  json_object_foreach(found, section, about) {
    printf("%s\n", section);
    json_object_foreach(about, key, value) {
      if (strcmp(key, "names") == 0) continue;
      printf("  %-18s ", key);
      print_value(value);
      if (strcmp(key, "bytes") == 0) printf(" (%.1f MB)", (double)json_integer_value(value) * 1e-6);
      printf("\n");
    }
    print_tensors(json_object_get(about, "names"));
  }
}

static void print_json(json_t *found) {
  char *text = json_dumps(found, JSON_INDENT(2));
  printf("%s\n", text ? text : "{}");
  free(text);
}

typedef struct request {
  bool json, tensors;
} request;

static ls_status inspect(ls_arena *arena, const ls_words *words, void *flags, ls_error *error) {
  (void)arena;
  const request *asked = flags;
  const int count = words->positional_count + words->key_count;
  if (words->positional_count != 1 || words->key_count)
    return ls_fail(error, LS_INPUT, "found %d word%s; expected one folder or file", count,
                   count == 1 ? "" : "s");
  json_t *found = NULL;
  LS_TRY(ls_inspect(words->positional[0], asked->tensors, &found, error));
  (asked->json ? print_json : print_words)(found);
  json_decref(found);
  return LS_OK;
}

int ls_command_inspect(int count, char **words) {
  request asked = {0};
  const ls_command_flag flags[] = {{"--json", NULL, &asked.json},
                                   {"--tensors", NULL, &asked.tensors}};
  return ls_command_run(
      &(ls_command){"inspect", help, false, flags, sizeof flags / sizeof *flags, inspect, &asked},
      count, words);
}
