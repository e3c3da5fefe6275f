#include "cli/show_html.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "train/session.h"
#include "watch/page.h"

/* A layout of the page: keys that come after the user's and so win. */
typedef struct candidate {
  const char *name;
  int pp, dp_replicate, dp_shard, tp, zero;
} candidate;

enum { KEYS = 7, AGAIN = 2 };

static void write_keys(ls_arena *arena, const candidate *as, const char *keys[KEYS]) {
  keys[0] = ls_arena_printf(arena, "mesh.pp=%d", as->pp);
  keys[1] = ls_arena_printf(arena, "mesh.dp_replicate=%d", as->dp_replicate);
  keys[2] = ls_arena_printf(arena, "mesh.dp_shard=%d", as->dp_shard);
  keys[3] = ls_arena_printf(arena, "mesh.tp=%d", as->tp);
  keys[4] = ls_arena_printf(arena, "zero=%d", as->zero);
  keys[5] = "sequence_parallel=false";
  keys[6] = "stages=auto";
}

/* A program names neither units nor chunks: they are made again, as they were made. */
static ls_status describe(const ls_session *session, ls_page_layout *made, ls_error *error) {
  ls_sharded *sharded;
  ls_chunks *chunks;
  LS_TRY(ls_shard(session->graph, &session->layout, &sharded, error));
  LS_TRY(ls_chunks_make(sharded, false, &chunks, error));
  made->about = ls_layout_print(session->arena, &session->layout);
  made->stages = session->stages[LS_SESSION_STEP];
  made->graph = session->graph;
  made->chunks = chunks;
  made->units = ls_units_make(sharded, chunks);
  return LS_OK;
}

static ls_status open_session(ls_arena *arena, const char *run_path, const char *const *keys,
                              int key_count, int devices, ls_session **session, ls_error *error) {
  ls_run_file *run;
  LS_TRY(ls_run_file_read(arena, run_path, keys, key_count, &run, error));
  return ls_session_create(arena, run, devices, devices, session, error);
}

/* The microbatches of the run may not fit another layout: then they are chosen anew. */
static ls_status compile_candidate(ls_arena *arena, const char *run_path, const ls_words *words,
                                   int devices, const candidate *as, ls_page_layout *made,
                                   ls_error *error) {
  const int count = words->key_count + KEYS;
  const char **keys = LS_NEW_ARRAY(arena, const char *, count + AGAIN);
  memcpy(keys, words->keys, sizeof *keys * (size_t)words->key_count);
  write_keys(arena, as, &keys[words->key_count]);
  keys[count] = "train.microbatches=auto";
  keys[count + 1] = "train.micro_batch=auto";
  ls_session *session;
  ls_error second = {0};
  if (open_session(arena, run_path, keys, count, devices, &session, error) != LS_OK &&
      open_session(arena, run_path, keys, count + AGAIN, devices, &session, &second) != LS_OK)
    return LS_INPUT; /* the first refusal is of what the user gave */
  return describe(session, made, error);
}

static bool same_layout(const ls_page_layout *a, const ls_page_layout *b) {
  const ls_layout *one = &a->stages[0]->layout, *other = &b->stages[0]->layout;
  return one->pp == other->pp && one->dp_replicate == other->dp_replicate &&
         one->dp_shard == other->dp_shard && one->tp == other->tp &&
         (one->dp_shard == 1 || one->zero == other->zero) &&
         one->microbatches == other->microbatches &&
         one->sequence_parallel == other->sequence_parallel;
}

static ls_status write_page(const ls_page_layout *layouts, int count, const char *title,
                            const char *path, ls_error *error) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *stream = open_memstream(&text, &bytes);
  if (!stream) return ls_fail(error, LS_FAILED, "out of memory for a page");
  ls_page_write(layouts, count, title, stream);
  ls_status status;
  if (fclose(stream) != 0)
    status = ls_fail(error, LS_FAILED, "%s: out of memory for a page", path);
  else
    status = ls_file_write(path, text, bytes, error);
  free(text);
  return status;
}

ls_status ls_show_html(ls_arena *arena, const char *run_path, const ls_words *words, int devices,
                       const char *path, ls_error *error) {
  const candidate candidates[] = {{"DDP", 1, devices, 1, 1, 0},
                                  {"ZeRO-3", 1, 1, devices, 1, 3},
                                  {"TP", 1, 1, 1, devices, 0},
                                  {"PP", devices, 1, 1, 1, 0}};
  enum { COUNT = sizeof candidates / sizeof *candidates };
  ls_page_layout layouts[1 + COUNT] = {{.name = "this run"}};
  ls_session *session;
  LS_TRY(open_session(arena, run_path, words->keys, words->key_count, devices, &session, error));
  LS_TRY(describe(session, &layouts[0], error));
  int count = 1;
  for (int c = 0; c < COUNT; c++) {
    ls_error refusal = {0};
    ls_page_layout *made = &layouts[count];
    *made = (ls_page_layout){.name = candidates[c].name};
    if (compile_candidate(arena, run_path, words, devices, &candidates[c], made, &refusal) != LS_OK)
      made->refused = ls_arena_strdup(arena, refusal.text);
    if (!made->refused && same_layout(made, &layouts[0]))
      layouts[0].name = ls_arena_printf(arena, "%s (this run)", candidates[c].name);
    else
      count++;
  }
  const char *title = ls_arena_printf(arena, "%s on %d device%s: one training step",
                                      session->run->model, devices, devices == 1 ? "" : "s");
  LS_TRY(write_page(layouts, count, title, path, error));
  printf("written: %s\n", path);
  return LS_OK;
}
