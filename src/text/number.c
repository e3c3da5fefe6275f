#include "text/number.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/yaml.h"

bool ls_number_read(const char *text, double *value) {
  const ls_yaml scalar = {
      .kind = LS_YAML_SCALAR, .plain = true, .text = text, .path = "", .file = ""};
  return ls_yaml_number(&scalar, value, NULL) == LS_OK;
}

/* Binary units first and the largest before the smaller, as writing wants them. */
static const struct {
  const char *name;
  double bytes;
} units[] = {{"TiB", 0x1p40}, {"GiB", 0x1p30}, {"MiB", 0x1p20}, {"KiB", 0x1p10}, {"TB", 1e12},
             {"GB", 1e9},     {"MB", 1e6},     {"KB", 1e3},     {"B", 1}};
enum { UNIT_COUNT = sizeof units / sizeof units[0], BINARY_UNITS = 4 };

bool ls_size_read(const char *text, int64_t *bytes) {
  char number[LS_NUMBER_BYTES];
  const size_t length = strcspn(text, "BKMGTbkmgt \t");
  if (length == 0 || length >= sizeof number) return false;
  memcpy(number, text, length);
  number[length] = 0;
  const char *unit = text + length + strspn(text + length, " \t");
  double scale = *unit ? 0 : 1;
  for (int i = 0; i < UNIT_COUNT; i++) {
    if (strcasecmp(unit, units[i].name) == 0) scale = units[i].bytes;
  }
  double count;
  if (scale == 0 || !ls_number_read(number, &count)) return false;
  const double total = count * scale;
  if (total != floor(total) || fabs(total) > 0x1p53) return false;
  *bytes = (int64_t)total;
  return true;
}

void ls_number_write(char text[LS_NUMBER_BYTES], double value) {
  if (!isfinite(value)) {
    memcpy(text, "null", sizeof "null");
    return;
  }
  for (int digits = 6; digits <= 17; digits++) {
    snprintf(text, LS_NUMBER_BYTES, "%.*g", digits, value);
    char *comma = strchr(text, ','); /* the point of some locales */
    if (comma) *comma = '.';
    double back;
    if (ls_number_read(text, &back) && back == value) return;
  }
}

void ls_size_write(char text[LS_NUMBER_BYTES], int64_t bytes) {
  for (int i = 0; i < BINARY_UNITS && bytes > 0; i++) {
    const int64_t unit = (int64_t)units[i].bytes;
    if (bytes % unit) continue;
    snprintf(text, LS_NUMBER_BYTES, "%lld%s", (long long)(bytes / unit), units[i].name);
    return;
  }
  snprintf(text, LS_NUMBER_BYTES, "%lld", (long long)bytes);
}

void ls_size_show(char text[LS_NUMBER_BYTES], double bytes) {
  for (int i = 0; i < BINARY_UNITS; i++) {
    if (bytes < units[i].bytes) continue;
    snprintf(text, LS_NUMBER_BYTES, "%.1f %s", bytes / units[i].bytes, units[i].name);
    return;
  }
  snprintf(text, LS_NUMBER_BYTES, "%.0f B", bytes);
}

void ls_seconds_show(char text[LS_NUMBER_BYTES], double seconds) {
  static const struct {
    double below, unit;
    int digits;
    const char *name;
  } shown[] = {
      {1e-3, 1e-6, 1, "us"},      {1, 1e-3, 1, "ms"},          {120, 1, 3, "s"},
      {2 * 3600.0, 60, 1, "min"}, {72 * 3600.0, 3600, 1, "h"}, {INFINITY, 86400, 1, "days"}};
  size_t i = 0;
  while (i + 1 < sizeof shown / sizeof *shown && !(seconds < shown[i].below)) i++;
  snprintf(text, LS_NUMBER_BYTES, "%.*f %s", shown[i].digits, seconds / shown[i].unit,
           shown[i].name);
}

/* A number that may have one of the letters behind it, and that times its factor. */
static bool read_scaled(const char *text, const char *letters, const double *factors,
                        double *value) {
  char digits[LS_NUMBER_BYTES];
  const size_t length = strlen(text);
  if (!length || length >= sizeof digits) return false;
  memcpy(digits, text, length + 1);
  const char *letter = strchr(letters, toupper((unsigned char)digits[length - 1]));
  if (letter) digits[length - 1] = 0;
  if (!ls_number_read(digits, value)) return false;
  if (letter) *value *= factors[letter - letters];
  return *value > 0 && *value < 1e18;
}

bool ls_count_read(const char *text, double *count) {
  static const double thousands[] = {1e3, 1e6, 1e9, 1e12};
  return read_scaled(text, "KMBT", thousands, count);
}

bool ls_time_read(const char *text, double *seconds) {
  static const double times[] = {3600, 86400, 604800};
  return read_scaled(text, "HDW", times, seconds);
}
