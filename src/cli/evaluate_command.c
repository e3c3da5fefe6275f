/* The loss of a model on a text. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "cli/command.h"
#include "cli/hardware.h"
#include "cli/tuning.h"
#include "cluster/machine.h"
#include "data/text_cache.h"
#include "model/hub.h"
#include "session/agree.h"
#include "session/fit.h"
#include "store/adapters.h"
#include "train/evaluate_documents.h"
#include "train/run_folder.h"
#include "train/top_logits_make.h"
#include "watch/progress.h"

static const char help[] =
    "usage: lockstep evaluate RUN_OR_CHECKPOINT [data.text=GLOB] [key=value...] [-n DEVICES]\n\n"
    "Loss and perplexity of a model on a text: all of data.text, cut into sequences of\n"
    "data.seq_len tokens, each read once: by default of a run as many as it was trained on, of\n"
    "another folder 512, or as many as the model allows. What is left at the end is left out and\n"
    "counted. Without data.text a run is evaluated on all of what it\n"
    "keeps for validation. The first word is a run's folder (its newest good checkpoint and its\n"
    "keys are taken), RUN/best (with RUN's keys), another checkpoint, or a Hugging Face folder. "
    "Of a model with a head over classes\n"
    "(task=classify) loss, accuracy and F1: data.text has texts with their classes; of one that\n"
    "makes embeddings (task=embed) loss and accuracy, of pairs of texts.\n\n"
    "  -n DEVICES  devices in all, as of train; any layout gives the same loss\n"
    "  --json      one object: loss, perplexity, tokens, left_out, documents, batches, seconds,\n"
    "              tokens_per_second; of classes: loss, accuracy, macro_f1, micro_f1, correct,\n"
    "              examples, dropped, cut, batches, seconds, examples_per_second; of embeddings:\n"
    "              loss, accuracy, correct, examples, group, dropped, batches, seconds,\n"
    "              examples_per_second\n"
    "  --per-document  loss, perplexity and tokens of each document, each read alone; of a longer\n"
    "              one pieces of data.seq_len. With --json an object a line: document (from 1),\n"
    "              loss, perplexity, tokens; and the last line of all\n"
    "  --logits FILE  what the model says of each token, for runs that learn of it\n"
    "              (task=distill distill.logits=FILE): the ids that it finds likeliest, with "
    "their\n"
    "              log-probabilities, of all sequences that such a run has, validation's too; the\n"
    "              keys of data are to be that run's\n"
    "  --top-k K   with it: so many ids of each token (64)\n"
    "  --trust     do not look at the checkpoint's checksums\n"
    "  --help      this text\n\n"
    "Memory is that of the weights in dtype and of one micro-batch: no gradient, no optimizer.\n"
    "With --logits those of a micro-batch are there whole: train.micro_batch=1 takes least.\n"
    "eval.batches=N reads no more than N batches of train.batch sequences.\n\n"
    "examples:\n"
    "  lockstep evaluate runs/quickstart\n"
    "  lockstep evaluate runs/quickstart data.text=book.txt data.seq_len=256\n"
    "  lockstep evaluate HuggingFaceTB/SmolLM2-135M data.text='test/*.jsonl' data.seq_len=2048 -n "
    "2\n"
    "  lockstep evaluate runs/large data.text='text/*.txt' --logits large.safetensors --top-k 64\n"
    "  lockstep evaluate runs/smol mesh.tp=2 -n 2 --json | jq .perplexity\n";

typedef struct request {
  const char *devices;
  bool json, trust, documents;
  const char *logits, *top; /* the file that they go to, and how many of each token */
  int64_t top_k;
  const char *length_of; /* what data.seq_len is: said of it */
  bool whole;            /* all of data.text; else what the run keeps for validation */
} request;

static bool is_given(const ls_words *words, const char *key) {
  const size_t length = strlen(key);
  for (int k = 0; k < words->key_count; k++) {
    const char *word = words->keys[k] + strspn(words->keys[k], "-");
    if (strncmp(word, key, length) == 0 && (word[length] == '=' || word[length] == 0)) return true;
  }
  return false;
}

/* A folder without a run's keys says how long sequences may be: the default is cut at that. */
static ls_status cut_sequence(ls_arena *arena, const char *folder, ls_run_file *run, request *asked,
                              ls_error *error) {
  ls_model_config config;
  LS_TRY(ls_adapters_read(arena, folder, &config, error));
  asked->length_of = "the default";
  if (config.positions <= 0 || config.positions >= run->data.seq_len) return LS_OK;
  run->data.seq_len = config.positions;
  asked->length_of = "all that the model allows";
  return LS_OK;
}

/* Documents one by one: what that asks of the keys. */
static ls_status read_by_document(const ls_words *words, ls_run_file *run, ls_error *error) {
  if (run->task != LS_RUN_NEXT_TOKEN)
    return ls_fail(error, LS_INPUT,
                   "%s: found a run that is not of the next token with --per-document, which tells "
                   "the loss of tokens: give task=next_token, or leave the flag out",
                   ls_run_file_where(run, "task"));
  if (is_given(words, "eval.batches"))
    return ls_fail(error, LS_INPUT,
                   "eval.batches: found with --per-document, which reads every document: leave one "
                   "of them out");
  if (run->mesh.cp > 1)
    return ls_fail(error, LS_INPUT,
                   "%s: found %lld with --per-document, whose ranks take whole documents: give "
                   "mesh.cp=1",
                   ls_run_file_where(run, "mesh.cp"), (long long)run->mesh.cp);
  run->eval.by_document = true;
  run->data.documents = LS_RUN_MASKED;
  run->logits_rows = 0; /* a document's are summed whole */
  return LS_OK;
}

/* What the model says, for others: what that asks of the keys. */
static ls_status read_logits(const ls_words *words, request *asked, ls_run_file *run,
                             ls_error *error) {
  char *end = NULL;
  if (asked->top && !asked->logits)
    return ls_fail(error, LS_INPUT, "--top-k: found without --logits FILE; expected that too");
  if (!asked->logits) return LS_OK;
  LS_TRY(ls_command_check_file("--logits", asked->logits, error));
  if (ls_file_is_special(asked->logits))
    return ls_fail(error, LS_INPUT, "--logits %s: found a device or a pipe; expected a file's name",
                   asked->logits);
  asked->top_k = asked->top ? strtoll(asked->top, &end, 10) : 64;
  if ((end && (*end || end == asked->top)) || asked->top_k < 1 || asked->top_k > LS_TOP_LOGITS_MOST)
    return ls_fail(error, LS_INPUT, "--top-k: found \"%s\"; expected a whole number from 1 to %d",
                   asked->top, LS_TOP_LOGITS_MOST);
  if (asked->documents)
    return ls_fail(error, LS_INPUT, "--logits: found with --per-document; leave one of them out");
  if (is_given(words, "eval.batches"))
    return ls_fail(error, LS_INPUT,
                   "eval.batches: found with --logits, which tells of every sequence: leave one of "
                   "them out");
  if (run->task == LS_RUN_DISTILL) run->task = LS_RUN_NEXT_TOKEN;
  if (run->task == LS_RUN_NEXT_TOKEN) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: found a run that is not of the next token with --logits, which tells of "
                 "these: give task=next_token, or leave the flag out",
                 ls_run_file_where(run, "task"));
}

/* The resolved run file of a run's folder, or of the run whose best checkpoint is named; NULL:
 * none.
 */
static const char *run_file_of(ls_arena *arena, const char *word) {
  const char *path = ls_arena_printf(arena, "%s/" LS_RESOLVED_NAME, word);
  if (ls_file_exists(path)) return path;
  size_t length = strlen(word), name = strlen(LS_BEST_NAME);
  while (length > 1 && word[length - 1] == '/') length--;
  const bool best = length >= name && strncmp(word + length - name, LS_BEST_NAME, name) == 0 &&
                    (length == name || word[length - name - 1] == '/');
  if (!best) return NULL;
  const char *run =
      length == name ? "." : ls_arena_printf(arena, "%.*s", (int)(length - name), word);
  path = ls_arena_printf(arena, "%s/" LS_RESOLVED_NAME, run);
  return ls_checkpoint_best_step(run) >= 0 && ls_file_exists(path) ? path : NULL;
}

/* The keys of the run that is evaluated, and what evaluating makes of them. */
static ls_status read_keys(ls_arena *arena, const ls_words *words, request *asked,
                           ls_run_file **run, ls_error *error) {
  if (words->positional_count != 1)
    return ls_fail(error, LS_INPUT,
                   "found %d words; expected one run, checkpoint or folder (see --help)",
                   words->positional_count);
  if (is_given(words, "model"))
    return ls_fail(error, LS_INPUT, "model: the first word is the model; leave the key out");
  const char *word = words->positional[0], *folder;
  if (ls_hub_is_name(word) && !ls_directory_exists(word))
    LS_TRY(ls_hub_find(arena, word, &word, error));
  LS_TRY(ls_checkpoint_find(arena, word, asked->trust, &folder, error));
  const char *path = run_file_of(arena, word);
  const char **keys = LS_NEW_ARRAY(arena, const char *, words->key_count + 2);
  int count = 0;
  for (int k = 0; k < words->key_count; k++) keys[count++] = words->keys[k];
  keys[count++] = ls_arena_printf(arena, "model=%s", folder);
  /* As the run resolved it for its own layout. */
  if (!is_given(words, "train.micro_batch") && !is_given(words, "train.microbatches"))
    keys[count++] = "train.micro_batch=auto";
  LS_TRY(ls_run_file_read(arena, path, keys, count, run, error));
  asked->length_of = is_given(words, "data.seq_len") ? "given" : "the run's";
  if (!path && !is_given(words, "data.seq_len"))
    LS_TRY(cut_sequence(arena, folder, *run, asked, error));
  (*run)->init = LS_RUN_INIT_WEIGHTS;
  if (asked->documents) LS_TRY(read_by_document(words, *run, error));
  LS_TRY(read_logits(words, asked, *run, error));
  if (!is_given(words, "eval.batches")) (*run)->eval.batches = INT64_MAX;
  asked->whole = !asked->logits && (!path || is_given(words, "data.text"));
  return LS_OK;
}

typedef struct evaluated {
  ls_arena *arena;
  ls_run_file *run;
  const request *asked;
  int devices;
  ls_world *world;
  ls_session *session;
  const ls_tokenizer *tokenizer;
  ls_dataset *dataset;
  const char *gpus;      /* said of them first; NULL: nothing */
  ls_progress *progress; /* of rank 0's process */
  double begin_s;
  ls_evaluation found;
} evaluated;

static ls_status open_text(evaluated *self, ls_error *error) {
  const char *cache = ls_corpus_cache_folder(self->arena, self->run->out);
  if (self->asked->whole)
    return ls_dataset_open_evaluation(self->arena, self->run, self->tokenizer, cache, NULL, NULL,
                                      &self->dataset, error);
  LS_TRY(ls_dataset_open(self->arena, self->run, self->tokenizer, cache, NULL, NULL, &self->dataset,
                         error));
  if (self->asked->logits) return LS_OK;
  if (self->dataset->evaluation.sequences > 0)
    return self->asked->documents
               ? ls_dataset_by_document(self->arena, self->run, self->dataset, error)
               : LS_OK;
  return ls_fail(error, LS_INPUT, "%s: the run keeps nothing for validation: give data.text=GLOB",
                 ls_run_file_where(self->run, "data.validation"));
}

/* Of a model that says how likely each next token is. */
static ls_status keep_logits(const evaluated *self, ls_error *error) {
  const ls_model_config *config = &self->session->config;
  if (config->classes || config->vectors || ls_model_is_encoder(config))
    return ls_fail(error, LS_INPUT, "--logits: %s %s; expected a model that continues a text",
                   config->source,
                   config->classes   ? "has a head over classes"
                   : config->vectors ? "makes embeddings"
                                     : "is an encoder");
  if (self->asked->top_k > config->vocabulary)
    return ls_fail(error, LS_INPUT,
                   "--top-k: found %lld; expected at most the vocabulary of %s, %lld",
                   (long long)self->asked->top_k, config->source, (long long)config->vocabulary);
  return ls_session_keep_logits(self->session, error);
}

static ls_status prepare(void *context, ls_error *error) {
  evaluated *self = context;
  const int on_host = ls_world_count_on_host(self->world), here = ls_world_count_here(self->world);
  self->gpus = ls_hardware_take_run_gpus(self->arena, self->run);
  LS_TRY(ls_session_create_evaluation(self->arena, self->run, self->devices,
                                      ls_machine_is_bound() ? here : on_host, &self->session,
                                      error));
  ls_tell_tuning(self->session);
  if (self->asked->logits) LS_TRY(keep_logits(self, error));
  LS_TRY(ls_session_check_fit(self->session, on_host, here, error));
  LS_TRY(ls_session_open_tokenizer(self->session, &self->tokenizer, error));
  return open_text(self, error);
}

static int64_t batches_of(const evaluated *self) {
  const int64_t all = ls_order_batches(&self->dataset->evaluation);
  if (self->asked->logits) return all + ls_order_batches(&self->dataset->training);
  return all < self->run->eval.batches ? all : self->run->eval.batches;
}

static void describe(evaluated *self) {
  const ls_session *session = self->session;
  if (self->gpus) fprintf(stderr, "%s\n", self->gpus);
  if (ls_run_device_is_gpu(&self->run->device))
    ls_warn("evaluating on a GPU has run on stand-ins alone so far; compare with device.kind=cpu");
  fprintf(stderr, "%s: %.2f M parameters in %s on %d device%s (%s)\n", self->run->model,
          (double)ls_model_parameters(&session->config) / 1e6, ls_session_dtype(session),
          session->devices, session->devices == 1 ? "" : "s",
          ls_layout_print(self->arena, &session->layout));
  const ls_dataset *dataset = self->dataset;
  const bool all = self->asked->logits;
  fprintf(stderr, "tokenizer %s, %d ids; %lld tokens, %lld sequences of %lld (data.seq_len: %s)\n",
          self->tokenizer->name, (int)self->tokenizer->vocabulary,
          (long long)(dataset->evaluation_tokens + (all ? dataset->training_tokens : 0)),
          (long long)(dataset->evaluation.sequences + (all ? dataset->training.sequences : 0)),
          (long long)session->sequence, self->asked->length_of);
  self->progress =
      ls_progress_create(self->arena, stderr, isatty(STDERR_FILENO) != 0, 0, batches_of(self));
}

/* Some seconds apart where it is no terminal; a short one needs none. */
static void tell_batch(void *context, int64_t done, int64_t batches) {
  evaluated *self = context;
  const double seconds = ls_now_s() - self->begin_s;
  if (done > 0 && seconds > 2)
    ls_progress_line(self->progress, done, seconds, "evaluating: %lld of %lld batches",
                     (long long)done, (long long)batches);
}

/* Tokens at the end of its texts that make no whole sequence, and of chats that are too long. The
 * first of a text is read only. */
static int64_t left_out(const ls_dataset *dataset, bool by_document) {
  int64_t tokens = 0;
  if (by_document) return 0;
  for (int m = 0; m < dataset->evaluation.mix_count; m++) {
    const ls_mix *part = &dataset->evaluation.mix[m];
    if (part->packing)
      tokens += part->part.tokens - part->packing->distinct;
    else if (part->part.tokens > 0)
      tokens += part->part.tokens - 1 - part->sequences * dataset->evaluation.seq_len;
  }
  return tokens;
}

/* Of vectors: texts that ask in place of tokens. */
static void print_vectors(const evaluated *self, double seconds) {
  const ls_evaluation *found = &self->found;
  int64_t dropped = 0;
  for (int m = 0; m < self->dataset->evaluation.mix_count; m++)
    dropped += self->dataset->evaluation.mix[m].packing->dropped;
  const double rate = (double)found->tokens / seconds;
  if (!self->asked->json) {
    printf("loss %.4f, accuracy %.2f%%: %lld of %lld texts find their answer; %.1f a second",
           found->loss, 100 * found->accuracy, (long long)found->correct, (long long)found->tokens,
           rate);
    if (found->batches < ls_order_batches(&self->dataset->evaluation))
      printf("; %lld of %lld batches", (long long)found->batches,
             (long long)ls_order_batches(&self->dataset->evaluation));
    if (dropped) printf("; %lld too long, dropped", (long long)dropped);
    putchar('\n');
    return;
  }
  json_t *root = json_pack(
      "{s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "loss", found->loss, "accuracy",
      found->accuracy, "correct", (json_int_t)found->correct, "examples", (json_int_t)found->tokens,
      "group", (json_int_t)self->run->embed.group, "dropped", (json_int_t)dropped, "batches",
      (json_int_t)found->batches, "seconds", seconds, "examples_per_second", rate);
  if (root) json_dumpf(root, stdout, 0);
  putchar('\n');
  json_decref(root);
}

/* Of a classifier: texts in place of tokens. */
static void print_classified(const evaluated *self, double seconds) {
  const ls_evaluation *found = &self->found;
  int64_t dropped = 0, cut = 0;
  for (int m = 0; m < self->dataset->evaluation.mix_count; m++) {
    const ls_packing *packing = self->dataset->evaluation.mix[m].packing;
    dropped += packing->dropped;
    cut += packing->cut;
  }
  const double rate = (double)found->tokens / seconds;
  if (!self->asked->json) {
    printf("loss %.4f, accuracy %.2f%%, macro F1 %.4f", found->loss, 100 * found->accuracy,
           found->macro_f1);
    if (self->run->classes.several) printf(", micro F1 %.4f", found->micro_f1);
    printf(": %lld of %lld %s correct; %.1f a second", (long long)found->correct,
           (long long)found->tokens, self->run->classes.each ? "words" : "texts", rate);
    if (found->batches < ls_order_batches(&self->dataset->evaluation))
      printf("; %lld of %lld batches", (long long)found->batches,
             (long long)ls_order_batches(&self->dataset->evaluation));
    if (dropped) printf("; %lld too long, dropped", (long long)dropped);
    if (cut) printf("; %lld too long, cut", (long long)cut);
    putchar('\n');
    return;
  }
  json_t *root = json_pack("{s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "loss",
                           found->loss, "accuracy", found->accuracy, "macro_f1", found->macro_f1,
                           "micro_f1", found->micro_f1, "correct", (json_int_t)found->correct,
                           "examples", (json_int_t)found->tokens, "dropped", (json_int_t)dropped,
                           "cut", (json_int_t)cut, "batches", (json_int_t)found->batches, "seconds",
                           seconds, "examples_per_second", rate);
  if (root) json_dumpf(root, stdout, 0);
  putchar('\n');
  json_decref(root);
}

/* What became of chats that are too long. */
static void print_chats(const ls_dataset *dataset) {
  ls_packing all = {0};
  for (int m = 0; m < dataset->evaluation.mix_count; m++) {
    const ls_packing *each = dataset->evaluation.mix[m].packing;
    all.dropped += each->dropped;
    all.cut += each->cut;
    all.split += each->split;
    all.unasked += each->unasked;
  }
  const struct {
    int64_t count;
    const char *what;
  } told[] = {{all.dropped, "too long, dropped"},
              {all.cut, "too long, cut"},
              {all.split, "too long, split"},
              {all.unasked, "left out, of which nothing is asked"}};
  for (size_t t = 0; t < sizeof told / sizeof *told; t++)
    if (told[t].count) printf("; %lld %s", (long long)told[t].count, told[t].what);
}

static void print_found(const evaluated *self, double seconds) {
  if (self->dataset->text_pairs) {
    print_vectors(self, seconds);
    return;
  }
  if (self->dataset->labelled) {
    print_classified(self, seconds);
    return;
  }
  const ls_evaluation *found = &self->found;
  const double perplexity = exp(found->loss), rate = (double)found->tokens / seconds;
  const int64_t rest = left_out(self->dataset, self->asked->documents);
  if (!self->asked->json) {
    printf("loss %.4f, perplexity %.4f; %lld tokens, %.1f a second", found->loss, perplexity,
           (long long)found->tokens, rate);
    if (found->batches < ls_order_batches(&self->dataset->evaluation))
      printf("; %lld of %lld batches", (long long)found->batches,
             (long long)ls_order_batches(&self->dataset->evaluation));
    if (self->dataset->chats)
      print_chats(self->dataset);
    else
      printf("; %lld tokens at the end left out", (long long)rest);
    putchar('\n');
    return;
  }
  json_t *root =
      json_pack("{s:f, s:f, s:I, s:I, s:I, s:I, s:f, s:f}", "loss", found->loss, "perplexity",
                perplexity, "tokens", (json_int_t)found->tokens, "left_out", (json_int_t)rest,
                "documents", (json_int_t)self->dataset->documents, "batches",
                (json_int_t)found->batches, "seconds", seconds, "tokens_per_second", rate);
  if (root) json_dumpf(root, stdout, 0);
  putchar('\n');
  json_decref(root);
}

static void print_document(const evaluated *self, int64_t number, const ls_document_loss *of) {
  const double loss = of->sum / (double)of->tokens;
  if (!self->asked->json) {
    printf("document %lld: loss %.4f, perplexity %.4f; %lld tokens\n", (long long)number, loss,
           exp(loss), (long long)of->tokens);
    return;
  }
  json_t *root = json_pack("{s:I, s:f, s:f, s:I}", "document", (json_int_t)number, "loss", loss,
                           "perplexity", exp(loss), "tokens", (json_int_t)of->tokens);
  if (root) json_dumpf(root, stdout, 0);
  putchar('\n');
  json_decref(root);
}

/* All documents, and the loss of all of their tokens as without the flag. */
static ls_status evaluate_each(evaluated *self, const ls_evaluating *told, ls_error *error) {
  ls_document_losses each;
  LS_TRY(ls_evaluate_documents(self->arena, self->session, self->dataset, self->world, told, &each,
                               error));
  for (int64_t d = 0; d < each.count && ls_world_first_here(self->world) == 0; d++)
    if (each.items[d].tokens > 0) print_document(self, d + 1, &each.items[d]);
  self->found = (ls_evaluation){.loss = each.tokens > 0 ? each.sum / (double)each.tokens : NAN,
                                .tokens = each.tokens,
                                .batches = each.batches};
  return LS_OK;
}

static void print_logits(const evaluated *self, const ls_top_made *made, double seconds) {
  const double perplexity = exp(made->loss), rate = (double)made->tokens / seconds;
  const int64_t top = self->asked->top_k;
  if (!self->asked->json) {
    printf("loss %.4f, perplexity %.4f; %lld tokens, %.1f a second\n", made->loss, perplexity,
           (long long)made->counted, rate);
    printf(
        "%s: the %lld likeliest of %lld ids for each token of %lld sequences of %lld; they have "
        "%.2f%% of the probability\n",
        self->asked->logits, (long long)top, (long long)self->session->config.vocabulary,
        (long long)made->sequences, (long long)self->session->sequence, 100 * made->probability);
    return;
  }
  json_t *root =
      json_pack("{s:f, s:f, s:I, s:I, s:I, s:f, s:f, s:f}", "loss", made->loss, "perplexity",
                perplexity, "tokens", (json_int_t)made->counted, "sequences",
                (json_int_t)made->sequences, "top_k", (json_int_t)top, "probability",
                made->probability, "seconds", seconds, "tokens_per_second", rate);
  if (root) json_dumpf(root, stdout, 0);
  putchar('\n');
  json_decref(root);
}

/* All sequences, into the file. */
static ls_status write_logits(evaluated *self, const ls_evaluating *told, ls_error *error) {
  ls_top_made made = {0};
  const ls_status status =
      ls_top_logits_make(self->session, self->dataset, self->world, told, self->asked->logits,
                         self->asked->top_k, &made, error);
  if (self->progress) ls_progress_end(self->progress);
  if (status == LS_OK && ls_world_first_here(self->world) == 0)
    print_logits(self, &made, ls_now_s() - self->begin_s);
  return status;
}

static ls_status evaluate_in_world(evaluated *self, ls_error *error) {
  const bool speaks = ls_world_first_here(self->world) == 0;
  if (speaks) describe(self);
  self->begin_s = ls_now_s();
  const ls_evaluating told = {tell_batch, self};
  if (self->asked->logits) return write_logits(self, &told, error);
  const ls_status status = self->asked->documents
                               ? evaluate_each(self, &told, error)
                               : ls_evaluate_weights(self->session, self->dataset, self->world,
                                                     &told, &self->found, error);
  if (self->progress) ls_progress_end(self->progress);
  LS_TRY(status);
  if (isnan(self->found.loss))
    return ls_fail(error, LS_INPUT, "%s: no token has a label: %s",
                   ls_run_file_where(self->run, "data.text"),
                   self->dataset->labelled || self->dataset->text_pairs
                       ? "every text is too long for data.seq_len"
                       : "each document is of one token alone");
  if (speaks) print_found(self, ls_now_s() - self->begin_s);
  return LS_OK;
}

static ls_status evaluate(ls_arena *arena, const ls_words *words, void *flags, ls_error *error) {
  request *asked = flags;
  evaluated self = {.arena = arena, .asked = asked};
  ls_command_catch_signals(NULL);
  LS_TRY(read_keys(arena, words, asked, &self.run, error));
  LS_TRY(ls_command_devices(asked->devices, self.run, &self.devices, error));
  LS_TRY(ls_command_world(self.devices, &self.world, error));
  ls_world_set_deadline(self.world, self.run->comm.timeout);
  ls_status status =
      ls_world_agree(self.world, ls_arena_guard(prepare, &self, false, error), error);
  if (status == LS_OK) status = evaluate_in_world(&self, error);
  if (self.dataset) ls_dataset_close(self.dataset);
  ls_tokenizer_close(&self.tokenizer);
  ls_world_destroy(&self.world);
  return status;
}

int ls_command_evaluate(int count, char **words) {
  request asked = {0};
  const ls_command_flag flags[] = {
      {"-n", &asked.devices, NULL},    {"--json", NULL, &asked.json},
      {"--trust", NULL, &asked.trust}, {"--logits", &asked.logits, NULL},
      {"--top-k", &asked.top, NULL},   {"--per-document", NULL, &asked.documents}};
  return ls_command_run(
      &(ls_command){"evaluate", help, true, flags, sizeof flags / sizeof *flags, evaluate, &asked},
      count, words);
}
