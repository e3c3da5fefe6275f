/* What ranks exchange within a pass begins where it is made and ends where it is read: rows of
 * experts beside the shared expert, blocks of a ring beside the blocks in use. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lower/lower.h"
#include "lower/training.h"

static const char deepseek[] =
    "{\"model_type\": \"deepseek_v3\", \"vocab_size\": 96, \"hidden_size\": 64,"
    " \"intermediate_size\": 128, \"moe_intermediate_size\": 32, \"num_hidden_layers\": 2,"
    " \"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"n_shared_experts\": 1,"
    " \"n_routed_experts\": 8, \"num_experts_per_tok\": 2, \"first_k_dense_replace\": 1,"
    " \"n_group\": 2, \"topk_group\": 1, \"routed_scaling_factor\": 2.5, \"q_lora_rank\": 16,"
    " \"kv_lora_rank\": 16, \"qk_nope_head_dim\": 16, \"qk_rope_head_dim\": 8, \"v_head_dim\": 16,"
    " \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-6, \"tie_word_embeddings\": false}";

static const ls_program *compile(ls_arena *arena, const ls_model_config *config,
                                 const ls_layout *layout, int64_t sequence) {
  const ls_training training = {.model = config, .batch = 4, .sequence = sequence};
  ls_compiled compiled;
  ls_error error = {0};
  if (ls_compile(arena, &training, layout, ls_device_facts_cpu("plain"), &compiled, &error) !=
      LS_OK)
    fail_msg("%s", error.text);
  return compiled.stages[LS_COMPILED_STEP][0];
}

static bool is_pass(const ls_program *program, int body) {
  for (int a = 0; a < program->actions.count; a++)
    if (program->actions.items[a].body == body) {
      const ls_action_kind kind = program->actions.items[a].action.kind;
      return kind == LS_ACTION_FORWARD || kind == LS_ACTION_BACKWARD || kind == LS_ACTION_RECOMPUTE;
    }
  return false;
}

/* The end of a collective in its body; -1: none. */
static int end_of(const ls_program *program, const ls_body *body, int begun) {
  const ls_instruction *of = &program->instructions.items[begun];
  for (int i = begun + 1; i < body->first + body->count; i++) {
    const ls_instruction *each = &program->instructions.items[i];
    if (each->phase == LS_END && each->collective == of->collective && each->in[0] == of->in[0] &&
        each->out[0] == of->out[0])
      return i;
  }
  return -1;
}

/* Ops of either kind that are between two instructions. */
static int between(const ls_program *program, int first, int last, ls_op_kind a, ls_op_kind b) {
  int found = 0;
  for (int i = first + 1; i < last; i++) {
    const ls_instruction *each = &program->instructions.items[i];
    found += each->collective == LS_COLLECTIVE_NONE && (each->kind == a || each->kind == b);
  }
  return found;
}

typedef struct exchanges {
  int all, beside; /* of a kind; and those that an op runs beside */
  int most;        /* that are under way at once */
} exchanges;

/* What is begun in a pass ends in it, and something is done meanwhile. */
static exchanges look(const ls_program *program, ls_collective collective, ls_op_kind a,
                      ls_op_kind b, int64_t least) {
  exchanges found = {0};
  for (int at = 0; at < program->bodies.count; at++) {
    const ls_body *body = &program->bodies.items[at];
    if (!is_pass(program, at)) continue;
    int now = 0;
    for (int i = body->first; i < body->first + body->count; i++) {
      const ls_instruction *each = &program->instructions.items[i];
      if (each->collective == LS_COLLECTIVE_NONE) continue;
      now += each->phase == LS_BEGIN ? 1 : each->phase == LS_END ? -1 : 0;
      if (now > found.most) found.most = now;
      const int end = each->phase == LS_BEGIN ? end_of(program, body, i) : i;
      assert_true(end >= 0);
      bool ops = each->phase != LS_BEGIN;
      for (int j = i; j < end; j++)
        ops |= program->instructions.items[j].collective == LS_COLLECTIVE_NONE;
      assert_true(ops);
      if (each->collective != collective || each->phase == LS_END || each->count < least) continue;
      found.all++;
      found.beside += each->phase == LS_BEGIN && between(program, i, end, a, b) > 0;
    }
    assert_int_equal(now, 0);
  }
  return found;
}

static void rows_of_experts_are_sent_beside_the_shared_expert(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_model_config config;
  ls_error error = {0};
  assert_int_equal(
      ls_model_config_parse(arena, "model", deepseek, strlen(deepseek), &config, &error), LS_OK);
  ls_layout layout = ls_layout_default();
  layout.dp_shard = layout.ep = 2;
  layout.exchange = LS_EXCHANGE_ALL_TO_ALL;
  const ls_program *program = compile(arena, &config, &layout, 16);
  const int64_t rows = 2 * 16 * 64; /* at least, and more than their experts' numbers are */
  const exchanges forth = look(program, LS_ALL_TO_ALL, LS_OP_LINEAR, LS_OP_LINEAR_DX, rows);
  assert_int_equal(forth.all, 4); /* there and back, forward and backward */
  assert_int_equal(forth.beside, 4);
  ls_arena_destroy(&arena);
}

/* Of two ranks that hold two blocks each, one comes while the other is used. */
static void blocks_come_while_others_are_used(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_model_config config;
  ls_error error = {0};
  assert_int_equal(ls_model_find(arena, "llama-3m", &config, &error), LS_OK);
  ls_layout layout = ls_layout_default();
  layout.cp = 4;
  layout.context = LS_CONTEXT_RING;
  const ls_program *program = compile(arena, &config, &layout, 64);
  const exchanges turns = look(program, LS_PERMUTE, LS_OP_RING_ATTENTION, LS_OP_RING_BWD, 0);
  assert_int_equal(turns.all, 72);
  assert_int_equal(turns.beside, 64); /* the last gradients go home when all turns are over */
  assert_true(turns.most <= 4);       /* keys and values that come, and gradients that go home */
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_of_experts_are_sent_beside_the_shared_expert),
      cmocka_unit_test(blocks_come_while_others_are_used),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
