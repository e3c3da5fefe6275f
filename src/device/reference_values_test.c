#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/kernel.h"
#include "support/test_seed.h"

/* What each reference kernel computes: against a second, simpler way of saying it, numbers worked
 * out elsewhere, and slices against the whole. LS_SEED=N repeats a run. */

static uint64_t state_of_draws;

static double draw(void) {
  state_of_draws = state_of_draws * 6364136223846793005u + 1442695040888963407u;
  return (double)(state_of_draws >> 40) * 0x1p-23 - 1;
}

static void draw_into(double *data, int64_t count) {
  for (int64_t i = 0; i < count; i++) data[i] = draw();
}

static ls_view vector(double *data, int64_t count) {
  return (ls_view){data, LS_F64, 1, {count}, {count}, {0}};
}

static ls_view matrix(double *data, int64_t rows, int64_t columns) {
  return (ls_view){data, LS_F64, 2, {rows, columns}, {rows, columns}, {0}};
}

static ls_view indices(int32_t *data, int64_t count) {
  return (ls_view){data, LS_I32, 1, {count}, {count}, {0}};
}

/* The part of a tensor that a rank holds of dimension `dim`: `valid` of `stored` entries. */
static ls_view slice(ls_view view, int dim, int64_t start, int64_t stored, int64_t valid) {
  view.dims[dim] = stored;
  view.valid[dim] = valid;
  view.start[dim] = start;
  return view;
}

static ls_status try_call(const ls_kernel_args *args, ls_op_kind kind) {
  ls_kernel_table table;
  ls_reference_kernels(&table, LS_F64);
  ls_error error = {0};
  return table.kernel[kind](args, &error);
}

static void call(const ls_kernel_args *args, ls_op_kind kind) {
  assert_int_equal(try_call(args, kind), LS_OK);
}

static void expect_equal(const double *a, const double *b, int64_t count, double tolerance) {
  for (int64_t i = 0; i < count; i++)
    if (!(fabs(a[i] - b[i]) <= tolerance * (1 + fabs(b[i]))))
      fail_msg("element %lld is %.17g, expected %.17g", (long long)i, a[i], b[i]);
}

enum { N = 7, K = 13, M = 11 };

static void linear_is_the_product(void **state) {
  (void)state;
  double x[N * K], weight[M * K], y[N * M], dx[N * K], dweight[M * K];
  double product[N * M] = {0}, slope[N * K] = {0}, weight_slope[M * K] = {0};
  draw_into(x, N * K);
  draw_into(weight, M * K);
  call(&(ls_kernel_args){.inputs = 2,
                         .outputs = 1,
                         .in = {matrix(x, N, K), matrix(weight, M, K)},
                         .out = {matrix(y, N, M)}},
       LS_OP_LINEAR);
  call(&(ls_kernel_args){.inputs = 2,
                         .outputs = 1,
                         .in = {matrix(y, N, M), matrix(weight, M, K)},
                         .out = {matrix(dx, N, K)}},
       LS_OP_LINEAR_DX);
  call(&(ls_kernel_args){.inputs = 2,
                         .outputs = 1,
                         .in = {matrix(y, N, M), matrix(x, N, K)},
                         .out = {matrix(dweight, M, K)}},
       LS_OP_LINEAR_DW);
  for (int n = 0; n < N; n++)
    for (int m = 0; m < M; m++)
      for (int k = 0; k < K; k++) {
        product[n * M + m] += x[n * K + k] * weight[m * K + k];
        slope[n * K + k] += y[n * M + m] * weight[m * K + k];
        weight_slope[m * K + k] += y[n * M + m] * x[n * K + k];
      }
  expect_equal(y, product, N * M, 1e-14);
  expect_equal(dx, slope, N * K, 1e-14);
  expect_equal(dweight, weight_slope, M * K, 1e-14);
}

/* Tokens by their logits, of equals to the first; an expert that all choose, and one that none
 * does. The same weights of the chosen alone, and of all. */
static void routes_are_the_largest_logits(void **state) {
  (void)state;
  enum { TOKENS = 3, EXPERTS = 4, CHOSEN = 2, ROWS = TOKENS * CHOSEN };
  double logits[TOKENS * EXPERTS] = {0, 2, -1, 1, 0, 5, 0, 0, -3, 4, -9, -2}, weights[ROWS];
  int32_t rows[ROWS], experts[ROWS];
  static const int32_t expected_rows[ROWS] = {1, 4, 2, 0, 3, 5};
  static const int32_t expected_experts[ROWS] = {0, 1, 1, 1, 3, 3};
  for (int all = 0; all < 2; all++) {
    const ls_attributes attributes = {.renormalise = !all};
    ls_view places = indices(rows, TOKENS);
    places.ndim = 2;
    places.dims[1] = places.valid[1] = CHOSEN;
    call(&(ls_kernel_args){.attributes = &attributes,
                           .inputs = 1,
                           .outputs = 3,
                           .in = {matrix(logits, TOKENS, EXPERTS)},
                           .out = {places, indices(experts, ROWS), vector(weights, ROWS)}},
         LS_OP_ROUTE);
    assert_memory_equal(rows, expected_rows, sizeof rows);
    assert_memory_equal(experts, expected_experts, sizeof experts);
    const double rest = all ? exp(0) + exp(-1) : 0; /* of the first token */
    expect_equal(&weights[1], (double[]){exp(2) / (exp(2) + exp(1) + rest)}, 1, 1e-15);
    expect_equal(&weights[4], (double[]){exp(1) / (exp(2) + exp(1) + rest)}, 1, 1e-15);
  }
}

/* Two heads of two columns become heads of four, with one column that both share; and of one. */
static void heads_have_their_own_columns_then_what_is_shared(void **state) {
  (void)state;
  double x[] = {1, 2, 3, 4}, shared[] = {9}, wide[8], narrow[2], dx[4], dshared[1];
  double dwide[] = {1, 2, 10, 4, 5, 6, 20, 8};
  const ls_attributes to_four = {.head_dim = 2, .columns = 4},
                      to_one = {.head_dim = 2, .columns = 1};
  call(&(ls_kernel_args){.attributes = &to_four,
                         .inputs = 2,
                         .outputs = 1,
                         .in = {matrix(x, 1, 4), matrix(shared, 1, 1)},
                         .out = {matrix(wide, 1, 8)}},
       LS_OP_HEADS);
  expect_equal(wide, (double[]){1, 2, 9, 0, 3, 4, 9, 0}, 8, 0);
  call(&(ls_kernel_args){.attributes = &to_one,
                         .inputs = 1,
                         .outputs = 1,
                         .in = {matrix(x, 1, 4)},
                         .out = {matrix(narrow, 1, 2)}},
       LS_OP_HEADS);
  expect_equal(narrow, (double[]){1, 3}, 2, 0);
  ls_kernel_args back = {.attributes = &to_four,
                         .inputs = 1,
                         .outputs = 1,
                         .in = {matrix(dwide, 1, 8)},
                         .out = {matrix(dx, 1, 4)}};
  call(&back, LS_OP_HEADS_BWD);
  expect_equal(dx, (double[]){1, 2, 5, 6}, 4, 0);
  back.out[0] = matrix(dshared, 1, 1);
  call(&back, LS_OP_HEADS_SHARED_BWD);
  expect_equal(dshared, (double[]){30}, 1, 0);
}

/* Columns 1 to 4 of a head of six, by angles of a quarter and an eighth of a turn: as halves, and
 * as neighbours. */
static void rope_turns_the_columns_it_is_told(void **state) {
  (void)state;
  const double c = sqrt(0.5);
  double x[] = {1, 2, 3, 4, 5, 6}, table[] = {0, c, 1, c}, y[6];
  ls_attributes attributes = {.head_dim = 6, .rope_first = 1};
  const ls_kernel_args args = {.attributes = &attributes,
                               .inputs = 2,
                               .outputs = 1,
                               .in = {matrix(x, 1, 6), matrix(table, 1, 4)},
                               .out = {matrix(y, 1, 6)}};
  call(&args, LS_OP_ROPE);
  expect_equal(y, (double[]){1, -4, (3 - 5) * c, 2, (5 + 3) * c, 6}, 6, 1e-15);
  attributes.rope_neighbours = 1;
  call(&args, LS_OP_ROPE);
  expect_equal(y, (double[]){1, -3, 2, (4 - 5) * c, (5 + 4) * c, 6}, 6, 1e-15);
}

static void norms_are_their_formulas(void **state) {
  (void)state;
  double x[K], weight[K], bias[K], y[K], mean[1], inverse[1], expected[K];
  draw_into(x, K);
  draw_into(weight, K);
  draw_into(bias, K);
  double sum = 0, squares = 0;
  for (int c = 0; c < K; c++) sum += x[c], squares += x[c] * x[c];
  const double variance = squares / K - (sum / K) * (sum / K);
  const ls_attributes attributes = {.epsilon = 0.25};
  call(&(ls_kernel_args){.attributes = &attributes,
                         .inputs = 3,
                         .outputs = 3,
                         .in = {matrix(x, 1, K), vector(weight, K), vector(bias, K)},
                         .out = {matrix(y, 1, K), vector(mean, 1), vector(inverse, 1)}},
       LS_OP_LAYERNORM);
  for (int c = 0; c < K; c++)
    expected[c] = (x[c] - sum / K) / sqrt(variance + 0.25) * weight[c] + bias[c];
  expect_equal(y, expected, K, 1e-13);
  expect_equal(mean, &(double){sum / K}, 1, 1e-13);
  expect_equal(inverse, &(double){1 / sqrt(variance + 0.25)}, 1, 1e-13);
  call(&(ls_kernel_args){.attributes = &attributes,
                         .inputs = 2,
                         .outputs = 2,
                         .in = {matrix(x, 1, K), vector(weight, K)},
                         .out = {matrix(y, 1, K), vector(inverse, 1)}},
       LS_OP_RMSNORM);
  for (int c = 0; c < K; c++) expected[c] = x[c] / sqrt(squares / K + 0.25) * weight[c];
  expect_equal(y, expected, K, 1e-13);
  expect_equal(inverse, &(double){1 / sqrt(squares / K + 0.25)}, 1, 1e-13);
}

/* Known values of the two forms at 1 and -2. */
static void activations_are_their_formulas(void **state) {
  (void)state;
  double x[2] = {1, -2}, up[2] = {2, 3}, y[2];
  ls_kernel_args args = {.inputs = 1, .outputs = 1, .in = {vector(x, 2)}, .out = {vector(y, 2)}};
  args.attributes = &(ls_attributes){.scale = 2.5};
  call(&args, LS_OP_SCALE);
  expect_equal(y, (double[]){2.5, -5}, 2, 0);
  args.attributes = &(ls_attributes){.activation = LS_GELU_ERF};
  call(&args, LS_OP_GELU);
  expect_equal(y, (double[]){0.8413447460685429, -0.04550026389635842}, 2, 1e-14);
  args.attributes = &(ls_attributes){.activation = LS_GELU_TANH};
  call(&args, LS_OP_GELU);
  expect_equal(y, (double[]){0.8411919906082768, -0.04540230591222494}, 2, 1e-14);
  args.inputs = 2;
  args.in[1] = vector(up, 2);
  call(&args, LS_OP_SWIGLU);
  expect_equal(y, (double[]){2 * 0.8411919906082768, -3 * 0.04540230591222494}, 2, 1e-14);
  args.attributes = &(ls_attributes){.activation = LS_SILU};
  call(&args, LS_OP_SWIGLU);
  expect_equal(y, (double[]){1.4621171572600098, -0.7152175321327052}, 2, 1e-14);
}

enum { ENTRIES = 10, WIDTH = 3, TOKENS = 9 };

static void embedding_pieces_sum_to_the_whole(void **state) {
  (void)state;
  const ls_attributes plain = {0};
  double table[ENTRIES * WIDTH], whole[TOKENS * WIDTH], sum[TOKENS * WIDTH] = {0};
  double slope[ENTRIES * WIDTH], slopes[ENTRIES * WIDTH], dy[TOKENS * WIDTH];
  int32_t ids[TOKENS] = {0, 9, 4, 5, 5, 8, 3, 0, -1};
  draw_into(table, ENTRIES * WIDTH);
  draw_into(dy, TOKENS * WIDTH);
  ls_kernel_args forward = {.attributes = &plain,
                            .inputs = 2,
                            .outputs = 1,
                            .in = {matrix(table, ENTRIES, WIDTH), indices(ids, TOKENS)},
                            .out = {matrix(whole, TOKENS, WIDTH)}};
  ls_kernel_args back = {.attributes = &plain,
                         .inputs = 2,
                         .outputs = 1,
                         .in = {matrix(dy, TOKENS, WIDTH), indices(ids, TOKENS)},
                         .out = {matrix(slope, ENTRIES, WIDTH)}};
  call(&forward, LS_OP_EMBEDDING);
  call(&back, LS_OP_EMBEDDING_DW);
  for (int n = 0; n < TOKENS; n++)
    for (int c = 0; c < WIDTH; c++)
      assert_true(whole[n * WIDTH + c] == (ids[n] < 0 ? 0 : table[ids[n] * WIDTH + c]));
  forward.out[0] = matrix(sum, TOKENS, WIDTH);
  forward.accumulate[0] = true;
  const int64_t starts[] = {0, 5, 9, ENTRIES};
  for (int piece = 0; piece < 3; piece++) {
    const int64_t start = starts[piece], valid = starts[piece + 1] - start;
    double stored[5 * WIDTH], stored_slope[5 * WIDTH];
    for (int i = 0; i < 5 * WIDTH; i++) stored[i] = stored_slope[i] = (double)NAN;
    memcpy(stored, table + start * WIDTH, (size_t)(valid * WIDTH) * sizeof *stored);
    forward.in[0] = slice(matrix(stored, 5, WIDTH), 0, start, 5, valid);
    back.out[0] = slice(matrix(stored_slope, 5, WIDTH), 0, start, 5, valid);
    call(&forward, LS_OP_EMBEDDING);
    call(&back, LS_OP_EMBEDDING_DW);
    memcpy(slopes + start * WIDTH, stored_slope, (size_t)(valid * WIDTH) * sizeof *stored);
    for (int64_t i = valid * WIDTH; i < 5 * WIDTH; i++) assert_true(stored_slope[i] == 0);
  }
  expect_equal(sum, whole, TOKENS * WIDTH, 0);
  expect_equal(slopes, slope, ENTRIES * WIDTH, 0);
}

enum { VOCABULARY = 11, RANKS = 4, STORED = 4 };

/* Runs one of the cross-entropy kernels on one rank's columns. */
static void on_rank(ls_op_kind kind, ls_view logits, double *largest, double *sum, int32_t *labels,
                    double *scale, const ls_view *out, bool accumulate) {
  ls_kernel_args args = {.outputs = 1, .in = {logits}, .out = {out[0]}};
  args.accumulate[0] = args.accumulate[1] = accumulate;
  switch (kind) {
    case LS_OP_XENT_MAX: args.inputs = 1; break;
    case LS_OP_XENT_SUM:
      args.inputs = 3, args.outputs = 2;
      args.in[1] = vector(largest, TOKENS), args.in[2] = indices(labels, TOKENS);
      args.out[1] = out[1];
      break;
    default:
      args.inputs = 5;
      args.in[1] = vector(largest, TOKENS), args.in[2] = vector(sum, TOKENS);
      args.in[3] = indices(labels, TOKENS), args.in[4] = vector(scale, 1);
  }
  call(&args, kind);
}

static void cross_entropy_pieces_make_the_whole(void **state) {
  (void)state;
  double logits[TOKENS * VOCABULARY], pieces[RANKS][TOKENS * STORED], slopes[TOKENS * STORED];
  double largest[TOKENS], piece_largest[TOKENS], sum[TOKENS], target[TOKENS], loss = 0;
  double scale = 0.3, expected_loss = 0;
  int32_t labels[TOKENS] = {0, 10, 3, 4, -1, 7, 8, 5, -100};
  draw_into(logits, TOKENS * VOCABULARY);
  for (int i = 0; i < TOKENS * VOCABULARY; i++) logits[i] = 300 + 20 * logits[i];
  for (int n = 0; n < TOKENS; n++) largest[n] = -INFINITY;
  ls_view views[RANKS];
  for (int r = 0; r < RANKS; r++) {
    const int64_t valid = r == RANKS - 1 ? 0 : r == RANKS - 2 ? VOCABULARY - 2 * STORED : STORED;
    views[r] = slice(matrix(pieces[r], TOKENS, STORED), 1, r * STORED, STORED, valid);
    for (int n = 0; n < TOKENS; n++)
      for (int c = 0; c < STORED; c++)
        pieces[r][n * STORED + c] =
            c < valid ? logits[n * VOCABULARY + r * STORED + c] : (double)NAN;
    on_rank(LS_OP_XENT_MAX, views[r], NULL, NULL, NULL, NULL,
            (ls_view[]){vector(piece_largest, TOKENS)}, false);
    for (int n = 0; n < TOKENS; n++) largest[n] = fmax(largest[n], piece_largest[n]);
  }
  for (int r = 0; r < RANKS; r++)
    on_rank(LS_OP_XENT_SUM, views[r], largest, NULL, labels, NULL,
            (ls_view[]){vector(sum, TOKENS), vector(target, TOKENS)}, r > 0);
  call(&(ls_kernel_args){.inputs = 4,
                         .outputs = 1,
                         .in = {vector(largest, TOKENS), vector(sum, TOKENS),
                                vector(target, TOKENS), indices(labels, TOKENS)},
                         .out = {vector(&loss, 1)}},
       LS_OP_XENT_LOSS);
  double whole_sum[TOKENS] = {0};
  for (int n = 0; n < TOKENS; n++) {
    for (int v = 0; v < VOCABULARY; v++) whole_sum[n] += exp(logits[n * VOCABULARY + v] - 300);
    if (labels[n] < 0) continue;
    expected_loss += log(whole_sum[n]) + 300 - logits[n * VOCABULARY + labels[n]];
  }
  expect_equal(&loss, &expected_loss, 1, 1e-13);
  for (int r = 0; r < RANKS; r++) {
    ls_view out = slice(matrix(slopes, TOKENS, STORED), 1, r * STORED, STORED, views[r].valid[1]);
    on_rank(LS_OP_XENT_GRAD, views[r], largest, sum, labels, &scale, &out, false);
    for (int n = 0; n < TOKENS; n++)
      for (int c = 0; c < STORED; c++) {
        const int64_t v = r * STORED + c;
        double expected = 0;
        if (labels[n] >= 0 && v < VOCABULARY)
          expected = scale * (exp(logits[n * VOCABULARY + v] - 300) / whole_sum[n] -
                              (v == labels[n] ? 1 : 0));
        expect_equal(&slopes[n * STORED + c], &expected, 1, 1e-13);
      }
  }
  double count;
  call(
      &(ls_kernel_args){
          .inputs = 1, .outputs = 1, .in = {indices(labels, TOKENS)}, .out = {vector(&count, 1)}},
      LS_OP_COUNT_VALID);
  assert_true(count == TOKENS - 2);
}

/* The loss of whole logits, through the three forward kernels. */
static double loss_of(ls_view logits, double *largest, double *sum, int32_t *labels) {
  double target[TOKENS], loss;
  on_rank(LS_OP_XENT_MAX, logits, NULL, NULL, NULL, NULL, (ls_view[]){vector(largest, TOKENS)},
          false);
  on_rank(LS_OP_XENT_SUM, logits, largest, NULL, labels, NULL,
          (ls_view[]){vector(sum, TOKENS), vector(target, TOKENS)}, false);
  call(&(ls_kernel_args){.inputs = 4,
                         .outputs = 1,
                         .in = {vector(largest, TOKENS), vector(sum, TOKENS),
                                vector(target, TOKENS), indices(labels, TOKENS)},
                         .out = {vector(&loss, 1)}},
       LS_OP_XENT_LOSS);
  return loss;
}

static void cross_entropy_gradient_matches_differences(void **state) {
  (void)state;
  double data[TOKENS * VOCABULARY], slopes[TOKENS * VOCABULARY], largest[TOKENS], sum[TOKENS];
  double scale = 0.3;
  const double step = 1e-5;
  int32_t labels[TOKENS] = {0, 10, 3, 4, -1, 7, 8, 5, -100};
  draw_into(data, TOKENS * VOCABULARY);
  const ls_view logits = matrix(data, TOKENS, VOCABULARY);
  const ls_view out = matrix(slopes, TOKENS, VOCABULARY);
  loss_of(logits, largest, sum, labels);
  on_rank(LS_OP_XENT_GRAD, logits, largest, sum, labels, &scale, &out, false);
  for (int i = 0; i < TOKENS * VOCABULARY; i++) {
    const double at = data[i];
    data[i] = at + step;
    const double above = loss_of(logits, largest, sum, labels);
    data[i] = at - step;
    const double below = loss_of(logits, largest, sum, labels);
    data[i] = at;
    expect_equal(&slopes[i], &(double){scale * (above - below) / (2 * step)}, 1, 1e-8);
  }
}

enum { SEQUENCE = 5, SEQUENCES = 2, HEADS = 6, KV_HEADS = 2, HEAD_DIM = 3 };
enum { ROWS = SEQUENCE * SEQUENCES, Q = HEADS * HEAD_DIM, KV = KV_HEADS * HEAD_DIM };

static void naive_attention(double *out, double *log_sums, const double *q, const double *k,
                            const double *v, double scale) {
  for (int n = 0; n < ROWS; n++)
    for (int h = 0; h < HEADS; h++) {
      const int group = h / (HEADS / KV_HEADS), start = n / SEQUENCE * SEQUENCE;
      double share[SEQUENCE], sum = 0;
      for (int j = start; j <= n; j++) {
        double score = 0;
        for (int c = 0; c < HEAD_DIM; c++)
          score += q[n * Q + h * HEAD_DIM + c] * k[j * KV + group * HEAD_DIM + c];
        sum += share[j - start] = exp(scale * score);
      }
      log_sums[n * HEADS + h] = log(sum);
      for (int c = 0; c < HEAD_DIM; c++) {
        double value = 0;
        for (int j = start; j <= n; j++)
          value += share[j - start] / sum * v[j * KV + group * HEAD_DIM + c];
        out[n * Q + h * HEAD_DIM + c] = value;
      }
    }
}

static void attention_equals_the_whole_matrix(void **state) {
  (void)state;
  double q[ROWS * Q], k[ROWS * KV], v[ROWS * KV], out[ROWS * Q], expected[ROWS * Q];
  double log_sums[ROWS * HEADS], expected_log_sums[ROWS * HEADS];
  const ls_attributes attributes = {
      .sequence = SEQUENCE, .head_dim = HEAD_DIM, .softmax_scale = 1.7};
  draw_into(q, ROWS * Q);
  draw_into(k, ROWS * KV);
  draw_into(v, ROWS * KV);
  naive_attention(expected, expected_log_sums, q, k, v, attributes.softmax_scale);
  call(&(ls_kernel_args){.attributes = &attributes,
                         .inputs = 3,
                         .outputs = 2,
                         .in = {matrix(q, ROWS, Q), matrix(k, ROWS, KV), matrix(v, ROWS, KV)},
                         .out = {matrix(out, ROWS, Q), matrix(log_sums, ROWS, HEADS)}},
       LS_OP_ATTENTION);
  expect_equal(out, expected, ROWS * Q, 1e-13);
  expect_equal(log_sums, expected_log_sums, ROWS * HEADS, 1e-13);
  /* The first sequence again, in calls of 3, 1 and 1 tokens with a cache. */
  double cache_k[8 * KV], cache_v[8 * KV], cached[SEQUENCE * Q];
  for (int i = 0; i < 8 * KV; i++) cache_k[i] = cache_v[i] = (double)NAN;
  const int starts[] = {0, 3, 4, SEQUENCE};
  for (int piece = 0; piece < 3; piece++) {
    const int start = starts[piece], count = starts[piece + 1] - start;
    int32_t positions[] = {start, start + 1, start + 2};
    ls_kernel_args args = {
        .attributes = &attributes,
        .inputs = 6,
        .outputs = 1,
        .in = {matrix(q + start * Q, count, Q), matrix(k + start * KV, count, KV),
               matrix(v + start * KV, count, KV), matrix(cache_k, 8, KV), matrix(cache_v, 8, KV),
               indices(positions, count)},
        .out = {matrix(cached + start * Q, count, Q)}};
    call(&args, LS_OP_CACHED_ATTENTION);
    positions[0] = 8;
    assert_int_equal(try_call(&args, LS_OP_CACHED_ATTENTION), LS_INTERNAL);
  }
  expect_equal(cached, expected, SEQUENCE * Q, 1e-13);
}

/* Windows, soft caps and slopes by distance, against the whole matrix of scores; heads 2 to 5 of 6
 * on a rank that begins there have their own slopes. */
static void attention_bends_its_scores(void **state) {
  (void)state;
  enum { T = 7, H = 4, D = 2, FIRST = 2, ALL = 6 };
  double q[T * H * D], k[T * D], v[T * D], out[T * H * D], log_sums[T * H], expected[T * H * D];
  const ls_attributes attributes = {.sequence = T,
                                    .head_dim = D,
                                    .heads = ALL,
                                    .window = 3,
                                    .softmax_scale = 1.3,
                                    .softcap = 0.8,
                                    .alibi = 0.5};
  /* Six heads: powers of 1/4 for four of them, odd powers of 1/2 for the others. */
  static const double slopes[ALL] = {0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125};
  draw_into(q, T * H * D);
  draw_into(k, T * D);
  draw_into(v, T * D);
  for (int n = 0; n < T; n++)
    for (int h = 0; h < H; h++) {
      double sum = 0, values[D] = {0};
      for (int j = n > 2 ? n - 2 : 0; j <= n; j++) {
        double score = 0;
        for (int c = 0; c < D; c++) score += 1.3 * q[n * H * D + h * D + c] * k[j * D + c];
        const double bent = 0.8 * tanh(score / 0.8) - 0.5 * slopes[FIRST + h] * (n - j);
        sum += exp(bent);
        for (int c = 0; c < D; c++) values[c] += exp(bent) * v[j * D + c];
      }
      for (int c = 0; c < D; c++) expected[n * H * D + h * D + c] = values[c] / sum;
    }
  ls_kernel_args args = {.attributes = &attributes,
                         .inputs = 3,
                         .outputs = 2,
                         .in = {matrix(q, T, H * D), matrix(k, T, D), matrix(v, T, D)},
                         .out = {matrix(out, T, H * D), matrix(log_sums, T, H)}};
  args.in[0].start[1] = FIRST * D;
  call(&args, LS_OP_ATTENTION);
  expect_equal(out, expected, T * H * D, 1e-13);
}

static void rope_tables_turn_by_their_frequencies(void **state) {
  (void)state;
  enum { DIM = 6 };
  static const double frequencies[DIM / 2] = {1, 0.25, 0.01};
  int32_t positions[2] = {100, 3};
  double table[2 * DIM];
  ls_attributes attributes = {.rope_frequencies = frequencies, .rope_pairs = DIM / 2};
  const ls_kernel_args args = {.attributes = &attributes,
                               .inputs = 1,
                               .outputs = 1,
                               .in = {indices(positions, 2)},
                               .out = {matrix(table, 2, DIM)}};
  for (int scaled = 0; scaled < 2; scaled++) {
    attributes.rope_scale = scaled ? 1.5 : 0;
    call(&args, LS_OP_ROPE_TABLE);
    for (int n = 0; n < 2; n++)
      for (int i = 0; i < DIM / 2; i++) {
        const double angle = positions[n] * frequencies[i], scale = scaled ? 1.5 : 1;
        expect_equal(&table[n * DIM + i], &(double){scale * cos(angle)}, 1, 1e-13);
        expect_equal(&table[n * DIM + DIM / 2 + i], &(double){scale * sin(angle)}, 1, 1e-13);
      }
  }
  attributes.rope_pairs = DIM;
  assert_int_equal(try_call(&args, LS_OP_ROPE_TABLE), LS_INTERNAL);
}

/* Heads of 5 columns, of which 4 are turned. */
static void rope_pairs_halves(void **state) {
  (void)state;
  enum { DIM = 4, HEAD = 5, COLUMNS = 2 * HEAD };
  double x[COLUMNS], y[COLUMNS], back[COLUMNS], expected[COLUMNS];
  double table[DIM] = {cos(0.3), cos(1.1), sin(0.3), sin(1.1)};
  const ls_attributes attributes = {.head_dim = HEAD};
  draw_into(x, COLUMNS);
  for (int h = 0; h < 2; h++) {
    for (int c = 0; c < DIM; c++) {
      /* x cos + rotate_half(x) sin, where rotate_half is (-second half, first half). */
      const double turned = c < 2 ? -x[h * HEAD + c + 2] : x[h * HEAD + c - 2];
      expected[h * HEAD + c] = x[h * HEAD + c] * table[c % 2] + turned * table[2 + c % 2];
    }
    expected[h * HEAD + DIM] = x[h * HEAD + DIM];
  }
  ls_kernel_args args = {.attributes = &attributes,
                         .inputs = 2,
                         .outputs = 1,
                         .in = {matrix(x, 1, COLUMNS), matrix(table, 1, DIM)},
                         .out = {matrix(y, 1, COLUMNS)}};
  call(&args, LS_OP_ROPE);
  expect_equal(y, expected, COLUMNS, 1e-14);
  args.in[0] = args.out[0];
  args.out[0] = matrix(back, 1, COLUMNS);
  call(&args, LS_OP_ROPE_BWD);
  expect_equal(back, x, COLUMNS, 1e-14);
}

/* Two steps worked out by hand; the second gradient is halved by the clip factor. */
static void adamw_steps_as_by_hand(void **state) {
  (void)state;
  double gradient = 0.5, rate = 0.4, step = 1, factor = 1, master = 1, first = 0, second = 0;
  const ls_attributes attributes = {
      .beta1 = 0.9, .beta2 = 0.999, .weight_decay = 0.01, .rate = 0.25, .epsilon = 1e-8};
  const ls_kernel_args args = {
      .attributes = &attributes,
      .inputs = 4,
      .outputs = 3,
      .in = {vector(&gradient, 1), vector(&rate, 1), vector(&step, 1), vector(&factor, 1)},
      .out = {vector(&master, 1), vector(&first, 1), vector(&second, 1)}};
  call(&args, LS_OP_ADAMW);
  expect_equal(&master, &(double){0.899000002}, 1, 1e-15);
  gradient = -0.4, step = 2, factor = 0.5;
  double ahead = 0;
  const ls_kernel_args speculation = {
      .attributes = &attributes,
      .inputs = 7,
      .outputs = 1,
      .in = {args.in[0], args.in[1], args.in[2], args.in[3], args.out[0], args.out[1], args.out[2]},
      .out = {vector(&ahead, 1)}};
  call(&speculation, LS_OP_ADAMW_SPECULATE);
  call(&args, LS_OP_ADAMW);
  assert_true(ahead == master); /* to the bit, and the state was left alone */
  expect_equal(&master, &(double){0.8635404181145108}, 1, 1e-14);
  expect_equal(&first, &(double){0.025}, 1, 1e-15);
  expect_equal(&second, &(double){0.00028975}, 1, 1e-15);
  gradient = NAN, step = 3, factor = 0;
  call(&args, LS_OP_ADAMW);
  expect_equal(&master, &(double){0.8635404181145108}, 1, 1e-14);
  expect_equal(&first, &(double){0.025}, 1, 1e-15);
  expect_equal(&second, &(double){0.00028975}, 1, 1e-15);
}

static void sgd_steps_as_by_hand(void **state) {
  (void)state;
  double gradient = 2, rate = 0.2, step = 1, factor = 0.5, master = 1, momentum = 0;
  const ls_attributes attributes = {.beta1 = 0.9, .weight_decay = 0.5, .rate = 0.5};
  const ls_kernel_args args = {
      .attributes = &attributes,
      .inputs = 4,
      .outputs = 2,
      .in = {vector(&gradient, 1), vector(&rate, 1), vector(&step, 1), vector(&factor, 1)},
      .out = {vector(&master, 1), vector(&momentum, 1)}};
  call(&args, LS_OP_SGD);
  expect_equal(&master, &(double){0.95 - 0.1}, 1, 1e-15);
  double ahead = 0;
  const ls_kernel_args speculation = {
      .attributes = &attributes,
      .inputs = 6,
      .outputs = 1,
      .in = {args.in[0], args.in[1], args.in[2], args.in[3], args.out[0], args.out[1]},
      .out = {vector(&ahead, 1)}};
  call(&speculation, LS_OP_SGD_SPECULATE);
  call(&args, LS_OP_SGD);
  assert_true(ahead == master);
  expect_equal(&momentum, &(double){1.9}, 1, 1e-15);
  expect_equal(&master, &(double){0.85 * 0.95 - 0.19}, 1, 1e-15);
  gradient = INFINITY, factor = 0;
  call(&args, LS_OP_SGD);
  expect_equal(&momentum, &(double){1.9}, 1, 1e-15);
  expect_equal(&master, &(double){0.85 * 0.95 - 0.19}, 1, 1e-15);
}

/* Down, up, and where the mean of momentum and gradient is 0 by decay alone. */
static void lion_steps_as_by_hand(void **state) {
  (void)state;
  double gradient[3] = {2, -6, -4}, master[3] = {1, 1, 1}, momentum[3] = {0.5, 0.5, 0.5};
  double rate = 0.2, step = 1, factor = 0.5, ahead[3];
  const ls_attributes attributes = {.beta1 = 0.8, .beta2 = 0.75, .weight_decay = 0.5, .rate = 0.5};
  const ls_kernel_args args = {
      .attributes = &attributes,
      .inputs = 4,
      .outputs = 2,
      .in = {vector(gradient, 3), vector(&rate, 1), vector(&step, 1), vector(&factor, 1)},
      .out = {vector(master, 3), vector(momentum, 3)}};
  const ls_kernel_args speculation = {
      .attributes = &attributes,
      .inputs = 6,
      .outputs = 1,
      .in = {args.in[0], args.in[1], args.in[2], args.in[3], args.out[0], args.out[1]},
      .out = {vector(ahead, 3)}};
  call(&speculation, LS_OP_LION_SPECULATE);
  call(&args, LS_OP_LION);
  assert_memory_equal(ahead, master, sizeof master);
  expect_equal(master, (double[]){0.95 - 0.1, 0.95 + 0.1}, 2, 1e-15);
  expect_equal(momentum, (double[]){0.625, -0.375, -0.125}, 3, 1e-15);
  gradient[0] = gradient[1] = 0, momentum[0] = momentum[1] = 0;
  call(&args, LS_OP_LION);
  expect_equal(master, (double[]){0.85 * 0.95, 1.05 * 0.95}, 2, 1e-15);
  gradient[0] = NAN, factor = 0;
  call(&args, LS_OP_LION);
  expect_equal(master, (double[]){0.85 * 0.95}, 1, 1e-15);
  assert_true(momentum[0] == 0);
}

static void clipping_is_torchs(void **state) {
  (void)state;
  double values[4] = {3, 4, 100, 100}, squared = 0, loss = 12, count = 8, out[3], inverse,
         scale = 1;
  ls_attributes attributes = {.clip = 2.5, .weight = 0.25};
  const ls_view part = slice(matrix(values, 1, 4), 1, 0, 4, 2);
  ls_kernel_args norm = {.attributes = &attributes,
                         .inputs = 1,
                         .outputs = 1,
                         .in = {part},
                         .out = {vector(&squared, 1)},
                         .accumulate = {true}};
  for (int i = 0; i < 4; i++) call(&norm, LS_OP_SQUARED_NORM);
  assert_true(squared == 25);
  const ls_kernel_args args = {
      .attributes = &attributes,
      .inputs = 4,
      .outputs = 3,
      .in = {vector(&squared, 1), vector(&loss, 1), vector(&count, 1), vector(&scale, 1)},
      .out = {vector(&out[0], 1), vector(&out[1], 1), vector(&out[2], 1)}};
  call(&args, LS_OP_CLIP_FACTOR);
  expect_equal(out, (double[]){5, 2.5 / (5 + 1e-6), 1.5}, 3, 1e-15);
  attributes.clip = 5.1;
  call(&args, LS_OP_CLIP_FACTOR);
  assert_true(out[1] == 1);
  attributes.clip = 0;
  call(&args, LS_OP_CLIP_FACTOR);
  assert_true(out[1] == 1);
  scale = 4; /* of gradients 4 times as large: the norm is 5 / 4, and clipped as that */
  call(&args, LS_OP_CLIP_FACTOR);
  assert_true(out[0] == 1.25 && out[1] == 0.25 && out[2] == 1.5);
  attributes.clip = 0.5;
  call(&args, LS_OP_CLIP_FACTOR);
  expect_equal(out, (double[]){1.25, 0.5 / (1.25 + 1e-6) / 4, 1.5}, 3, 1e-15);
  for (int i = 0; i < 2; i++) {
    squared = i ? NAN : INFINITY;
    call(&args, LS_OP_CLIP_FACTOR);
    assert_true(!isfinite(out[0]) && out[1] == 0 && out[2] == 1.5);
  }
  call(
      &(ls_kernel_args){
          .inputs = 1, .outputs = 1, .in = {vector(&count, 1)}, .out = {vector(&count, 1)}},
      LS_OP_ZERO);
  assert_true(count == 0);
  const double counts[] = {0, 1, 8}, inverses[] = {4, 4, 0.5};
  for (int i = 0; i < 3; i++) {
    count = counts[i];
    call(&(ls_kernel_args){.inputs = 2,
                           .outputs = 1,
                           .in = {vector(&count, 1), vector(&scale, 1)},
                           .out = {vector(&inverse, 1)}},
         LS_OP_RECIPROCAL);
    assert_true(inverse == inverses[i]);
  }
}

static void copy_takes_rows_by_place(void **state) {
  (void)state;
  double whole[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, part[6] = {0};
  ls_kernel_args args = {.inputs = 1, .outputs = 1};
  args.in[0] = slice(matrix(whole, 6, 2), 0, 10, 6, 5);
  args.out[0] = slice(matrix(part, 3, 2), 0, 12, 3, 2);
  call(&args, LS_OP_COPY);
  expect_equal(part, (double[]){4, 5, 6, 7, 0, 0}, 6, 0);
  args.accumulate[0] = true;
  call(&args, LS_OP_COPY);
  expect_equal(part, (double[]){8, 10, 12, 14, 0, 0}, 6, 0);
  args.accumulate[0] = false;
  args.out[0].start[0] = 14; /* rows 14 and 15 of an input that ends at 15 */
  assert_int_equal(try_call(&args, LS_OP_COPY), LS_INTERNAL);
  args.out[0].start[0] = 9;
  assert_int_equal(try_call(&args, LS_OP_COPY), LS_INTERNAL);
  int32_t ids[4] = {7, 8, 9, 10}, some[2] = {0};
  args.in[0] = indices(ids, 4);
  args.out[0] = slice(indices(some, 2), 0, 2, 2, 2);
  call(&args, LS_OP_COPY);
  assert_true(some[0] == 9 && some[1] == 10);
}

static void cast_rounds_and_adds(void **state) {
  (void)state;
  double wide[3] = {1, 1.00390625, -3.1415926}, sums[3] = {10, 20, 30};
  uint16_t narrow[3];
  ls_view small = {narrow, LS_BF16, 1, {3}, {3}, {0}};
  ls_kernel_args args = {.inputs = 1, .outputs = 1, .in = {vector(wide, 3)}, .out = {small}};
  call(&args, LS_OP_CAST);
  /* 1 + 2^-8 lies between 1 and 1 + 2^-7: to even. */
  assert_true(narrow[0] == 0x3f80 && narrow[1] == 0x3f80 && narrow[2] == 0xc049);
  args.in[0] = small;
  args.out[0] = vector(sums, 3);
  args.accumulate[0] = true;
  call(&args, LS_OP_CAST);
  expect_equal(sums, (double[]){11, 21, 30 - 3.140625}, 3, 0);
}

static void wrong_types_are_refused(void **state) {
  (void)state;
  double data[4] = {0};
  ls_kernel_args args = {.inputs = 2,
                         .outputs = 1,
                         .in = {matrix(data, 2, 2), matrix(data, 2, 2)},
                         .out = {matrix(data, 2, 2)}};
  args.in[1].dtype = LS_F32;
  assert_int_equal(try_call(&args, LS_OP_LINEAR), LS_INTERNAL);
  args.in[1].dtype = LS_F64;
  args.inputs = 1;
  assert_int_equal(try_call(&args, LS_OP_LINEAR), LS_INTERNAL);
  args.inputs = 3;
  assert_int_equal(try_call(&args, LS_OP_LINEAR), LS_INTERNAL);
}

int main(void) {
  state_of_draws = test_seed(20261128);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(linear_is_the_product),
      cmocka_unit_test(routes_are_the_largest_logits),
      cmocka_unit_test(heads_have_their_own_columns_then_what_is_shared),
      cmocka_unit_test(rope_turns_the_columns_it_is_told),
      cmocka_unit_test(norms_are_their_formulas),
      cmocka_unit_test(activations_are_their_formulas),
      cmocka_unit_test(embedding_pieces_sum_to_the_whole),
      cmocka_unit_test(cross_entropy_pieces_make_the_whole),
      cmocka_unit_test(cross_entropy_gradient_matches_differences),
      cmocka_unit_test(attention_equals_the_whole_matrix),
      cmocka_unit_test(attention_bends_its_scores),
      cmocka_unit_test(rope_tables_turn_by_their_frequencies),
      cmocka_unit_test(rope_pairs_halves),
      cmocka_unit_test(adamw_steps_as_by_hand),
      cmocka_unit_test(sgd_steps_as_by_hand),
      cmocka_unit_test(lion_steps_as_by_hand),
      cmocka_unit_test(clipping_is_torchs),
      cmocka_unit_test(copy_takes_rows_by_place),
      cmocka_unit_test(cast_rounds_and_adds),
      cmocka_unit_test(wrong_types_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
