// Pairs of answers: of a rank's sequences the documents, two and two (device/reference/pairs.c). A
// warp has a sequence, and goes through its documents in order; what is summed over pairs is one
// number a sequence, and then added up in their order. Tokens are counted in turn, whichever rows
// they are.
#include "device/cuda/kernels/cuda_device.cuh"

enum { LS_PAIR_TILE = 256 };

// Of each token in turn which row it is.
LS_KERNEL(ls_token_rows, ls_cuda_pairs, LS_PAIR_TILE) {
  for (int64_t n = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; n < args.tokens;
       n += static_cast<int64_t>(gridDim.x) * blockDim.x)
    args.out_rows[args.places[n] - args.start] = static_cast<int32_t>(n);
}

__device__ inline int64_t ls_row_of(const ls_cuda_pairs &args, int64_t token) {
  return args.row_of_token ? args.row_of_token[token] : token;
}

__device__ inline bool ls_has_label(const ls_cuda_pairs &args, int64_t token) {
  return args.labels[ls_row_of(args, token)] >= 0;
}

// log(1 + exp(x))
__device__ inline double ls_softplus(double x) {
  return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

__device__ inline double ls_sigmoid(double x) {
  return x > 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}

// Where the document that begins at `first` ends. For all lanes, as are the others here.
__device__ inline int64_t ls_document_end(const ls_cuda_pairs &args, int64_t first, int64_t limit) {
  for (int64_t from = first + 1; from < limit; from += LS_CUDA_WARP) {
    const int64_t n = from + threadIdx.x;
    const uint32_t begins = __ballot_sync(LS_ALL_LANES, n < limit && args.positions[ls_row_of(args, n)] == 0);
    if (begins) return from + __ffs(static_cast<int>(begins)) - 1;
  }
  return limit;
}

__device__ inline bool ls_is_asked(const ls_cuda_pairs &args, int64_t begin, int64_t end) {
  for (int64_t from = begin; from < end; from += LS_CUDA_WARP) {
    const int64_t n = from + threadIdx.x;
    if (__any_sync(LS_ALL_LANES, n < end && ls_has_label(args, n))) return true;
  }
  return false;
}

// Calls BODY(begin, middle, end) of each pair with labels of a sequence. EACH(begin, end) comes
// before, of each document.
template <class EACH, class BODY>
__device__ inline void ls_each_pair(const ls_cuda_pairs &args, int64_t sequence, EACH each,
                                    BODY body) {
  const int64_t first = sequence * args.sequence, beyond = first + args.sequence;
  const int64_t limit = beyond < args.tokens ? beyond : args.tokens;
  for (int64_t begin = first; begin < limit;) {
    const int64_t middle = ls_document_end(args, begin, limit);
    each(begin, middle);
    if (middle >= limit) return;  // it is without another
    const int64_t end = ls_document_end(args, middle, limit);
    each(middle, end);
    if (ls_is_asked(args, begin, end)) body(begin, middle, end);
    begin = end;
  }
}

__device__ inline void ls_no_document(int64_t, int64_t) {}

// Labels of a document; 1 where there are none.
__device__ inline double ls_count_labels(const ls_cuda_pairs &args, int64_t begin, int64_t end) {
  double count = 0;
  for (int64_t n = begin + threadIdx.x; n < end; n += LS_CUDA_WARP) count += ls_has_label(args, n);
  count = ls_warp_sum(count);
  return count > 0 ? count : 1;
}

// The log-probability of a mean of labels, kept below that of certainty, whose odds have no end.
__device__ inline double ls_below_certain(double answer) {
  return answer < -1e-9 ? answer : -1e-9;
}

// How much larger the log odds of the chosen answer are.
__device__ inline double ls_log_odds_ratio(double chosen, double rejected) {
  chosen = ls_below_certain(chosen), rejected = ls_below_certain(rejected);
  return (chosen - rejected) - (log(-expm1(chosen)) - log(-expm1(rejected)));
}

// A document's log-probability beyond the reference's, or with odds ratios the mean of its labels',
// at each of its tokens.
__device__ inline void ls_put_answer(const ls_cuda_pairs &args, int64_t begin, int64_t end) {
  double own = 0, other = 0;  // apart: equal ones leave exactly 0, wherever the reference lies
  for (int64_t t = begin + threadIdx.x; t < end; t += LS_CUDA_WARP) {
    const int64_t n = ls_row_of(args, t);
    if (args.labels[n] < 0) continue;
    own += static_cast<double>(args.targets[n]) - static_cast<double>(args.largest[n]) -
           log(static_cast<double>(args.sums[n]));
    other += args.reference[n];
  }
  const double sum = ls_warp_sum(own);
  const double answer = args.own > 0 ? sum / ls_count_labels(args, begin, end)
                                     : sum - ls_warp_sum(other);
  for (int64_t t = begin + threadIdx.x; t < end; t += LS_CUDA_WARP)
    args.answers[ls_row_of(args, t)] = answer;
  __syncwarp();
}

LS_KERNEL(ls_pair_loss, ls_cuda_pairs, 32) {
  for (int64_t s = blockIdx.x; s < args.sequences; s += gridDim.x) {
    double loss = 0;
    ls_each_pair(
        args, s, [&](int64_t begin, int64_t end) { ls_put_answer(args, begin, end); },
        [&](int64_t begin, int64_t middle, int64_t) {
          const double chosen = args.answers[ls_row_of(args, begin)];
          const double rejected = args.answers[ls_row_of(args, middle)];
          const double apart = args.beta * (chosen - rejected);
          if (args.own > 0)
            loss += -args.own * chosen +
                    args.beta * ls_softplus(-ls_log_odds_ratio(chosen, rejected));
          else
            loss += (1 - args.smoothing) * ls_softplus(-apart) +
                    (args.smoothing > 0 ? args.smoothing * ls_softplus(apart) : 0);
        });
    if (threadIdx.x == 0) args.parts[s] = loss;
  }
}

// How often the loss of each token of both answers counts.
LS_KERNEL(ls_pair_loss_bwd, ls_cuda_pairs, 32) {
  const double scale = *args.scale;
  for (int64_t s = blockIdx.x; s < args.sequences; s += gridDim.x) {
    if (!args.add_slopes)
      for (int64_t t = s * args.sequence + threadIdx.x; t < (s + 1) * args.sequence;
           t += LS_CUDA_WARP)
        if (t < args.tokens) args.slopes[ls_row_of(args, t)] = 0;
    __syncwarp();
    ls_each_pair(args, s, ls_no_document, [&](int64_t begin, int64_t middle, int64_t end) {
      const double chosen = args.answers[ls_row_of(args, begin)];
      const double rejected = args.answers[ls_row_of(args, middle)];
      const double apart = args.beta * (chosen - rejected);
      double first = scale * args.beta *
                     ((1 - args.smoothing) * ls_sigmoid(-apart) - args.smoothing * ls_sigmoid(apart));
      double second = -first;
      if (args.own > 0) {
        const double ratio = args.beta * ls_sigmoid(-ls_log_odds_ratio(chosen, rejected));
        first = scale * (args.own + ratio / -expm1(ls_below_certain(chosen))) /
                ls_count_labels(args, begin, middle);
        second = -scale * ratio / -expm1(ls_below_certain(rejected)) /
                 ls_count_labels(args, middle, end);
      }
      for (int64_t t = begin + threadIdx.x; t < end; t += LS_CUDA_WARP)
        if (ls_has_label(args, t))
          args.slopes[ls_row_of(args, t)] += static_cast<float>(t < middle ? first : second);
    });
  }
}

LS_KERNEL(ls_pair_rewards, ls_cuda_pairs, 32) {
  for (int64_t s = blockIdx.x; s < args.sequences; s += gridDim.x) {
    double told[3] = {};
    ls_each_pair(args, s, ls_no_document, [&](int64_t begin, int64_t middle, int64_t) {
      const double chosen = args.answers[ls_row_of(args, begin)];
      const double rejected = args.answers[ls_row_of(args, middle)];
      told[0] += args.beta * chosen;
      told[1] += args.beta * rejected;
      told[2] += chosen > rejected;
    });
    for (int o = 0; o < 3; o++)
      if (threadIdx.x == 0) args.parts[o * args.sequences + s] = told[o];
  }
}

// Of the tokens with a label each one's share of its sequence's pairs.
LS_KERNEL(ls_pair_shares, ls_cuda_pairs, 32) {
  for (int64_t s = blockIdx.x; s < args.sequences; s += gridDim.x) {
    const int64_t first = s * args.sequence, beyond = first + args.sequence;
    const int64_t end = beyond < args.tokens ? beyond : args.tokens;
    double pairs = 0, asked = 0;
    ls_each_pair(args, s, ls_no_document, [&](int64_t, int64_t, int64_t) { pairs++; });
    for (int64_t n = first + threadIdx.x; n < end; n += LS_CUDA_WARP) asked += ls_has_label(args, n);
    asked = ls_warp_sum(asked);
    for (int64_t t = first + threadIdx.x; t < end; t += LS_CUDA_WARP) {
      const int64_t n = ls_row_of(args, t);
      const float own = args.labels[n] >= 0 ? static_cast<float>(pairs / asked) : 0;
      args.slopes[n] = args.add_slopes ? args.slopes[n] + own : own;
    }
  }
}

// What sequences came to, a warp for each cell.
LS_KERNEL(ls_pair_sums, ls_cuda_pairs, 32) {
  double sum = 0;
  for (int64_t s = threadIdx.x; s < args.sequences; s += LS_CUDA_WARP)
    sum += args.parts[blockIdx.x * args.sequences + s];
  sum = ls_warp_sum(sum);
  if (threadIdx.x == 0) ls_put_cell(args.cells[blockIdx.x], sum, args.add[blockIdx.x]);
}
