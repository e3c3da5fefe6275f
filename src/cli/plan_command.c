#include <stdio.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "cli/command.h"
#include "cli/plan_counts.h"
#include "cli/plan_learn.h"
#include "cli/plan_report.h"
#include "text/number.h"

static const char help[] =
    "usage: lockstep plan RUN.yaml|MODEL [key=value ...] [--on HARDWARE ...]\n\n"
    "Which layout of these devices trains the model fastest, and what that takes: step time,\n"
    "tokens/s, MFU, memory, money. All ways to lay out the run that the numbers allow are looked "
    "at:\n"
    "pipeline, tensor, context, expert and data parallelism, what ZeRO shards, pipeline schedules\n"
    "and their chunks, micro-batches, recomputation. Each gets an estimate from models of one and\n"
    "two layers, compiled and simulated; the best are compiled and simulated whole (lockstep\n"
    "simulate), then their neighbours until none is better; where memory lacks, what each layer\n"
    "runs again is chosen to fit (recompute: budget). What is printed compiles, is proved\n"
    "(lockstep check), fits, and took that long in simulation. Needs the model's shape only.\n\n"
    "  --on 64xH100-SXM[:8] | cluster.yaml | here | here.yaml\n"
    "                  the devices (lockstep machines lists them); given several times, each is\n"
    "                  planned for and they are compared. Left out: this machine, by the rates of\n"
    "                  lockstep bench\n"
    "  -n DEVICES      devices of the whole mesh (default: as many as --on says)\n"
    "  --fix mesh.tp=4 keeps a choice; the same as the key itself. May be given several times\n"
    "  --task finetune|pretrain\n"
    "                  batch, sequence and optimizer by convention where the run says nothing of\n"
    "                  them: 64 sequences of 4,096 tokens (Llama 2's fine-tuning), or 4 Mi tokens\n"
    "                  in sequences of 8,192 (Llama 3's pre-training), AdamW. Of a bare MODEL\n"
    "                  finetune, or pretrain where --tokens are more than its parameters\n"
    "  --tokens COUNT  what so many tokens take and cost: 1B, 15T\n"
    "  --within 60d    with --tokens: the fewest devices that are done in this time (h, d, w)\n"
    "  --budget 200000 with --tokens: the most devices that cost no more than this, for they are\n"
    "                  done first; beside --within the fewest that are within both\n"
    "  --objective time|money|memory\n"
    "                  what is best: the shortest step (default), the cheapest, the least memory\n"
    "  --svg FILE      all layouts that were compiled, by step time, memory and money\n"
    "  -o FILE         the winner as a run file, ready for lockstep train\n"
    "  --learn RUN     corrects what is known of this machine by a run with trace: true on it: by\n"
    "                  how much its ops of each kind took longer; then nothing is planned\n"
    "  --forget        removes what was learned (lockstep bench --kept shows it)\n"
    "  --all           compiles every layout instead of the best by estimate: slow\n"
    "  --json          for programs\n"
    "  --help          this text and all keys\n\n"
    "Exit status 1: no layout fits, or no number of devices is enough; what comes closest is "
    "named.\n\n"
    "examples:\n"
    "  lockstep plan llama3-8b --on 2xRTX4090 --on 1xRTX4090 --on 1xA100-SXM-80 --tokens 1B\n"
    "  lockstep plan run.yaml --on 64xH100-SXM -o best.yaml\n"
    "  lockstep plan llama3-70b --task pretrain --tokens 15T --within 60d --on H100-SXM\n"
    "  lockstep plan run.yaml --on 16xA100-SXM-80 --fix mesh.tp=4 zero=1\n\n";

enum { MOST_MACHINES = 16 };

typedef struct request {
  const char *on[MOST_MACHINES];
  int machines;
  const char *devices, *task, *tokens, *within, *budget, *objective, *output, *svg, *learn;
  bool json, all, forget;
} request;

/* Text behind a flag as `read` takes it; no text leaves the value at 0. */
static ls_status read_value(const char *flag, const char *text,
                            bool (*read)(const char *, double *), const char *as, double *value,
                            ls_error *error) {
  if (!text || read(text, value)) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s %s: expected %s", flag, text, as);
}

static ls_status read_request(const request *words, ls_plan_question *asked, ls_error *error) {
  static const char *const objectives[] = {"time", "money", "memory"};
  LS_TRY(read_value("--tokens", words->tokens, ls_count_read, "a count, as 1B or 15T",
                    &asked->tokens, error));
  LS_TRY(read_value("--within", words->within, ls_time_read, "a time, as 12h, 60d or 4w",
                    &asked->within_s, error));
  LS_TRY(read_value("--budget", words->budget, ls_count_read, "an amount, as 200000",
                    &asked->budget, error));
  if ((words->within || words->budget) && !words->tokens)
    return ls_fail(error, LS_INPUT, "%s needs --tokens: how many are to be trained on",
                   words->within ? "--within" : "--budget");
  if ((words->within || words->budget) && words->devices)
    return ls_fail(error, LS_INPUT, "-n %s beside %s: expected one of them", words->devices,
                   words->within ? "--within" : "--budget");
  if ((words->within || words->budget) && !words->machines)
    return ls_fail(error, LS_INPUT, "%s needs --on: how many of these devices",
                   words->within ? "--within" : "--budget");
  for (int o = 0; words->objective && o < 3; o++)
    if (strcmp(words->objective, objectives[o]) == 0) {
      asked->objective = (ls_plan_objective)o;
      return LS_OK;
    }
  if (words->objective)
    return ls_fail(error, LS_INPUT, "--objective %s: expected time, money or memory",
                   words->objective);
  return LS_OK;
}

/* The winner as a run: compiled from its own file, and held to what it was planned as. */
static ls_status write_winner(ls_arena *arena, const ls_planned *of, const char *path,
                              ls_error *error) {
  const ls_plan_row *row = ls_planned_best(of);
  ls_run_file *run = ls_planned_run(arena, of, row);
  ls_session *session;
  const int devices = of->problem.devices;
  const ls_device_facts *on = of->session->on; /* NULL: this machine */
  int stage;
  LS_TRY(ls_session_create_on(arena, run, devices, devices, on, &session, error));
  if (ls_session_bytes_needed(session, &stage) != row->bytes)
    return ls_fail(error, LS_INTERNAL, "%s: planned for %lld bytes, and needs %lld",
                   ls_plan_print(arena, row), (long long)row->bytes,
                   (long long)ls_session_bytes_needed(session, &stage));
  LS_TRY(ls_run_file_write(run, path, error));
  fprintf(stderr, "written: %s\n", path);
  return LS_OK;
}

static ls_status pose_machine(ls_arena *arena, const ls_plan_question *asked, const char *on,
                              ls_plan_answer *made, ls_error *error) {
  int devices = 0;
  const bool counts = asked->within_s > 0 || asked->budget > 0;
  const size_t digits = on ? strspn(on, "0123456789") : 0;
  if (counts && digits && (on[digits] == 'x' || on[digits] == 'X'))
    return ls_fail(error, LS_INPUT, "--on %s: %s finds how many devices; expected --on %s", on,
                   asked->within_s > 0 ? "--within" : "--budget", on + digits + 1);
  if (counts) LS_TRY(ls_plan_enough(arena, asked, on, &devices, error));
  return ls_plan_pose(arena, asked, on, devices, &made->planned, error);
}

/* Amounts of two currencies cannot be held against each other. */
static ls_status check_currency(const ls_plan_answer *answers, int count, ls_error *error) {
  const ls_planned *first = NULL;
  for (int m = 0; m < count; m++) {
    const ls_planned *of = &answers[m].planned;
    if (!of->cluster || !(of->cluster->hour > 0)) continue;
    if (!first) first = of;
    if (strcmp(first->cluster->currency, of->cluster->currency) != 0)
      return ls_fail(error, LS_INPUT,
                     "%s costs %s and %s %s; expected prices in one currency (lockstep machines "
                     "--help)",
                     first->text, first->cluster->currency, of->text, of->cluster->currency);
  }
  return LS_OK;
}

static ls_status plan_machine(ls_arena *arena, const ls_plan_question *asked, const char *on,
                              ls_plan_answer *made, ls_error *error) {
  ls_planned *of = &made->planned;
  LS_TRY(ls_planned_search(arena, of, error));
  if (ls_planned_best(of)) ls_plan_next_counts(arena, asked, on, of, &made->more, &made->fewer);
  return LS_OK;
}

static void tell_refuted(const ls_planned *of) {
  const ls_plan *plan = of->plan;
  if (plan->refuted)
    fprintf(stderr, "%s: left out %d layout%s that check refuses: %s\n", of->text, plan->refuted,
            plan->refuted == 1 ? "" : "s", plan->refutation.text);
}

static ls_status none_fits(ls_arena *arena, const ls_planned *of, ls_error *error) {
  const ls_plan_row *row = ls_plan_least(of->plan);
  if (!row) return ls_fail(error, LS_REFUTED, "%s: the compiler refuses every layout", of->text);
  return ls_fail(error, LS_REFUTED, "%s: no layout of %d device%s fits; the closest needs %s: %s",
                 of->text, of->problem.devices, of->problem.devices == 1 ? "" : "s",
                 ls_planned_needs(arena, of, row), ls_plan_print(arena, row));
}

/* Each layout that is compiled has an arena of its own: what one leaves the next takes, in place of
 * new pages of the kernel's, which were a third of the time. */
static void keep_freed_memory(void) {
#ifdef __GLIBC__
  enum { KEPT = 1 << 30, OF_THE_HEAP = 32 << 20 }; /* the most that glibc takes */
  (void)mallopt(M_TRIM_THRESHOLD, KEPT);
  (void)mallopt(M_MMAP_THRESHOLD, OF_THE_HEAP);
#endif
}

static ls_status check_picture(const char *path, ls_error *error) {
  const size_t length = strlen(path);
  if (length < 5 || strcmp(path + length - 4, ".svg") != 0)
    return ls_fail(error, LS_INPUT, "--svg %s: expected a name that ends with .svg", path);
  return ls_command_check_file("--svg", path, error);
}

static ls_status plan(ls_arena *arena, const ls_words *words, void *given, ls_error *error) {
  const request *said = given;
  if (said->learn) return ls_plan_learn(arena, said->learn, error);
  if (said->forget) return ls_plan_forget(arena, error);
  keep_freed_memory();
  ls_plan_question asked = {.task = said->task,
                            .devices = said->devices,
                            .tokens_text = said->tokens,
                            .within_text = said->within,
                            .budget_text = said->budget,
                            .all = said->all};
  if (said->output) LS_TRY(ls_command_check_file("-o", said->output, error));
  if (said->svg) LS_TRY(check_picture(said->svg, error));
  LS_TRY(read_request(said, &asked, error));
  LS_TRY(ls_plan_question_model(arena, words, &asked, error));
  const int count = said->machines ? said->machines : 1;
  ls_plan_answer *answers = LS_NEW_ARRAY(arena, ls_plan_answer, count);
  const ls_plan_report report = {&asked, answers, count};
  for (int m = 0; m < count; m++)
    LS_TRY(pose_machine(arena, &asked, said->on[m], &answers[m], error));
  LS_TRY(check_currency(answers, count, error));
  for (int m = 0; m < count; m++)
    LS_TRY(plan_machine(arena, &asked, said->on[m], &answers[m], error));
  ls_plan_report_prove(arena, &report);
  for (int m = 0; m < count; m++) tell_refuted(&answers[m].planned);
  const ls_planned *best = ls_plan_report_best(&report);
  if (said->json)
    ls_plan_report_json(&report);
  else
    ls_plan_report_print(arena, &report);
  if (!best) {
    const ls_planned *of = &answers[0].planned;
    if (!said->json) ls_plan_print_enough(arena, &asked, said->on[0], of);
    return none_fits(arena, of, error);
  }
  if (said->svg) LS_TRY(ls_plan_report_draw(arena, &report, said->svg, error));
  return said->output ? write_winner(arena, best, said->output, error) : LS_OK;
}

/* --on and --fix may be there several times: they are taken out before the other words. */
static ls_status take_repeated(int *count, char **words, request *asked, ls_error *error) {
  int kept = 0;
  for (int w = 0; w < *count; w++) {
    const bool on = strncmp(words[w], "--on", 4) == 0 && (!words[w][4] || words[w][4] == '=');
    const bool fix = strncmp(words[w], "--fix", 5) == 0 && (!words[w][5] || words[w][5] == '=');
    if (!on && !fix) {
      words[kept++] = words[w];
      continue;
    }
    char *value = words[w] + (on ? 4 : 5);
    if (*value == '=')
      value++;
    else if (w + 1 == *count)
      return ls_fail(error, LS_INPUT, "%s: expected a value after it", words[w]);
    else
      value = words[++w];
    if (fix) {
      words[kept++] = value;
    } else if (asked->machines == MOST_MACHINES) {
      return ls_fail(error, LS_INPUT, "--on %s: at most %d are compared", value, MOST_MACHINES);
    } else {
      asked->on[asked->machines++] = value;
    }
  }
  *count = kept;
  return LS_OK;
}

int ls_command_plan(int count, char **words) {
  if (!ls_command_is_first()) return ls_exit_status(LS_OK);
  request asked = {0};
  ls_error error = {0};
  const ls_status status = take_repeated(&count, words, &asked, &error);
  if (status != LS_OK) return ls_command_fail("plan", status, &error);
  const ls_command_flag flags[] = {
      {"-n", &asked.devices, NULL},      {"--task", &asked.task, NULL},
      {"--tokens", &asked.tokens, NULL}, {"--within", &asked.within, NULL},
      {"--budget", &asked.budget, NULL}, {"--objective", &asked.objective, NULL},
      {"-o", &asked.output, NULL},       {"--svg", &asked.svg, NULL},
      {"--all", NULL, &asked.all},       {"--learn", &asked.learn, NULL},
      {"--forget", NULL, &asked.forget}, {"--json", NULL, &asked.json}};
  return ls_command_run(
      &(ls_command){"plan", help, true, flags, sizeof flags / sizeof *flags, plan, &asked}, count,
      words);
}
