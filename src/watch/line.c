#include "watch/line.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void ls_line_append(char line[LS_SHOWN_BYTES], const char *format, ...) {
  const size_t used = strlen(line);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line + used, LS_SHOWN_BYTES - used, format, arguments);
  va_end(arguments);
}
