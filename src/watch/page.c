#include "watch/page.h"

#include <stdlib.h>
#include <string.h>

#include "watch/markup.h"

/* page.html, made into an array by the build. */
extern const unsigned char ls_page_html[];
extern const size_t ls_page_html_bytes;

static const char mark[] = "@DATA@";

static bool cut_flat(const ls_program *program, int value) {
  return value >= 0 && program->values.items[value].flat &&
         program->values.items[value].flat_chunk > 0 && program->mesh.size[LS_AXIS_DP_SHARD] > 1;
}

static const ls_program *program_with(const ls_page_layout *layout, int unit, int *parameter) {
  const int stages = layout->stages[0]->mesh.size[LS_AXIS_PP];
  for (int s = 0; s < stages; s++)
    for (int p = 0; p < layout->stages[s]->parameter_count; p++)
      if (layout->stages[s]->parameters[p].unit == unit && layout->stages[s]->parameters[p].here) {
        *parameter = p;
        return layout->stages[s];
      }
  return NULL;
}

/* Whether most of a unit's elements are cut over the ranks of a layer. */
static bool cut_by_tensor(const ls_program *program, int unit) {
  int64_t cut = 0, all = 0;
  for (int p = 0; p < program->parameter_count; p++) {
    const ls_program_parameter *about = &program->parameters[p];
    if (about->unit != unit || !about->here) continue;
    const int64_t elements = about->dims[0] * (about->ndim > 1 ? about->dims[1] : 1);
    const ls_axes axes = ls_placement_axes(
        &program->mesh, &program->values.items[about->used].placement, LS_SHARDED, -1);
    all += elements;
    if (axes & LS_AXES_TENSOR) cut += elements;
  }
  return 2 * cut > all;
}

static json_t *row_json(const ls_page_layout *layout, int unit) {
  int p;
  const ls_program *program = program_with(layout, unit, &p);
  if (!program) return NULL;
  const ls_program_parameter *about = &program->parameters[p];
  const int stages = program->mesh.size[LS_AXIS_PP];
  int64_t elements = 0;
  for (int q = 0; q < program->parameter_count; q++)
    if (program->parameters[q].unit == unit)
      elements += program->parameters[q].dims[0] *
                  (program->parameters[q].ndim > 1 ? program->parameters[q].dims[1] : 1);
  json_t *here = json_array();
  for (int s = 0; s < stages; s++) {
    bool has = false;
    for (int q = 0; q < layout->stages[s]->parameter_count; q++)
      has |= layout->stages[s]->parameters[q].unit == unit && layout->stages[s]->parameters[q].here;
    json_array_append_new(here, json_boolean(has));
  }
  return json_pack("{s:s, s:I, s:o, s:b, s:b, s:b, s:b}", "name", layout->units->items[unit].name,
                   "elements", (json_int_t)elements, "here", here, "tensor",
                   cut_by_tensor(program, unit), "stored", cut_flat(program, about->stored),
                   "gradient", cut_flat(program, about->gradient), "state",
                   cut_flat(program, about->moment1));
}

/* Bytes of a device alive during each action of a stage, by category. */
static json_t *memory_json(const ls_program *program) {
  ls_arena *arena = ls_arena_create();
  const ls_alive *alive = ls_program_alive(arena, program, LS_TIER_DEVICE);
  json_t *all = json_array();
  for (int a = 0; a < program->actions.count; a++) {
    json_t *each = json_array();
    for (int c = 0; c < LS_CATEGORY_COUNT; c++)
      json_array_append_new(each, json_integer(alive[a].by_category[c]));
    json_array_append_new(all, each);
  }
  ls_arena_destroy(&arena);
  return all;
}

/* Ranks that are drawn: as many of each stage. */
static json_t *ranks_json(const ls_mesh *mesh) {
  const int ranks = ls_mesh_size(mesh, LS_AXES_ALL), stages = mesh->size[LS_AXIS_PP];
  int each = LS_PAGE_DEVICES / stages;
  if (each < 1) each = 1;
  if (each > ranks / stages) each = ranks / stages;
  json_t *all = json_array();
  for (int s = 0; s < stages && (int)json_array_size(all) < LS_PAGE_DEVICES; s++)
    for (int r = 0; r < each; r++) {
      const int rank = s * (ranks / stages) + r;
      json_t *at = json_array();
      for (int a = 0; a < LS_AXIS_COUNT; a++)
        json_array_append_new(at, json_integer(ls_mesh_coordinate(mesh, rank, (ls_axis)a)));
      json_array_append_new(all, json_pack("{s:i, s:o}", "rank", rank, "at", at));
    }
  return all;
}

/* Units that have no parameters have no row. */
static json_t *rows_json(const ls_page_layout *layout, int *row_of_unit) {
  json_t *rows = json_array();
  for (int u = 0; u < layout->units->count; u++) {
    json_t *row = row_json(layout, u);
    row_of_unit[u] = row ? (int)json_array_size(rows) : -1;
    if (row) json_array_append_new(rows, row);
  }
  return rows;
}

static json_t *layout_json(ls_arena *arena, const ls_page_layout *layout) {
  if (layout->refused)
    return json_pack("{s:s, s:s}", "name", layout->name, "refused", layout->refused);
  const ls_mesh *mesh = &layout->stages[0]->mesh;
  json_t *sizes = json_array(), *memory = json_array();
  for (int a = 0; a < LS_AXIS_COUNT; a++) json_array_append_new(sizes, json_integer(mesh->size[a]));
  double sent = 0;
  int64_t most = 0;
  int collectives = 0;
  for (int s = 0; s < mesh->size[LS_AXIS_PP]; s++) {
    int calls;
    const double bytes = ls_program_bytes_sent(layout->stages[s], &calls);
    int64_t by_category[LS_CATEGORY_COUNT];
    const int64_t peak = ls_program_peak(layout->stages[s], by_category);
    if (bytes > sent) sent = bytes;
    if (calls > collectives) collectives = calls;
    if (peak > most) most = peak;
    json_array_append_new(memory, memory_json(layout->stages[s]));
  }
  int *row_of_unit = LS_NEW_ARRAY(arena, int, layout->units->count + 1);
  json_t *rows = rows_json(layout, row_of_unit);
  json_t *moments = ls_page_moments(layout, row_of_unit);
  return json_pack("{s:s, s:s, s:o, s:i, s:o, s:o, s:o, s:o, s:I, s:f, s:i}", "name", layout->name,
                   "about", layout->about, "sizes", sizes, "microbatches",
                   layout->stages[0]->layout.microbatches, "ranks", ranks_json(mesh), "rows", rows,
                   "memory", memory, "moments", moments, "peak", (json_int_t)most, "sent", sent,
                   "collectives", collectives);
}

/* JSON inside a script element: no '<', so nothing in it can end the element or open a comment. */
static void write_data(json_t *root, FILE *stream) {
  char *text = json_dumps(root, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_PRESERVE_ORDER);
  LS_ASSERT(text);
  for (const char *at = text; *at; at++) {
    if (*at == '<')
      fputs("\\u003c", stream);
    else
      fputc(*at, stream);
  }
  free(text);
}

void ls_page_write(const ls_page_layout *layouts, int count, const char *title, FILE *stream) {
  ls_arena *arena = ls_arena_create();
  json_t *all = json_array(), *axes = json_array(), *categories = json_array();
  for (int i = 0; i < count; i++) {
    ls_page_layout clean = layouts[i];
    if (clean.refused) clean.refused = ls_markup_clean(arena, clean.refused);
    if (clean.about) clean.about = ls_markup_clean(arena, clean.about);
    json_array_append_new(all, layout_json(arena, &clean));
  }
  for (int a = 0; a < LS_AXIS_COUNT; a++)
    json_array_append_new(axes, json_string(ls_axis_name((ls_axis)a)));
  for (int c = 0; c < LS_CATEGORY_COUNT; c++)
    json_array_append_new(categories, json_string(ls_category_name((ls_category)c)));
  json_t *root = json_pack("{s:s, s:o, s:o, s:o}", "title", ls_markup_clean(arena, title), "axes",
                           axes, "categories", categories, "layouts", all);
  const char *page = (const char *)ls_page_html;
  const char *at = memmem(page, ls_page_html_bytes, mark, strlen(mark));
  LS_ASSERT(root && at);
  fwrite(page, 1, (size_t)(at - page), stream);
  write_data(root, stream);
  at += strlen(mark);
  fwrite(at, 1, ls_page_html_bytes - (size_t)(at - page), stream);
  json_decref(root);
  ls_arena_destroy(&arena);
}
