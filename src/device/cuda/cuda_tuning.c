/* Ways of products, timed in turn on numbers that are no zeros, with an L2 that has none of them.
 */
#include "device/cuda/cuda_tuning.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda_kept.h"

enum { ROUNDS = 5, FEWEST_ROUNDS = 3, ALIGNMENT = 256, TIMED = 0 /* CU_EVENT_DEFAULT */ };

/* Milliseconds of a product after which the fewest rounds are enough. */
static const double long_ms = 2000;

/* A way that takes this many times as long as the best in its first round is not timed again. */
static const double hopeless = 1.3;

/* A later one takes over where it is quicker than by what a call's time varies, so that the next
 * time, with nothing kept, the same are chosen. */
static const double quicker = 0.99;

static const ls_driver_calls *driver(void) {
  return &ls_cuda_opened()->driver;
}

static ls_status did(const ls_cuda_stream *stream, CUresult result, const char *call,
                     ls_error *error) {
  return ls_cuda_gpu_did(stream->on, result, call, error);
}

static size_t aligned(size_t bytes) {
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* ---- what there is to choose ----------------------------------------------------------------- */

static uint64_t hash_of(const char *text) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
  for (const char *at = text; *at; at++) hash = (hash ^ (uint8_t)*at) * UINT64_C(0x100000001b3);
  return hash;
}

/* A choice says nothing to another library or another GPU. */
static void kind_of(const ls_cuda_stream *stream, char text[192]) {
  snprintf(text, 192, "cuBLASLt %s, %s", ls_cuda_opened()->of[LS_CUDA_CUBLASLT].version,
           stream->on->gpu.name);
}

static int count(const ls_device_queue *queue) {
  const ls_cuda_stream *stream = queue->stream;
  return ls_cuda_product_count(stream->products);
}

/* Twice the cache, so that nothing of what was read before is left. */
static size_t cold_bytes(const ls_cuda_stream *stream) {
  enum { UNKNOWN = 64 << 20 };
  int cache = 0;
  if (driver()->cuDeviceGetAttribute(&cache, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE,
                                     stream->on->gpu.device) ||
      cache <= 0)
    cache = UNKNOWN;
  return 2 * (size_t)cache;
}

/* In the order in which they are placed to be tried. */
enum { A, B, OUT, BIAS, A_SCALES, B_SCALES, OPERANDS };

static void operands_of(const ls_cuda_product *product, ls_cuda_numbers of[OPERANDS]) {
  const ls_cuda_numbers all[OPERANDS] = {product->a,    product->b,        product->out,
                                         product->bias, product->a_scales, product->b_scales};
  memcpy(of, all, sizeof all);
}

static size_t bytes_of(const ls_cuda_product *product) {
  ls_cuda_numbers of[OPERANDS];
  size_t bytes = 0;
  operands_of(product, of);
  for (int i = 0; i < OPERANDS; i++) bytes += aligned(of[i].bytes);
  return bytes;
}

static void about(const ls_device_queue *queue, int item, ls_tuned *of) {
  const ls_cuda_stream *stream = queue->stream;
  const ls_cuda_product product = ls_cuda_product_at(stream->products, item);
  char kind[192], text[sizeof kind + sizeof product.text + 2];
  kind_of(stream, kind);
  snprintf(text, sizeof text, "%s: %s", kind, product.text);
  *of = (ls_tuned){.key = hash_of(text),
                   .kind = hash_of(kind),
                   .ways = product.ways->count,
                   .work = product.work,
                   .bytes = bytes_of(&product),
                   .beside = cold_bytes(stream)};
}

/* ---- what is kept ---------------------------------------------------------------------------- */

enum { WORDS = sizeof(cublasLtMatmulAlgo_t) / sizeof(uint64_t) };

/* Of a choice: the way, its number among the ways and their number, nanoseconds of it and of the
 * first. All zeros: the first, untried. */
enum { NUMBER = WORDS, OF, TOOK, FIRST_TOOK };
_Static_assert((int)FIRST_TOOK < (int)LS_WAY_WORDS, "a choice has room for a way");

static char *key_of(ls_arena *arena, const ls_cuda_stream *stream, int item) {
  const ls_cuda_product product = ls_cuda_product_at(stream->products, item);
  return ls_arena_printf(arena, "%s, driver %s, cuBLASLt %s: %s", stream->on->gpu.name,
                         ls_cuda_driver_version(), ls_cuda_opened()->of[LS_CUDA_CUBLASLT].version,
                         product.text);
}

static void read_way(const ls_way *choice, cublasLtMatmulAlgo_t *way) {
  for (int w = 0; w < WORDS; w++) way->data[w] = (uint64_t)choice->words[w];
}

static bool parse(const char *text, size_t bytes, ls_way *choice) {
  char line[LS_WAY_WORDS * 20];
  if (bytes >= sizeof line) return false;
  memcpy(line, text, bytes);
  line[bytes] = 0;
  char *at = line;
  for (int w = 0; w < LS_WAY_WORDS; w++) {
    char *end;
    choice->words[w] = (int64_t)strtoull(at, &end, 16);
    if (end == at) return false;
    at = end;
  }
  return strcmp(at, "\n") == 0;
}

static bool kept(const ls_device_queue *queue, int item, ls_way *choice) {
  const ls_cuda_stream *stream = queue->stream;
  ls_arena *arena = ls_arena_create();
  const char *key = key_of(arena, stream, item);
  char *text;
  size_t bytes;
  bool good = ls_cuda_kept_read(arena, key, &text, &bytes);
  if (good) {
    cublasLtMatmulAlgo_t way;
    good = parse(text, bytes, choice);
    read_way(choice, &way);
    good = good && ls_cuda_product_take(stream->products, item, &way);
    if (!good) ls_warn("what is kept is no way that cuBLASLt has here; it is timed again: %s", key);
  }
  ls_arena_destroy(&arena);
  return good;
}

static void keep(const ls_device_queue *queue, int item, const ls_way *choice) {
  const ls_cuda_stream *stream = queue->stream;
  if (!choice->words[OF]) return;
  ls_arena *arena = ls_arena_create();
  char text[LS_WAY_WORDS * 20];
  int length = 0;
  for (int w = 0; w < LS_WAY_WORDS; w++)
    length += snprintf(text + length, sizeof text - (size_t)length, "%s%" PRIx64, w ? " " : "",
                       (uint64_t)choice->words[w]);
  length += snprintf(text + length, sizeof text - (size_t)length, "\n");
  ls_cuda_kept_write(arena, key_of(arena, stream, item), text, (size_t)length);
  ls_arena_destroy(&arena);
}

static ls_status take(const ls_device_queue *queue, int item, const ls_way *choice,
                      ls_error *error) {
  const ls_cuda_stream *stream = queue->stream;
  cublasLtMatmulAlgo_t way;
  if (!choice->words[OF]) return LS_OK;
  read_way(choice, &way);
  if (ls_cuda_product_take(stream->products, item, &way)) return LS_OK;
  const ls_cuda_product product = ls_cuda_product_at(stream->products, item);
  return ls_fail(error, LS_FAILED,
                 "GPU %d: cuBLASLt has no such way as another rank chose of a %s; give "
                 "device.tune=false",
                 stream->on->gpu.ordinal, product.text);
}

/* ---- timing ---------------------------------------------------------------------------------- */

typedef struct timing {
  const ls_cuda_stream *stream;
  int item;
  ls_cuda_product of;
  ls_cuda_operands at;
  char *cold; /* written before each call, to take the cache */
  size_t cold_bytes;
  CUevent begin, end;
  double took[LS_CUDA_MOST_WAYS][ROUNDS]; /* milliseconds */
  int rounds;
  bool out[LS_CUDA_MOST_WAYS]; /* it does not run, or is hopeless */
} timing;

/* Numbers between -1 and 1, since zeros draw less power and so are quicker; codes of numbers
 * between -2 and 2: without the highest bit of the exponent there is no NaN and no infinity; scales
 * are powers of two. */
enum { VALUES = 1 << 14 };
typedef enum filling { NUMBERS, CODES, SCALES } filling;

static void make_numbers(filling what, void *stored, ls_dtype dtype, float values[VALUES]) {
  uint32_t state = 12345;
  for (int i = 0; i < VALUES; i++) {
    state = state * 1664525u + 1013904223u;
    values[i] = what == SCALES ? (float)(1u << (state >> 29)) * 0x1p-4f
                               : (float)(state >> 8) * 0x1p-23f - 1.0f;
    if (what == CODES) ((uint8_t *)stored)[i] = (uint8_t)(state >> 24 & 0xbfu);
  }
  if (what != CODES) ls_convert(stored, dtype, values, LS_F32, VALUES);
}

/* A block of them, and then what is there behind itself again and again. */
static ls_status fill(char *to, filling what, const ls_cuda_numbers *of, ls_error *error) {
  const size_t width = what == CODES ? 1 : ls_dtype_bytes(of->dtype), bytes = of->bytes;
  const size_t block = bytes < VALUES * width ? bytes : VALUES * width;
  ls_arena *scratch = ls_arena_create();
  void *stored = ls_arena_alloc(scratch, VALUES * width);
  make_numbers(what, stored, of->dtype, LS_NEW_ARRAY(scratch, float, VALUES));
  ls_status status = block ? ls_cuda_memory.write(to, stored, block, error) : LS_OK;
  ls_arena_destroy(&scratch);
  for (size_t done = block; done < bytes && status == LS_OK;) {
    const size_t more = bytes - done < done ? bytes - done : done;
    status = ls_cuda_memory.copy(to + done, to, more, error);
    done += more;
  }
  return status;
}

/* Room for the operands one behind the other, and what is left to take the cache with. */
static ls_status place(timing *t, const ls_tuning_room *room, ls_error *error) {
  ls_cuda_numbers of[OPERANDS];
  char *at = room->memory, *places[OPERANDS];
  operands_of(&t->of, of);
  for (int i = 0; i < OPERANDS; at += aligned(of[i++].bytes)) {
    const filling what = i == A_SCALES || i == B_SCALES ? SCALES : of[i].codes ? CODES : NUMBERS;
    places[i] = of[i].bytes ? at : NULL;
    LS_TRY(fill(at, what, &of[i], error));
  }
  t->at = (ls_cuda_operands){.a = places[A],
                             .b = places[B],
                             .bias = places[BIAS],
                             .a_scales = (const float *)(const void *)places[A_SCALES],
                             .b_scales = (const float *)(const void *)places[B_SCALES],
                             .out = places[OUT],
                             .workspace = room->workspace,
                             .workspace_bytes = room->workspace_bytes};
  const size_t used = (size_t)(at - (char *)room->memory), wanted = cold_bytes(t->stream);
  t->cold = at;
  t->cold_bytes = room->bytes - used < wanted ? room->bytes - used : wanted;
  return LS_OK;
}

static ls_status run_once(timing *t, int way, bool *runs, double *milliseconds, ls_error *error) {
  const ls_cuda_stream *stream = t->stream;
  float took = 0;
  if (t->cold_bytes)
    LS_TRY(did(stream,
               driver()->cuMemsetD8Async((CUdeviceptr)(uintptr_t)t->cold, 0, t->cold_bytes,
                                         stream->compute),
               "cuMemsetD8Async", error));
  LS_TRY(did(stream, driver()->cuEventRecord(t->begin, stream->compute), "cuEventRecord", error));
  LS_TRY(ls_cuda_product_try(stream, t->item, &t->of.ways->of[way], &t->at, runs, error));
  LS_TRY(did(stream, driver()->cuEventRecord(t->end, stream->compute), "cuEventRecord", error));
  LS_TRY(did(stream, driver()->cuEventSynchronize(t->end), "cuEventSynchronize", error));
  LS_TRY(did(stream, driver()->cuEventElapsedTime(&took, t->begin, t->end), "cuEventElapsedTime",
             error));
  *milliseconds = took;
  return LS_OK;
}

/* The first call of each loads its kernel and is not counted. */
static ls_status run_rounds(timing *t, ls_error *error) {
  double all = 0;
  for (int round = -1; round < (all < long_ms ? ROUNDS : FEWEST_ROUNDS); round++) {
    double best = 0;
    for (int w = 0; w < t->of.ways->count; w++) {
      bool runs = true;
      double took;
      if (t->out[w]) continue;
      LS_TRY(run_once(t, w, &runs, &took, error));
      t->out[w] = !runs;
      all += took;
      if (round < 0 || !runs) continue;
      t->took[w][round] = took;
      if (!(best > 0) || took < best) best = took;
    }
    for (int w = 0; round == 0 && w < t->of.ways->count; w++)
      t->out[w] = t->out[w] || t->took[w][0] > hopeless * best;
    t->rounds = round + 1;
  }
  return LS_OK;
}

static int by_number(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(timing *t, int way) {
  qsort(t->took[way], (size_t)t->rounds, sizeof **t->took, by_number);
  return t->took[way][t->rounds / 2];
}

static ls_status choose(timing *t, ls_way *choice, ls_error *error) {
  int best = -1;
  double least = 0;
  const double first = t->out[0] ? t->took[0][0] : median(t, 0);
  for (int w = 0; w < t->of.ways->count; w++) {
    if (t->out[w]) continue;
    const double took = median(t, w);
    if (best >= 0 && took > quicker * least) continue;
    best = w;
    least = took;
  }
  if (best < 0 && t->of.a.codes) return LS_OK; /* it is said as it is asked for, and done in bf16 */
  if (best < 0)
    return ls_fail(error, LS_FAILED, "GPU %d: none of cuBLASLt's %d ways runs of a %s",
                   t->stream->on->gpu.ordinal, t->of.ways->count, t->of.text);
  for (int w = 0; w < WORDS; w++) choice->words[w] = (int64_t)t->of.ways->of[best].data[w];
  choice->words[NUMBER] = best;
  choice->words[OF] = t->of.ways->count;
  choice->words[TOOK] = (int64_t)(1e6 * least);
  choice->words[FIRST_TOOK] = (int64_t)(1e6 * first);
  return LS_OK;
}

static ls_status time_ways(timing *t, const ls_tuning_room *room, ls_way *choice, ls_error *error) {
  LS_TRY(did(t->stream, driver()->cuEventCreate(&t->begin, TIMED), "cuEventCreate", error));
  LS_TRY(did(t->stream, driver()->cuEventCreate(&t->end, TIMED), "cuEventCreate", error));
  LS_TRY(place(t, room, error));
  LS_TRY(run_rounds(t, error));
  return choose(t, choice, error);
}

static ls_status try_all(const ls_device_queue *queue, int item, const ls_tuning_room *room,
                         ls_way *choice, ls_error *error) {
  const ls_cuda_stream *stream = queue->stream;
  timing t = {.stream = stream, .item = item, .of = ls_cuda_product_at(stream->products, item)};
  memset(choice, 0, sizeof *choice);
  const ls_status status = time_ways(&t, room, choice, error);
  if (status != LS_OK) /* what was put before still works in the room, which may go now */
    (void)driver()->cuStreamSynchronize(stream->compute);
  if (t.begin) (void)driver()->cuEventDestroy_v2(t.begin);
  if (t.end) (void)driver()->cuEventDestroy_v2(t.end);
  return status;
}

static ls_tuning_gain gain(const ls_way *choice) {
  return (ls_tuning_gain){.other = choice->words[NUMBER] > 0,
                          .seconds = 1e-9 * (double)choice->words[TOOK],
                          .first_seconds = 1e-9 * (double)choice->words[FIRST_TOOK]};
}

const ls_tuning_calls ls_cuda_tuning = {.count = count,
                                        .about = about,
                                        .kept = kept,
                                        .try_all = try_all,
                                        .take = take,
                                        .keep = keep,
                                        .gain = gain};
