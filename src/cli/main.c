#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/command.h"
#include "lockstep/status.h"
#include "text/distance.h"

typedef struct command {
  const char *name, *summary;
  int (*run)(int count, char **words); /* NULL: comes with a later version */
} command;

static const command commands[] = {
    {"train", "train or fine-tune a model; resumes by itself", ls_command_train},
    {"show", "the compiled program in words: instructions, memory, bytes sent and why",
     ls_command_show},
    {"check", "prove the program: no deadlock, every reduction once, memory fits",
     ls_command_check},
    {"verify", "try a layout, shrunk, against one device; or repeat a trace recorded elsewhere",
     ls_command_verify},
    {"generate", "sample text from a checkpoint", ls_command_generate},
    {"plan", "which layout, how fast, how much memory, what money", NULL},
    {"bench", "measure this machine, or where the time of a model's step goes", ls_command_bench},
    {"export", "write a Hugging Face directory", ls_command_export},
    {"inspect", "what a run, model, adapter or file of tensors holds", ls_command_inspect},
    {"tokenize", "text to tokens and back, by any model's tokenizer", ls_command_tokenize},
    {"tokenizer", "train a tokenizer on texts: byte-level BPE", ls_command_tokenizer},
    {"watch", "the live page of a run", NULL},
};

enum { COMMANDS = sizeof commands / sizeof *commands };

static void print_help(FILE *stream) {
  fprintf(stream,
          "lockstep: compiles one training step of a transformer model for a mesh of devices,\n"
          "then runs it.\n\n"
          "usage: lockstep COMMAND [words]      lockstep COMMAND --help\n\n");
  for (int c = 0; c < COMMANDS; c++)
    if (commands[c].run) fprintf(stream, "  %-10s %s\n", commands[c].name, commands[c].summary);
  fprintf(stream,
          "\nexamples:\n"
          "  lockstep train examples/quickstart.yaml data.text=book.txt -n 2\n"
          "  lockstep show examples/quickstart.yaml --compare -n 4\n"
          "  lockstep generate runs/quickstart \"In the beginning\" --temperature 0.8\n\n"
          "exit status: 0 done, 1 the answer is no, 2 wrong input, 3 failed while running,\n"
          "4 stopped by a signal with the state saved\n");
}

static int unknown(const char *name) {
  const char *names[COMMANDS];
  for (int c = 0; c < COMMANDS; c++) names[c] = commands[c].name;
  const char *nearest = ls_nearest(name, names, COMMANDS);
  fprintf(stderr, "lockstep: unknown command \"%s\"%s%s%s (see lockstep --help)\n", name,
          nearest ? ": did you mean \"" : "", nearest ? nearest : "", nearest ? "\"?" : "");
  return 2;
}

/* Threads of OpenMP, oneDNN's among them, spin for some 15 ms before they sleep. Beside another
 * process each of their meetings then costs a share of that: steps took 6 times as long. How
 * long they spin is read before main, so the program starts once more with what it should be. */
static void wait_briefly(char **argv) {
  char self[PATH_MAX];
  if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY")) return;
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (length <= 0 || setenv("GOMP_SPINCOUNT", "4000", 1) != 0) return;
  self[length] = 0;
  execv(self, argv); /* where that fails it goes on as it is */
}

int main(int argc, char **argv) {
  wait_briefly(argv);
  ls_warnings_to(ls_print_warning, NULL);
  if (argc < 2) {
    print_help(stderr);
    return 2;
  }
  const char *name = argv[1];
  if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
    print_help(stdout);
    return 0;
  }
  if (strcmp(name, "--version") == 0) {
    printf("lockstep %s\n", LS_VERSION);
    return 0;
  }
  for (int c = 0; c < COMMANDS; c++) {
    if (strcmp(name, commands[c].name) != 0) continue;
    if (commands[c].run) return commands[c].run(argc - 2, argv + 2);
    fprintf(stderr, "lockstep: %s: not yet: this command comes with a later version\n", name);
    return 2;
  }
  return unknown(name);
}
