/* Prompts of files as ids, and what is generated as text: whole characters, up to the text that
 * ends an answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "generate/text_batch.h"
#include "support/test_folder.h"
#include "support/test_seed.h"

enum { MOST = 40 };

static uint64_t seed;
static ls_error error;

static ls_prompts_options options_of_bytes(void) {
  return (ls_prompts_options){.key = "--prompts",
                              .tokenizer = ls_tokenizer_bytes(),
                              .chatless = "no template here",
                              .positions = 20};
}

static const char *write_file(const char *name, const char *text) {
  const char *path = in_folder(name);
  assert_int_equal(ls_file_write(path, text, strlen(text), &error), LS_OK);
  return path;
}

static void files_are_read(void **state) {
  (void)state;
  static const char *const files[][2] = {
      {"a.txt", "one\r\n\n \t\ntwo three"},
      {"a.jsonl", "{\"prompt\": \"one\"}\n\n\n{\"prompt\": \"two three\", \"chosen\": 1}\n"}};
  const ls_prompts_options options = options_of_bytes();
  for (int f = 0; f < 2; f++) {
    ls_prompts prompts = {0};
    const char *path = write_file(files[f][0], files[f][1]);
    if (ls_prompts_read(arena, &options, path, &prompts, &error) != LS_OK)
      fail_msg("%s", error.text);
    assert_int_equal(prompts.list.count, 2);
    const ls_prompt *last = &prompts.list.items[1];
    assert_string_equal(last->where, ls_arena_printf(arena, "%s:4", path));
    assert_string_equal(json_string_value(last->asked), "two three");
    assert_int_equal(last->count, 9);
    for (int i = 0; i < 9; i++) assert_int_equal(last->ids[i], "two three"[i]);
    assert_int_equal(ls_prompts_longest(&prompts), 9);
    ls_prompts_free(&prompts);
    assert_int_equal(prompts.list.count, 0);
  }
}

static void what_is_no_prompt_is_named(void **state) {
  (void)state;
  static const char *const wrong[][3] = {
      {"b.txt", "fits\nthis one is too long for it", "b.txt:2: the prompt has 27 tokens"},
      {"b.jsonl", "{\"prompt\": \"a\"}\n{\"prompt\": \"\"}",
       "b.jsonl:2: found no prompt; expected"},
      {"b.jsonl", "[1]", "b.jsonl:1: found no prompt"},
      {"b.jsonl", "{\"prompt\": \"a\"", "b.jsonl:1:"},
      {"b.jsonl", "{\"messages\": []}", "b.jsonl:1: no template here"},
      {"c.txt", "\n", "found no prompt; expected one a line"}};
  const ls_prompts_options options = options_of_bytes();
  for (size_t w = 0; w < sizeof wrong / sizeof *wrong; w++) {
    ls_prompts prompts = {0};
    const char *path = write_file(wrong[w][0], wrong[w][1]);
    assert_int_equal(ls_prompts_read(arena, &options, path, &prompts, &error), LS_INPUT);
    if (!strstr(error.text, wrong[w][2])) fail_msg("%s: %s", wrong[w][1], error.text);
    ls_prompts_free(&prompts);
  }
}

typedef struct tokens {
  char bytes[MOST];
  int count;
} tokens;

static ls_status keep(void *context, int32_t id, ls_error *unused) {
  tokens *kept = context;
  (void)unused;
  kept->bytes[kept->count++] = (char)id;
  return LS_OK;
}

/* Bytes as the stream of whole characters has them. */
static const char *as_text(const char *bytes, size_t count) {
  char *text = ls_arena_alloc(arena, LS_UTF8_MOST(count) + LS_UTF8_MOST(0) + 1);
  ls_utf8_stream stream = {0};
  size_t length = ls_utf8_push(&stream, bytes, count, text);
  length += ls_utf8_end(&stream, text + length);
  text[length] = 0;
  return text;
}

/* Where a text lies among bytes; all of them where it does not. */
static size_t find_text(const tokens *in, const char *text) {
  for (size_t at = 0; at + strlen(text) <= (size_t)in->count; at++)
    if (memcmp(in->bytes + at, text, strlen(text)) == 0) return at;
  return (size_t)in->count;
}

static void assert_written(ls_generator *generator, ls_text_writer writer, const ls_prompt *prompt,
                           const char *expected, ls_generate_end expected_end) {
  char *text = NULL;
  size_t bytes;
  ls_generate_end end;
  writer.to = open_memstream(&text, &bytes);
  if (ls_text_writer_run(&writer, generator, prompt, false, &end, &error) != LS_OK)
    fail_msg("%s", error.text);
  fclose(writer.to);
  assert_string_equal(text, expected);
  assert_int_equal(end, expected_end);
  free(text);
}

/* An untrained model says any bytes; each stretch of them may end an answer, and ends no text. */
static void an_answer_ends_before_its_end(void **state) {
  (void)state;
  const ls_generator_options options = {.folder = "tests/data/traces/llama-gqa-tied",
                                        .compute = LS_F64,
                                        .threads = 1,
                                        .rows = 2 * MOST};
  ls_generator *generator;
  if (ls_generator_create(arena, &options, &generator, &error) != LS_OK) fail_msg("%s", error.text);
  const int64_t vocabulary = ls_generator_config(generator)->vocabulary;
  assert_true(vocabulary <= 256);
  int found = 0;
  for (uint64_t t = 0; t < 60; t++) {
    int32_t ids[3];
    for (uint64_t i = 0; i < 3; i++)
      ids[i] = (int32_t)(ls_random_bits(seed, t, i) % (uint64_t)vocabulary);
    const ls_sampling sampling = {.temperature = 3, .seed = seed + t};
    tokens all = {0};
    ls_generate_end end;
    const ls_generate_request request = {.prompt = ids,
                                         .prompt_count = 3,
                                         .most = 12,
                                         .sampling = sampling,
                                         .token = keep,
                                         .context = &all};
    assert_int_equal(ls_generate(generator, &request, &end, &error), LS_OK);
    const size_t at = ls_random_bits(seed, t, 7) % 11, most = ls_random_bits(seed, t, 8) % 4 + 1;
    if (at + most > (size_t)all.count) continue;
    const char *stop = ls_arena_printf(arena, "%.*s", (int)most, all.bytes + at);
    if (!*stop) continue;
    ls_text_writer writer = {.tokenizer = ls_tokenizer_bytes(),
                             .end = {.id = -1, .text = stop},
                             .sampling = sampling,
                             .most = 12};
    const ls_prompt question = {.ids = ids, .count = 3};
    const ls_prompt text = {.ids = ids, .count = 3, .text = "any"};
    assert_written(generator, writer, &question, as_text(all.bytes, find_text(&all, stop)),
                   LS_GENERATE_END_ID);
    assert_written(generator, writer, &text, as_text(all.bytes, (size_t)all.count), end);
    const ls_prompt from = {.ids = ids, .count = 3, .text = "any", .text_bytes = 3, .where = "a:1"};
    writer.repeats = true;
    const char *whole = as_text(all.bytes, (size_t)all.count);
    assert_written(generator, writer, &from, ls_arena_printf(arena, "==> a:1 <==\nany%s", whole),
                   end);
    writer.repeats = false;
    writer.end.text = ls_arena_printf(arena, "%s%s", stop, "\x01\x02\x03never");
    assert_written(generator, writer, &question, as_text(all.bytes, (size_t)all.count), end);
    found++;
  }
  assert_true(found > 10);
  ls_generator_destroy(&generator);
}

/* What a batch hands out, against one text after another. */
typedef struct handed {
  ls_generator *one;
  ls_text_writer writer;
  int count;
} handed;

static ls_status take(void *context, int number, const ls_text *found, ls_error *failed) {
  handed *self = context;
  char *text = NULL;
  size_t bytes;
  ls_generate_end end;
  ls_text_writer writer = self->writer;
  assert_int_equal(number, self->count++);
  writer.to = open_memstream(&text, &bytes);
  LS_TRY(ls_text_writer_run(&writer, self->one, found->prompt, false, &end, failed));
  fclose(writer.to);
  assert_int_equal(found->bytes, bytes);
  assert_memory_equal(found->text, text, bytes);
  assert_int_equal(found->end, end);
  assert_int_equal(found->writer->tokens, writer.tokens);
  assert_int_equal(found->writer->prompt_tokens, found->prompt->count);
  free(text);
  return LS_OK;
}

static bool stops_at_once(void) {
  return true;
}

static void batches_come_in_their_order(void **state) {
  (void)state;
  enum { PROMPTS = 11, LONGEST = 30 };
  ls_generator_options options = {
      .folder = "tests/data/traces/llama-gqa-tied", .compute = LS_F64, .threads = 1, .rows = MOST};
  int32_t ids[LONGEST];
  ls_prompt prompts[PROMPTS];
  ls_generator *batch;
  handed out = {.writer = {.tokenizer = ls_tokenizer_bytes(),
                           .end = {.id = -1, .text = "b"},
                           .sampling = {.temperature = 2, .seed = seed},
                           .most = MOST}};
  assert_int_equal(ls_generator_create(arena, &options, &out.one, &error), LS_OK);
  options.sequences = 3;
  assert_int_equal(ls_generator_create(arena, &options, &batch, &error), LS_OK);
  assert_int_equal(ls_generator_sequences(batch), 3);
  for (uint64_t i = 0; i < LONGEST; i++) ids[i] = (int32_t)(ls_random_bits(seed, 91, i) % 200);
  for (uint64_t p = 0; p < PROMPTS; p++)
    prompts[p] = (ls_prompt){.ids = ids,
                             .count = 1 + (int64_t)(ls_random_bits(seed, 92, p) % LONGEST),
                             .text = p % 3 ? NULL : "any"};
  ls_text_batch asked = {
      .writer = out.writer, .prompts = prompts, .count = PROMPTS, .take = take, .context = &out};
  if (ls_text_batch_run(&asked, batch, &error) != LS_OK) fail_msg("%s", error.text);
  assert_int_equal(out.count, PROMPTS);
  asked.writer.stops = out.writer.stops = stops_at_once;
  out.count = 0;
  if (ls_text_batch_run(&asked, batch, &error) != LS_OK) fail_msg("%s", error.text);
  assert_int_equal(out.count, PROMPTS);
  ls_generator_destroy(&batch);
  ls_generator_destroy(&out.one);
}

int main(void) {
  seed = test_seed(20261128);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(files_are_read, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_is_no_prompt_is_named, set_up, tear_down),
      cmocka_unit_test_setup_teardown(an_answer_ends_before_its_end, set_up, tear_down),
      cmocka_unit_test_setup_teardown(batches_come_in_their_order, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
