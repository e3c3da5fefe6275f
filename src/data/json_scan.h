/* A quick look at a line of JSON: most lines are one flat object, whose string is all that is
 * wanted of it.
 *
 *   int64_t bytes;
 *   char *found = ls_json_scan(line, line_bytes, "text", &bytes);
 *
 * What it accepts is RFC 8259, and what a whole parser would find; what it cannot tell at a glance
 * (long numbers, deep nesting, escapes in keys) and what is wrong it leaves to that parser, which
 * takes four times as long. Thread-safe: no state. */
#ifndef LS_DATA_JSON_SCAN_H
#define LS_DATA_JSON_SCAN_H

#include <stdint.h>

/* The string under the key (of several the last), unescaped in its place in the line; NULL, with
 * the line as it was, where a parser must decide. */
char *ls_json_scan(char *line, int64_t bytes, const char *key, int64_t *found_bytes);

#endif
