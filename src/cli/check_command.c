#include <stdio.h>

#include "base/clock.h"
#include "cli/command.h"
#include "cli/hardware.h"
#include "session/prove.h"
#include "session/teacher.h"

static const char help[] =
    "usage: lockstep check RUN.yaml|RUN [key=value ...] [-n DEVICES] [--on HARDWARE]\n\n"
    "Compiles the training step and the evaluation for a mesh of any size and proves them, "
    "without\n"
    "running them and without the devices; a training run does the same before its first step\n"
    "(check=false leaves it out). Needs the model's shape only: no data, no weights.\n\n"
    "What is proved, of the programs of all pipeline stages together:\n"
    "  matching    every rank of a group reaches the same collectives in the same order, with one\n"
    "              size, type and kind; every send has its receive; nobody waits in a circle\n"
    "  reductions  every gradient, the loss and the norm hold each contribution of each\n"
    "              microbatch, shard and stage exactly once when they are read; no partial sum is\n"
    "              taken for a value; parameters end updated once, and alike on all replicas\n"
    "  model       what all stages compute together is this model, its gradients and its updates;\n"
    "              frozen parameters end as they began\n"
    "  memory      nothing is read that is not written or is overwritten, no two live tensors\n"
    "              share bytes, queues wait where they share memory; a device's memory fits\n"
    "              device.memory\n"
    "  saving      each element of the state is saved once, by a rank that has it, and loading\n"
    "              fills all that each rank keeps; all ranks come to the same collectives of "
    "both,\n"
    "              and hear of whoever fails alone before the next one\n\n"
    "The first line that is not so is named, as stage, action and instruction (lockstep show\n"
    "prints them), with exit status 1; 0: all is proved. The time grows with the instructions, "
    "not\n"
    "with the devices.\n\n"
    "  -n DEVICES   devices of the whole mesh (default: the mesh's, or as many as --on says)\n"
    "  --on 64xH100-SXM\n"
    "               for these devices, which need not be here, and for how messages queue in the\n"
    "               engine that moves their data (NCCL's); what one needs beside its arena\n"
    "               (workspace, context, communicators, each with its source) and whether it fits\n"
    "               what one has. NVIDIA's from sm_80 on: a100-sxm-80, h200-sxm, rtx4090; or CPUs\n"
    "               by their instructions: cpu-avx2, cpu-avx512, cpu-avx512_bf16, cpu-avx512_amx\n"
    "  --help       this text and all keys\n\n"
    "examples:\n"
    "  lockstep check examples/quickstart.yaml -n 2\n"
    "  lockstep check run.yaml mesh.tp=8 mesh.pp=16 mesh.dp_shard=128 train.microbatches=16 -n "
    "16384\n"
    "  lockstep check run.yaml device.memory=80GiB zero=3 -n 64\n"
    "  lockstep check run.yaml --on 64xH100-SXM\n\n";

static void print_row(const char *what, int64_t step, int64_t evaluation) {
  printf("%-46s %14lld %14lld\n", what, (long long)step, (long long)evaluation);
}

static void print_proof(const ls_session_proof *proof) {
  const ls_check_report *step = &proof->reports[LS_SESSION_STEP];
  const ls_check_report *evaluation = &proof->reports[LS_SESSION_EVALUATE];
  printf("%-46s %14s %14s\n", "", "step", "evaluation");
  print_row("actions of all stages", step->actions, evaluation->actions);
  print_row("instructions, as executed", step->instructions, evaluation->instructions);
  print_row("collectives that all their ranks reach", step->collectives, evaluation->collectives);
  print_row("sends that find their receive", step->transfers, evaluation->transfers);
  print_row("collectives between stages that meet", step->joins, evaluation->joins);
  if (step->moves + evaluation->moves)
    print_row("moves that are back before they are used", step->moves, evaluation->moves);
  print_row("events that keep two queues apart", step->waits, evaluation->waits);
  print_row("sums that take each contribution once", step->reductions, evaluation->reductions);
  print_row("updates that read a complete gradient", step->gradients, evaluation->gradients);
  print_row("ops that are the model's, or make its gradients", step->model_ops,
            evaluation->model_ops);
  print_row("operands whose memory holds what it should", step->operands, evaluation->operands);
}

static void print_saving(const ls_saving_report *saving) {
  printf("%-46s %14lld in %lld tensors\n", "ranges saved, each element once, by who has it",
         (long long)saving->saved, (long long)saving->tensors);
  printf("%-46s %14lld\n", "ranges loaded, all that each rank keeps", (long long)saving->filled);
  printf("%-46s %14lld\n", "collectives outside the steps that all reach",
         (long long)saving->rounds);
}

static void print_queues(const ls_queues *queues, const ls_check_report *step) {
  if (step->transfers)
    printf("messages: proved on the queues of %s: one %s, held %suntil it is matched\n",
           queues->name, ls_queues_sharing_name(queues),
           queues->holds ? "by each message " : "by none ");
  if (queues->groups_apart && step->beside)
    printf(
        "collectives: proved on the queues of %s: one for each set of axes; at most %lld queue%s "
        "of a device busy at once, whose kernels must fit beside each other\n",
        queues->name, (long long)step->beside, step->beside == 1 ? "" : "s");
}

static void print_memory(const ls_session *session) {
  const int64_t limit = ls_session_limit(session);
  int stage;
  const double needed = (double)ls_session_bytes_needed(session, &stage) / 1048576;
  printf("device memory: %.1f MiB", needed);
  if (session->layout.pp > 1) printf(" on stage %d, which needs most", stage);
  printf(" (%.1f of it workspace of kernels)", (double)session->workspace[stage] / 1048576);
  const ls_device_facts *kind = session->on ? session->on : &session->device.facts;
  if (limit)
    printf(", fits %s (%s), %.1f allowed\n", kind->name, kind->set, (double)limit / 1048576);
  else
    printf("; no device.memory to compare it with\n");
  ls_hardware_print(session, stage);
  const double host = (double)ls_session_tier_bytes(session, LS_TIER_HOST, &stage) / 1048576;
  const double file = (double)ls_session_tier_bytes(session, LS_TIER_NVME, &stage) / 1048576;
  if (host > 0) printf("offloaded to the host: %.1f MiB a device\n", host);
  if (file > 0) printf("offloaded to nvme: %.1f MiB a device\n", file);
}

typedef struct request {
  const char *devices, *on;
} request;

static ls_status check(ls_arena *arena, const ls_words *words, void *given, ls_error *error) {
  request *asked = given;
  const double begin = ls_now_s();
  ls_run_file *run;
  LS_TRY(ls_command_run_file(arena, words, &run, error));
  int devices;
  const ls_device_facts *facts;
  LS_TRY(ls_hardware_find(arena, asked->on, &facts, &asked->devices, error));
  LS_TRY(ls_command_devices(asked->devices, run, &devices, error));
  ls_session *session;
  LS_TRY(ls_session_create_on(arena, run, devices, devices, facts, &session, error));
  const double compiled = ls_now_s() - begin;
  ls_session_proof proof;
  LS_TRY(ls_session_prove(session, &proof, error));
  const ls_layout *layout = &session->layout;
  printf("%s: %.2f M parameters in %s on %d device%s (%s%s, %d microbatch%s)\n", run->model,
         (double)ls_model_parameters(&session->config) / 1e6, ls_session_dtype(session), devices,
         devices == 1 ? "" : "s", ls_layout_print(arena, layout),
         layout->sequence_parallel ? ", sequence parallel" : "", layout->microbatches,
         layout->microbatches == 1 ? "" : "es");
  const int64_t frozen = ls_graph_frozen(session->graph);
  if (frozen > 0)
    printf("frozen: %.2f M parameters, proved to stay as they are\n", (double)frozen / 1e6);
  const char *teacher = ls_teacher_text(arena, session);
  if (teacher) printf("%s\n", teacher);
  const char *fp8 = ls_session_fp8(arena, session);
  if (fp8) printf("%s\n", fp8);
  print_proof(&proof);
  print_saving(&proof.saving);
  print_memory(session);
  if (session->on) print_queues(session->device.facts.queues, &proof.reports[LS_SESSION_STEP]);
  printf("compiled in %.2f s, checked in %.2f s: proved for %d stage%s\n", compiled, proof.seconds,
         layout->pp, layout->pp == 1 ? "" : "s");
  return LS_OK;
}

int ls_command_check(int count, char **words) {
  if (!ls_command_is_first()) return ls_exit_status(LS_OK);
  request asked = {0};
  const ls_command_flag flags[] = {{"-n", &asked.devices, NULL}, {"--on", &asked.on, NULL}};
  return ls_command_run(
      &(ls_command){"check", help, true, flags, sizeof flags / sizeof *flags, check, &asked}, count,
      words);
}
