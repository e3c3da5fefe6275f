#include "verify/shrink.h"

#include <math.h>
#include <string.h>

#include "ir/program.h"
#include "lower/compile.h"
#include "lower/training.h"
#include "pipeline/pipeline.h"
#include "pipeline/stages.h"
#include "verify/shrink_parts.h"

/* Sizes from which the search goes upwards: small, and still of several numbers a rank. */
enum { LEAST_VOCABULARY = 36, LEAST_MLP = 12, LEAST_SEQUENCE = 4 };

enum { MOST_EDGES = 64 };

/* Rows of each tensor-parallel rank that may be added to have units of every kind. */
enum { MOST_ROWS_MORE = 12 };

/* Layers that the smallest chunk of a cut by hand may get, in the order in which they are tried;
 * 0: every chunk keeps its own. */
static const int bases[] = {1, 2, 3, 0};
enum { BASES = sizeof bases / sizeof *bases };

typedef struct search {
  ls_arena *arena;
  const ls_graph *large; /* of the user's model, where some of it is frozen; else NULL */
  const ls_form *user;
  const ls_pipeline_kind *kind; /* NULL: a schedule from a file, which stays as it is */
  int64_t most;                 /* ranks that may be left */
  const int *cut;               /* layers of each of the user's chunks; NULL: by cost */
  int64_t least_layers;
  bool kept[MOST_EDGES];
} search;

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static int64_t ranks_of(const ls_form *form) {
  return form->pp * form->replicas * form->shards * form->cp * form->tp;
}

static bool keeps(const search *s, const ls_form *small, int part) {
  for (int e = 0; e < ls_form_edge_count; e++) {
    const ls_form_edge *edge = &ls_form_edges[e];
    if (edge->part != part || !s->kept[e]) continue;
    if (edge->side(small) != edge->side(s->user)) return false;
  }
  return true;
}

/* Without a pipeline three are enough: a first, one between, a last. */
static bool find_microbatches(const search *s, ls_form *small) {
  const int64_t most = s->user->microbatches;
  int64_t fewest = small->pp == 1 ? least(most, 3) : 1;
  if (!s->kind) fewest = most;
  for (small->microbatches = fewest; small->microbatches <= most; small->microbatches++) {
    if (s->kind && small->microbatches < s->kind->fewest_microbatches((int)small->pp)) continue;
    if (keeps(s, small, LS_SHRINK_MICROBATCHES)) return true;
    if (small->microbatches > 4 * small->pp + 4) return false;
  }
  return false;
}

/* Group sizes of 2 or more: up to one that takes in all layers. */
static bool find_groups(const search *s, ls_form *small) {
  const int64_t most_wrap = least(s->user->wrap, small->layers + 1);
  const int64_t most_recompute = least(s->user->recompute, small->layers + 1);
  for (small->wrap = least(most_wrap, 2); small->wrap <= most_wrap; small->wrap++)
    for (small->recompute = least(most_recompute, 2); small->recompute <= most_recompute;
         small->recompute++)
      if (keeps(s, small, LS_SHRINK_LAYERS)) return true;
  return false;
}

/* Of the user's chunks the one that a chunk of the small form stands for: first and last do. */
static int sampled(const search *s, const ls_form *small, int64_t chunk) {
  const int64_t many = s->user->pp * s->user->chunks, few = small->pp * small->chunks;
  const int64_t at = few > 1 ? chunk * (many - 1) / (few - 1) : 0;
  return s->cut[at];
}

/* Layers of a chunk cut by hand: none stay none, the fewest become `base` at most, more become one
 * more. */
static int cut_layers(const search *s, const ls_form *small, int64_t chunk, int base) {
  const int layers = sampled(s, small, chunk);
  int fewest = layers;
  for (int64_t c = 0; c < s->user->pp * s->user->chunks; c++)
    if (s->cut[c] && s->cut[c] < fewest) fewest = s->cut[c];
  if (!layers || !base) return layers;
  return (int)least(layers, layers > fewest ? base + 1 : base);
}

static bool find_cut(const search *s, ls_form *small, int base) {
  ls_arena *scratch = ls_arena_create();
  const int64_t chain = small->pp * small->chunks;
  int *layers = LS_NEW_ARRAY(scratch, int, chain);
  small->layers = 0;
  for (int64_t c = 0; c < chain; c++) small->layers += layers[c] = cut_layers(s, small, c, base);
  small->by_hand = ls_shrink_cut_like(layers, chain);
  ls_arena_destroy(&scratch);
  return small->layers >= s->least_layers && find_groups(s, small);
}

static bool find_layers(const search *s, ls_form *small) {
  const int64_t chain = small->pp * small->chunks;
  for (int b = 0; b < BASES && s->cut; b++)
    if (find_cut(s, small, bases[b])) return true;
  if (s->cut) return false;
  const int64_t most = least(s->user->layers, s->least_layers + 6 * chain + 6);
  for (small->layers = s->least_layers; small->layers <= most; small->layers++)
    if (small->layers + 2 >= chain && find_groups(s, small)) return true;
  return false;
}

static bool find_pipeline(const search *s, ls_form *small) {
  const int64_t fewest = s->kind ? s->kind->least_chunks : s->user->chunks;
  for (small->chunks = fewest; small->chunks <= s->user->chunks; small->chunks++)
    if (keeps(s, small, LS_SHRINK_CHUNKS) && find_microbatches(s, small) && find_layers(s, small))
      return true;
  return false;
}

/* Even stays even, as rotary positions need it; many heads are small, so that the width is, but one
 * alone is not: over a width of two a norm leaves nothing but signs. */
static int64_t small_head_dim(const ls_form *user, const ls_form *small) {
  const int64_t usual = small->heads == 1 ? 8 : small->heads > 8 ? 2 : 4;
  if (user->latent) /* with a pair that is turned and a column that is not */
    return least(user->head_dim, (usual > 4 ? usual : 4) + user->head_dim % 2);
  if (user->head_dim % 2) return least(user->head_dim, usual - 1);
  return least(user->head_dim, usual);
}

/* The same in whole blocks on each rank of tp. */
static void set_blocks_width(const ls_form *user, ls_form *small) {
  const int64_t step = small->block * small->tp, whole = user->heads * user->head_dim;
  const int64_t least_width = user->width < whole ? 2 * step : step;
  small->head_dim = user->latent ? 4 : 2;
  while (small->heads * small->head_dim % step || small->heads * small->head_dim < least_width)
    small->head_dim += 2;
  small->width = small->heads * small->head_dim;
  if (user->width > whole) small->width += step;
  if (user->width < whole) small->width -= step;
}

/* Width and head size follow from the heads. */
static void set_width(const ls_form *user, ls_form *small) {
  if (small->block > 1) {
    set_blocks_width(user, small);
    return;
  }
  small->head_dim = small_head_dim(user, small);
  const int64_t of_heads = small->heads * small->head_dim, whole = user->heads * user->head_dim;
  small->width = of_heads;
  if (user->width > whole) small->width = least(user->width, of_heads + 2);
  if (user->width < whole) small->width = of_heads > 2 ? least(user->width, of_heads - 2) : 1;
}

/* Ranks that change tokens for heads share out a tp rank's KV heads or, of its only one, queries.
 */
static bool shares_heads(const ls_form *small) {
  const int64_t kv_heads = small->kv_heads / least(small->kv_heads, small->tp);
  const int64_t queries = small->heads / small->tp / kv_heads;
  return kv_heads % small->head_ranks == 0 || (kv_heads == 1 && queries % small->head_ranks == 0);
}

static bool find_heads(const search *s, ls_form *small) {
  const int64_t tp = small->tp, step = tp * small->head_ranks;
  const int64_t most = least(s->user->heads, 4 * step);
  for (small->heads = step; small->heads <= most; small->heads += step)
    for (small->kv_heads = 1; small->kv_heads <= least(s->user->kv_heads, small->heads);
         small->kv_heads++) {
      if (small->heads % small->kv_heads) continue;
      if (s->user->latent && small->kv_heads != small->heads) continue;
      if (small->kv_heads % tp && tp % small->kv_heads) continue;
      if (!shares_heads(small)) continue;
      set_width(s->user, small);
      if (keeps(s, small, LS_SHRINK_HEADS)) return true;
    }
  return false;
}

/* One number over tp. It may end above the user's, where that is small itself. */
static bool find_over_tp(const search *s, ls_form *small, int64_t *number, int64_t whole,
                         int64_t usual, int part) {
  if (part == LS_SHRINK_MLP && small->block > 1) {
    *number = small->block * small->tp;
    return keeps(s, small, part);
  }
  const int64_t from = least(whole, usual > 2 * small->tp ? usual : 2 * small->tp);
  for (*number = from; *number <= from + 4 * small->tp; (*number)++)
    if (keeps(s, small, part)) return true;
  for (*number = 1; *number < from; (*number)++) /* some ranks have none of it */
    if (keeps(s, small, part)) return true;
  return false;
}

/* The fewest slices: of one size where the user's are, else the first the longer of two. */
static int64_t small_slice(const ls_form *user, const ls_form *small) {
  const int64_t tokens = small->sequences * small->sequence;
  if (!user->logits_rows || tokens < 2) return 0;
  int64_t rows = tokens / 2 + 1;
  if (user->sequences * user->sequence % user->logits_rows == 0)
    for (rows = tokens / 2; tokens % rows; rows--) continue;
  return rows < tokens ? rows : 0;
}

static bool try_tokens(const search *s, ls_form *small, int64_t sequence) {
  const ls_form *user = s->user;
  const int64_t tokens = small->sequences * sequence;
  if (small->cp > 1 && sequence % (2 * small->cp)) return false;
  if (small->whole_experts && tokens % ls_form_expert_ranks_inside(small)) return false;
  small->sequence = sequence;
  small->positions = sequence;
  if (user->sequence < user->positions) small->positions = least(user->positions, sequence + 2);
  small->logits_rows = small_slice(user, small);
  return keeps(s, small, LS_SHRINK_TOKENS);
}

/* Longer sequences before more of them; very short ones last. */
static bool find_tokens(const search *s, ls_form *small) {
  const int64_t many = s->user->sequences, longest = s->user->sequence;
  const int64_t enough = LEAST_SEQUENCE + small->width + 2 * small->tp;
  const int64_t shortest = least(longest, LEAST_SEQUENCE);
  for (small->sequences = least(many, 2); small->sequences <= least(many, enough);
       small->sequences++) {
    for (int64_t sequence = shortest; sequence <= least(longest, enough); sequence++)
      if (try_tokens(s, small, sequence)) return true;
    for (int64_t sequence = shortest - 1; sequence > 0; sequence--)
      if (try_tokens(s, small, sequence)) return true;
  }
  return false;
}

/* All but the mesh. Every part depends on the mesh and on parts before it alone. */
static bool fill(const search *s, ls_form *small) {
  return keeps(s, small, LS_SHRINK_MESH) && find_pipeline(s, small) && find_heads(s, small) &&
         find_over_tp(s, small, &small->mlp_width, s->user->mlp_width, LEAST_MLP, LS_SHRINK_MLP) &&
         find_over_tp(s, small, &small->vocabulary, s->user->vocabulary, LEAST_VOCABULARY,
                      LS_SHRINK_VOCABULARY) &&
         find_tokens(s, small);
}

/* More than one expert for a token where it has them, and more of them than twice as many, so that
 * some get few tokens or none; as many on each rank. */
static void set_experts(const ls_form *user, ls_form *small) {
  small->experts_per_token = least(user->experts_per_token, 2);
  small->experts = least(user->experts, 2 * small->experts_per_token + 1);
  small->experts = (small->experts + small->ep - 1) / small->ep * small->ep;
}

/* The rest of a form with this mesh. */
static bool fill_mesh(const search *s, ls_form *small) {
  if (s->user->ep > 1)
    small->ep = least(ls_form_expert_shards(s->user), 2) * ls_form_expert_ranks_inside(small);
  set_experts(s->user, small);
  return fill(s, small);
}

static bool is_hybrid(const ls_form *form) {
  return form->head_ranks > 1 && form->head_ranks < form->cp;
}

/* So many ranks of cp; or groups of them, of two that change tokens for heads. */
static int64_t few_context(const ls_form *user, int64_t members) {
  if (is_hybrid(user)) return 2 * least(user->cp / user->head_ranks, members);
  return least(user->cp, members);
}

/* So many ranks: two or three of a data axis, where three have one between; and one or more that
 * have the same experts. */
static bool find_mesh(const search *s, ls_form *small, int64_t ranks) {
  const ls_form *user = s->user;
  const int64_t fewest = s->kind ? least(user->pp, 2) : user->pp;
  const int64_t together = least(ls_form_expert_shards(user), 2);
  const int64_t apart = user->shards / ls_form_expert_shards(user);
  const int64_t few = together > 1 ? 1 : least(apart, 2);
  const bool hybrid = is_hybrid(user);
  for (small->pp = fewest; small->pp <= least(user->pp, ranks); small->pp++)
    for (small->replicas = least(user->replicas, 2); small->replicas <= least(user->replicas, 3);
         small->replicas++)
      for (small->shards = together * few; small->shards <= together * least(apart, 3);
           small->shards += together)
        for (small->cp = few_context(user, 2); small->cp <= few_context(user, 3);
             small->cp += hybrid ? 2 : 1) {
          small->head_ranks = hybrid ? 2 : user->head_ranks > 1 ? small->cp : 1;
          small->tp = ranks / (small->pp * small->replicas * small->shards * small->cp);
          if (small->tp < least(user->tp, 2) || small->tp > user->tp) continue;
          if (ranks_of(small) == ranks && fill_mesh(s, small)) return true;
        }
  return false;
}

/* The form with the fewest ranks, and of these the one with the fewest stages. */
static bool find(const search *s, ls_form *small) {
  *small = *s->user;
  set_experts(s->user, small);
  if (ranks_of(small) <= s->most) return fill(s, small);
  for (int64_t ranks = 1; ranks <= s->most; ranks++)
    if (find_mesh(s, small, ranks)) return true;
  return false;
}

/* Keeps what can be kept, the most important edges first. */
static ls_status choose(search *s, ls_shrunk *shrunk, ls_error *error) {
  s->most = LS_SHRINK_MOST_RANKS;
  bool found = find(s, &shrunk->form);
  if (!found) {
    s->most = LS_SHRINK_RANKS_OF_ALL_AXES;
    found = find(s, &shrunk->form);
  }
  if (!found)
    return ls_fail(error, LS_INPUT,
                   "mesh: found %lld ranks, and a schedule from a file keeps its %lld stages, so "
                   "that more than %d would be left; expected fewer axes above 1, or a schedule "
                   "by name",
                   (long long)ranks_of(s->user), (long long)s->user->pp,
                   LS_SHRINK_RANKS_OF_ALL_AXES);
  for (int e = 0; e < ls_form_edge_count; e++) {
    ls_form form;
    s->kept[e] = true;
    if (find(s, &form)) {
      shrunk->form = form;
      continue;
    }
    s->kept[e] = false;
    *LS_APPEND(s->arena, &shrunk->given_up) = ls_form_edges[e].name;
  }
  return LS_OK;
}

/* "0-1, 2, none". */
static const char *cut_text(const search *s, const ls_form *small) {
  ls_form same = *small;
  const char *text = "";
  int next = 0, b = 0;
  while (!find_cut(s, &same, bases[b]) || same.layers != small->layers) LS_ASSERT(++b < BASES);
  for (int64_t c = 0; c < small->pp * small->chunks; c++) {
    const int layers = cut_layers(s, small, c, bases[b]);
    const char *item = "none";
    if (layers == 1) item = ls_arena_printf(s->arena, "%d", next);
    if (layers > 1) item = ls_arena_printf(s->arena, "%d-%d", next, next + layers - 1);
    text = ls_arena_printf(s->arena, "%s%s%s", text, c ? ", " : "", item);
    next += layers;
  }
  return text;
}

/* Layers of every kind that the model has, in the order in which it has them first. */
static const uint8_t *sample_kinds(ls_arena *arena, const ls_model_config *config, int64_t few) {
  uint8_t *kinds = LS_NEW_ARRAY(arena, uint8_t, few), distinct[4] = {0};
  int count = 0;
  for (int64_t l = 0; l < config->layers; l++) {
    const uint8_t *found = memchr(distinct, config->layer_kinds[l], (size_t)count);
    if (!found) distinct[count++] = config->layer_kinds[l];
  }
  for (int64_t l = 0; l < few; l++) kinds[l] = distinct[l % count];
  return kinds;
}

/* A window that cuts sequences still does; a table for long ones is still the one in use; and a
 * part of each head is still turned, if that leaves a pair. */
static void keep_proportions(ls_arena *arena, const ls_model_config *config, const ls_form *user,
                             const ls_form *form, ls_model_config *small) {
  const int64_t half = form->sequence > 1 ? form->sequence / 2 : 1;
  if (config->window && config->window < user->sequence) small->window = half;
  if (config->layer_kinds) small->layer_kinds = sample_kinds(arena, config, form->layers);
  if ((config->rope_scaling == LS_ROPE_DYNAMIC || config->rope_scaling == LS_ROPE_LONGROPE) &&
      (double)user->sequence > config->rope_original_positions)
    small->rope_original_positions = (double)half;
  if (config->embedding_scale > 0) small->embedding_scale = sqrt((double)form->width);
  const int64_t pairs = form->head_dim * config->rotary_dim / config->head_dim / 2;
  if (config->rotary_dim) small->rotary_dim = pairs ? 2 * pairs : 2;
}

/* A head has room for values and keys: of the two the same one is wider, one pair of columns turns.
 * Scores are scaled by what their products have, and by what else scales them. */
static void shrink_latents(const ls_model_config *config, const ls_form *form,
                           ls_model_config *small) {
  const int64_t whole = config->plain_dim + config->rotary_dim, block = form->block;
  int64_t key = form->head_dim, value = form->head_dim;
  if (config->value_dim < whole && block > 1) key += 2;
  if (config->value_dim < whole && block == 1) value--;
  if (config->value_dim > whole) key--;
  small->rotary_dim = 2;
  small->plain_dim = key - 2;
  small->value_dim = value;
  small->head_dim = key > value ? key : value;
  small->latent = block > 1 ? block : least(config->latent, 3);
  if (config->query_latent)
    small->query_latent = block > 1 ? block : least(config->query_latent, 5);
  small->softmax_scale = config->softmax_scale * sqrt((double)whole / (double)key);
}

static ls_model_config small_config(ls_arena *arena, const ls_model_config *config,
                                    const ls_form *user, const ls_form *form) {
  ls_model_config small = *config;
  const double scale = 1 / sqrt((double)config->head_dim);
  small.source = ls_arena_printf(arena, "%s, shrunk", config->source);
  small.text = NULL;
  small.vocabulary = form->vocabulary;
  small.width = form->width;
  small.layers = form->layers;
  small.heads = form->heads;
  small.kv_heads = form->kv_heads;
  small.head_dim = form->head_dim;
  small.mlp_width = form->mlp_width;
  small.experts = form->experts;
  small.experts_per_token = form->experts_per_token;
  small.positions = form->positions;
  if (fabs(config->softmax_scale - scale) < 1e-6 * scale)
    small.softmax_scale = 1 / sqrt((double)form->head_dim);
  keep_proportions(arena, config, user, form, &small);
  if (config->latent) shrink_latents(config, form, &small);
  return small;
}

/* Each small layer recomputes what the large one does that it stands for: first and last do. */
static const ls_op_set *sample_recompute(const search *s, const ls_layout *layout,
                                         const ls_form *form) {
  const int64_t many = s->user->layers, few = form->layers;
  ls_op_set *of = LS_NEW_ARRAY(s->arena, ls_op_set, few + 2);
  LS_ASSERT(layout->recompute_of_count == many + 2); /* embedding, layers, head */
  for (int64_t l = 0; l < few; l++)
    of[1 + l] = layout->recompute_of[1 + (few > 1 ? l * (many - 1) / (few - 1) : 0)];
  of[0] = layout->recompute_of[0];
  of[few + 1] = layout->recompute_of[many + 1];
  return of;
}

static ls_layout small_layout(const search *s, const ls_layout *layout, const ls_form *form) {
  ls_layout small = *layout;
  small.pp = (int)form->pp;
  ls_layout_set_data_ranks(&small, (int)form->replicas, (int)form->shards);
  small.cp = (int)form->cp;
  if (layout->context == LS_CONTEXT_HYBRID) small.ulysses = (int)form->head_ranks;
  small.tp = (int)form->tp;
  small.ep = (int)form->ep;
  if (layout->chunks) small.chunks = (int)form->chunks;
  small.microbatches = (int)form->microbatches;
  small.layers_per_unit = (int)form->wrap;
  if (form->recompute) small.recompute_layers = (int)form->recompute;
  if (layout->recompute_of_count) {
    small.recompute_of = sample_recompute(s, layout, form);
    small.recompute_of_count = (int)form->layers + 2;
  }
  if (layout->stages) small.stages = cut_text(s, form);
  if (form->logits_rows) small.logits_rows = form->logits_rows;
  return small;
}

/* Whether it compiles, and what its units' pieces are like. */
static ls_status try_compile(const search *s, const ls_model_config *config,
                             const ls_layout *layout, int64_t batch, int64_t sequence,
                             unsigned *pieces, ls_error *error) {
  ls_arena *scratch = ls_arena_create();
  ls_build_options options = {.tokens = batch / layout->microbatches * sequence,
                              .sequence = sequence,
                              .texts = ls_shrink_texts(config, batch / layout->microbatches)};
  ls_build_options_lay(&options, layout);
  ls_program **stages = LS_NEW_ARRAY(scratch, ls_program *, layout->pp);
  ls_graph *graph;
  ls_status status = ls_model_build(scratch, config, &options, &graph, error);
  if (status == LS_OK) {
    ls_shrink_freeze(s->large, graph);
    ls_graph_backward(graph);
    status = ls_program_compile(graph, layout, LS_PROGRAM_STEP, stages, error);
  }
  if (status == LS_OK) *pieces = ls_shrink_pieces(stages, layout->pp);
  ls_arena_destroy(&scratch);
  return status;
}

/* Makes and compiles what the form says. */
static ls_status make_small(const search *s, const ls_model_config *config, const ls_layout *layout,
                            ls_shrunk *shrunk, unsigned *pieces, ls_error *error) {
  const ls_form *form = &shrunk->form;
  shrunk->config = small_config(s->arena, config, s->user, form);
  shrunk->layout = small_layout(s, layout, form);
  shrunk->batch = form->sequences * form->microbatches * form->replicas * form->shards;
  return try_compile(s, &shrunk->config, &shrunk->layout, shrunk->batch, form->sequence, pieces,
                     error);
}

/* Of forms that do not compile, the one with more layers. */
static ls_status choose_legal(search *s, const ls_model_config *config, const ls_layout *layout,
                              ls_shrunk *shrunk, unsigned *pieces, ls_error *error) {
  for (;;) {
    shrunk->given_up.count = 0;
    LS_TRY(choose(s, shrunk, error));
    const ls_status status = make_small(s, config, layout, shrunk, pieces, error);
    if (status != LS_INPUT || shrunk->form.layers >= s->user->layers) return status;
    s->least_layers = shrunk->form.layers + 1;
    memset(s->kept, 0, sizeof s->kept);
  }
}

/* Units follow from all sizes at once. Of forms like the one found, but with somewhat more rows of
 * the MLP and the vocabulary, the first that has every kind of unit that the user's has. */
static ls_status choose_pieces(const search *s, const ls_model_config *config,
                               const ls_layout *layout, unsigned wanted, unsigned has,
                               ls_shrunk *shrunk, ls_error *error) {
  const ls_form found = shrunk->form;
  const int64_t most = MOST_ROWS_MORE * found.tp;
  for (int64_t more = 1; more <= most && (wanted & ~has); more++)
    for (int64_t rows = 0; rows <= more && (wanted & ~has); rows++) {
      shrunk->form = found;
      shrunk->form.mlp_width += (more - rows) * (found.block > 1 ? found.block * found.tp : 1);
      shrunk->form.vocabulary += rows;
      if (!keeps(s, &shrunk->form, LS_SHRINK_MLP) || !keeps(s, &shrunk->form, LS_SHRINK_VOCABULARY))
        continue;
      LS_TRY(make_small(s, config, layout, shrunk, &has, error));
    }
  if (!(wanted & ~has)) return LS_OK;
  *LS_APPEND(s->arena, &shrunk->given_up) = LS_SHRINK_PIECES;
  shrunk->form = found;
  return make_small(s, config, layout, shrunk, &has, error);
}

static ls_status read_cut(ls_arena *arena, const ls_layout *layout, const ls_form *form,
                          const int **cut, ls_error *error) {
  const int chain = (int)(form->pp * form->chunks);
  int *first = LS_NEW_ARRAY(arena, int, chain + 1), *counts = LS_NEW_ARRAY(arena, int, chain);
  LS_TRY(ls_stages_parse(layout->stages, (int)form->layers, chain, first, error));
  for (int c = 0; c < chain; c++) counts[c] = first[c + 1] - first[c];
  *cut = counts;
  return LS_OK;
}

ls_status ls_shrink(ls_arena *arena, const ls_model_config *config, const ls_layout *layout,
                    int64_t batch, int64_t sequence, const ls_graph *large, ls_shrunk **shrunk,
                    ls_error *error) {
  ls_shrunk *made = LS_NEW(arena, ls_shrunk);
  const char *schedule = layout->schedule ? layout->schedule : "1f1b";
  search s = {.arena = arena, .large = large, .user = &made->before, .least_layers = 1};
  unsigned wanted, has;
  LS_ASSERT(ls_form_edge_count <= MOST_EDGES);
  LS_TRY(try_compile(&s, config, layout, batch, sequence, &wanted, error));
  LS_TRY(ls_form_make(config, layout, batch, sequence, &made->before, error));
  if (!layout->csv) LS_TRY(ls_pipeline_kind_find(schedule, &s.kind, error));
  if (layout->stages) LS_TRY(read_cut(arena, layout, &made->before, &s.cut, error));
  LS_TRY(choose_legal(&s, config, layout, made, &has, error));
  LS_TRY(choose_pieces(&s, config, layout, wanted, has, made, error));
  ls_shrink_describe(arena, made, layout, batch);
  LS_TRY(ls_shrink_list_frozen(arena, large, made, error));
  *shrunk = made;
  return LS_OK;
}
