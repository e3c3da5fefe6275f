/* How products in fp8 are done. */
#include "cost/cost.h"
#include "session/session.h"

/* Whether gathers of weights carry codes. */
static bool gathers_codes(const ls_session *session) {
  const ls_program *const *stages = session->stages[LS_SESSION_STEP];
  for (int stage = 0; stage < session->layout.pp; stage++)
    for (int i = 0; i < stages[stage]->instructions.count; i++)
      if (stages[stage]->instructions.items[i].kind == LS_OP_FP8_CODES) return true;
  return false;
}

const char *ls_session_fp8(ls_arena *arena, const ls_session *session) {
  const ls_layout *layout = &session->layout;
  if (!session->config.fp8) return NULL;
  const ls_device_facts *facts = session->on ? session->on : &session->device.facts;
  const ls_program *const *stages = session->stages[LS_SESSION_STEP];
  const int ranks = ls_mesh_ranks(&stages[0]->mesh) / layout->pp;
  int products = 0, codes = 0;
  for (int stage = 0, some; stage < layout->pp; stage++) {
    products += ls_program_fp8_products(facts, stages[stage], stage * ranks, &some);
    codes += some;
  }
  const char *gathered = gathers_codes(session) ? "; weights are gathered as codes of 8 bits" : "";
  const char *why = facts->fp8_why ? ls_arena_printf(arena, " (%s)", facts->fp8_why) : "";
  if (!facts->fp8)
    return ls_arena_printf(
        arena, "fp8 is emulated: operands are rounded to it and held in %s, which is no faster%s%s",
        ls_dtype_name(layout->compute), why, gathered);
  const char *scales = facts->fp8 == LS_FP8_BY_PASS
                           ? "scales of tokens by a pass over what it gives"
                           : "scales of tokens in the product";
  const char *others =
      codes < products
          ? ls_arena_printf(arena,
                            "; the other %d are of %s: rows of what they give are no multiple of "
                            "16 numbers, or are added to",
                            products - codes, ls_dtype_name(layout->compute))
          : "";
  return ls_arena_printf(arena, "fp8: %d of %d products y and dx are of codes of 8 bits, %s%s%s%s",
                         codes, products, scales, why, others, gathered);
}
