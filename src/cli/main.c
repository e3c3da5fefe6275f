#include <errno.h>
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
    {"evaluate", "loss and perplexity of a model on a text, on any layout", ls_command_evaluate},
    {"generate", "sample text from a checkpoint", ls_command_generate},
    {"draft", "a smaller model beside a large one, to tune on or to draft", ls_command_draft},
    {"plan", "which layout, how fast, how much memory, what money", ls_command_plan},
    {"bench", "measure this machine, or where the time of a model's step goes", ls_command_bench},
    {"doctor",
     "what training stands on here: devices, libraries, limits, and what to do about each",
     ls_command_doctor},
    {"export", "write a Hugging Face directory", ls_command_export},
    {"inspect", "what a run, model, adapter or file of tensors holds", ls_command_inspect},
    {"tokenize", "text to tokens and back, by any model's tokenizer", ls_command_tokenize},
    {"tokenizer", "train a tokenizer on texts: byte-level BPE", ls_command_tokenizer},
    {"simulate", "how long a step takes on devices that need not be here", ls_command_simulate},
    {"machines", "accelerators, links and prices that --on can name", ls_command_machines},
    {"models", "shapes that are built in, by name", ls_command_models},
    {"plot", "loss, gradient norm, learning rate and speed of runs as one picture",
     ls_command_plot},
    {"sweep", "a run for each value of a key, and which was the best", ls_command_sweep},
    {"cache", "token files kept for later runs: list them, clear them", ls_command_cache},
    {"watch", "the live page of a run", NULL},
};

enum { COMMANDS = sizeof commands / sizeof *commands };

static void print_help(FILE *stream) {
  fprintf(stream,
          "lockstep: compiles one training step of a transformer model for a mesh of devices,\n"
          "then runs it.\n\n"
          "usage: lockstep COMMAND [words]      lockstep help COMMAND|KEY|resume\n\n");
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

static int run(const char *name, int count, char **words) {
  for (int c = 0; c < COMMANDS; c++) {
    if (strcmp(name, commands[c].name) != 0) continue;
    if (commands[c].run) return commands[c].run(count, words);
    fprintf(stderr, "lockstep: %s: not yet: this command comes with a later version\n", name);
    return 2;
  }
  return unknown(name);
}

/* `lockstep help`, and of a command, of going on with a run, of a key or a section of keys. */
static int help(const char *about) {
  if (!about) {
    print_help(stdout);
    return 0;
  }
  for (int c = 0; c < COMMANDS; c++) {
    char *words[] = {"--help", NULL};
    if (strcmp(about, commands[c].name) == 0) return run(about, 1, words);
  }
  ls_arena *arena = ls_arena_create();
  const char *text = strcmp(about, "resume") == 0 ? ls_run_file_resume_help(arena)
                                                  : ls_run_file_help(arena, about);
  printf("%s", text);
  const bool found = *text;
  ls_arena_destroy(&arena);
  if (found) return 0;
  fprintf(stderr,
          "lockstep help: found \"%s\"; expected a command, resume, or a key of a run file "
          "(see lockstep train --help)\n",
          about);
  return 2;
}

static int dispatch(int argc, char **argv) {
  if (argc < 2) {
    print_help(stderr);
    return 2;
  }
  const char *name = argv[1];
  if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0)
    return help(argc > 2 && argv[2][0] != '-' ? argv[2] : NULL);
  if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0) {
    printf("lockstep %s\n", LS_VERSION);
    return 0;
  }
  return run(name, argc - 2, argv + 2);
}

typedef struct invocation {
  int argc;
  char **argv;
  int exit_status;
} invocation;

static ls_status invoke(void *context, ls_error *error) {
  invocation *self = context;
  (void)error;
  self->exit_status = dispatch(self->argc, self->argv);
  return LS_OK;
}

/* What was printed may still be in the buffer, and a full disk only known as it is written. */
static int check_output(int status) {
  const bool lost = ferror(stdout) != 0;
  if (fclose(stdout) == 0 && !lost) return status;
  fprintf(stderr, "lockstep: the output cannot be written: %s\n",
          errno && !lost ? strerror(errno) : "an earlier write failed");
  return status <= 1 ? 3 : status;
}

int main(int argc, char **argv) {
  wait_briefly(argv);
  ls_warnings_to(ls_print_warning, NULL);
  invocation self = {.argc = argc, .argv = argv};
  ls_error error = {LS_OK, ""};
  const ls_status status = ls_arena_guard(invoke, &self, false, &error);
  if (status != LS_OK) self.exit_status = ls_command_fail(argv[1], status, &error);
  return check_output(self.exit_status);
}
