#include "watch/page.h"

#include <stdlib.h>
#include <string.h>

#include "cost/cost.h"
#include "watch/markup.h"

/* page.html, made into an array by the build. */
extern const unsigned char ls_page_html[];
extern const size_t ls_page_html_bytes;

static const char mark[] = "@DATA@";

static bool cut_flat(const ls_program *program, int value) {
  return value >= 0 && ls_value_flat_axes(&program->mesh, &program->values.items[value]);
}

/* The first stage that has a parameter of the unit, and that parameter; NULL: there is none. */
static const ls_program *program_with(const ls_page_layout *layout, int unit, int *parameter) {
  const int stages = ls_mesh_stages(&layout->stages[0]->mesh);
  for (int s = 0; s < stages; s++)
    for (int p = 0; p < layout->stages[s]->parameter_count; p++)
      if (layout->stages[s]->parameters[p].present &&
          layout->stages[s]->parameters[p].unit == unit) {
        *parameter = p;
        return layout->stages[s];
      }
  return NULL;
}

static int64_t elements_of(const ls_program_parameter *parameter) {
  return parameter->dims[0] * (parameter->ndim > 1 ? parameter->dims[1] : 1);
}

/* Whether most of a unit's elements are cut over the ranks of a layer. */
static bool cut_by_tensor(const ls_program *program, int unit) {
  int64_t cut = 0, all = 0;
  for (int p = 0; p < program->parameter_count; p++) {
    const ls_program_parameter *about = &program->parameters[p];
    if (!about->present || about->unit != unit) continue;
    const ls_axes axes = ls_placement_axes(
        &program->mesh, &program->values.items[about->part[LS_PART_USED]].placement, LS_SHARDED,
        -1);
    all += elements_of(about);
    if (axes & ls_mesh_axes(&program->mesh, LS_MESH_TENSOR)) cut += elements_of(about);
  }
  return 2 * cut > all;
}

static bool stage_has(const ls_program *program, int unit) {
  for (int p = 0; p < program->parameter_count; p++)
    if (program->parameters[p].present && program->parameters[p].unit == unit) return true;
  return false;
}

static json_t *row_json(const ls_page_layout *layout, int unit) {
  int p;
  const ls_program *program = program_with(layout, unit, &p);
  if (!program) return NULL;
  const ls_program_parameter *about = &program->parameters[p];
  int64_t elements = 0;
  for (int i = 0; i < program->parameter_count; i++)
    if (program->parameters[i].unit == unit) elements += elements_of(&program->parameters[i]);
  json_t *here = json_array();
  for (int s = 0; s < ls_mesh_stages(&program->mesh); s++)
    json_array_append_new(here, json_boolean(stage_has(layout->stages[s], unit)));
  return json_pack("{s:s, s:I, s:o, s:b, s:b, s:b, s:b, s:b}", "name", program->units.items[unit],
                   "elements", (json_int_t)elements, "here", here, "tensor",
                   cut_by_tensor(program, unit), "stored",
                   cut_flat(program, about->part[LS_PART_STORED]), "gradient",
                   cut_flat(program, about->part[LS_PART_GRADIENT]), "state",
                   cut_flat(program, about->part[LS_PART_MOMENT1]), "frozen", !about->trainable);
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

/* Ranks that are drawn: as many of each stage, and one at least. */
static json_t *ranks_json(const ls_mesh *mesh) {
  const int ranks = ls_mesh_ranks(mesh), stages = ls_mesh_stages(mesh);
  int each = LS_PAGE_DEVICES / stages;
  if (each < 1) each = 1;
  if (each > ranks / stages) each = ranks / stages;
  json_t *all = json_array();
  for (int s = 0; s < stages; s++)
    for (int r = 0; r < each; r++) {
      const int rank = s * (ranks / stages) + r;
      json_t *at = json_array();
      for (int a = 0; a < mesh->count; a++)
        json_array_append_new(at, json_integer(ls_mesh_coordinate(mesh, rank, a)));
      json_array_append_new(all, json_pack("{s:i, s:o}", "rank", rank, "at", at));
    }
  return all;
}

/* Units that have no parameters have no row. */
static json_t *rows_json(const ls_page_layout *layout, int *row_of_unit) {
  json_t *rows = json_array();
  for (int u = 0; u < layout->stages[0]->units.count; u++) {
    json_t *row = row_json(layout, u);
    row_of_unit[u] = row ? (int)json_array_size(rows) : -1;
    if (row) json_array_append_new(rows, row);
  }
  return rows;
}

static bool has_row(const json_t *rows, int row, int stage) {
  return json_is_true(
      json_array_get(json_object_get(json_array_get(rows, (size_t)row), "here"), (size_t)stage));
}

/* Rows that are drawn: the first and the last of each stage, and of all. */
static json_t *drawn_json(ls_arena *arena, const json_t *rows, int stages) {
  const int count = (int)json_array_size(rows);
  const int each = LS_PAGE_ROWS / stages > 1 ? LS_PAGE_ROWS / stages : 1;
  bool *drawn = LS_NEW_ARRAY(arena, bool, count + 1);
  for (int r = 0; r < count; r++) drawn[r] = count <= LS_PAGE_ROWS || r == 0 || r == count - 1;
  for (int s = 0; s < stages; s++) {
    int from_first = (each + 1) / 2, from_last = each / 2;
    for (int r = 0; r < count && from_first; r++) {
      from_first -= has_row(rows, r, s);
      drawn[r] |= has_row(rows, r, s);
    }
    for (int r = count - 1; r >= 0 && from_last; r--) {
      from_last -= has_row(rows, r, s);
      drawn[r] |= has_row(rows, r, s);
    }
  }
  json_t *all = json_array();
  for (int r = 0; r < count; r++) /* the word that one is missing takes as much room as the one */
    if (drawn[r] || (drawn[r - 1] && drawn[r + 1])) json_array_append_new(all, json_integer(r));
  return all;
}

/* Too many for a page; NULL: they are not. */
static const char *too_long(ls_arena *arena, const ls_page_layout *layout) {
  int64_t actions = 0;
  for (int s = 0; s < ls_mesh_stages(&layout->stages[0]->mesh); s++)
    actions += layout->stages[s]->actions.count;
  if (actions <= LS_PAGE_ACTIONS) return NULL;
  return ls_arena_printf(arena,
                         "a step of %lld actions, of which a page takes %d: give fewer "
                         "train.microbatches, which all do the same",
                         (long long)actions, LS_PAGE_ACTIONS);
}

static json_t *layout_json(ls_arena *arena, const ls_page_layout *layout) {
  if (layout->refused)
    return json_pack("{s:s, s:s}", "name", layout->name, "refused", layout->refused);
  const char *length = too_long(arena, layout);
  if (length)
    return json_pack("{s:s, s:s, s:b}", "name", layout->name, "refused", length, "long", 1);
  const ls_mesh *mesh = &layout->stages[0]->mesh;
  json_t *sizes = json_array(), *memory = json_array();
  for (int a = 0; a < mesh->count; a++)
    json_array_append_new(sizes, json_integer(mesh->axes[a].size));
  double sent = 0;
  int64_t most = 0;
  int collectives = 0;
  for (int s = 0; s < ls_mesh_stages(mesh); s++) {
    int calls;
    const double bytes = ls_program_bytes_sent(layout->stages[s], &calls);
    int64_t by_category[LS_CATEGORY_COUNT];
    const int64_t peak = ls_program_peak(layout->stages[s], by_category);
    if (bytes > sent) sent = bytes;
    if (calls > collectives) collectives = calls;
    if (peak > most) most = peak;
    json_array_append_new(memory, memory_json(layout->stages[s]));
  }
  int *row_of_unit = LS_NEW_ARRAY(arena, int, layout->stages[0]->units.count + 1);
  json_t *rows = rows_json(layout, row_of_unit);
  json_t *reasons = json_array(), *events = json_array();
  json_t *moments = ls_page_moments(layout, row_of_unit, reasons, events);
  return json_pack("{s:s, s:s, s:o, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:f, s:i}", "name",
                   layout->name, "about", layout->about, "sizes", sizes, "microbatches",
                   layout->stages[0]->layout.microbatches, "ranks", ranks_json(mesh), "drawn",
                   drawn_json(arena, rows, ls_mesh_stages(mesh)), "reasons", reasons, "rows", rows,
                   "memory", memory, "events", events, "moments", moments, "peak", (json_int_t)most,
                   "sent", sent, "collectives", collectives);
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
  int shown = 0;
  while (shown < count && layouts[shown].refused) shown++;
  for (int a = 0; shown < count && a < layouts[shown].stages[0]->mesh.count; a++)
    json_array_append_new(axes, json_string(layouts[shown].stages[0]->mesh.axes[a].name));
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
