/* Memory as the software that was measured accounts for it. */
#include <math.h>
#include <string.h>

#include "published/families.h"

/* Bytes that one token leaves in a layer until backward: inputs of norms and of products, what
 * attention and the activation read; scores with their masks where they are kept. */
static double layer_bytes(const published_table *of, const published_row *row,
                          const published_case *is, const published_family *family, bool full,
                          bool selective) {
  const ls_model_config *model = &is->model;
  const double tp = is->layout.tp, rows = is->layout.sequence_parallel ? tp : 1;
  const double width = (double)model->width, mlp = (double)model->mlp_width;
  if (full) return 2 * width / rows;
  const double heads = (double)(model->heads * model->head_dim);
  const double keys = 2.0 * (double)(model->kv_heads * model->head_dim);
  const bool fused = strcmp(published_cell(of, row, "flash_attn"), "no") != 0;
  /* Selective by ops: every second product's result is kept (torchtitan). */
  if (selective && !family->scores_again)
    return 2 * width / rows + (2 * width + 2 * heads + keys + 2 * mlp) / tp;
  const double scores = fused || selective ? 0 : 5.0 * (double)(model->heads * model->positions);
  const double gate = family->eager ? 8 : 6;
  /* Frozen products read nothing again: what goes into those of an MLP is not kept. */
  const double unread = is->adapters ? 2 : 0;
  return (4 * 2 + (family->masks ? 2 : 0) - unread) * width / rows +
         (2 * (2 * heads + keys) + ((is->gated ? gate : 4) - unread) * mlp + scores) / tp;
}

/* Bytes of a parameter's state on a device. */
static double state_bytes(const published_case *is, const published_family *family, bool at_loss) {
  const published_accounting *bytes = &family->accounting;
  const double data = ls_layout_data_ranks(&is->layout);
  const int zero = is->layout.zero;
  const double weights = bytes->weights / (zero > 2 ? data : 1);
  if (is->adapters) return is->frozen_bytes;
  if (is->frugal) return weights;
  const double gradients = bytes->gradients / (zero > 1 ? data : 1);
  return weights + (at_loss && family->late ? 0 : gradients) +
         bytes->optimizer / (zero > 0 ? data : 1);
}

double published_layer(const published_case *is) {
  const ls_model_config *model = &is->model;
  const double width = (double)model->width, heads = (double)(model->heads * model->head_dim);
  return width * (2 * heads + 2.0 * (double)(model->kv_heads * model->head_dim)) +
         (is->gated ? 3 : 2) * width * (double)model->mlp_width;
}

/* Of a device: its layers and the tables of words that it has. */
static double device_parameters(const published_case *is) {
  const ls_model_config *model = &is->model;
  const int tables = is->layout.pp == 1 && !model->tied ? 2 : 1;
  return (ceil((double)model->layers / is->layout.pp) * published_layer(is) +
          tables * (double)(model->vocabulary * model->width)) /
         is->layout.tp;
}

double published_state(const published_case *is, const published_family *family) {
  return device_parameters(is) * state_bytes(is, family, false) / 1073741824;
}

/* The most of two times: when the first stage holds all its microbatches, and when the last one is
 * at a loss. Where stages interleave, the next microbatch's loss comes before backward. */
double published_memory(const published_table *of, const published_row *row,
                        const published_case *is, const published_family *family) {
  const ls_layout *layout = &is->layout;
  const ls_model_config *model = &is->model;
  const published_accounting *bytes = &family->accounting;
  const double pp = layout->pp, data = ls_layout_data_ranks(layout);
  const bool selective = strcmp(published_cell(of, row, "recompute"), "selective") == 0;
  const double parameters = device_parameters(is);
  const double table = (double)(model->vocabulary * model->width);
  const double gathered =
      layout->zero > 2 && data > 1 ? 2 * 2 * published_layer(is) + 2 * table : 0;
  const double tokens = (double)model->positions * (double)is->batch / data / layout->microbatches;
  const double alive = fmin(pp, layout->microbatches);
  const double chunks = layout->chunks > 1 ? 1 + (pp - 1) / (pp * layout->chunks) : 1;
  const double kept = tokens * ceil((double)model->layers / pp) * chunks *
                      layer_bytes(of, row, is, family, is->full, selective);
  const double live = is->full ? tokens * layer_bytes(of, row, is, family, false, false) : 0;
  const double logits = tokens * (double)model->vocabulary / layout->tp *
                        (bytes->logits + (layout->chunks > 1 ? bytes->saved : 0));
  const double first = parameters * state_bytes(is, family, false) + kept * alive + live;
  const double last = parameters * state_bytes(is, family, true) + kept + logits;
  return (fmax(first, last) + gathered) * bytes->reserved / 1073741824 + bytes->fixed;
}
