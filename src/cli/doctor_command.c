#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "comm/launch_findings.h"
#include "device/gpus.h"

static const char help[] =
    "usage: lockstep doctor [--json]\n\n"
    "Looks at what training stands on here and says of each thing whether it is fine: processor\n"
    "and library, cores, NUMA nodes, memory, huge pages, the drive of caches; MPI and launcher;\n"
    "limits; and NVIDIA GPUs: driver, libraries and their versions against each other, and of "
    "each\n"
    "GPU its kind, memory and who holds it, a trial (a context and an allocation, freed at once),\n"
    "PCIe, NUMA node, clocks, ECC, the way to each other GPU, and variables that change how they\n"
    "are used. Run it on each host, in the container or job where training is to run: what it "
    "says\n"
    "is of its own process. It measures nothing: lockstep bench does.\n\n"
    "  ok       as it should be\n"
    "  warning  training runs, but slower than it could, or not everywhere\n"
    "  fail     training would fail; the exit status is then 1\n\n"
    "  --json   {\"verdict\": ..., \"findings\": [{\"about\", \"subject\", \"verdict\", "
    "\"found\",\n"
    "           \"remedy\"}, ...]}\n"
    "  --help   this text\n\n"
    "examples:\n"
    "  lockstep doctor\n"
    "  srun -N 4 --ntasks-per-node=1 lockstep doctor --json\n";

static void print_lines(const ls_findings *all) {
  const char *about = "";
  int counts[3] = {0};
  for (int f = 0; f < all->list.count; f++) {
    const ls_finding *line = &all->list.items[f];
    if (strcmp(about, line->about) != 0) printf("%s%s\n", f ? "\n" : "", line->about);
    about = line->about;
    counts[line->verdict]++;
    printf("  %-8s %-20s  %s%s%s\n", ls_verdict_name(line->verdict), line->subject, line->found,
           line->remedy ? ": " : "", line->remedy ? line->remedy : "");
  }
  printf("\n%d ok, %d warning%s, %d fail\n", counts[LS_VERDICT_OK], counts[LS_VERDICT_WARNING],
         counts[LS_VERDICT_WARNING] == 1 ? "" : "s", counts[LS_VERDICT_FAIL]);
}

static void print_json(const ls_findings *all) {
  json_t *list = json_array();
  for (int f = 0; f < all->list.count; f++) {
    const ls_finding *line = &all->list.items[f];
    json_array_append_new(
        list, json_pack("{s:s, s:s, s:s, s:s, s:s?}", "about", line->about, "subject",
                        line->subject, "verdict", ls_verdict_name(line->verdict), "found",
                        line->found, "remedy", line->remedy));
  }
  json_t *root =
      json_pack("{s:s, s:o}", "verdict", ls_verdict_name(ls_findings_worst(all)), "findings", list);
  char *text = json_dumps(root, JSON_INDENT(2));
  printf("%s\n", text ? text : "{}");
  free(text);
  json_decref(root);
}

static ls_status doctor(ls_arena *arena, const ls_words *words, void *asked, ls_error *error) {
  const bool json = *(bool *)asked;
  if (words->key_count || words->positional_count)
    return ls_fail(error, LS_INPUT, "%s: doctor takes no words (see --help)",
                   words->key_count ? words->keys[0] : words->positional[0]);
  ls_findings all = {.arena = arena};
  ls_device_findings(&all, "", NULL);
  ls_host_findings(&all, "");
  ls_launch_findings(&all);
  ls_limit_findings(&all, "");
  if (json)
    print_json(&all);
  else
    print_lines(&all);
  if (ls_findings_worst(&all) != LS_VERDICT_FAIL) return LS_OK;
  return ls_fail(error, LS_REFUTED, "training would fail here: see the lines that begin with fail");
}

int ls_command_doctor(int count, char **words) {
  bool json = false;
  const ls_command_flag flags[] = {{"--json", NULL, &json}};
  return ls_command_run(
      &(ls_command){"doctor", help, false, flags, sizeof flags / sizeof *flags, doctor, &json},
      count, words);
}
