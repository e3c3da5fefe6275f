/* A smaller model beside a large one: its run file, and its weights where the large one has some.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/export.h"
#include "checkpoint/keep_layers.h"
#include "cli/command.h"
#include "model/smaller.h"
#include "store/adapters.h"
#include "store/weights_folder.h"
#include "train/run_folder.h"

static const char help[] =
    "usage: lockstep draft RUN|DIR [layers=N] [width=W] -o SMALL.yaml [KEY=VALUE...]\n\n"
    "Makes a smaller model to tune learning rate and batch on, or to draft for `generate "
    "--draft`:\n"
    "SMALL.yaml, the run file with these keys, and the folder SMALL with its config.json. RUN is a "
    "run\n"
    "file or a run's folder, DIR a Hugging Face folder or a checkpoint.\n\n"
    "  layers=N        fewer layers. Where there are weights SMALL has those of N layers, evenly\n"
    "                  spaced with the first and the last, and `train SMALL.yaml` begins with "
    "them\n"
    "  width=W         a narrower stream: fewer heads of as many columns, the MLP as much "
    "narrower;\n"
    "                  from scratch, or\n"
    "  --weights       with width=W: with the columns and heads whose weights are largest, to be\n"
    "                  distilled from the large model\n"
    "  -o SMALL.yaml   neither it nor the folder SMALL may be there\n"
    "  --trust         do not look at a checkpoint's checksums\n"
    "  --help          this text\n\n"
    "How what was tuned carries over to the large model is printed, and stands in SMALL.yaml.\n\n"
    "examples:\n"
    "  lockstep draft run.yaml layers=4 width=256 -o small.yaml && lockstep sweep small.yaml "
    "train.lr=3e-4,1e-3,3e-3\n"
    "  lockstep draft Qwen3-0.6B layers=6 -o small.yaml data.text=book.txt\n"
    "  lockstep draft runs/large layers=2 -o drafter.yaml && lockstep train drafter.yaml\n";

typedef struct drafter {
  ls_arena *arena;
  const char *from, *file, *folder; /* folder: file without its end */
  const char *weights;              /* NULL: none */
  bool trust, cuts;                 /* cuts: weights of a narrower model are the large one's */
  int64_t layers, width;            /* 0: as they are */
  ls_run_file *run;
  bool has_run;
  ls_model_config config, small;
} drafter;

static ls_status read_count(const char *text, const char *name, int64_t *count, ls_error *error) {
  char *end;
  *count = strtoll(text, &end, 10);
  if (end != text && !*end && *count > 0) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: found \"%s\"; expected a whole number, 1 or more", name,
                 text);
}

/* The run that is drafted from, and where its weights are. */
static ls_status find_run(drafter *self, const char *const *keys, int key_count, ls_error *error) {
  const char *path = NULL;
  const char *resolved = ls_arena_printf(self->arena, "%s/" LS_RESOLVED_NAME, self->from);
  const char *config = ls_arena_printf(self->arena, "%s/config.json", self->from);
  self->has_run = !ls_directory_exists(self->from) || ls_file_exists(resolved);
  if (self->has_run) LS_TRY(ls_run_folder_file(self->arena, self->from, &path, error));
  LS_TRY(ls_run_file_read(self->arena, path, keys, key_count, &self->run, error));
  if (path != self->from && (self->has_run || ls_file_exists(config)))
    return ls_checkpoint_find(self->arena, self->from, self->trust, &self->weights, error);
  if (!self->has_run)
    return ls_fail(error, LS_INPUT,
                   "%s: neither config.json nor " LS_RESOLVED_NAME
                   " there; expected a model, a run file or the folder of a run",
                   self->from);
  if (ls_directory_exists(self->run->model)) self->weights = self->run->model;
  return LS_OK;
}

static ls_status find_model(drafter *self, ls_error *error) {
  if (self->weights && ls_adapters_has(self->weights))
    return ls_fail(error, LS_INPUT,
                   "%s: adapters; expected a model: lockstep export --merge makes one",
                   self->weights);
  if (self->weights) return ls_model_config_read(self->arena, self->weights, &self->config, error);
  return ls_model_find(self->arena, self->run->model, &self->config, error);
}

/* What layers' products have of the rate that was tuned: muP's 1/width of AdamW, and the root of
 * the depth that Depth-muP has beside it. */
static double layer_rate(const drafter *self) {
  return (double)self->small.width / (double)self->config.width *
         sqrt((double)self->small.layers / (double)self->config.layers);
}

static const char *rule(const drafter *self, const char *mark) {
  const double rate = layer_rate(self),
               head = (double)self->small.width / (double)self->config.width;
  const char *of_head = self->config.tied || head >= 1
                            ? ""
                            : ls_arena_printf(self->arena, ", {match: head, lr: %.4gx}", head);
  return ls_arena_printf(
      self->arena,
      "%sof %s: %lld of %lld layers, %lld of %lld columns\n"
      "%show it carries over: train.batch and train.lr as tuned here at as many tokens, and of "
      "the\n"
      "%slayers' products %.4g of that rate (AdamW: 1/width, muP, arXiv:2203.03466; "
      "1/sqrt(layers),\n"
      "%sDepth-muP, arXiv:2310.02244, which scales branches, too: try the neighbours as well):\n"
      "%s  lockstep train %s train.lr=LR train.batch=B optimizer.groups='[{match: \"*norm*\", lr: "
      "1x}, {match: \"layers.*\", lr: %.4gx}%s]'\n",
      mark, self->from, (long long)self->small.layers, (long long)self->config.layers,
      (long long)self->small.width, (long long)self->config.width, mark, mark, rate, mark, mark,
      self->has_run ? self->from : "LARGE.yaml", rate, of_head);
}

static ls_status write_config(const drafter *self, ls_error *error) {
  const char *path = ls_arena_printf(self->arena, "%s/config.json", self->folder);
  LS_TRY(ls_directory_check_new(self->folder, error));
  LS_TRY(ls_directory_make(self->folder, error));
  if (self->weights) LS_TRY(ls_export_companions(self->arena, self->weights, self->folder, error));
  return ls_file_write(path, self->small.text, strlen(self->small.text), error);
}

static ls_status write_run(const drafter *self, ls_error *error) {
  const char *name = strrchr(self->folder, '/') ? strrchr(self->folder, '/') + 1 : self->folder;
  const char *out = ls_arena_printf(self->arena, "runs/%s", name);
  ls_run_file *run = ls_run_file_copy(self->arena, self->run);
  run->model = self->folder;
  run->out = out;
  const char *text = ls_arena_printf(self->arena, "# Written by lockstep draft.\n%s%s",
                                     rule(self, "# "), ls_run_file_text(self->arena, run));
  return ls_file_write(self->file, text, strlen(text), error);
}

/* Layers of the small model that are the large one's; NULL: none is. */
static ls_status make_smaller(drafter *self, bool *keeps, ls_error *error) {
  const int64_t few = self->layers ? self->layers : self->config.layers;
  int64_t *kept = LS_NEW_ARRAY(self->arena, int64_t, few);
  if (few > self->config.layers)
    return ls_fail(error, LS_INPUT, "layers=%lld: the model has %lld; expected no more",
                   (long long)few, (long long)self->config.layers);
  ls_layers_kept(self->config.layers, few, kept);
  LS_TRY(ls_model_smaller(self->arena, &self->config, self->layers ? kept : NULL, few, self->width,
                          &self->small, error));
  *keeps = self->weights && (!self->width || self->cuts) &&
           ls_weights_folder_has(self->arena, self->weights);
  if (self->cuts && (!*keeps || !self->width))
    return ls_fail(error, LS_INPUT, "--weights: expected width=W with it, of a model with weights");
  if (!*keeps) return write_config(self, error);
  LS_TRY(ls_keep_layers(self->arena, self->weights, &self->config, kept, &self->small, self->folder,
                        error));
  printf("%s: layers", self->folder);
  for (int64_t i = 0; i < few; i++) printf("%s %lld", i ? "," : "", (long long)kept[i]);
  printf(" of %s\n", self->weights);
  return LS_OK;
}

static ls_status take_words(drafter *self, const ls_words *words, const char **keys, int *key_count,
                            ls_error *error) {
  *key_count = 0;
  for (int k = 0; k < words->key_count; k++) {
    const char *word = words->keys[k];
    if (strncmp(word, "layers=", 7) == 0) {
      LS_TRY(read_count(word + 7, "layers", &self->layers, error));
    } else if (strncmp(word, "width=", 6) == 0) {
      LS_TRY(read_count(word + 6, "width", &self->width, error));
    } else {
      keys[(*key_count)++] = word;
    }
  }
  if (words->positional_count != 1)
    return ls_fail(error, LS_INPUT,
                   "found %d words; expected a run or a model's folder (see --help)",
                   words->positional_count);
  if (!self->layers && !self->width)
    return ls_fail(error, LS_INPUT, "expected layers=N, width=W or both");
  const char *end = self->file ? strrchr(self->file, '.') : NULL;
  if (!end || strcmp(end, ".yaml") != 0 || end == self->file)
    return ls_fail(error, LS_INPUT,
                   "-o: found \"%s\"; expected the name of a new run file, "
                   "SMALL.yaml",
                   self->file ? self->file : "");
  self->folder = ls_arena_printf(self->arena, "%.*s", (int)(end - self->file), self->file);
  if (ls_file_exists(self->file))
    return ls_fail(error, LS_INPUT, "-o: %s is there; expected a new name", self->file);
  self->from = words->positional[0];
  return ls_command_check_file("-o", self->file, error);
}

static ls_status draft(ls_arena *arena, const ls_words *words, void *flags, ls_error *error) {
  drafter *self = flags;
  const char **keys = LS_NEW_ARRAY(arena, const char *, words->key_count + 1);
  int key_count;
  bool keeps = false;
  self->arena = arena;
  LS_TRY(take_words(self, words, keys, &key_count, error));
  if (!ls_command_is_first()) return LS_OK;
  LS_TRY(find_run(self, keys, key_count, error));
  LS_TRY(find_model(self, error));
  LS_TRY(make_smaller(self, &keeps, error));
  LS_TRY(write_run(self, error));
  printf("%s: %.1f M parameters in place of %.1f M, %s\n%s", self->file,
         (double)ls_model_parameters(&self->small) * 1e-6,
         (double)ls_model_parameters(&self->config) * 1e-6, keeps ? "with weights" : "from scratch",
         rule(self, ""));
  return LS_OK;
}

int ls_command_draft(int count, char **words) {
  drafter asked = {0};
  const ls_command_flag flags[] = {
      {"-o", &asked.file, NULL}, {"--trust", NULL, &asked.trust}, {"--weights", NULL, &asked.cuts}};
  return ls_command_run(
      &(ls_command){"draft", help, false, flags, sizeof flags / sizeof *flags, draft, &asked},
      count, words);
}
