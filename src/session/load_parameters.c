#include "session/load_parameters.h"

#include "base/blocks.h"
#include "base/scales.h"
#include "base/stop.h"
#include "store/quantised.h"

/* A place in the sequence of all tiles of all items. */
typedef struct cursor {
  int item, box, boxes; /* boxes: of the item; 0: not asked yet */
  ls_box kept[LS_MOST_RANGES], tile;
  int64_t number; /* tiles so far */
} cursor;

typedef struct filler {
  ls_rank *rank;
  const ls_program *program;
  const ls_load_item *items;
  int count;
} filler;

/* Boxes of the file count numbers, and a rank's elements of blocks. */
static int64_t numbers_of(const filler *self, const ls_load_item *item) {
  return ls_precision_numbers(self->program->parameters[item->parameter].precision);
}

/* Goes on to the next tile; false where there is none. */
static bool next(const filler *self, cursor *at) {
  for (; at->item < self->count; at->item++, at->boxes = 0) {
    const ls_load_item *item = &self->items[at->item];
    if (at->boxes == 0) {
      at->boxes =
          ls_rank_kept_boxes(self->rank, self->program, item->parameter, item->part, at->kept);
      for (int b = 0; b < at->boxes; b++) {
        at->kept[b] = ls_weight_piece_box(item->from.piece, &at->kept[b]);
        at->kept[b].column *= numbers_of(self, item);
        at->kept[b].columns *= numbers_of(self, item);
      }
      at->box = 0;
      at->tile = (ls_box){0};
    }
    for (; at->box < at->boxes; at->box++, at->tile = (ls_box){0})
      if (ls_stored_tile(item->from.layout, &at->kept[at->box], LS_TILE_ELEMENTS,
                         numbers_of(self, item), &at->tile)) {
        at->number++;
        return true;
      }
  }
  return false;
}

/* The narrowest type that loses nothing on the way. */
static ls_dtype way(const filler *self, const ls_load_item *item) {
  const ls_stored_tensor *tensor = item->from.tensor;
  if (ls_state_row_of(item->part)->type == LS_TYPE_CODE) return LS_U8;
  if (numbers_of(self, item) > 1)
    return tensor->quantised
               ? ls_precision_blocks(self->program->parameters[item->parameter].precision)
               : LS_F32;
  const bool wide = tensor->dtype == LS_F64 || self->program->layout.compute == LS_F64;
  return wide ? LS_F64 : LS_F32;
}

/* The scales of a weight that is stored as numbers. */
static ls_status read_scales(const ls_load_item *item, const ls_program_parameter *about,
                             float *tile_data, float *scales, ls_error *error) {
  const ls_box whole = {0, about->dims[0], 0, about->dims[1] * LS_BLOCK_WEIGHTS};
  LS_ASSERT(!item->from.layout->transposed);
  for (ls_box tile = {0};
       ls_stored_tile(item->from.layout, &whole, LS_TILE_ELEMENTS, LS_BLOCK_WEIGHTS, &tile);) {
    LS_TRY(ls_stop_check("loading weights", error));
    LS_TRY(ls_stored_read(&item->from, &tile, LS_F32, tile_data, NULL, error));
    ls_blocks_scales(tile_data, ls_box_elements(&tile) / LS_BLOCK_WEIGHTS,
                     scales + tile.row * about->dims[1] + tile.column / LS_BLOCK_WEIGHTS);
  }
  return LS_OK;
}

/* What the scales of a weight's blocks stand for, before these. */
static ls_status load_nested(const filler *self, const ls_load_item *item, void *tile,
                             ls_error *error) {
  const ls_program_parameter *about = &self->program->parameters[item->parameter];
  const int64_t blocks = ls_program_parameter_elements(about);
  const ls_stored_tensor *tensor = item->from.tensor;
  ls_arena *scratch = ls_arena_create();
  float *nested = LS_NEW_ARRAY(scratch, float, ls_scales_nested(blocks));
  ls_status status = LS_OK;
  if (tensor->quantised) {
    ls_quantised_nested(tensor->quantised, blocks, nested);
  } else {
    float *scales = LS_NEW_ARRAY(scratch, float, blocks);
    status = read_scales(item, about, tile, scales, error);
    if (status == LS_OK) ls_scales_measure(scales, blocks, nested);
  }
  if (status == LS_OK)
    status = ls_rank_write_parameter(self->rank, self->program, item->parameter + 1, LS_PART_MASTER,
                                     0, ls_scales_nested(blocks), nested, LS_F32, error);
  ls_arena_destroy(&scratch);
  return status;
}

static ls_status fill_nested(const filler *self, void *tile, ls_error *error) {
  for (int i = 0; i < self->count; i++) {
    const ls_load_item *item = &self->items[i];
    const ls_program_parameter *about = &self->program->parameters[item->parameter];
    if (item->part == LS_PART_MASTER && about->present && ls_precision_is_double(about->precision))
      LS_TRY(load_nested(self, item, tile, error));
  }
  return LS_OK;
}

static ls_status fill(const filler *self, void *tile, void *scratch, ls_error *error) {
  cursor here = {0}, ahead = {0};
  bool more = true;
  while (next(self, &here)) {
    while (more && ahead.number < here.number + LS_TILES_AHEAD) {
      more = next(self, &ahead);
      if (more) ls_stored_expect(&self->items[ahead.item].from, &ahead.tile);
    }
    const ls_load_item *item = &self->items[here.item];
    const ls_dtype dtype = way(self, item);
    LS_TRY(ls_stop_check("loading weights", error));
    LS_TRY(ls_stored_read(&item->from, &here.tile, dtype, tile, scratch, error));
    ls_box box = here.tile;
    box.column /= numbers_of(self, item);
    box.columns /= numbers_of(self, item);
    LS_TRY(ls_rank_write_box(self->rank, self->program, item->parameter, item->part, &box, tile,
                             dtype, error));
  }
  return LS_OK;
}

ls_status ls_load_parameters(ls_rank *rank, const ls_program *program, const ls_load_item *items,
                             int count, ls_error *error) {
  const filler self = {rank, program, items, count};
  ls_arena *arena = ls_arena_create();
  double *tile = LS_NEW_ARRAY(arena, double, LS_TILE_ELEMENTS);
  double *scratch = LS_NEW_ARRAY(arena, double, LS_TILE_ELEMENTS);
  ls_status status = fill_nested(&self, tile, error);
  if (status == LS_OK) status = fill(&self, tile, scratch, error);
  ls_arena_destroy(&arena);
  return status;
}
