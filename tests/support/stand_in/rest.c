/* The calls of a library that its stand-in has no body for: each answers that it is not supported,
 * unless another file of the stand-in defines it. Compiled once for each library, whose header,
 * list and answer cmake/stand_ins.cmake gives. */
#include STAND_IN_HEADER

#define REST(result, name, arguments)          \
  result name arguments __attribute__((weak)); \
  result name arguments {                      \
    return (result)(size_t)STAND_IN_ANSWER;    \
  }

STAND_IN_CALLS(REST)
