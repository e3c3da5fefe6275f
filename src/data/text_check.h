/* Whether the bytes of a text file are text: UTF-8, and not another format's file under a text's
 * name.
 *
 *   ls_text_check check = {.key = "data.text", .path = path};        // of one file
 *   LS_TRY(ls_text_check_add(&check, bytes, count, error));          // all of it, in order
 *   LS_TRY(ls_text_check_end(&check, error));
 *   if (check.bad > 0) ... check.first_bad ...
 *
 * One thread at a time for one check. */
#ifndef LS_DATA_TEXT_CHECK_H
#define LS_DATA_TEXT_CHECK_H

#include <stddef.h>
#include <stdint.h>

#include "lockstep/status.h"

enum {
  LS_TEXT_HEAD_BYTES = 8,       /* that the first call should hold, if the file has as many */
  LS_TEXT_SAMPLE_BYTES = 65536, /* of the file's beginning; more than a NUL in */
  LS_TEXT_NUL_SHARE = 64,       /* so many bytes of them, and it is no text */
};

typedef struct ls_text_check {
  const char *key, *path;
  int64_t bytes;     /* seen */
  int64_t bad;       /* of them, NUL or in no UTF-8 character */
  int64_t first_bad; /* where the first of them is, from 0 */
  int64_t nuls;      /* of the sample */
  const char *remedy;
  char held[4]; /* the beginning of a character whose rest is still to come */
  size_t held_bytes;
} ls_text_check;

/* The file's next bytes. LS_INPUT, with what to do about it: a PDF, an archive, a picture,
 * UTF-16 or UTF-32, or NULs. */
LS_CHECKED ls_status ls_text_check_add(ls_text_check *check, const char *bytes, size_t count,
                                       ls_error *error);

/* No bytes come any more. LS_INPUT as above. */
LS_CHECKED ls_status ls_text_check_end(ls_text_check *check, ls_error *error);

#endif
