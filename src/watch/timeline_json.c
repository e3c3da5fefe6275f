#include <jansson.h>

#include "watch/timeline.h"

static void write_event(json_t *event, bool first, FILE *stream) {
  if (!first) fputs(",\n", stream);
  json_dumpf(event, stream, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(13));
  json_decref(event);
}

static void write_name(const char *what, int process, int queue, const char *name, bool first,
                       FILE *stream) {
  write_event(json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "name", what, "ph", "M", "pid", process,
                        "tid", queue, "args", "name", name),
              first, stream);
}

static void write_span(const ls_timeline *timeline, const ls_timeline_span *span, FILE *stream) {
  static const char *const kinds[LS_SPAN_KINDS] = {
      "forward",           "backward",  "backward: inputs",
      "backward: weights", "recompute", "update",
      "collective",        "transfer",  "move"};
  json_t *arguments = json_object();
  if (span->microbatch >= 0)
    json_object_set_new(arguments, "microbatch", json_integer(span->microbatch));
  if (span->chunk >= 0) json_object_set_new(arguments, "chunk", json_integer(span->chunk));
  if (span->bytes > 0) json_object_set_new(arguments, "bytes", json_real(span->bytes));
  write_event(json_pack("{s:s, s:s, s:s, s:i, s:i, s:f, s:f, s:o}", "name", span->name, "cat",
                        kinds[span->kind], "ph", "X", "pid", span->process, "tid", (int)span->queue,
                        "ts", span->start * timeline->microseconds, "dur",
                        (span->end - span->start) * timeline->microseconds, "args", arguments),
              false, stream);
}

void ls_timeline_json(const ls_timeline *timeline, FILE *stream) {
  fputs("{\"displayTimeUnit\": \"ms\",\n\"otherData\": ", stream);
  json_t *about = json_pack("{s:s, s:s, s:s}", "title", timeline->title, "subtitle",
                            timeline->subtitle, "unit", timeline->unit);
  json_dumpf(about, stream, JSON_PRESERVE_ORDER);
  json_decref(about);
  fputs(",\n\"traceEvents\": [\n", stream);
  for (int p = 0; p < timeline->processes; p++) {
    write_name("process_name", p, 0, timeline->process_names[p], p == 0, stream);
    for (int queue = 0; queue < timeline->queues; queue++)
      write_name("thread_name", p, queue, ls_timeline_queue_name(queue), false, stream);
  }
  for (int i = 0; i < timeline->spans.count; i++)
    write_span(timeline, &timeline->spans.items[i], stream);
  fputs("\n]}\n", stream);
}
