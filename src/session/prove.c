#include "session/prove.h"

#include "base/clock.h"

ls_status ls_session_prove(const ls_session *session, ls_session_proof *proof, ls_error *error) {
  static const char *const names[LS_SESSION_PROGRAMS] = {"step", "evaluation"};
  const double begin = ls_now_s();
  for (int p = 0; p < LS_SESSION_PROGRAMS; p++) {
    ls_error found = {0};
    const ls_status status =
        ls_check(session->graph, &session->layout, session->stages[p], &proof->reports[p], &found);
    if (status != LS_OK)
      return ls_fail(error, status, "the program of the %s is wrong: %s", names[p], found.text);
  }
  ls_error found = {0};
  const ls_status status =
      ls_check_shared(session->stages[LS_SESSION_STEP], session->stages[LS_SESSION_EVALUATE],
                      session->layout.pp, &found);
  if (status != LS_OK)
    return ls_fail(error, status, "step and evaluation do not fit: %s", found.text);
  proof->seconds = ls_now_s() - begin;
  return LS_OK;
}
