/* The commands of `lockstep`, one file each, and what they share.
 *
 * A command takes the words after its name and returns the process's exit status: 0 done, 1 the
 * answer is no, 2 wrong input or usage, 3 failed while running, 4 stopped by a signal. Results go
 * to stdout, progress and errors to stderr. */
#ifndef LS_CLI_COMMAND_H
#define LS_CLI_COMMAND_H

#include <stdbool.h>

#include "base/arena.h"
#include "comm/comm.h"
#include "text/run_file.h"

int ls_command_train(int count, char **words);
int ls_command_show(int count, char **words);
int ls_command_check(int count, char **words);
int ls_command_verify(int count, char **words);
int ls_command_evaluate(int count, char **words);
int ls_command_generate(int count, char **words);
int ls_command_draft(int count, char **words);
int ls_command_export(int count, char **words);
int ls_command_inspect(int count, char **words);
int ls_command_tokenize(int count, char **words);
int ls_command_tokenizer(int count, char **words);
int ls_command_sweep(int count, char **words);
int ls_command_plot(int count, char **words);
int ls_command_cache(int count, char **words);
int ls_command_simulate(int count, char **words);
int ls_command_plan(int count, char **words);
int ls_command_machines(int count, char **words);
int ls_command_models(int count, char **words);
int ls_command_bench(int count, char **words);
int ls_command_doctor(int count, char **words);

/* Prints "lockstep COMMAND: text" to stderr and returns the exit status of `status`. */
int ls_command_fail(const char *command, ls_status status, const ls_error *error);

/* Prints "lockstep: warning: text" to stderr: the handler of ls_warn (context is not looked at). */
void ls_print_warning(void *context, const char *text);

/* From now on SIGINT, SIGTERM, SIGUSR1 and SIGHUP ask to stop (base/stop.h); the first of them has
 * `said` printed to stderr (NULL: nothing), a second SIGINT or SIGTERM ends the process. */
void ls_command_catch_signals(const char *said);

/* Nothing is printed for a signal from now on: there is nothing left to save. */
void ls_command_answer_no_signals(void);

/* A flag of a command: "--name" or "-n", with a value or without. */
typedef struct ls_command_flag {
  const char *name;   /* "--json", "-n" */
  const char **value; /* where the value goes; NULL: takes none */
  bool *given;        /* set when it is there; may be NULL */
} ls_command_flag;

/* The words of a command taken apart: flags of its own, then positional words, then run-file keys
 * (key=value, --key=value, --key value). */
typedef struct ls_words {
  const char **positional;
  int positional_count;
  const char **keys;
  int key_count;
  bool help; /* --help or -h, which every command has */
} ls_words;

/* LS_INPUT for a flag that is neither of the command's nor a key; names the nearest. */
LS_CHECKED ls_status ls_words_parse(ls_arena *arena, int count, char **words,
                                    const ls_command_flag *flags, int flag_count, ls_words *parsed,
                                    ls_error *error);

/* A command whose flags are set in `asked`. */
typedef struct ls_command {
  const char *name, *help;
  bool has_keys; /* its help ends with all keys of a run file */
  const ls_command_flag *flags;
  int flag_count;
  ls_status (*run)(ls_arena *arena, const ls_words *words, void *asked, ls_error *error);
  void *asked;
} ls_command;

/* Takes the words apart, then prints the help or runs the command; returns the exit status. */
int ls_command_run(const ls_command *command, int count, char **words);

/* The run that the words are of: a run file or the folder of a run (NULL where no word is given:
 * defaults), and keys. LS_INPUT also where there are more words. */
LS_CHECKED ls_status ls_command_run_file(ls_arena *arena, const ls_words *words, ls_run_file **run,
                                         ls_error *error);

/* How many devices: -n where given (text may be NULL), else the launcher's tasks, else the product
 * of the mesh's axes. LS_INPUT where the launcher has started more tasks than MPI reports, with the
 * fix: N silent single-device runs in one directory is a known disaster. */
LS_CHECKED ls_status ls_command_devices(const char *text, const ls_run_file *run, int *devices,
                                        ls_error *error);

/* Whether this process is the launcher's first, or there is none: of a command that needs one
 * process, the first does the work and says it, and the others have nothing to do. */
bool ls_command_is_first(void);

/* LS_INPUT, before any work, where a file that `flag` names could not be written: no such folder,
 * or a folder of that name. */
LS_CHECKED ls_status ls_command_check_file(const char *flag, const char *path, ls_error *error);

/* The world of a run: under a launcher its processes (MPI), else threads of this process. LS_INPUT
 * where the launcher's count and `devices` do not fit. Collective: all processes. */
LS_CHECKED ls_status ls_command_world(int devices, ls_world **world, ls_error *error);

#endif
