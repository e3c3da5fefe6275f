/* Texts of a model on many devices beside those of one: some requests at once, every other one
 * sampled, and the logits behind the longest prompt.
 *
 *   ls_test_texts texts;
 *   ls_test_texts_expect(arena, seed, folder, &texts);
 *   ls_test_texts_compare(&texts, 4, &(ls_generator_options){.cp = 2, .sequences = 3});
 *
 * In fp64. A difference ends the test. One thread. */
#ifndef LS_TESTS_SAME_TEXTS_H
#define LS_TESTS_SAME_TEXTS_H

#include "generate/generate.h"

#define LS_TEST_TRACES "tests/data/traces/"

/* A model of every family, whose heads are cut up to `tp`, which is more than the KV heads of most.
 */
typedef struct ls_test_family {
  const char *name; /* in LS_TEST_TRACES */
  int tp;
} ls_test_family;
extern const ls_test_family ls_test_families[];
extern const int ls_test_family_count;

enum { LS_TEST_TEXTS = 5, LS_TEST_LONGEST_PROMPT = 22, LS_TEST_LONGEST_TEXT = 9 };

/* A prompt and what came of it. */
typedef struct ls_test_text {
  int32_t prompt[LS_TEST_LONGEST_PROMPT];
  int64_t count;
  int32_t ids[512];
  int64_t made;
  int begun, done;
  ls_generate_end end;
} ls_test_text;

/* A request's token, kept in its context, which is a text. */
ls_status ls_test_text_keep(void *context, int32_t id, ls_error *error);

/* What one device says of one model. */
typedef struct ls_test_texts {
  const char *folder;
  uint64_t seed;
  ls_test_text all[LS_TEST_TEXTS];
  float *logits; /* after the longest prompt */
  int64_t vocabulary, longest;
} ls_test_texts;

/* In the arena. */
void ls_test_texts_expect(ls_arena *arena, uint64_t seed, const char *folder, ls_test_texts *texts);

/* Whether so many ranks say the same; of `layout` pp, cp and sequences count. */
void ls_test_texts_compare(const ls_test_texts *texts, int ranks,
                           const ls_generator_options *layout);

#endif
