/* What was shrunk, in words: one row for each number that changed. */
#include <string.h>

#include "verify/shrink_parts.h"

static void add(ls_arena *arena, ls_shrunk *shrunk, const char *key, const char *from,
                const char *to, const char *why) {
  if (strcmp(from, to) == 0) return;
  *LS_APPEND(arena, &shrunk->rows) = (ls_shrink_row){key, from, to, why};
}

static void add_number(ls_arena *arena, ls_shrunk *shrunk, const char *key, int64_t from,
                       int64_t to, const char *why) {
  add(arena, shrunk, key, ls_arena_printf(arena, "%lld", (long long)from),
      ls_arena_printf(arena, "%lld", (long long)to), why);
}

/* "uneven over 2 chunks, as over 16". */
static const char *over(ls_arena *arena, int64_t count, int64_t parts, int64_t before,
                        const char *what) {
  const char *how = count % parts ? "uneven" : "even";
  if (parts == before)
    return ls_arena_printf(arena, "%s over %lld %s", how, (long long)parts, what);
  return ls_arena_printf(arena, "%s over %lld %s, as over %lld", how, (long long)parts, what,
                         (long long)before);
}

static const char *over_tp(ls_arena *arena, int64_t count, const ls_form *before,
                           const ls_form *form) {
  const char *how = count % form->tp ? "uneven" : "even";
  if (form->tp == 1) return "small";
  if (form->tp == before->tp)
    return ls_arena_printf(arena, "%s over tp=%lld", how, (long long)form->tp);
  return ls_arena_printf(arena, "%s over tp=%lld, as over tp=%lld", how, (long long)form->tp,
                         (long long)before->tp);
}

/* Of an axis of the mesh; NULL: there are more. */
static const char *why_members(int64_t count) {
  if (count == 2) return "a first and a last";
  return count == 3 ? "a first, one between, a last" : NULL;
}

static const char *why_stages(const ls_form *form) {
  const char *few = why_members(form->pp);
  return few ? few : "the fewest stages with these microbatches";
}

static const char *why_tp(const ls_form *form) {
  const char *few = why_members(form->tp);
  if (few) return few;
  return form->kv_heads < form->tp ? "the fewest ranks that cut KV heads and share them too"
                                   : "the fewest ranks with these edges";
}

static const char *why_microbatches(ls_arena *arena, const ls_form *before, const ls_form *form) {
  if (form->pp == 1) return form->microbatches == 3 ? "a first, one between, a last" : "the same";
  const char *many = form->microbatches < form->pp ? "fewer than stages" : "more than stages";
  if (form->microbatches == form->pp) many = "as many as stages";
  return ls_arena_printf(arena, "%s, %s", many,
                         over(arena, form->microbatches, form->pp, before->pp, "stages"));
}

static const char *why_layers(ls_arena *arena, const ls_form *before, const ls_form *form) {
  const int64_t chunks = form->pp * form->chunks, chunks_before = before->pp * before->chunks;
  if (chunks == 1) return form->layers > 1 ? "more than one" : "one";
  return over(arena, form->layers, chunks, chunks_before, "chunks");
}

static const char *why_kv_heads(const ls_form *form) {
  if (form->kv_heads < form->tp) return "fewer than tp: some ranks share one";
  return form->kv_heads < form->heads ? "fewer than heads" : "as many as heads";
}

static const char *why_group(ls_arena *arena, int64_t size, const ls_form *form) {
  if (size <= 1) return "each layer alone";
  if (size >= form->layers) return "all layers together";
  return ls_arena_printf(arena, "more than one together, %s",
                         form->layers % size ? "the last group smaller" : "groups of one size");
}

static void describe_mesh(ls_arena *arena, ls_shrunk *shrunk) {
  const ls_form *before = &shrunk->before, *form = &shrunk->form;
  add_number(arena, shrunk, "mesh.pp", before->pp, form->pp, why_stages(form));
  add_number(arena, shrunk, "mesh.dp_replicate", before->replicas, form->replicas,
             why_members(form->replicas));
  add_number(arena, shrunk, "mesh.dp_shard", before->shards, form->shards,
             why_members(form->shards));
  add_number(arena, shrunk, "mesh.cp", before->cp, form->cp, why_members(form->cp));
  if (before->head_ranks < before->cp)
    add_number(arena, shrunk, "ulysses_degree", before->head_ranks, form->head_ranks,
               why_members(form->head_ranks));
  add_number(arena, shrunk, "mesh.tp", before->tp, form->tp, why_tp(form));
  add_number(arena, shrunk, "mesh.ep", before->ep, form->ep, why_members(form->ep));
}

static void describe_model(ls_arena *arena, ls_shrunk *shrunk) {
  const ls_form *before = &shrunk->before, *form = &shrunk->form;
  const char *heads = form->heads > form->tp ? "more than tp" : "as many as tp";
  add_number(arena, shrunk, "layers", before->layers, form->layers,
             why_layers(arena, before, form));
  add_number(arena, shrunk, "heads", before->heads, form->heads, heads);
  add_number(arena, shrunk, "KV heads", before->kv_heads, form->kv_heads, why_kv_heads(form));
  add_number(arena, shrunk, "head size", before->head_dim, form->head_dim,
             form->head_dim % 2 ? "odd" : "even");
  add_number(arena, shrunk, "width", before->width, form->width,
             form->width == form->heads * form->head_dim ? "heads x head size"
                                                         : "other than heads x head size");
  add_number(arena, shrunk, "MLP width", before->mlp_width, form->mlp_width,
             over_tp(arena, form->mlp_width, before, form));
  add_number(arena, shrunk, "experts", before->experts, form->experts,
             "more than twice those of a token");
  add_number(arena, shrunk, "experts of a token", before->experts_per_token,
             form->experts_per_token, "more than one");
  add_number(arena, shrunk, "vocabulary", before->vocabulary, form->vocabulary,
             over_tp(arena, form->vocabulary, before, form));
  add_number(arena, shrunk, "positions", before->positions, form->positions,
             form->positions > form->sequence ? "more than a sequence has" : "as a sequence has");
}

static const char *why_sequence(ls_arena *arena, const ls_form *before, const ls_form *form) {
  const int64_t tokens = form->sequences * form->sequence;
  if (form->tp == 1) return "a few tokens";
  const char *many = tokens > form->width ? "more than width" : "not more than width";
  const char *text =
      ls_arena_printf(arena, "%lld tokens of a rank at a time, %s", (long long)tokens, many);
  if (!form->sequence_parallel) return text;
  return ls_arena_printf(arena, "%s, %s", text, over_tp(arena, tokens, before, form));
}

static void describe_step(ls_arena *arena, ls_shrunk *shrunk, int64_t batch) {
  const ls_form *before = &shrunk->before, *form = &shrunk->form;
  add_number(arena, shrunk, "train.microbatches", before->microbatches, form->microbatches,
             why_microbatches(arena, before, form));
  add_number(arena, shrunk, "train.batch", batch, shrunk->batch,
             ls_arena_printf(arena, "%lld of a data-parallel rank at a time (before: %lld)",
                             (long long)form->sequences, (long long)before->sequences));
  add_number(arena, shrunk, "data.seq_len", before->sequence, form->sequence,
             why_sequence(arena, before, form));
  const bool shorter = form->logits_rows && form->sequences * form->sequence % form->logits_rows;
  add_number(arena, shrunk, "logits_rows", before->logits_rows, form->logits_rows,
             shorter ? "slices, the last one shorter" : "slices of one size");
}

void ls_shrink_describe(ls_arena *arena, ls_shrunk *shrunk, const ls_layout *layout,
                        int64_t batch) {
  const ls_form *before = &shrunk->before, *form = &shrunk->form;
  describe_mesh(arena, shrunk);
  add_number(arena, shrunk, "chunks", before->chunks, form->chunks,
             form->chunks > 1 ? "more than one on a stage" : "one on a stage");
  if (layout->stages)
    add(arena, shrunk, "stages", layout->stages, shrunk->layout.stages,
        "none stays none, more stays more");
  describe_model(arena, shrunk);
  add_number(arena, shrunk, "wrap", before->wrap, form->wrap, why_group(arena, form->wrap, form));
  add_number(arena, shrunk, "recompute_layers", before->recompute, form->recompute,
             why_group(arena, form->recompute, form));
  describe_step(arena, shrunk, batch);
}
