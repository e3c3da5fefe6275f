/* Fuzz target of the rates that `lockstep bench` keeps. Where they are an object with a checksum,
 * this is made right first, and a time of 0 is now: what is believed is finite and is written
 * as it was read; what is not says why in one line. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cluster/rates.h"
#include "cluster/rates_form.h"
#include "support/fuzz_folder.h"
#include "text/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void write_rates(const char *name, const uint8_t *data, size_t bytes) {
  json_t *root = json_loadb((const char *)data, bytes, JSON_REJECT_DUPLICATES, NULL);
  fuzz_folder_write(name, data, bytes);
  if (json_is_object(root) && json_object_del(root, "checksum") == 0) {
    const json_t *measured = json_object_get(root, "measured_s");
    if (json_is_integer(measured) && json_integer_value(measured) == 0)
      json_object_set_new(root, "measured_s", json_integer((json_int_t)time(NULL)));
    char *text = json_dumps(root, JSON_REAL_PRECISION(17));
    LS_ASSERT(text);
    const size_t room = strlen(text) + 64;
    char *whole = malloc(room);
    LS_ASSERT(whole);
    const int kept = snprintf(whole, room, "%.*s, ", (int)strlen(text) - 1, text); /* no brace */
    const int length =
        kept + snprintf(whole + kept, room - (size_t)kept, "\"checksum\": \"%016" PRIx64 "\"}",
                        ls_rates_checksum(whole, (size_t)kept));
    fuzz_folder_write(name, whole, (size_t)length);
    free(whole);
    free(text);
  }
  json_decref(root);
}

static void ask(const ls_rates *rates) {
  for (int threads = 1; threads <= 16; threads *= 2) {
    LS_ASSERT(isfinite(ls_rates_memory(rates, threads)) && ls_rates_memory(rates, threads) >= 0);
    for (int dtype = 0; dtype < LS_DTYPE_COUNT; dtype++) {
      const double rate = ls_rates_matmul(rates, (ls_dtype)dtype, threads);
      LS_ASSERT(isfinite(rate) && rate >= 0);
    }
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static const ls_rates_key key = {"a processor", 4, "avx2", "1.0"};
  ls_error error = {0};
  ls_arena *arena = ls_arena_create();
  LS_ASSERT(setenv("XDG_CACHE_HOME", fuzz_folder(), 1) == 0);
  const char *path = ls_rates_path(arena, &key);
  const char *folder = ls_arena_printf(arena, "%s/lockstep", fuzz_folder());
  LS_ASSERT(path && ls_directory_make(folder, &error) == LS_OK);
  write_rates(path + strlen(fuzz_folder()) + 1, data, bytes);
  const char *why;
  const ls_rates *rates = ls_rates_read(arena, &key, &why);
  if (rates) {
    ask(rates);
    const char *text = ls_rates_text(arena, rates);
    fuzz_folder_write(path + strlen(fuzz_folder()) + 1, text, strlen(text));
    const ls_rates *again = ls_rates_read(arena, &key, &why);
    LS_ASSERT(again && strcmp(ls_rates_text(arena, again), text) == 0);
  } else {
    LS_ASSERT(why && why[0] && !strchr(why, '\n'));
  }
  ls_arena_destroy(&arena);
  return 0;
}
