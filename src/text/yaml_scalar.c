/* Scalars of the run file as the YAML 1.2 core schema types them. */
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/quote.h"
#include "text/yaml.h"

ls_status ls_yaml_fail(const ls_yaml *node, const char *expected, ls_error *error) {
  char shown[LS_QUOTE_BYTES], found[LS_QUOTE_BYTES + 32], where[LS_QUOTE_BYTES + 32] = "";
  if (node->line > 0) snprintf(where, sizeof where, ":%d", node->line);
  if (node->kind == LS_YAML_MAPPING) {
    snprintf(found, sizeof found, "a mapping");
  } else if (node->kind == LS_YAML_SEQUENCE) {
    snprintf(found, sizeof found, "a list");
  } else if (node->plain && node->text[0] == '\0') {
    snprintf(found, sizeof found, "nothing");
  } else {
    ls_quote(shown, node->text, strlen(node->text));
    snprintf(found, sizeof found, node->plain ? "%s" : "the text \"%s\"", shown);
  }
  ls_quote(shown, node->path, strlen(node->path));
  return ls_fail(error, LS_INPUT, "%s%s: %s%sfound %s; expected %s", node->file, where, shown,
                 shown[0] ? ": " : "", found, expected);
}

bool ls_yaml_is_null(const ls_yaml *node) {
  static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
  if (node->kind != LS_YAML_SCALAR || !node->plain) return false;
  for (size_t i = 0; i < sizeof nulls / sizeof *nulls; i++) {
    if (strcmp(node->text, nulls[i]) == 0) return true;
  }
  return false;
}

/* Digits of `base` at `text`; how many. */
static size_t digits(const char *text, int base) {
  static const char all[] = "0123456789abcdefABCDEF";
  size_t count = 0;
  for (; text[count]; count++) {
    const char *place = strchr(all, text[count]);
    if (!place || place - all >= (base == 16 ? 22 : base)) break;
  }
  return count;
}

/* [-+]? [0-9]+ | 0o [0-7]+ | 0x [0-9a-fA-F]+; *base is 0 where `text` is none of them. */
static const char *integer_form(const char *text, int *base) {
  const char *start = text;
  *base = 10;
  if (text[0] == '0' && text[1] == 'o') *base = 8;
  if (text[0] == '0' && text[1] == 'x') *base = 16;
  if (*base != 10) {
    text += 2;
    start = text;
  } else if (*text == '-' || *text == '+') {
    text++;
  }
  const size_t count = digits(text, *base);
  if (count == 0 || text[count]) *base = 0;
  return start;
}

/* [-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )? */
static bool is_float_form(const char *text) {
  if (*text == '-' || *text == '+') text++;
  const size_t whole = digits(text, 10);
  text += whole;
  if (*text == '.') {
    const size_t part = digits(text + 1, 10);
    if (whole + part == 0) return false;
    text += 1 + part;
  } else if (whole == 0) {
    return false;
  }
  if (*text == 'e' || *text == 'E') {
    text++;
    if (*text == '-' || *text == '+') text++;
    const size_t exponent = digits(text, 10);
    if (exponent == 0) return false;
    text += exponent;
  }
  return *text == '\0';
}

ls_status ls_yaml_int(const ls_yaml *node, int64_t *value, ls_error *error) {
  int base = 0;
  const char *start = NULL;
  if (node->kind == LS_YAML_SCALAR && node->plain) start = integer_form(node->text, &base);
  if (base == 0) return ls_yaml_fail(node, "a whole number", error);
  errno = 0;
  const long long parsed = strtoll(start, NULL, base);
  if (errno == ERANGE) return ls_yaml_fail(node, "a whole number that fits 64 bits", error);
  *value = parsed;
  return LS_OK;
}

ls_status ls_yaml_number(const ls_yaml *node, double *value, ls_error *error) {
  if (node->kind != LS_YAML_SCALAR || !node->plain) return ls_yaml_fail(node, "a number", error);
  if (!is_float_form(node->text)) {
    int64_t whole;
    if (ls_yaml_int(node, &whole, NULL) != LS_OK) return ls_yaml_fail(node, "a number", error);
    *value = (double)whole;
    return LS_OK;
  }
  /* A program that embeds the library may have set a locale in which 1.5 is written 1,5. */
  const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  if (!plain) return ls_fail(error, LS_FAILED, "out of memory while reading a number");
  const double parsed = strtod_l(node->text, NULL, plain);
  freelocale(plain);
  if (!isfinite(parsed)) return ls_yaml_fail(node, "a number below 1.8e308", error);
  *value = parsed;
  return LS_OK;
}

ls_status ls_yaml_bool(const ls_yaml *node, bool *value, ls_error *error) {
  static const char *const names[] = {"true", "True", "TRUE", "false", "False", "FALSE"};
  if (node->kind == LS_YAML_SCALAR && node->plain) {
    for (int i = 0; i < 6; i++) {
      if (strcmp(node->text, names[i]) != 0) continue;
      *value = i < 3;
      return LS_OK;
    }
  }
  return ls_yaml_fail(node, "true or false", error);
}

ls_status ls_yaml_string(const ls_yaml *node, const char **value, ls_error *error) {
  if (node->kind != LS_YAML_SCALAR || ls_yaml_is_null(node)) {
    return ls_yaml_fail(node, "text", error);
  }
  *value = node->text;
  return LS_OK;
}
