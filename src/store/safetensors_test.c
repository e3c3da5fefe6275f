/* Safetensors: the cases of the public manifest, fault files of our own, round trips of files and
 * shards, and what happens when writing fails. */
#include "store/safetensors.h"

#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/file.h"
#include "support/test_seed.h"
#include "text/json.h"

static char folder[] = "/tmp/lockstep-safetensors-XXXXXX";
static unsigned seed;

static const char *in_folder(const char *name) {
  static char path[512];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

/* Opens a file that must be refused: LS_INPUT, in one line that names the file. */
static void assert_file_refused(const char *path, const char *expected) {
  ls_safetensors *opened = NULL;
  ls_error error = {0};
  assert_int_equal(ls_safetensors_open(path, NULL, &opened, &error), LS_INPUT);
  assert_null(opened);
  if (strncmp(error.text, path, strlen(path)) != 0) print_message("%s\n", error.text);
  assert_int_equal(strncmp(error.text, path, strlen(path)), 0);
  assert_null(strchr(error.text, '\n'));
  assert_non_null(strstr(error.text, "found "));
  assert_non_null(strstr(error.text, "; expected "));
  if (!strstr(error.text, expected)) print_message("%s\n", error.text);
  assert_non_null(strstr(error.text, expected));
}

static const char *const manifest_words[][2] = {
    {"trailing-bytes-polyglot", "found 50 bytes of data; expected 16"},
    {"missing-2-bytes", "found 14 bytes of data; expected 16: it is cut short"},
    {"header-length-huge", "found a header of "},
    {"empty-file", "found 0 bytes"},
    {"header-length-past-end", "found a header of 60 bytes in a file of 8"},
    {"header-not-utf8", "found no '{' at the start of the header"},
    {"header-not-json", "header:1:1: found the end of the file; expected a key"},
    {"size-does-not-match-shape", "tensor \"test\": found 4 bytes of data; expected 16"},
    {"shape-product-overflow-u64", "number out of range (18446744073709551614)"},
    {"bytes-overflow-u64", "tensor \"test\": found a shape of more than 2^63 elements"},
    {"overlapping-tensors", "tensor \"weight_1\": found its data at byte 0; expected byte 16"},
    {"abuse-1-header-length-1000", "found a header of 1000 bytes in a file of 88"},
    {"git-lfs-pointer", "found a git-lfs pointer; expected weights"},
};

static void manifest_holds(void **state) {
  (void)state;
  static const char cases[] = "../shared/data/safetensors-cases";
  char path[512];
  snprintf(path, sizeof path, "%s/manifest.json", cases);
  if (!ls_file_exists(path)) skip();
  json_t *manifest;
  ls_error error = {0};
  assert_int_equal(ls_json_read(path, 0, &manifest, &error), LS_OK);
  const char *name;
  json_t *value;
  int valid = 0, invalid = 0;
  json_object_foreach(json_object_get(manifest, "valid"), name, value) {
    snprintf(path, sizeof path, "%s/valid/%s.safetensors", cases, name);
    ls_safetensors *opened;
    const ls_status status = ls_safetensors_open(path, NULL, &opened, &error);
    if (status != LS_OK) print_message("%s\n", error.text);
    assert_int_equal(status, LS_OK);
    ls_safetensors_close(&opened);
    valid++;
  }
  json_object_foreach(json_object_get(manifest, "invalid"), name, value) {
    snprintf(path, sizeof path, "%s/invalid/%s.safetensors", cases, name);
    const char *words = NULL;
    for (size_t i = 0; i < sizeof manifest_words / sizeof *manifest_words; i++) {
      if (strcmp(manifest_words[i][0], name) == 0) words = manifest_words[i][1];
    }
    assert_non_null(words);
    assert_file_refused(path, words);
    invalid++;
  }
  assert_int_equal(valid, 13);
  assert_int_equal(invalid, 13);
  json_decref(manifest);
}

static void values_of_a_public_file(void **state) {
  (void)state;
  static const char path[] = "../shared/data/safetensors-cases/valid/mlp-with-metadata.safetensors";
  if (!ls_file_exists(path)) skip();
  ls_safetensors *opened;
  ls_error error = {0};
  assert_int_equal(ls_safetensors_open(path, NULL, &opened, &error), LS_OK);
  assert_int_equal(ls_safetensors_count(opened), 4);
  const ls_stored_tensor *weight = ls_safetensors_find(opened, "fc1.weight");
  assert_non_null(weight);
  assert_string_equal(weight->format, "F32");
  assert_true(weight->dtype == LS_F32 && weight->ndim == 2 && weight->dims[0] == 20);
  assert_true(weight->dims[1] == 10 && weight->count == 200 && weight->bytes == 800);
  assert_null(ls_safetensors_find(opened, "fc3.weight"));
  assert_string_equal(ls_safetensors_metadata(opened, "git_tag"), "v1.45");
  assert_null(ls_safetensors_metadata(opened, "none"));
  ls_safetensors_close(&opened);
}

/* A file of `header` and `data_bytes` of zeros. */
static const char *file_of(const char *header, size_t data_bytes) {
  static char path[512], bytes[4096];
  const uint64_t length = strlen(header);
  memset(bytes, 0, sizeof bytes);
  memcpy(bytes, &length, 8);
  memcpy(bytes + 8, header, length);
  snprintf(path, sizeof path, "%s/made.safetensors", folder);
  ls_error error = {0};
  assert_int_equal(ls_file_write(path, bytes, 8 + length + data_bytes, &error), LS_OK);
  return path;
}

#define ENTRY(dtype, shape, offsets) \
  "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void headers_are_checked_whole(void **state) {
  (void)state;
  static const struct {
    const char *header;
    size_t data_bytes;
    const char *expected;
  } cases[] = {
      {"{\"a\":" ENTRY("I32", "[1]", "[0,4]") ",\"b\":" ENTRY("I32", "[1]", "[8,12]") "}", 12,
       "tensor \"b\": found its data at byte 8; expected byte 4"},
      {"{\"a\":" ENTRY("I32", "[1]", "[4,8]") "}", 8, "found its data at byte 4; expected byte 0"},
      {"{\"a\":" ENTRY("I32", "[1]", "[4,0]") "}", 4, "no [begin, end]"},
      {"{\"a\":" ENTRY("I32", "[1]", "[0]") "}", 4, "no [begin, end]"},
      {"{\"a\":" ENTRY("I32", "[1]", "[-4,0]") "}", 4, "no [begin, end]"},
      {"{\"a\":" ENTRY("I32", "[-1]", "[0,4]") "}", 4, "negative size"},
      {"{\"a\":" ENTRY("I32", "[1.0]", "[0,4]") "}", 4, "found a fraction"},
      {"{\"a\":" ENTRY("I32", "[\"1\"]", "[0,4]") "}", 4, "found a string (\"1\")"},
      {"{\"a\":" ENTRY("I33", "[1]", "[0,4]") "}", 4, "\"dtype\": found \"I33\""},
      {"{\"a\":" ENTRY("F64", "[2305843009213693952]", "[0,8]") "}", 8, "more than 2^61 bytes"},
      {"{\"a\":" ENTRY("F4", "[1]", "[0,1]") "}", 1, "ends within a byte"},
      {"{\"a\":" ENTRY("I32", "[1]", "[0,4]") ",\"a\":" ENTRY("I32", "[1]", "[0,4]") "}", 4,
       "found the key \"a\" twice"},
      {"{\"a\":{\"dtype\":\"I32\",\"shape\":[1]}}", 4, "\"data_offsets\": found nothing"},
      {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "\"dtype\": found nothing"},
      {"{\"a\":3}", 0, "tensor \"a\": found the number 3; expected an object"},
      {"{\"a\\nb\":3}", 0, "tensor \"a?b\": found the number 3"},
      {"[]", 0, "found no '{' at the start of the header"},
      {"   ", 0, "found no '{' at the start of the header"},
      {"\xEF\xBB\xBF{}", 0, "found no '{' at the start of the header"},
      {"{} x", 0, "header:1:4: found 'x'"},
      {"{}", 1, "found 1 bytes of data; expected 0"},
      {"{\"__metadata__\":{\"a\":1}}", 0, "\"__metadata__\": \"a\": found the number 1"},
      {"{\"__metadata__\":[]}", 0, "\"__metadata__\": found an array of 0"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_file_refused(file_of(cases[i].header, cases[i].data_bytes), cases[i].expected);
  }
}

static void odd_headers_are_accepted(void **state) {
  (void)state;
  static const struct {
    const char *header;
    size_t data_bytes;
    int count;
  } cases[] = {
      {"{\"__metadata__\":null}", 0, 0},
      {"{\"__metadata__\":{}}", 0, 0},
      {"{\"a\":" ENTRY("F4", "[2]", "[0,1]") "}", 1, 1},
      {"{\"a\":" ENTRY("F6_E2M3", "[4]", "[0,3]") "}", 3, 1},
      {"{\"a\":" ENTRY("F8_E4M3", "[3]", "[0,3]") "}", 3, 1},
      {"{\"b\":" ENTRY("I8", "[2]", "[1,3]") ",\"a\":" ENTRY("BOOL", "[1]", "[0,1]") "}", 3, 2},
      {"{\"b\":" ENTRY("I8", "[2]", "[0,2]") ",\"a\":" ENTRY("F32", "[0,9]", "[0,0]") "}", 2, 2},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ls_safetensors *opened;
    ls_error error = {0};
    assert_int_equal(
        ls_safetensors_open(file_of(cases[i].header, cases[i].data_bytes), NULL, &opened, &error),
        LS_OK);
    assert_int_equal(ls_safetensors_count(opened), cases[i].count);
    for (int t = 0; t < cases[i].count; t++) {
      const ls_stored_tensor *tensor = ls_safetensors_at(opened, t);
      assert_ptr_equal(ls_safetensors_find(opened, tensor->name), tensor);
    }
    ls_safetensors_close(&opened);
  }
}

static void data_at_odd_bytes_is_read(void **state) {
  (void)state;
  static const char header[] = "{\"ab\":" ENTRY("F32", "[2]", "[0,8]") "}"; /* of odd length */
  assert_int_equal(strlen(header) % 2, 1);
  const char *path = file_of(header, 8);
  char bytes[256];
  FILE *file = fopen(path, "rb+");
  const float values[2] = {1.5f, -2.0f};
  fseek(file, 8 + (long)strlen(header), SEEK_SET);
  assert_int_equal(fwrite(values, 4, 2, file), 2);
  fclose(file);
  ls_safetensors *opened;
  ls_error error = {0};
  assert_int_equal(ls_safetensors_open(path, NULL, &opened, &error), LS_OK);
  const ls_stored_tensor *tensor = ls_safetensors_find(opened, "ab");
  double wide[2];
  float narrow;
  assert_int_equal(ls_stored_tensor_read(tensor, 0, 2, LS_F64, wide, &error), LS_OK);
  assert_true(wide[0] == 1.5 && wide[1] == -2.0);
  assert_int_equal(ls_stored_tensor_read(tensor, 1, 1, LS_F32, &narrow, &error), LS_OK);
  assert_true(narrow == -2.0f);
  assert_int_equal(ls_stored_tensor_read(tensor, 1, 2, LS_F32, bytes, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "found 2 elements; expected 2 from element 1 on"));
  assert_int_equal(ls_stored_tensor_read(tensor, 0, 1, LS_I64, bytes, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "found F32; expected what converts to int64"));
  ls_safetensors_close(&opened);
}

/* Tensors of a round trip: values are bytes of a generator, dtypes and shapes drawn. */
enum { TENSORS = 23, MAX_SIDE = 7 };

typedef struct trip {
  ls_tensor_spec specs[TENSORS];
  int64_t dims[TENSORS][3];
  char names[TENSORS][32];
  size_t bytes[TENSORS], total;
  unsigned char *data;
} trip;

static void trip_make(trip *made) {
  static const ls_dtype dtypes[] = {LS_F32, LS_BF16, LS_F16, LS_F64, LS_I32, LS_I64, LS_U8};
  made->total = 0;
  for (int i = 0; i < TENSORS; i++) {
    ls_tensor_spec *spec = &made->specs[i];
    snprintf(made->names[i], sizeof made->names[i], "layers.%d.\"w\xC3\xA9\"", i);
    *spec = (ls_tensor_spec){.name = made->names[i],
                             .dtype = dtypes[rand_r(&seed) % 7],
                             .ndim = rand_r(&seed) % 4,
                             .dims = made->dims[i]};
    made->bytes[i] = ls_dtype_bytes(spec->dtype);
    for (int d = 0; d < spec->ndim; d++) {
      made->dims[i][d] = rand_r(&seed) % MAX_SIDE;
      made->bytes[i] *= (size_t)made->dims[i][d];
    }
    made->total += made->bytes[i];
  }
  made->data = malloc(made->total + 1);
  for (size_t i = 0; i < made->total; i++) made->data[i] = (unsigned char)rand_r(&seed);
}

static void append_pieces(ls_safetensors_writer *writer, const trip *made) {
  ls_error error = {0};
  for (size_t at = 0; at < made->total;) {
    size_t piece = (size_t)rand_r(&seed) % 97;
    if (piece > made->total - at) piece = made->total - at;
    assert_int_equal(ls_safetensors_append(writer, made->data + at, piece, &error), LS_OK);
    at += piece;
  }
}

static void assert_same(const ls_safetensors *opened, const trip *made) {
  assert_int_equal(ls_safetensors_count(opened), TENSORS);
  size_t at = 0;
  for (int i = 0; i < TENSORS; i++) {
    const ls_stored_tensor *tensor = ls_safetensors_find(opened, made->names[i]);
    assert_non_null(tensor);
    assert_true(tensor->dtype == made->specs[i].dtype && tensor->ndim == made->specs[i].ndim);
    for (int d = 0; d < tensor->ndim; d++) assert_int_equal(tensor->dims[d], made->dims[i][d]);
    assert_int_equal(tensor->bytes, made->bytes[i]);
    if (tensor->bytes > 0) assert_memory_equal(tensor->data, made->data + at, tensor->bytes);
    assert_int_equal((uintptr_t)tensor->data % ls_dtype_bytes(tensor->dtype), 0);
    at += made->bytes[i];
  }
}

static void files_round_trip(void **state) {
  (void)state;
  for (int round = 0; round < 20; round++) {
    trip made;
    trip_make(&made);
    const ls_metadata_pair metadata = {"step", "7"};
    ls_safetensors_writer *writer;
    ls_safetensors *opened;
    ls_error error = {0};
    const char *path = in_folder("trip.safetensors");
    assert_int_equal(
        ls_safetensors_create(path, made.specs, TENSORS, &metadata, 1, &writer, &error), LS_OK);
    append_pieces(writer, &made);
    assert_int_equal(ls_safetensors_finish(&writer, &error), LS_OK);
    assert_null(writer);
    assert_int_equal(ls_safetensors_open(path, NULL, &opened, &error), LS_OK);
    assert_same(opened, &made);
    assert_string_equal(ls_safetensors_metadata(opened, "format"), "pt");
    assert_string_equal(ls_safetensors_metadata(opened, "step"), "7");
    ls_safetensors_close(&opened);
    free(made.data);
  }
}

static void shards_round_trip(void **state) {
  (void)state;
  static const size_t limits[] = {1, 64, 500, 2000, 1 << 20};
  for (size_t round = 0; round < sizeof limits / sizeof *limits; round++) {
    trip made;
    trip_make(&made);
    char where[64];
    snprintf(where, sizeof where, "shards-%zu", round);
    char path[512];
    snprintf(path, sizeof path, "%s", in_folder(where));
    ls_safetensors_writer *writer;
    ls_safetensors *opened;
    ls_error error = {0};
    assert_int_equal(ls_directory_make(path, &error), LS_OK);
    assert_int_equal(ls_safetensors_create_shards(path, "model", limits[round], made.specs, TENSORS,
                                                  NULL, 0, &writer, &error),
                     LS_OK);
    append_pieces(writer, &made);
    assert_int_equal(ls_safetensors_finish(&writer, &error), LS_OK);
    assert_int_equal(ls_safetensors_open(path, NULL, &opened, &error), LS_OK);
    assert_same(opened, &made);
    ls_safetensors_close(&opened);
    strncat(path, "/model.safetensors", sizeof path - strlen(path) - 1);
    assert_int_equal(ls_file_exists(path), made.total <= limits[round]);
    free(made.data);
  }
}

static const int64_t two[] = {2}, four[] = {4};
static const ls_tensor_spec three_specs[] = {
    {"a", LS_F32, 1, two, NULL}, {"big", LS_F32, 1, four, NULL}, {"c", LS_U8, 1, two, NULL}};

static void write_three(const char *path) {
  ls_safetensors_writer *writer;
  ls_error error = {0};
  static const char data[26] = "abcdefghijklmnopqrstuvwxy";
  assert_int_equal(ls_directory_make(path, &error), LS_OK);
  assert_int_equal(
      ls_safetensors_create_shards(path, "model", 12, three_specs, 3, NULL, 0, &writer, &error),
      LS_OK);
  assert_int_equal(ls_safetensors_append(writer, data, sizeof data, &error), LS_OK);
  assert_int_equal(ls_safetensors_finish(&writer, &error), LS_OK);
}

static void shards_are_as_hugging_face_writes_them(void **state) {
  (void)state;
  char path[512], file[600];
  snprintf(path, sizeof path, "%s", in_folder("three"));
  write_three(path);
  snprintf(file, sizeof file, "%s/model.safetensors.index.json", path);
  ls_arena *arena = ls_arena_create();
  char *text;
  size_t bytes;
  ls_error error = {0};
  assert_int_equal(ls_file_read(arena, file, &text, &bytes, &error), LS_OK);
  assert_string_equal(text,
                      "{\n  \"metadata\": {\n    \"total_size\": 26\n  },\n  \"weight_map\": {\n"
                      "    \"a\": \"model-00001-of-00003.safetensors\",\n"
                      "    \"big\": \"model-00002-of-00003.safetensors\",\n"
                      "    \"c\": \"model-00003-of-00003.safetensors\"\n  }\n}\n");
  snprintf(file, sizeof file, "%s/model-00001-of-00003.safetensors", path);
  assert_int_equal(ls_file_read(arena, file, &text, &bytes, &error), LS_OK);
  static const char header[] =
      "{\"__metadata__\":{\"format\":\"pt\"},"
      "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
  const size_t padded = (sizeof header - 1 + 7) / 8 * 8;
  assert_int_equal(bytes, 8 + padded + 8);
  assert_int_equal(text[0], padded);
  assert_memory_equal(text + 8, header, sizeof header - 1);
  assert_memory_equal(text + 8 + padded, "abcdefgh", 8);
  ls_arena_destroy(&arena);
}

static void broken_shards_are_refused(void **state) {
  (void)state;
  char path[512], shard[600], index[600], expected[700];
  ls_error error = {0};
  snprintf(path, sizeof path, "%s", in_folder("broken"));
  write_three(path);
  snprintf(index, sizeof index, "%s/model.safetensors.index.json", path);
  snprintf(shard, sizeof shard, "%s/model-00002-of-00003.safetensors", path);
  assert_int_equal(unlink(shard), 0);
  snprintf(expected, sizeof expected, "%s: found no such file", shard);
  assert_file_refused(path, expected);
  static const char *const texts[][2] = {
      {"{\"weight_map\": {\"x\": \"model-00001-of-00003.safetensors\"}}",
       "found no tensor \"x\" in model-00001-of-00003.safetensors"},
      {"{\"weight_map\": {\"x\": \"../a.safetensors\"}}", "expected a file beside the index"},
      {"{\"weight_map\": {\"x\": \"/etc/passwd\"}}", "expected a file beside the index"},
      {"{\"weight_map\": {\"x\": 3}}", "\"x\": found the number 3; expected a string"},
      {"{\"metadata\": {}}", "\"weight_map\": found nothing; expected an object"},
      {"{\"weight_map\": {", "index.json:1:16: found the end of the file"},
  };
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    assert_int_equal(ls_file_write(index, texts[i][0], strlen(texts[i][0]), &error), LS_OK);
    assert_file_refused(index, texts[i][1]);
    assert_file_refused(path, texts[i][1]);
  }
  snprintf(path, sizeof path, "%s", in_folder("empty"));
  assert_int_equal(ls_directory_make(path, &error), LS_OK);
  assert_file_refused(path, "found no model.safetensors and no model.safetensors.index.json");
  snprintf(index, sizeof index, "%s/pytorch_model.bin", path);
  assert_int_equal(ls_file_write(index, "x", 1, &error), LS_OK);
  assert_file_refused(path, "found pytorch_model.bin only; expected model.safetensors");
  assert_int_equal(
      ls_safetensors_open(in_folder("nowhere"), NULL, &(ls_safetensors *){NULL}, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "nowhere"));
}

static void index_decides_which_shard_holds(void **state) {
  (void)state;
  char path[512], file[600];
  ls_error error = {0};
  snprintf(path, sizeof path, "%s", in_folder("twice"));
  assert_int_equal(ls_directory_make(path, &error), LS_OK);
  static const ls_tensor_spec specs[] = {{"t", LS_U8, 1, two, NULL}, {"u", LS_U8, 1, two, NULL}};
  static const char *const names[] = {"a.safetensors", "b.safetensors"};
  static const char *const values[] = {"AAaa", "BBbb"};
  for (int i = 0; i < 2; i++) {
    ls_safetensors_writer *writer;
    snprintf(file, sizeof file, "%s/%s", path, names[i]);
    assert_int_equal(ls_safetensors_create(file, specs, 2, NULL, 0, &writer, &error), LS_OK);
    assert_int_equal(ls_safetensors_append(writer, values[i], 4, &error), LS_OK);
    assert_int_equal(ls_safetensors_finish(&writer, &error), LS_OK);
  }
  static const char index[] =
      "{\"weight_map\": {\"t\": \"b.safetensors\", \"u\": \"a.safetensors\"}}";
  snprintf(file, sizeof file, "%s/model.safetensors.index.json", path);
  assert_int_equal(ls_file_write(file, index, sizeof index - 1, &error), LS_OK);
  ls_safetensors *opened;
  assert_int_equal(ls_safetensors_open(path, NULL, &opened, &error), LS_OK);
  assert_int_equal(ls_safetensors_count(opened), 2);
  assert_memory_equal(ls_safetensors_find(opened, "t")->data, "BB", 2);
  assert_memory_equal(ls_safetensors_find(opened, "u")->data, "aa", 2);
  ls_safetensors_close(&opened);
}

static void specs_are_checked(void **state) {
  (void)state;
  static const int64_t minus[] = {-1}, huge[] = {1ll << 40, 1ll << 40};
  static const struct {
    ls_tensor_spec specs[2];
    const char *expected;
  } cases[] = {
      {{{"a", LS_F32, 1, two, NULL}, {"a", LS_U8, 1, two, NULL}}, "\"a\": found the name twice"},
      {{{"a", LS_F32, 1, two, NULL}, {"\xff", LS_U8, 1, two, NULL}}, "no UTF-8"},
      {{{"a", LS_F32, 1, minus, NULL}, {"b", LS_U8, 1, two, NULL}}, "below 0"},
      {{{"a", LS_F32, 2, huge, NULL}, {"b", LS_U8, 1, two, NULL}}, "more than 2^63 bytes"},
      {{{"__metadata__", LS_F32, 1, two, NULL}, {"b", LS_U8, 1, two, NULL}}, "reserved name"},
  };
  const char *path = in_folder("specs.safetensors");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ls_safetensors_writer *writer;
    ls_error error = {0};
    assert_int_equal(ls_safetensors_create(path, cases[i].specs, 2, NULL, 0, &writer, &error),
                     LS_INPUT);
    assert_null(writer);
    assert_non_null(strstr(error.text, cases[i].expected));
    assert_false(ls_file_exists(path));
  }
}

static void metadata_is_checked(void **state) {
  (void)state;
  const ls_metadata_pair metadata = {"step", "\xff"};
  ls_safetensors_writer *writer;
  ls_error error = {0};
  assert_int_equal(ls_safetensors_create(in_folder("m.safetensors"), three_specs, 3, &metadata, 1,
                                         &writer, &error),
                   LS_INPUT);
  assert_string_equal(error.text, "metadata: found text that is no UTF-8; expected UTF-8");
  assert_null(writer);
}

static void bytes_in_memory_are_read(void **state) {
  (void)state;
  static const char file[] = "\x39\0\0\0\0\0\0\0{\"a\":" ENTRY("U8", "[3]", "[0,3]") "}    xyz";
  ls_safetensors *opened;
  ls_error error = {0};
  assert_int_equal(ls_safetensors_parse("bytes", file, sizeof file - 1, &opened, &error), LS_OK);
  const ls_stored_tensor *tensor = ls_safetensors_find(opened, "a");
  assert_non_null(tensor);
  assert_memory_equal(tensor->data, "xyz", 3);
  assert_string_equal(tensor->file, "bytes");
  ls_safetensors_close(&opened);
  assert_int_equal(ls_safetensors_parse("bytes", file, sizeof file - 2, &opened, &error), LS_INPUT);
  assert_null(opened);
  assert_string_equal(error.text,
                      "bytes: found 2 bytes of data; expected 3: it is cut short, copy "
                      "or download it again");
}

static void missing_and_extra_data_are_faults(void **state) {
  (void)state;
  const char *path = in_folder("short.safetensors");
  static const char data[32] = {0};
  ls_safetensors_writer *writer;
  ls_error error = {0};
  assert_int_equal(ls_safetensors_create(path, three_specs, 3, NULL, 0, &writer, &error), LS_OK);
  assert_int_equal(ls_safetensors_append(writer, data, 23, &error), LS_OK);
  assert_int_equal(ls_safetensors_finish(&writer, &error), LS_INTERNAL);
  assert_non_null(strstr(error.text, "3 bytes were not appended, from tensor \"big\" on"));
  assert_null(writer);
  assert_false(ls_file_exists(path));
  assert_int_equal(ls_safetensors_create(path, three_specs, 3, NULL, 0, &writer, &error), LS_OK);
  assert_int_equal(ls_safetensors_append(writer, data, 27, &error), LS_INTERNAL);
  ls_safetensors_abandon(&writer);
  assert_false(ls_file_exists(path));
  assert_int_equal(
      ls_safetensors_create(in_folder("none/x"), three_specs, 3, NULL, 0, &writer, &error),
      LS_FAILED);
  assert_non_null(strstr(error.text, "none/x: cannot open for writing: No such file"));
  assert_int_equal(ls_safetensors_create("/dev/full", three_specs, 3, NULL, 0, &writer, &error),
                   LS_FAILED);
  assert_string_equal(error.text, "/dev/full: cannot write: No space left on device");
  assert_int_equal(access("/dev/full", F_OK), 0);
}

static void no_room_is_reported(void **state) {
  (void)state;
  static const int64_t dims[] = {64 * 1024};
  const ls_tensor_spec spec = {"a", LS_U8, 1, dims, NULL};
  static const char data[64 * 1024] = {0};
  const char *path = in_folder("full.safetensors");
  struct rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, SIG_IGN);
  ls_safetensors_writer *writer;
  ls_error error = {0};
  assert_int_equal(ls_safetensors_create(path, &spec, 1, NULL, 0, &writer, &error), LS_OK);
  setrlimit(RLIMIT_FSIZE, &(struct rlimit){.rlim_cur = 32 * 1024, .rlim_max = before.rlim_max});
  const ls_status status = ls_safetensors_append(writer, data, sizeof data, &error);
  setrlimit(RLIMIT_FSIZE, &before);
  assert_int_equal(status, LS_FAILED);
  assert_non_null(strstr(error.text, "full.safetensors: cannot write: File too large"));
  ls_safetensors_abandon(&writer);
  assert_false(ls_file_exists(path));
}

static void fault_files_are_refused(void **state) {
  (void)state;
  static const char *const files[][2] = {
      {"tests/data/bad/overlap.safetensors", "found its data at byte 0; expected byte 4"},
      {"tests/data/bad/cut.safetensors", "it is cut short"},
      {"tests/data/bad/long-header.safetensors", "found a header of 4096 bytes in a file of"},
      {"tests/data/bad/size.safetensors", "found 4 bytes of data; expected 8"},
      {"tests/data/bad/extra.safetensors", "there is something after the last tensor"},
      {"tests/data/bad/lfs.safetensors", "found a git-lfs pointer"},
      {"tests/data/bad/empty.safetensors", "found 0 bytes"},
  };
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    assert_file_refused(files[i][0], files[i][1]);
  }
}

static int set_up(void **state) {
  (void)state;
  seed = (unsigned)test_seed(20261128);
  return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state) {
  (void)state;
  return ls_directory_remove(folder, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(manifest_holds),
      cmocka_unit_test(values_of_a_public_file),
      cmocka_unit_test(headers_are_checked_whole),
      cmocka_unit_test(odd_headers_are_accepted),
      cmocka_unit_test(data_at_odd_bytes_is_read),
      cmocka_unit_test(files_round_trip),
      cmocka_unit_test(shards_round_trip),
      cmocka_unit_test(shards_are_as_hugging_face_writes_them),
      cmocka_unit_test(broken_shards_are_refused),
      cmocka_unit_test(index_decides_which_shard_holds),
      cmocka_unit_test(specs_are_checked),
      cmocka_unit_test(metadata_is_checked),
      cmocka_unit_test(bytes_in_memory_are_read),
      cmocka_unit_test(missing_and_extra_data_are_faults),
      cmocka_unit_test(no_room_is_reported),
      cmocka_unit_test(fault_files_are_refused),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
