#include "cli/bench.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "device/gpus.h"
#include "session/calibrate.h"

static const char help[] =
    "usage: lockstep bench [--folder DIR] [-o FILE.yaml] [--json]\n"
    "       lockstep bench --model RUN.yaml|MODEL [key=value ...] [-n DEVICES] [--json]\n\n"
    "The first form measures this machine with the kernels and collectives that training uses:\n"
    "matrix products by type and shape, memory, collectives between devices of one process, the\n"
    "drive that a folder is on, and what every op takes in steps of small models, which is what\n"
    "simulate and plan know of it. It takes a minute, or four on slow cores. Where there are\n"
    "GPUs, as train takes them, it measures these: products, memory, links; simulate and plan\n"
    "without --on, or with --on here, are of them then. What was measured is kept for\n"
    "this processor, count of cores, instruction set and version in\n"
    "~/.cache/lockstep (XDG_CACHE_HOME/lockstep), for 30 days, and read by `train` (the MFU), by\n"
    "`show --floor` and by the second form; it and `train` measure a product once more as they\n"
    "begin, and take the higher rate: what is kept may have been measured beside other work.\n\n"
    "The second form runs the training step of a model some times, on random tokens, and prints\n"
    "where its time went: each kind of op with its calls, milliseconds, share of the step, work,\n"
    "the floor below which this machine cannot go (flops over the rate of products, or bytes over\n"
    "that of memory, whichever is more) and how near it came. Rows for collectives, for waiting\n"
    "and for the rest make it add up to the step. Needs no data and writes no run folder.\n\n"
    "  --folder DIR   the drive to measure (default: the current folder)\n"
    "  -o FILE.yaml   also written there, to be carried: lockstep simulate RUN.yaml --on "
    "FILE.yaml\n"
    "                 says on any machine what it says here with --on here\n"
    "  --kept         print what is kept of this machine and measure nothing\n"
    "  --cpu          the processor, also where there are GPUs\n"
    "  --model WHAT   a run file, or what its key `model` takes: gpt2-124m, a folder, config.json\n"
    "  --steps N      steps that are timed after two that are not (default: 5)\n"
    "  --shapes       a row for each shape of a matrix product\n"
    "  -n DEVICES     devices of the whole mesh\n"
    "  --json         one object\n"
    "  --help         this text and all keys\n\n"
    "examples:\n"
    "  lockstep bench\n"
    "  lockstep bench --folder /mnt/nvme --json | jq .disk\n"
    "  lockstep bench --model gpt2-124m dropout=0 data.seq_len=512 train.batch=4\n"
    "  lockstep bench --model examples/quickstart.yaml mesh.dp_shard=2 zero=3 -n 2\n"
    "  mpirun -n 2 lockstep bench --model run.yaml mesh.tp=2 -n 2\n\n";

void ls_bench_tell(void *context, int done, int count, const char *what) {
  ls_bench_teller *self = context;
  if (!self->progress) {
    self->begin_s = ls_now_s();
    self->progress = ls_progress_create(self->arena, stderr, isatty(STDERR_FILENO) != 0, 0, count);
  }
  const double now = ls_now_s() - self->begin_s;
  char left[LS_DURATION_BYTES] = "";
  const bool says = done > 0 && done < count;
  if (says) ls_duration_show(left, now / done * (count - done));
  ls_progress_line(self->progress, done, now, "%d/%d  %s%s%s", done, count, what,
                   says ? "  left " : "", left);
  if (done == count) ls_progress_end(self->progress);
}

ls_status ls_bench_rates(ls_arena *arena, const ls_rates **rates, ls_error *error) {
  ls_bench_teller told = {.arena = arena};
  const ls_measure_options options = {.progress = ls_bench_tell, .context = &told};
  const char *why;
  LS_TRY(ls_measure_or_read(arena, &options, rates, &why, error));
  if (why) fprintf(stderr, "measured this machine: %s\n", why);
  return LS_OK;
}

/* A bench whose rates cannot be kept has still measured: that is said, and no failure. */
static void keep(const ls_rates *rates) {
  ls_error error = {0};
  if (ls_rates_write(rates, &error) != LS_OK) fprintf(stderr, "not kept: %s\n", error.text);
}

/* What ops take in steps, added to the rates. */
static ls_status calibrate(ls_arena *arena, const ls_rates **rates, ls_error *error) {
  ls_bench_teller told = {.arena = arena};
  const ls_calibrate_options options = {.progress = ls_bench_tell, .context = &told};
  ls_rates *made = LS_NEW(arena, ls_rates);
  *made = **rates;
  const double begin = ls_now_s();
  const ls_status status = ls_calibrate(arena, &options, made, error);
  if (status != LS_OK && told.progress) ls_progress_end(told.progress);
  made->seconds += ls_now_s() - begin;
  *rates = made;
  return status;
}

static ls_status find_rates(ls_arena *arena, const ls_bench_flags *flags, const ls_rates **rates,
                            ls_error *error) {
  if (flags->kept) {
    const ls_rates_key key = ls_measure_key(arena);
    const char *why;
    *rates = ls_rates_read(arena, &key, &why);
    return *rates
               ? LS_OK
               : ls_fail(error, LS_REFUTED, "nothing is kept: %s; lockstep bench measures it", why);
  }
  ls_bench_teller told = {.arena = arena};
  const ls_measure_options options = {
      .folder = flags->folder ? flags->folder : ".", .progress = ls_bench_tell, .context = &told};
  const ls_status status = ls_measure_machine(arena, &options, rates, error);
  if (status != LS_OK && told.progress) ls_progress_end(told.progress);
  LS_TRY(status);
  LS_TRY(calibrate(arena, rates, error));
  keep(*rates);
  return LS_OK;
}

ls_status ls_bench_machine(ls_arena *arena, const ls_bench_flags *flags, ls_error *error) {
  const ls_rates *rates;
  if (flags->output) LS_TRY(ls_command_check_file("-o", flags->output, error));
  bool gpus = false;
  if (!flags->cpu) {
    const char *said = ls_gpus_choose(arena, LS_F32, &gpus);
    if (said && !gpus) fprintf(stderr, "%s\n", said);
  }
  if (gpus) return ls_bench_gpus(arena, flags, error);
  LS_TRY(find_rates(arena, flags, &rates, error));
  if (flags->output) {
    const char *text = ls_rates_text(arena, rates);
    LS_TRY(ls_file_write(flags->output, text, strlen(text), error));
  }
  if (flags->json) {
    fputs(ls_rates_text(arena, rates), stdout);
    return LS_OK;
  }
  ls_bench_print(rates, stdout);
  const char *path = ls_rates_path(arena, &rates->key);
  if (path) printf("kept in %s\n", path);
  return LS_OK;
}

/* Flags of one form beside the other would be passed over in silence. */
static ls_status check_flags(const ls_bench_flags *flags, const ls_words *words, ls_error *error) {
  if (flags->model && (flags->folder || flags->kept || flags->output || flags->cpu))
    return ls_fail(error, LS_INPUT, "%s beside --model: expected it without",
                   flags->folder ? "--folder"
                   : flags->kept ? "--kept"
                   : flags->cpu  ? "--cpu"
                                 : "-o");
  if (flags->folder && flags->kept)
    return ls_fail(error, LS_INPUT, "--folder beside --kept, which measures nothing");
  if (flags->model) return LS_OK;
  if (flags->devices || flags->steps || flags->shapes)
    return ls_fail(error, LS_INPUT, "%s without --model: name a model or a run file after --model",
                   flags->devices ? "-n"
                   : flags->steps ? "--steps"
                                  : "--shapes");
  if (words->positional_count || words->key_count)
    return ls_fail(error, LS_INPUT,
                   "%s: expected nothing, or --model RUN.yaml and its keys (see --help)",
                   words->positional_count ? words->positional[0] : words->keys[0]);
  return LS_OK;
}

static ls_status bench(ls_arena *arena, const ls_words *words, void *asked, ls_error *error) {
  const ls_bench_flags *flags = asked;
  LS_TRY(check_flags(flags, words, error));
  if (flags->model) return ls_bench_model(arena, flags, words, error);
  return ls_command_is_first() ? ls_bench_machine(arena, flags, error) : LS_OK;
}

int ls_command_bench(int count, char **words) {
  ls_bench_flags asked = {0};
  const ls_command_flag flags[] = {
      {"--model", &asked.model, NULL},   {"-n", &asked.devices, NULL},
      {"--folder", &asked.folder, NULL}, {"--steps", &asked.steps, NULL},
      {"--json", NULL, &asked.json},     {"--shapes", NULL, &asked.shapes},
      {"--kept", NULL, &asked.kept},     {"-o", &asked.output, NULL},
      {"--cpu", NULL, &asked.cpu}};
  return ls_command_run(
      &(ls_command){"bench", help, true, flags, sizeof flags / sizeof *flags, bench, &asked}, count,
      words);
}
