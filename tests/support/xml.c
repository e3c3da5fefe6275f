#include "support/xml.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 32, LONGEST_NAME = 32, MOST_ATTRIBUTES = 24 };

typedef struct reader {
  const char *start, *at;
  char open[DEEPEST][LONGEST_NAME];
  int depth;
  char *why;
} reader;

static bool wrong(reader *from, const char *what) {
  snprintf(from->why, LS_XML_WHY, "at byte %ld: %s: %.60s", (long)(from->at - from->start), what,
           from->at);
  return false;
}

static bool read_name(reader *from, char name[LONGEST_NAME]) {
  int length = 0;
  while (isalnum((unsigned char)*from->at) || strchr("-_:.", *from->at)) {
    if (!*from->at || length + 1 == LONGEST_NAME) break;
    name[length++] = *from->at++;
  }
  name[length] = 0;
  return length > 0 && !isdigit((unsigned char)*name);
}

static bool read_entity(reader *from) {
  static const char *const known[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strncmp(from->at, known[i], strlen(known[i]))) {
      from->at += strlen(known[i]);
      return true;
    }
  return wrong(from, "an entity that is not known");
}

/* Up to `end`. */
static bool read_text(reader *from, char end) {
  while (*from->at && *from->at != end) {
    if (*from->at == '<') return wrong(from, "a < inside a value");
    if (*from->at == '&') {
      if (!read_entity(from)) return false;
    } else if ((unsigned char)*from->at < 0x20 && !isspace((unsigned char)*from->at)) {
      return wrong(from, "a control character");
    } else {
      from->at++;
    }
  }
  return true;
}

static bool read_attributes(reader *from) {
  char names[MOST_ATTRIBUTES][LONGEST_NAME];
  for (int count = 0;; count++) {
    const bool apart = isspace((unsigned char)*from->at);
    while (isspace((unsigned char)*from->at)) from->at++;
    if (*from->at == '>' || *from->at == '/' || !*from->at) return true;
    if (!apart || count == MOST_ATTRIBUTES || !read_name(from, names[count]))
      return wrong(from, "not an attribute");
    for (int i = 0; i < count; i++)
      if (!strcmp(names[i], names[count])) return wrong(from, "an attribute twice");
    if (*from->at++ != '=') return wrong(from, "an attribute without a value");
    const char quote = *from->at++;
    if (quote != '\'' && quote != '"') return wrong(from, "a value without quotes");
    if (!read_text(from, quote)) return false;
    if (*from->at++ != quote) return wrong(from, "a value without an end");
  }
}

static bool read_tag(reader *from) {
  char name[LONGEST_NAME];
  const bool closes = *++from->at == '/';
  if (closes) from->at++;
  if (!read_name(from, name)) return wrong(from, "not a name");
  if (closes) {
    if (!from->depth || strcmp(from->open[--from->depth], name) != 0)
      return wrong(from, "closes what is not open");
    return *from->at++ == '>' || wrong(from, "a > is missing");
  }
  if (!read_attributes(from)) return false;
  if (*from->at == '/') {
    from->at++;
  } else {
    if (from->depth == DEEPEST) return wrong(from, "too deep");
    memcpy(from->open[from->depth++], name, LONGEST_NAME);
  }
  return *from->at++ == '>' || wrong(from, "a > is missing");
}

bool xml_is_well_formed(const char *text, char why[LS_XML_WHY]) {
  reader from = {.start = text, .at = text, .why = why};
  int roots = 0;
  while (*from.at) {
    if (*from.at == '<') {
      roots += from.depth == 0 && from.at[1] != '/';
      if (!read_tag(&from)) return false;
    } else if (from.depth == 0) {
      if (!isspace((unsigned char)*from.at++)) return wrong(&from, "text outside the root");
    } else if (!read_text(&from, '<')) {
      return false;
    }
  }
  if (from.depth) return wrong(&from, "something is still open");
  return roots == 1 || wrong(&from, "not one root");
}

int text_count(const char *text, const char *what) {
  int found = 0;
  for (const char *at = strstr(text, what); at; at = strstr(at + 1, what)) found++;
  return found;
}

double xml_attribute(const char *at, const char *name) {
  const char *end = strchr(at, '>');
  const size_t length = strlen(name);
  for (; at && at < end; at = strchr(at + 1, ' '))
    if (!strncmp(at + 1, name, length) && !strncmp(at + 1 + length, "='", 2))
      return strtod(at + length + 3, NULL);
  return NAN;
}
