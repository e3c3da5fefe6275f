/* Memory as the software that was measured accounts for it. */
#include <math.h>
#include <string.h>

#include "published/families.h"

/* Bytes that one token leaves in a layer until backward: inputs of norms and of products, what
 * attention and the activation read; scores with their masks where they are kept. */
static double layer_bytes(const published_case *is, const published_family *family, bool full,
                          bool selective) {
  const ls_model_config *model = &is->model;
  const double tp = is->layout.tp, rows = is->layout.sequence_parallel ? tp : 1;
  const double width = (double)model->width, mlp = (double)model->mlp_width;
  if (full) return 2 * width / rows;
  const double heads = (double)(model->heads * model->head_dim);
  const double keys = 2.0 * (double)(model->kv_heads * model->head_dim);
  /* Selective by ops: every second product's result is kept (torchtitan), of queries, values, what
   * rises first and what falls; the last is a part of a sum. */
  if (selective && !family->scores_again)
    return 2 * width * (1 + 1 / rows) + (2 * 2 * heads + keys + 2 * mlp) / tp;
  const double scores =
      is->scores && !selective ? 5.0 * (double)(model->heads * model->positions) : 0;
  const double gate = family->eager ? 8 : 6;
  /* Frozen products read nothing again: what goes into those of an MLP is not kept. */
  const double unread = is->adapters ? 2 : 0;
  /* A norm keeps what it reads and what it makes; written out in fp32, its scaled input too. */
  const double norms = 2 * (family->plain ? 4 + 2 + 2 : 2 + 2) + (family->masks ? 2 : 0);
  const double whole = family->gathered ? 2 * 2 * (1 - 1 / rows) : 0;
  return ((norms - unread) / rows + whole) * width +
         (2 * (2 * heads + (family->plain ? 2 * heads : keys)) +
          ((is->gated ? gate : 4) - unread) * mlp + scores) /
             tp;
}

/* Bytes of a parameter's state on a device. */
static double state_bytes(const published_case *is, const published_family *family, bool at_loss) {
  const published_accounting *bytes = &family->accounting;
  const double data = ls_layout_token_ranks(&is->layout);
  const int zero = is->layout.zero;
  const bool half = is->layout.compute == LS_F16 && bytes->half[1] > 0;
  const double weights = bytes->weights / (zero > 2 ? data : 1);
  if (is->adapters) return is->frozen_bytes;
  if (is->frugal) return weights;
  const double gradients = (half ? bytes->half[0] : bytes->gradients) / (zero > 1 ? data : 1);
  return weights + (at_loss && family->late ? 0 : gradients) +
         (half ? bytes->half[1] : bytes->optimizer) / (zero > 0 ? data : 1);
}

double published_layer(const published_case *is) {
  const ls_model_config *model = &is->model;
  const double width = (double)model->width, heads = (double)(model->heads * model->head_dim);
  return width * (2 * heads + 2.0 * (double)(model->kv_heads * model->head_dim)) +
         (is->gated ? 3 : 2) * width * (double)model->mlp_width;
}

static double table_of(const published_case *is) {
  return (double)(is->model.vocabulary * is->model.width);
}

/* Whether the tables count as layers, so that chunks divide them (Megatron Core). */
static bool tables_are_layers(const published_case *is) {
  const int chunks = is->layout.pp * is->layout.chunks;
  return is->layout.chunks > 1 && is->model.layers % chunks != 0 &&
         (is->model.layers + 2) % chunks == 0;
}

/* Layers of the first or of the last stage. Stages by weights end with the layer that passes their
 * share (nanotron). */
static double stage_layers(const published_case *is, const published_family *family, bool last) {
  const double layers = (double)is->model.layers, pp = is->layout.pp;
  if (pp == 1) return layers;
  if (family->balanced && !last)
    return fmin(layers, floor((layers + table_of(is) / published_layer(is)) / pp) + 1);
  return tables_are_layers(is) ? (layers + 2) / pp - 1 : ceil(layers / pp);
}

/* Of a device: its layers and the tables of words that it has. */
static double device_parameters(const published_case *is, const published_family *family,
                                bool last) {
  const int tables = is->layout.pp == 1 && !is->model.tied ? 2 : 1;
  return (stage_layers(is, family, last) * published_layer(is) + tables * table_of(is)) /
         is->layout.tp;
}

double published_state(const published_case *is, const published_family *family) {
  return device_parameters(is, family, false) * state_bytes(is, family, false) / 1073741824;
}

/* Layers of a stage that are between forward and backward at once, of every microbatch. Chunks take
 * turns by as many microbatches as there are stages, or by all where these are no multiple. */
static double layers_alive(const published_case *is, const published_family *family, bool last) {
  const ls_layout *layout = &is->layout;
  const double layers = stage_layers(is, family, last), chunks = layout->chunks;
  const double ahead = last ? 0 : layout->pp - 1;
  if (layout->chunks == 1) return layers * fmin(1 + ahead, layout->microbatches);
  const int turn = layout->microbatches % layout->pp ? layout->microbatches : layout->pp;
  const double alive =
      fmin(turn * (chunks - 1) + 2 * ahead + 1, (double)layout->microbatches * chunks);
  const bool tables = tables_are_layers(is);
  return alive * (layers + tables) / chunks - tables * (last ? 1 : turn + ahead);
}

/* The most of two times of a stage: when all its microbatches are between forward and backward,
 * and, of the last one, when it is at a loss. */
static double stage_memory(const published_case *is, const published_family *family, bool last) {
  const ls_layout *layout = &is->layout;
  const ls_model_config *model = &is->model;
  const published_accounting *bytes = &family->accounting;
  const double data = ls_layout_data_ranks(layout);
  const double shards = ls_layout_token_ranks(layout);
  const double parameters = device_parameters(is, family, last);
  const double gathered =
      layout->zero > 2 && shards > 1
          ? 2 * 2 * published_layer(is) + (model->tied ? 1 : 2) * 2 * table_of(is)
          : 0;
  const double tokens =
      (double)model->positions / layout->cp * (double)is->batch / data / layout->microbatches;
  const double outputs = family->outputs && !last ? fmin(layout->pp, layout->microbatches) : 0;
  const double kept =
      tokens * (layers_alive(is, family, last) * layer_bytes(is, family, is->full, is->selective) +
                outputs * 2 * (double)model->width);
  const double live = is->full ? tokens * layer_bytes(is, family, false, false) : 0;
  const double logits = tokens * (double)model->vocabulary / layout->tp * bytes->logits;
  const double before = parameters * state_bytes(is, family, false) + kept + live;
  const double at_loss = parameters * state_bytes(is, family, true) + kept + logits;
  return (last ? fmax(before, at_loss) : before) + gathered;
}

double published_memory(const published_case *is, const published_family *family) {
  const published_accounting *bytes = &family->accounting;
  const double first = stage_memory(is, family, false), last = stage_memory(is, family, true);
  double most = fmax(first, last);
  if (is->layout.pp > 1 && bytes->teller == PUBLISHED_FIRST_STAGE) most = first;
  if (is->layout.pp > 1 && bytes->teller == PUBLISHED_LAST_STAGE) most = last;
  /* PyTorch's workspace of cuBLAS (CUBLAS_WORKSPACE_CONFIG): :4096:2:16:8, 32 MiB from Hopper. */
  const double workspace = is->accelerator.architecture >= 90 ? 32.0 / 1024 : 8.125 / 1024;
  return most * bytes->reserved / 1073741824 + bytes->fixed + workspace;
}
