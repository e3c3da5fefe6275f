#include "text/run_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "text/run_keys.h"

enum { MAX_WORDS = 8 };

static ls_arena *arena;
static ls_error error;

static int make_arena(void **state) {
  (void)state;
  arena = ls_arena_create();
  error = (ls_error){0};
  return 0;
}

static int drop_arena(void **state) {
  (void)state;
  ls_arena_destroy(&arena);
  return 0;
}

/* Words up to the first NULL. */
static ls_status parse(const char *text, const char *const words[MAX_WORDS], ls_run_file **run) {
  int count = 0;
  while (words && count < MAX_WORDS && words[count]) count++;
  return ls_run_file_parse(arena, "run.yaml", text, strlen(text), words, count, run, &error);
}

static ls_run_file *good(const char *text, const char *const words[MAX_WORDS]) {
  ls_run_file *run = NULL;
  if (parse(text, words, &run) != LS_OK) fail_msg("refused: %s", error.text);
  return run;
}

static void refused(const char *text, const char *message) {
  ls_run_file *run = NULL;
  error = (ls_error){0};
  assert_int_equal(parse(text, NULL, &run), LS_INPUT);
  assert_string_equal(error.text, message);
}

static void refused_words(const char *const words[MAX_WORDS], const char *message) {
  ls_run_file *run = NULL;
  error = (ls_error){0};
  assert_int_equal(parse("model: llama-8m\n", words, &run), LS_INPUT);
  assert_string_equal(error.text, message);
}
#define WORDS(...) ((const char *const[MAX_WORDS]){__VA_ARGS__})

static void the_defaults_are_those_of_the_design(void **state) {
  (void)state;
  const ls_run_file *run = good("", NULL);
  assert_string_equal(run->model, "");
  assert_int_equal(run->data.seq_len, 512);
  assert_true(run->data.validation.fraction == 0.01);
  assert_int_equal(run->mesh.dp_shard, -1);
  assert_int_equal(run->mesh.tp, 1);
  assert_int_equal(run->zero, 3);
  assert_int_equal(run->wrap, 1);
  assert_true(run->sequence_parallel);
  assert_int_equal(run->dtype, LS_RUN_DTYPE_AUTO);
  assert_true(run->dropout == -1);
  assert_int_equal(run->device.memory, 0);
  assert_int_equal(run->train.steps, 1000);
  assert_true(run->train.epochs == 0);
  assert_int_equal(run->train.batch, 32);
  assert_true(run->train.lr == 0);
  assert_int_equal(run->train.lr_schedule, LS_RUN_LR_COSINE);
  assert_true(run->train.warmup.value == 100 && !run->train.warmup.percent);
  assert_true(run->train.clip == 1);
  assert_true(run->optimizer.betas[0] == 0.9 && run->optimizer.betas[1] == 0.95);
  assert_true(run->optimizer.eps == 1e-8 && run->optimizer.weight_decay == 0.1);
  assert_int_equal(run->eval.every, 100);
  assert_int_equal(run->checkpoint.keep, 2);
  assert_string_equal(run->out, "runs/run");
}

static const char everything[] =
    "model: llama-8m\n"
    "data:\n"
    "  text: [\"a*.txt\", {path: b.txt, weight: 1}]\n"
    "  seq_len: 1e3\n"
    "  validation: [\"v,1.txt\"]\n"
    "mesh: {dp_replicate: 2, tp: 3}\n"
    "dtype: bf16\n"
    "dropout: 0\n"
    "device:\n"
    "  memory: 1.5GiB\n"
    "train: {epochs: 2.5, lr: 3e-4, warmup: 3%, lr_schedule: wsd, microbatches: 4}\n"
    "optimizer:\n"
    "  name: sgd\n"
    "  betas: [0, 0.999]\n"
    "  groups: [{match: '*.norm', weight_decay: 0, lr: 0.1x}, {lr: 1e-3, match: head}]\n"
    "out: \"r\\u00e9s \\\"x\\\" # 1\\n\\u0085\"\n";

static void values_are_typed_and_know_where_they_came_from(void **state) {
  (void)state;
  const ls_run_file *run = good(everything, WORDS("train.lr=1e-3", "--mesh.tp", "-1"));
  assert_int_equal(run->data.text.count, 2);
  assert_string_equal(run->data.text.items[0].path, "a*.txt");
  assert_string_equal(run->data.text.items[1].path, "b.txt");
  assert_int_equal(run->data.seq_len, 1000);
  assert_int_equal(run->data.validation.globs.count, 1);
  assert_int_equal(run->mesh.tp, -1);
  assert_int_equal(run->device.memory, 3LL << 29);
  assert_int_equal(run->train.steps, 0);
  assert_true(run->train.epochs == 2.5 && run->train.lr == 1e-3);
  assert_true(run->train.warmup.value == 3 && run->train.warmup.percent);
  assert_int_equal(run->train.microbatches, 4);
  assert_int_equal(run->optimizer.name, LS_RUN_SGD);
  assert_int_equal(run->optimizer.groups.count, 2);
  const ls_run_group *groups = run->optimizer.groups.items;
  assert_string_equal(groups[0].match, "*.norm");
  assert_true(groups[0].lr == 0.1 && groups[0].lr_times && groups[0].weight_decay == 0);
  assert_true(groups[1].lr == 1e-3 && !groups[1].lr_times && groups[1].weight_decay < 0);
  assert_string_equal(run->out, "r\xC3\xA9s \"x\" # 1\n\xC2\x85");
  assert_string_equal(ls_run_file_where(run, "device.memory"), "run.yaml:10: device.memory");
  assert_string_equal(ls_run_file_where(run, "train.lr"), "command line: train.lr");
  assert_string_equal(ls_run_file_where(run, "zero"), "run.yaml: zero");
}

static void the_written_file_reads_back_to_the_same_values(void **state) {
  (void)state;
  const char *const texts[] = {"", everything, "train: {steps: 7, micro_batch: 3}\nwrap: 2\n"};
  for (int i = 0; i < 3; i++) {
    const ls_run_file *run = good(texts[i], NULL);
    const char *written = ls_run_file_text(arena, run);
    const ls_run_file *again = good(written, NULL);
    assert_string_equal(ls_run_file_text(arena, again), written);
    assert_int_equal(ls_run_file_diff(arena, run, again).count, 0);
    assert_string_equal(again->out, run->out);
    assert_true(again->train.epochs == run->train.epochs);
    assert_true(again->train.steps == run->train.steps);
  }
  ls_run_file *run = good("train: {batch: 24, epochs: 3}\n", NULL);
  assert_int_equal(ls_run_file_resolve_mesh(run, 2, &error), LS_OK);
  assert_int_equal(ls_run_file_resolve_batch(run, &error), LS_OK);
  ls_run_file_resolve_steps(run, 261); /* 3 x 261 sequences / 24 = 32.6 steps */
  char path[64];
  snprintf(path, sizeof path, "/tmp/run_file_test.%d.yaml", (int)getpid());
  assert_int_equal(ls_run_file_write(run, path, &error), LS_OK);
  ls_run_file *again = NULL;
  assert_int_equal(ls_run_file_read(arena, path, NULL, 0, &again, &error), LS_OK);
  unlink(path);
  assert_int_equal(again->mesh.dp_shard, 2);
  assert_int_equal(again->train.micro_batch, 12);
  assert_int_equal(again->train.steps, 33);
  assert_int_equal(ls_run_file_resolve_batch(again, &error), LS_OK);
  assert_int_equal(ls_run_file_diff(arena, run, again).count, 0);
}

static void every_key_of_the_table_is_sound(void **state) {
  (void)state;
  const ls_run_file *run = good("", NULL);
  for (int i = 0; i < ls_run_key_count; i++) {
    const ls_run_key *key = &ls_run_keys[i];
    assert_ptr_equal(ls_run_key_find(key->name), key);
    assert_non_null(key->help);
    assert_true(strlen(key->help) < 90);
    assert_null(ls_run_peer_find(key->name));
    assert_non_null(strstr(ls_run_file_help(arena, NULL), key->name));
    if (key->excludes) {
      assert_string_equal(ls_run_key_find(key->excludes)->excludes, key->name);
    }
    for (int k = 0; k < i; k++) assert_true(ls_run_keys[k].offset != key->offset);
    if (!ls_run_key_is_written(run, key) || strcmp(key->name, "out") == 0) continue;
    const char *text = ls_run_key_text(arena, run, key);
    ls_run_file again = *run;
    assert_int_equal(ls_run_key_set_text(&again, key, text, &error), LS_OK);
    assert_string_equal(ls_run_key_text(arena, &again, key), text);
  }
}

static void help_is_of_what_is_asked(void **state) {
  (void)state;
  assert_string_equal(ls_run_file_help(arena, "nothing"), "");
  assert_string_equal(ls_run_file_help(arena, "train.l"), "");
  const char *one = ls_run_file_help(arena, "train.lr");
  assert_non_null(strstr(one, "train.lr"));
  assert_null(strstr(one, "train.lr_min"));
  const char *section = ls_run_file_help(arena, "train");
  assert_non_null(strstr(section, "train.lr_min"));
  assert_null(strstr(section, "eval.every"));
  for (int i = 0; i < ls_run_key_count; i++)
    if (strcmp(ls_run_keys[i].name, "out") != 0)
      assert_non_null(strstr(ls_run_file_resume_help(arena), ls_run_keys[i].name));
}

static void every_key_refuses_a_wrong_type_with_its_place(void **state) {
  (void)state;
  static const char *const wrongs[] = {"{a: 1}", "~", "[[1], 2, 3]", "\"$ %\"", "-7"};
  for (int i = 0; i < ls_run_key_count; i++) {
    const ls_run_key *key = &ls_run_keys[i];
    const bool text =
        key->kind == LS_RUN_TEXT || key->kind == LS_RUN_GLOBS || key->kind == LS_RUN_TEXTS;
    const char *point = strchr(key->name, '.');
    for (int k = 0; k < 5; k++) {
      if (text && k >= 3) continue; /* any scalar is a text */
      const char *line =
          point ? ls_arena_printf(arena, "# first\n%.*s:\n  %s: %s\n", (int)(point - key->name),
                                  key->name, point + 1, wrongs[k])
                : ls_arena_printf(arena, "# first\n\n%s: %s\n", key->name, wrongs[k]);
      ls_run_file *run = NULL;
      error = (ls_error){0};
      assert_int_equal(parse(line, NULL, &run), LS_INPUT);
      const char *place = ls_arena_printf(arena, "run.yaml:3: %s", key->name);
      if (strncmp(error.text, place, strlen(place)) != 0) {
        fail_msg("%s %s: %s", key->name, wrongs[k], error.text);
      }
      assert_null(strchr(error.text, '\n'));
      const bool says = strstr(error.text, "; expected ") || strstr(error.text, ": not yet: ");
      assert_true(says);
    }
  }
}

static void errors_say_what_and_what_to_do(void **state) {
  (void)state;
  refused("train:\n  lr: abc\n",
          "run.yaml:2: train.lr: found abc; expected a number above 0, or auto");
  refused("train: {lr: \"3e-4\"}\n",
          "run.yaml:1: train.lr: found the text \"3e-4\"; expected a number above 0, or auto");
  refused("train: {lr: 0}\n", "run.yaml:1: train.lr: found 0; expected a number above 0, or auto");
  refused("zero: 4\n", "run.yaml:1: zero: found 4; expected a whole number from 0 to 3");
  refused("mesh: {tp: 0}\n",
          "run.yaml:1: mesh.tp: found 0; expected a whole number of at least 1, or -1");
  refused("chunks: 4294967296\n", "run.yaml:1: chunks: found 4294967296; expected at most 1048576");
  refused("dtype: int8\n",
          "run.yaml:1: dtype: found int8; expected auto, fp32, bf16, fp16, fp64 or fp8");
  refused("dropout: 1\n",
          "run.yaml:1: dropout: found 1; expected a number from 0 to below 1, or auto");
  refused("mesh: 4\n", "run.yaml:1: mesh: found 4; expected keys under it");
  refused("- a\n", "run.yaml:1: found a list; expected keys, such as \"model: llama-8m\"");
  refused("train:\n  steps: 5\n  epochs: 1\n",
          "run.yaml:3: train.epochs: found train.steps as well; give one of the two");
  refused("mesh: {tp: 2}\nmesh.tp: 3\n",
          "run.yaml:2: mesh.tp: found a second time; line 1 has it already");
  refused("train: {warmup: 101%}\n",
          "run.yaml:1: train.warmup: found 101%; expected a whole number "
          "of steps, or up to 100% of them");
  refused("train: {lr: 1e-4, lr_min: 1e-3}\n",
          "run.yaml:1: train.lr_min: found 0.001; expected at most train.lr, which is 0.0001");
  refused("optimizer: {betas: [0.9, 1]}\n",
          "run.yaml:1: optimizer.betas[1]: found 1; expected two numbers in [ ], each from 0 to "
          "below 1");
  refused("optimizer: {groups: {match: head}}\n",
          "run.yaml:1: optimizer.groups: found a mapping; expected a list of groups such as "
          "[{match: '*.norm', weight_decay: 0, lr: 0.1x}]");
  refused("optimizer: {groups: [head]}\n",
          "run.yaml:1: optimizer.groups[0]: found head; expected a group with match, a name of "
          "parameters");
  refused("optimizer: {groups: [{match: head, lr: .inf}]}\n",
          "run.yaml:1: optimizer.groups[0].lr: found .inf; expected a number above 0, or one with "
          "x such as 0.1x");
  refused("data: {text: {file: a.txt}}\n",
          "run.yaml:1: data.text.file: found a.txt; expected path, weight or field as the key");
}

static void texts_may_have_weights_and_fields(void **state) {
  (void)state;
  const ls_run_file *run = good(
      "data:\n  text:\n    - a.txt\n    - {path: b/*.jsonl, weight: 0.25, field: body}\n", NULL);
  assert_int_equal(run->data.text.count, 2);
  assert_null(run->data.text.items[0].field);
  assert_true(run->data.text.items[0].weight == 0);
  assert_string_equal(run->data.text.items[1].path, "b/*.jsonl");
  assert_string_equal(run->data.text.items[1].field, "body");
  assert_true(run->data.text.items[1].weight == 0.25);
  const char *text = ls_run_file_text(arena, run);
  assert_non_null(strstr(text, "text: [a.txt, {path: \"b/*.jsonl\", weight: 0.25, field: body}]"));
  const ls_run_file *again = good(text, NULL);
  assert_int_equal(ls_run_file_diff(arena, run, again).count, 0);
  refused("data: {text: {path: a, weight: 0}}\n",
          "run.yaml:1: data.text.weight: found 0; expected a number above 0");
  refused("data: {text: {path: a, weight: .nan}}\n",
          "run.yaml:1: data.text.weight: found .nan; expected a number");
  refused("data: {text: {weight: 1}}\n",
          "run.yaml:1: data.text: found a mapping; expected a path in it");
}

static void unknown_keys_are_answered_with_the_nearest(void **state) {
  (void)state;
  refused("modle: x\n", "run.yaml:1: unknown key \"modle\"; the nearest one is \"model\"");
  refused("\ntrian:\n  lr: 1\n", "run.yaml:2: unknown key \"trian\"; the nearest one is \"train\"");
  refused("train:\n  stpes: 1\n",
          "run.yaml:2: unknown key \"train.stpes\"; the nearest one is \"train.steps\"");
  refused("dp_shard: 2\n",
          "run.yaml:1: unknown key \"dp_shard\"; the nearest one is \"mesh.dp_shard\"");
  refused("zzzzzzzz: 2\n",
          "run.yaml:1: unknown key \"zzzzzzzz\"; \"lockstep train --help\" lists those there are");
  refused_words(WORDS("train.clpi=1"),
                "command line: unknown key \"train.clpi\"; the nearest one is \"train.clip\"");
}

static void every_peer_word_is_answered_with_ours(void **state) {
  (void)state;
  assert_true(ls_run_peer_count > 100);
  for (int i = 0; i < ls_run_peer_count; i++) {
    const ls_run_peer *peer = &ls_run_peers[i];
    refused(ls_arena_printf(arena, "%s: 1\n", peer->word),
            ls_arena_printf(arena, "run.yaml:1: unknown key \"%s\"; here it is %s", peer->word,
                            peer->ours));
    refused(ls_arena_printf(arena, "train:\n  %s: 1\n", peer->word),
            ls_arena_printf(arena, "run.yaml:2: unknown key \"train.%s\"; here it is %s",
                            peer->word, peer->ours));
    for (int k = 0; k < i; k++) assert_string_not_equal(ls_run_peers[k].word, peer->word);
    /* The answer begins with a key of the table, unless it is no key at all. */
    char key[64];
    snprintf(key, sizeof key, "%.*s", (int)strcspn(peer->ours, ":, "), peer->ours);
    const bool outside = key[0] == '-' || strcmp(key, "nothing") == 0;
    assert_true(outside || ls_run_key_find(key));
  }
  refused("gradient_checkpointing: true\n",
          "run.yaml:1: unknown key \"gradient_checkpointing\"; here it is recompute: full");
  refused_words(WORDS("--sequence-parallel-degree", "2"),
                "command line: unknown key \"sequence-parallel-degree\"; here it is mesh.cp");
}

static void the_command_line_overrides_the_file(void **state) {
  (void)state;
  const ls_run_file *run =
      good("train: {epochs: 2, micro_batch: 4}\nmesh:\n",
           WORDS("--train.steps=5", "train.microbatches=2", "mesh={tp: 2, dp_shard: 1}",
                 "data.text=*.txt", "--out", "a b", "out=last"));
  assert_int_equal(run->train.steps, 5);
  assert_true(run->train.epochs == 0);
  assert_int_equal(run->train.micro_batch, 0);
  assert_int_equal(run->train.microbatches, 2);
  assert_int_equal(run->mesh.tp, 2);
  assert_string_equal(run->data.text.items[0].path, "*.txt");
  assert_string_equal(run->out, "last");
  run = good("train: {epochs: 2}\n", WORDS("train.epochs=none"));
  assert_int_equal(run->train.steps, 1000);
  refused_words(WORDS("train.steps"), "command line: found \"train.steps\"; expected key=value");
  refused_words(WORDS("--train.steps"),
                "command line: train.steps: found no value; expected --train.steps=VALUE");
  refused_words(WORDS("--zero", "--out=x"),
                "command line: zero: found no value; expected --zero=VALUE");
  refused_words(WORDS("train.steps="),
                "command line: train.steps: found nothing; expected a whole "
                "number of at least 1");
  refused_words(WORDS("train.steps=ten"),
                "command line: train.steps: found ten; expected a whole "
                "number of at least 1");
  refused_words(WORDS("out=\xFF"), "command line: found \"out=?\"; expected text in UTF-8");
  refused_words(WORDS("train.steps=5", "train.epochs=2"),
                "command line: train.epochs: found train.steps as well; give one of the two");
}

static void words_are_told_from_flags(void **state) {
  (void)state;
  assert_true(ls_run_file_is_word("train.lr=1"));
  assert_true(ls_run_file_is_word("--train.lr=1"));
  assert_true(ls_run_file_is_word("--train.lr"));
  assert_true(ls_run_file_is_word("--learning_rate"));
  assert_true(ls_run_file_is_word("mesh={tp: 2}"));
  assert_true(ls_run_file_is_word("unknown.key=1"));
  assert_false(ls_run_file_is_word("--json"));
  assert_false(ls_run_file_is_word("--fresh"));
  assert_false(ls_run_file_is_word("-n"));
  assert_false(ls_run_file_is_word("run.yaml"));
  assert_false(ls_run_file_is_word("train.lr"));
  assert_false(ls_run_file_is_word("a/b=c"));
}

static void the_mesh_fills_its_open_axis(void **state) {
  (void)state;
  ls_run_file *run = good("mesh: {tp: 2, dp_replicate: 3}\n", NULL);
  assert_int_equal(ls_run_file_mesh_devices(run), 6);
  assert_int_equal(ls_run_file_resolve_mesh(run, 24, &error), LS_OK);
  assert_int_equal(run->mesh.dp_shard, 4);
  assert_int_equal(ls_run_file_mesh_devices(run), 24);

  run = good("mesh: {tp: 4}\n", NULL);
  assert_int_equal(ls_run_file_resolve_mesh(run, 6, &error), LS_INPUT);
  assert_string_equal(error.text,
                      "mesh: found tp 4 = 4, which does not divide 6 devices (-n); use "
                      "-n 4 or 8, or another mesh");
  assert_int_equal(ls_run_file_resolve_mesh(run, 3, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "use -n 4, or"));

  run = good("mesh: {dp_shard: 2, tp: 2}\n", NULL);
  assert_int_equal(ls_run_file_resolve_mesh(run, 4, &error), LS_OK);
  assert_int_equal(ls_run_file_resolve_mesh(run, 8, &error), LS_INPUT);
  assert_string_equal(error.text,
                      "mesh: found dp_shard 2 x tp 2 = 4 devices; expected 8 (-n): "
                      "change -n, or make one axis -1");
  /* That of a run's folder follows -n, and an axis given beside it is kept. */
  run = good("mesh: {dp_shard: 2, tp: 2}\ntrain: {batch: 16, micro_batch: 4}\n", NULL);
  run->of_folder = true;
  assert_int_equal(ls_run_file_resolve_mesh(run, 8, &error), LS_OK);
  assert_int_equal(ls_run_file_resolve_batch(run, &error), LS_OK);
  assert_int_equal(run->mesh.dp_shard * 100 + run->mesh.tp * 10 + run->mesh.dp_replicate, 421);
  assert_int_equal(run->train.micro_batch * 10 + run->train.microbatches, 41);
  assert_int_equal(ls_run_file_resolve_mesh(run, 16, &error), LS_OK);
  assert_int_equal(ls_run_file_resolve_batch(run, &error), LS_OK);
  assert_int_equal(run->train.micro_batch * 10 + run->train.microbatches, 21);
  assert_int_equal(ls_run_file_resolve_mesh(run, 7, &error), LS_INPUT);
  run = good("mesh: {dp_replicate: 2, dp_shard: 1}\n", NULL);
  run->of_folder = true;
  assert_int_equal(ls_run_file_resolve_mesh(run, 4, &error), LS_OK);
  assert_int_equal(run->mesh.dp_replicate * 10 + run->mesh.dp_shard, 41);
  run = good("mesh: {dp_shard: 2}\n", (const char *const[MAX_WORDS]){"mesh.tp=2"});
  run->of_folder = true;
  assert_int_equal(ls_run_file_resolve_mesh(run, 8, &error), LS_INPUT);

  run = good("mesh: {dp_replicate: -1}\n", NULL); /* the default -1 of dp_shard yields */
  assert_int_equal(ls_run_file_resolve_mesh(run, 4, &error), LS_OK);
  assert_int_equal(run->mesh.dp_replicate, 4);
  assert_int_equal(run->mesh.dp_shard, 1);
  run = good("mesh: {dp_replicate: -1, dp_shard: -1}\n", NULL);
  assert_int_equal(ls_run_file_resolve_mesh(run, 4, &error), LS_INPUT);
  assert_string_equal(error.text,
                      "run.yaml:1: mesh.dp_shard: found -1, as for mesh.dp_replicate; "
                      "expected one axis at most to be -1");
}

static void meshes_and_counts_beyond_the_limit_are_refused(void **state) {
  (void)state;
  int devices = 0;
  ls_run_file *run = good("mesh: {dp_shard: 65537, tp: 65537}\n", NULL);
  assert_int_equal(ls_run_file_count_devices(run, 0, &devices, &error), LS_INPUT);
  assert_string_equal(error.text,
                      "mesh: found dp_shard 65537 x tp 65537 = 4295098369 devices; expected at "
                      "most 1048576");
  assert_int_equal(ls_run_file_resolve_mesh(run, 4, &error), LS_INPUT);
  run = good("mesh: {pp: 1048576, dp_replicate: 1048576, dp_shard: 1048576, tp: 1048576}\n", NULL);
  assert_true(ls_run_file_mesh_devices(run) == INT64_MAX);
  assert_int_equal(ls_run_file_count_devices(run, 4, &devices, &error), LS_INPUT);
  run = good("mesh: {dp_shard: 8, tp: 2}\n", NULL);
  assert_int_equal(ls_run_file_count_devices(run, 0, &devices, &error), LS_OK);
  assert_int_equal(devices, 16);
  assert_int_equal(ls_run_file_count_devices(run, (1 << 20) + 1, &devices, &error), LS_INPUT);
  assert_string_equal(error.text, "-n: found 1048577 devices; expected 1 to 1048576");
  refused("mesh: {pp: 2147483647}\n",
          "run.yaml:1: mesh.pp: found 2147483647; expected at most 1048576");
}

static void the_batch_is_cut_evenly_or_refused(void **state) {
  (void)state;
  ls_run_file *run = good("train: {batch: 32}\nmesh: {dp_replicate: 2, dp_shard: 2}\n", NULL);
  assert_int_equal(ls_run_file_resolve_batch(run, &error), LS_OK);
  assert_int_equal(run->train.micro_batch, 8);
  assert_int_equal(run->train.microbatches, 1);
  run = good("train: {batch: 32, micro_batch: 4}\nmesh: {dp_shard: 2}\n", NULL);
  assert_int_equal(ls_run_file_resolve_batch(run, &error), LS_OK);
  assert_int_equal(run->train.microbatches, 4);
  run = good("train: {batch: 32, microbatches: 8}\nmesh: {dp_shard: 2}\n", NULL);
  assert_int_equal(ls_run_file_resolve_batch(run, &error), LS_OK);
  assert_int_equal(run->train.micro_batch, 2);

  run = good("train:\n  batch: 32\nmesh: {dp_shard: 3}\n", NULL);
  assert_int_equal(ls_run_file_resolve_batch(run, &error), LS_INPUT);
  assert_string_equal(
      error.text,
      "run.yaml:2: train.batch: found 32 sequences, which do not divide evenly over "
      "3 data-parallel ranks (dp_replicate 1 x dp_shard 3); use 30 or 33");
  run = good("train: {micro_batch: 3}\nmesh: {dp_shard: 2}\n", NULL);
  assert_int_equal(ls_run_file_resolve_batch(run, &error), LS_INPUT);
  assert_string_equal(error.text,
                      "run.yaml:1: train.micro_batch: found 3 sequences at a time, which "
                      "do not divide the 16 sequences of each data-parallel rank; use 2 "
                      "or 4");
  run = good("train: {microbatches: 99}\nmesh: {dp_shard: 2}\n", NULL);
  assert_int_equal(ls_run_file_resolve_batch(run, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "; use 16"));
}

static void only_keys_that_leave_the_mathematics_alone_may_change(void **state) {
  (void)state;
  const ls_run_file *before = good("model: a\n", NULL);
  static const char *const harmless[] = {
      "mesh.tp: 2",          "zero: 1",       "train.steps: 5",     "train.micro_batch: 2",
      "device.memory: 1GiB", "eval.every: 7", "checkpoint.keep: 9", "out: elsewhere",
      "gather: step",        "wrap: 4",       "data.text: moved"};
  static const char *const harmful[] = {
      "train.lr: 1e-3",   "train.batch: 64",      "data.seed: 2",
      "data.seq_len: 64", "dtype: fp64",          "optimizer.eps: 1e-6",
      "train.warmup: 1%", "data.validation: 0.5", "dropout: 0"};
  for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++) {
    const ls_run_file *after = good(ls_arena_printf(arena, "model: a\n%s\n", harmless[i]), NULL);
    const ls_run_differences found = ls_run_file_diff(arena, before, after);
    assert_int_equal(found.count, 1);
    assert_memory_equal(found.items[0].key, harmless[i], strlen(found.items[0].key));
    assert_int_equal(ls_run_file_may_resume(arena, before, after, "step-4", &error), LS_OK);
  }
  for (size_t i = 0; i < sizeof harmful / sizeof *harmful; i++) {
    const ls_run_file *after = good(ls_arena_printf(arena, "model: a\n%s\n", harmful[i]), NULL);
    assert_int_equal(ls_run_file_diff(arena, before, after).count, 1);
    assert_int_equal(ls_run_file_may_resume(arena, before, after, "step-4", &error), LS_INPUT);
  }
  const ls_run_file *after = good("model: b\nzero: 1\ntrain: {lr: 0.001}\n", NULL);
  assert_int_equal(ls_run_file_may_resume(arena, before, after, "step-4", &error), LS_INPUT);
  assert_string_equal(error.text,
                      "runs/run holds a run that differs in model (was a, now b), train.lr (was "
                      "auto, now 0.001): give --fresh to start anew, another out, or to go on from "
                      "its weights model=step-4 with another out (see lockstep help resume)");
}

static void what_a_command_needs_is_asked_for(void **state) {
  (void)state;
  const ls_run_file *run = good("model: x\n", NULL);
  assert_int_equal(ls_run_file_require(run, "model", &error), LS_OK);
  assert_int_equal(ls_run_file_require(run, "data.text", &error), LS_INPUT);
  assert_string_equal(error.text,
                      "run.yaml: data.text: found nothing; expected texts or token files: path, "
                      "glob, folder or list of them; {path: GLOB, weight: 2} mixes");
  ls_run_file *missing = NULL;
  assert_int_equal(ls_run_file_read(arena, "no/such.yaml", NULL, 0, &missing, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "no/such.yaml"));
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, make_arena, drop_arena)
  const struct CMUnitTest tests[] = {
      CASE(the_defaults_are_those_of_the_design),
      CASE(values_are_typed_and_know_where_they_came_from),
      CASE(the_written_file_reads_back_to_the_same_values),
      CASE(every_key_of_the_table_is_sound),
      CASE(help_is_of_what_is_asked),
      CASE(every_key_refuses_a_wrong_type_with_its_place),
      CASE(errors_say_what_and_what_to_do),
      CASE(texts_may_have_weights_and_fields),
      CASE(unknown_keys_are_answered_with_the_nearest),
      CASE(every_peer_word_is_answered_with_ours),
      CASE(the_command_line_overrides_the_file),
      CASE(words_are_told_from_flags),
      CASE(the_mesh_fills_its_open_axis),
      CASE(meshes_and_counts_beyond_the_limit_are_refused),
      CASE(the_batch_is_cut_evenly_or_refused),
      CASE(only_keys_that_leave_the_mathematics_alone_may_change),
      CASE(what_a_command_needs_is_asked_for),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
