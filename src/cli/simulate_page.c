/* A simulated step as one offline page: what it takes, where the time goes, memory by stage, and
 * the timeline, as `train` draws a measured one. No script; light and dark as the browser is set.
 */
#include <stdio.h>

#include "base/written_file.h"
#include "cli/simulate_report.h"
#include "text/number.h"
#include "watch/markup.h"

static const char head[] =
    "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
    "<meta name='viewport' content='width=device-width'>\n<style>\n"
    ":root { color-scheme: light dark; --ink: #1c2430; --soft: #55606d; --page: #eef1f4;\n"
    "  --card: #fff; --line: #cfd6de; --bar: #2f6fb0; --wait: #d9480f; --rest: #e4ebf2; }\n"
    "@media (prefers-color-scheme: dark) { :root { --ink: #dde3ea; --soft: #9aa7b5;\n"
    "  --page: #0e1216; --card: #14181d; --line: #333c46; --bar: #5b9bd5; --wait: #ff8f57;\n"
    "  --rest: #232a32; } }\n"
    "body { margin: 0; padding: 14px 18px; font: 14px/1.4 system-ui, sans-serif;\n"
    "  color: var(--ink); background: var(--page); }\n"
    "h1 { font-size: 17px; margin: 0 0 12px; overflow-wrap: anywhere; }\n"
    "h2 { font-size: 15px; margin: 0 0 8px; }\n"
    "main { display: flex; flex-wrap: wrap; align-items: flex-start; gap: 14px; }\n"
    "section { background: var(--card); border: 1px solid var(--line); border-radius: 6px;\n"
    "  padding: 10px 12px; min-width: 0; max-width: 100%; box-sizing: border-box; }\n"
    ".scroll { overflow-x: auto; }\n"
    ".wide { flex: 1 1 100%; }\n"
    "table { border-collapse: collapse; }\n"
    "td, th { padding: 2px 10px 2px 0; text-align: left; vertical-align: top;\n"
    "  font-weight: normal; }\n"
    "th { color: var(--soft); white-space: nowrap; }\n"
    ".number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }\n"
    ".inner { padding-left: 16px; color: var(--soft); }\n"
    ".beside { color: var(--soft); white-space: nowrap; }\n"
    ".track { display: flex; width: 220px; height: 12px; margin-top: 4px;\n"
    "  background: var(--rest); }\n"
    ".long { width: 420px; }\n"
    ".legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 0 0 8px;\n"
    "  color: var(--soft); font-size: 12px; max-width: 640px; }\n"
    ".legend span { display: inline-flex; align-items: center; gap: 6px; }\n"
    ".legend i { width: 12px; height: 12px; display: inline-block; }\n"
    "</style>\n";

/* Colours of ls_session_memory_part_name, as the memory map has them. */
static const char *const colors[LS_SESSION_MEMORY_PARTS] = {
    [LS_CATEGORY_PARAMETERS] = "#4e79a7",  [LS_CATEGORY_MASTER] = "#76b7b2",
    [LS_CATEGORY_MOMENTS] = "#b07aa1",     [LS_CATEGORY_GRADIENTS] = "#e15759",
    [LS_CATEGORY_GATHERED] = "#86bcf0",    [LS_CATEGORY_ACTIVATIONS] = "#59a14f",
    [LS_CATEGORY_TEMPORARIES] = "#edc948", [LS_CATEGORY_CACHES] = "#9c755f",
    [LS_CATEGORY_INPUTS] = "#bab0ac",      [LS_CATEGORY_COUNT] = "#66788c",
    [LS_CATEGORY_COUNT + 1] = "#a3b1bf"};

typedef struct page {
  ls_arena *arena;
  const ls_simulated *of;
  const ls_simulated_report *report;
  FILE *stream;
} page;

static void put(const page *p, const char *text) {
  ls_markup_text(ls_markup_clean(p->arena, text), p->stream);
}

static void write_facts(const page *p) {
  fputs("<section>\n<h2>the step</h2>\n<table>\n", p->stream);
  for (int f = 0; f < p->report->facts.count; f++) {
    fputs("<tr><th>", p->stream);
    put(p, p->report->facts.items[f].name);
    fputs("</th><td>", p->stream);
    put(p, p->report->facts.items[f].text);
    fputs("</td></tr>\n", p->stream);
  }
  fputs("</table>\n</section>\n", p->stream);
}

/* A part below a thousandth of the step is left to the JSON. */
static void write_part(const page *p, const ls_simulated_part *part, double step) {
  if (part->seconds < 1e-3 * step && part->under_way < 1e-3 * step) return;
  char text[LS_NUMBER_BYTES];
  ls_seconds_show(text, part->seconds);
  fprintf(p->stream, "<tr><td%s>", part->detail ? " class='inner'" : "");
  put(p, part->name);
  fprintf(p->stream,
          "</td><td class='number'>%s</td><td class='number'>%.1f %%</td>"
          "<td><div class='track'><div style='width:%.2f%%;background:var(--%s)'></div></div></td>"
          "<td class='beside'>",
          text, 100 * part->seconds / step, 100 * part->seconds / step,
          part->waits ? "wait" : "bar");
  if (part->under_way > 0) {
    ls_seconds_show(text, part->under_way);
    fprintf(p->stream, "of %s under way", text);
  }
  fputs("</td></tr>\n", p->stream);
}

static void write_parts(const page *p) {
  fprintf(p->stream, "<section class='scroll'>\n<h2>where the time goes%s</h2>\n<table>\n",
          p->of->simulation->stages > 1 ? " (mean of the ranks)" : "");
  for (int i = 0; i < p->report->parts.count; i++)
    write_part(p, &p->report->parts.items[i], p->of->simulation->seconds);
  fputs("</table>\n</section>\n", p->stream);
}

static void write_legend(const page *p) {
  fputs("<p class='legend'>", p->stream);
  for (int c = 0; c < LS_SESSION_MEMORY_PARTS; c++) {
    bool any = false;
    for (int r = 0; r < p->report->memory.count; r++) any |= p->report->memory.items[r].part[c] > 0;
    if (any)
      fprintf(p->stream, "<span><i style='background:%s'></i>%s</span>", colors[c],
              ls_session_memory_part_name(c));
  }
  fputs("</p>\n", p->stream);
}

static void write_bar(const page *p, const ls_simulated_memory *row, double whole) {
  fputs("<td><div class='track long'>", p->stream);
  for (int c = 0; c < LS_SESSION_MEMORY_PARTS; c++) {
    if (!row->part[c]) continue;
    char size[LS_BYTES_TEXT];
    ls_bytes_show(size, (double)row->part[c]);
    fprintf(p->stream, "<div style='width:%.2f%%;background:%s' title='%s: %s'></div>",
            100 * (double)row->part[c] / whole, colors[c], ls_session_memory_part_name(c), size);
  }
  fputs("</div></td>", p->stream);
}

static void write_memory(const page *p) {
  const double limit = (double)ls_session_limit(p->of->session);
  double whole = limit;
  for (int r = 0; r < p->report->memory.count; r++)
    if ((double)p->report->memory.items[r].bytes > whole)
      whole = (double)p->report->memory.items[r].bytes;
  char text[LS_BYTES_TEXT];
  ls_bytes_show(text, whole);
  fprintf(p->stream, "<section class='scroll'>\n<h2>memory of a device at its peak, of %s</h2>\n",
          text);
  write_legend(p);
  fputs("<table>\n", p->stream);
  for (int r = 0; r < p->report->memory.count; r++) {
    const ls_simulated_memory *row = &p->report->memory.items[r];
    ls_bytes_show(text, (double)row->bytes);
    fputs("<tr><th>", p->stream);
    if (row->first != row->last)
      fprintf(p->stream, "stages %d to %d", row->first, row->last);
    else
      fprintf(p->stream, "stage %d", row->first);
    fputs("</th>", p->stream);
    write_bar(p, row, whole);
    fprintf(p->stream, "<td class='number'>%s</td>", text);
    if (row->host_bytes) {
      ls_bytes_show(text, (double)row->host_bytes);
      fprintf(p->stream, "<td class='number beside'>%s on the host</td>", text);
    }
    fputs("</tr>\n", p->stream);
  }
  fputs("</table>\n</section>\n", p->stream);
}

static void write_page(const page *p) {
  const ls_timeline *timeline = ls_simulated_timeline(p->of, LS_TIMELINE_ACTIONS);
  fprintf(p->stream, "%s<title>", head);
  put(p, timeline->title);
  fputs("</title>\n</head>\n<body>\n<h1>", p->stream);
  put(p, p->report->headline);
  fputs("</h1>\n<main>\n", p->stream);
  write_facts(p);
  write_parts(p);
  write_memory(p);
  fputs("<section class='wide'>\n<h2>timeline</h2>\n<div class='scroll'>\n", p->stream);
  ls_timeline_svg(timeline, p->stream);
  fputs("</div>\n</section>\n</main>\n</body>\n</html>\n", p->stream);
}

ls_status ls_simulated_page(const ls_simulated *of, const char *path, ls_error *error) {
  ls_written_file file;
  LS_TRY(ls_written_file_begin(&file, error));
  page p = {.arena = of->session->arena,
            .of = of,
            .report = ls_simulated_report_make(of),
            .stream = file.to};
  write_page(&p);
  return ls_written_file_end(&file, path, error);
}
