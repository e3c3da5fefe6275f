/* Status codes, the error record every fallible function of Lockstep fills, and warnings.
 *
 *   ls_error error = {0};
 *   if (ls_fail(&error, LS_INPUT, "batch=%d: expected at least 1", 0) != LS_OK) puts(error.text);
 *
 * A function that can fail returns ls_status and takes `ls_error *error` as its last
 * parameter; the record belongs to the caller and may be shared by calls made in sequence by
 * one thread. Not thread-safe: one record per thread. */
#ifndef LOCKSTEP_STATUS_H
#define LOCKSTEP_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ls_status {
  LS_OK = 0,
  LS_REFUTED = -1,  /* the answer is no: differs, disproved, does not fit (exit status 1) */
  LS_INPUT = -2,    /* wrong input or usage: the text says what and what to do (exit 2) */
  LS_FAILED = -3,   /* failed while running: I/O, a dead peer, a numerical fault (exit 3) */
  LS_STOPPED = -4,  /* stopped by a signal, state saved (exit 4) */
  LS_INTERNAL = -5, /* a fault of ours (exit 3) */
} ls_status;

/* What went wrong, in one line for a person. */
typedef struct ls_error {
  ls_status status;
  char text[1024];
} ls_error;

#if defined(__GNUC__)
#define LS_PRINTF(text_, first_) __attribute__((format(printf, text_, first_)))
#define LS_CHECKED __attribute__((warn_unused_result))
#else
#define LS_PRINTF(text_, first_)
#define LS_CHECKED
#endif

/* Fills `error` (may be NULL) with `status` and the formatted text; returns `status`, which is
 * never LS_OK, so that `return ls_fail(...)` reads well. */
ls_status ls_fail(ls_error *error, ls_status status, const char *format, ...) LS_PRINTF(3, 4);

/* Puts "prefix: " before the text already in `error`; returns its status. For adding the file,
 * the rank or the tensor to an error that came from below. NULL: nothing but LS_FAILED, since
 * what came from below is not known. */
ls_status ls_error_prefix(ls_error *error, const char *format, ...) LS_PRINTF(2, 3);

/* Says in one line what a person should know and what ends nothing: a file passed over, a setting
 * that can hardly be meant. The library prints nothing: the line goes to the handler that was set
 * last, which one thread at a time calls; without one it is lost. Of any thread. */
void ls_warn(const char *format, ...) LS_PRINTF(1, 2);
void ls_warnings_to(void (*handler)(void *context, const char *text), void *context);

/* The process exit status that belongs to `status`: 0, 1, 2, 3 or 4. */
int ls_exit_status(ls_status status);

/* Forwards a failure to the caller. */
#define LS_TRY(call)                      \
  do {                                    \
    ls_status ls_try_ = (call);           \
    if (ls_try_ != LS_OK) return ls_try_; \
  } while (0)

#ifdef __cplusplus
}
#endif
#endif
