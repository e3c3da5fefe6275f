// Choices among experts between a routing and what takes it: which are kept where experts have a
// capacity, and which slot each has where rows are sent to the ranks of their experts
// (device/reference/capacity.c, slots.c).
#include "device/cuda/kernels/cuda_device.cuh"

enum { LS_CHOICE_TILE = 256 };

// BODY(choice) of each choice in turn.
template <class BODY>
__device__ inline void ls_each_slot(int64_t count, BODY body) {
  for (int64_t s = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; s < count;
       s += static_cast<int64_t>(gridDim.x) * blockDim.x)
    body(s);
}

// The expert of each choice.
LS_KERNEL(ls_choices, ls_cuda_slots, LS_CHOICE_TILE) {
  ls_each_slot(args.choices, [&](int64_t s) { args.out_choices[s] = args.experts[args.rows[s]]; });
}

// -1 - expert of each choice in the place of its row, and its weight: what is numbered next.
LS_KERNEL(ls_choices_begin, ls_cuda_slots, LS_CHOICE_TILE) {
  ls_each_slot(args.choices, [&](int64_t s) {
    const int32_t expert = args.experts[s];
    args.out_choices[s] = -1 - expert;
    args.out_numbers[s] = expert < args.none ? args.numbers[args.rows ? args.rows[s] : s] : 0;
  });
}

// The gradient of each choice's weight, from its kept row or its slot.
LS_KERNEL(ls_choices_bwd, ls_cuda_slots, LS_CHOICE_TILE) {
  ls_each_slot(args.choices, [&](int64_t s) {
    const bool keeps = args.kept[s] >= 0 && (!args.experts || args.experts[s] < args.none);
    const float slope = keeps ? args.numbers[args.kept[s]] : 0;
    float *to = args.out_numbers + (args.rows ? args.rows[s] : s);
    *to = args.add ? *to + slope : slope;
  });
}

// Which sequences the rows are of, in the order of their first tokens. One block.
LS_KERNEL(ls_capacity_sequences, ls_cuda_slots, LS_CHOICE_TILE) {
  LS_SHARED(int32_t, counts, LS_CHOICE_TILE / LS_CUDA_WARP);
  const int lane = threadIdx.x % LS_CUDA_WARP, warp = threadIdx.x / LS_CUDA_WARP;
  int known = 0;
  for (int64_t first = 0; first < args.tokens; first += LS_CHOICE_TILE) {
    const int64_t n = first + threadIdx.x;
    const bool begins = n < args.tokens && args.places[n] % args.sequence == 0;
    const uint32_t all = __ballot_sync(LS_ALL_LANES, begins);
    if (lane == 0) counts[warp] = __popc(all);
    __syncthreads();
    int at = known + __popc(all & ((1u << lane) - 1));
    for (int w = 0; w < LS_CHOICE_TILE / LS_CUDA_WARP; w++) {
      if (w < warp) at += counts[w];
      known += counts[w];
    }
    if (begins) args.sequences[at] = static_cast<int32_t>(args.places[n] / args.sequence);
    __syncthreads();  // counts have been read
  }
}

// Which row has each token, those of a sequence one after another.
LS_KERNEL(ls_capacity_tokens, ls_cuda_slots, LS_CHOICE_TILE) {
  const int64_t count = args.tokens / args.sequence;
  ls_each_slot(args.tokens, [&](int64_t n) {
    const int32_t own = static_cast<int32_t>(args.places[n] / args.sequence);
    for (int64_t q = 0; q < count; q++)
      if (args.sequences[q] == own)
        args.tokens_in_order[q * args.sequence + args.places[n] % args.sequence] =
            static_cast<int32_t>(n);
  });
}

// A block has a sequence and goes over its choices in order, 256 at a time: those of an expert that
// come when it has its rows are dropped.
LS_KERNEL(ls_capacity_take, ls_cuda_slots, LS_CHOICE_TILE) {
  LS_DYNAMIC_SHARED(int32_t, taken);
  LS_SHARED(int32_t, experts, LS_CHOICE_TILE);
  int32_t *dropped = taken + args.none;
  const int64_t sequence = blockIdx.x, choices = args.sequence * args.chosen;
  const int thread = threadIdx.x;
  for (int e = thread; e < 2 * args.none; e += LS_CHOICE_TILE) taken[e] = 0;
  for (int64_t first = 0; first < choices; first += LS_CHOICE_TILE) {
    const int64_t at = first + thread;
    int64_t n = sequence * args.sequence + at / args.chosen;
    if (at < choices && args.tokens_in_order) n = args.tokens_in_order[n];
    const int64_t slot = n * args.chosen + at % args.chosen;
    const int32_t expert = at < choices ? args.experts[slot] : -1;
    __syncthreads();  // the last tile has been read
    experts[thread] = expert;
    __syncthreads();
    int rank = 0;
    bool last = true;
    for (int i = 0; i < LS_CHOICE_TILE; i++) {
      const bool same = experts[i] == expert;
      rank += same && i < thread;
      last = last && !(same && i > thread);
    }
    const int before = expert >= 0 ? taken[expert] + rank : 0;
    __syncthreads();  // what was taken has been read
    if (expert < 0) continue;
    if (last) taken[expert] = before + 1;
    const bool keeps = before < args.slots;
    args.out_choices[slot] = keeps ? expert : args.none;
    if (!keeps && args.labels[n] >= 0) atomicAdd(&dropped[expert], 1);
  }
  __syncthreads();
  for (int e = thread; e < args.none; e += LS_CHOICE_TILE)
    args.dropped[sequence * args.none + e] = dropped[e];
}

LS_KERNEL(ls_capacity_dropped, ls_cuda_slots, LS_CHOICE_TILE) {
  const int64_t count = args.tokens / args.sequence;
  ls_each_slot(args.cell_count, [&](int64_t e) {
    int64_t all = 0;
    for (int64_t q = 0; q < count && e < args.none; q++) all += args.dropped[q * args.none + e];
    ls_put_cell(&args.cells[e], static_cast<double>(all), args.add);
  });
}

// The first row of this expert or one behind it.
__device__ inline int64_t ls_first_row(const int32_t *experts, int64_t rows, int64_t expert) {
  int64_t low = 0, high = rows;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (experts[middle] < expert)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// Every slot is of no expert.
LS_KERNEL(ls_slots_clear, ls_cuda_slots, LS_CHOICE_TILE) {
  ls_each_slot(args.ranks * args.slots, [&](int64_t s) {
    args.out_experts[s] = args.none;
    args.out_numbers[s] = 0;
  });
}

// Each choice's slot, -1 where there is none, and what lies there.
LS_KERNEL(ls_slots_fill, ls_cuda_slots, LS_CHOICE_TILE) {
  ls_each_slot(args.choices, [&](int64_t s) {
    const int32_t row = args.rows[s], expert = args.experts[row], rank = expert / args.held;
    const int64_t at =
        row - ls_first_row(args.experts, args.choices, static_cast<int64_t>(rank) * args.held);
    const bool has = expert < args.none && at < args.slots;
    const int64_t slot = has ? rank * args.slots + at : -1;
    args.out_choices[s] = static_cast<int32_t>(slot);
    if (!has) return;
    args.out_experts[slot] = expert;
    args.out_numbers[slot] = args.numbers[row];
  });
}

// Infinity where more rows of one of `sequence` senders are for a rank than it has slots for. One
// block.
LS_KERNEL(ls_slots_left_out, ls_cuda_slots, LS_CHOICE_TILE) {
  int over = 0;
  for (int64_t r = threadIdx.x; r < args.ranks * args.sequence; r += LS_CHOICE_TILE) {
    const int32_t *experts = args.experts + r / args.ranks * args.choices;
    const int64_t first = r % args.ranks * args.held;
    over |= ls_first_row(experts, args.choices, first + args.held) -
                ls_first_row(experts, args.choices, first) >
            args.slots;
  }
  over = __syncthreads_or(over);
  if (threadIdx.x == 0) ls_put_cell(args.cells, over ? static_cast<double>(INFINITY) : 0, args.add);
}
