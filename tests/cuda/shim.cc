// Fibers, barriers and warp functions of the shim (shim_run.h).
#include "cuda/shim.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "cuda/shim_run.h"

#if defined(__SANITIZE_ADDRESS__)
#define LS_SHIM_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LS_SHIM_ASAN 1
#endif
#endif
#ifdef LS_SHIM_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// Keeps the registers that a function keeps on the stack of one fiber, and takes those of another.
extern "C" __attribute__((visibility("hidden"))) void ls_shim_switch(void **keep, void *take);
#if defined(__x86_64__)
__asm__(
    ".text\n.globl ls_shim_switch\n.hidden ls_shim_switch\n"
    ".type ls_shim_switch,@function\nls_shim_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
    ".size ls_shim_switch,.-ls_shim_switch\n");
enum { KEPT_WORDS = 6 };
#elif defined(__aarch64__)
__asm__(
    ".text\n.globl ls_shim_switch\n.hidden ls_shim_switch\n"
    ".type ls_shim_switch,%function\nls_shim_switch:\n"
    "sub sp,sp,#160\n"
    "stp x19,x20,[sp]\nstp x21,x22,[sp,#16]\nstp x23,x24,[sp,#32]\nstp x25,x26,[sp,#48]\n"
    "stp x27,x28,[sp,#64]\nstp x29,x30,[sp,#80]\n"
    "stp d8,d9,[sp,#96]\nstp d10,d11,[sp,#112]\nstp d12,d13,[sp,#128]\nstp d14,d15,[sp,#144]\n"
    "mov x9,sp\nstr x9,[x0]\nmov sp,x1\n"
    "ldp x19,x20,[sp]\nldp x21,x22,[sp,#16]\nldp x23,x24,[sp,#32]\nldp x25,x26,[sp,#48]\n"
    "ldp x27,x28,[sp,#64]\nldp x29,x30,[sp,#80]\n"
    "ldp d8,d9,[sp,#96]\nldp d10,d11,[sp,#112]\nldp d12,d13,[sp,#128]\nldp d14,d15,[sp,#144]\n"
    "add sp,sp,#160\nret\n.size ls_shim_switch,.-ls_shim_switch\n");
enum { KEPT_WORDS = 20 };
#else
#error "the shim has no context switch for this processor"
#endif

namespace ls_shim {

position here;

namespace {

/* Stacks of a warp's lanes begin in different lines of a page, of which the cache of a processor's
 * first level keeps few: all in one, each change of fibers would miss it. */
constexpr size_t STACK_BYTES = 256 << 10, STACK_APART = 128;
constexpr unsigned MOST_THREADS = 1024;
constexpr size_t STATIC_SHARED_BYTES = 48 << 10, MOST_SHARED_BYTES = 227 << 10;
constexpr unsigned char POISON = 0xff;  // a NaN as a number of any width, and -1

struct copy {
  void *to;
  const void *from;
  int bytes, kept, group;
};

struct fiber {
  void *place = nullptr;
  std::unique_ptr<char, decltype(&free)> stack{nullptr, free};
  void *fake = nullptr;  // the address sanitizer's
  unsigned number = 0;
  bool done = true;
  std::vector<copy> copies;
  int group = 0;
};

// Lanes of one mask that come to one place.
struct meeting {
  uint32_t mask, arrived, left;
  site at;
  slot slots[LANES];
};

struct warp {
  std::vector<meeting *> open;
  uint32_t alive = 0, ready = 0;
};

struct shared_block {
  size_t bytes;
  const std::type_info *type;
  site at;
  void *data;
};

const entry *entries;
std::vector<fiber> fibers;
std::vector<warp> warps;
std::vector<std::unique_ptr<meeting>> ended;  // taken again by later ones
std::vector<shared_block> shared_blocks;
std::vector<unsigned char> dynamic_storage;
unsigned char *dynamic_shared;
fiber *current;
struct {
  unsigned lanes[LANES], count, at, first;  // of the warp's threads
} pass;                                     // of fibers that go on
meeting *brought;                           // to where the fiber that runs puts what it brings
void *main_place;
#ifdef LS_SHIM_ASAN
const void *main_stack;
size_t main_stack_bytes;
bool from_main;  // a fiber was entered, and none left for another since
#endif
const entry *running;
const void *arguments;
unsigned threads, arrived, gone;
site barrier_at;
int barrier_any, barrier_result;
bool failed;
char text[512];
uint64_t order_state;

uint64_t next_random() {
  order_state += 0x9e3779b97f4a7c15u;
  uint64_t z = order_state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

void shuffle_order(unsigned *order, size_t count) {
  for (size_t i = count; i > 1; i--) {
    const uint64_t drawn = (next_random() >> 32) * i >> 32;
    std::swap(order[i - 1], order[drawn]);
  }
}

warp *warp_of(const fiber *of) {
  return &warps[of->number / LANES];
}

uint32_t lane_bit(const fiber *of) {
  return 1u << of->number % LANES;
}

bool is_same(const site &one, const site &other) {
  return one.line == other.line && (one.file == other.file || strcmp(one.file, other.file) == 0);
}

// The next of the pass; nullptr: it is at its end, or the block is.
fiber *take_next() {
  return pass.at < pass.count && !failed ? &fibers[pass.first + pass.lanes[pass.at++]] : nullptr;
}

#ifdef LS_SHIM_ASAN
void arrive(void *fake) {
  __sanitizer_finish_switch_fiber(fake, from_main ? &main_stack : nullptr,
                                  from_main ? &main_stack_bytes : nullptr);
  from_main = false;
}
#endif

void go_to(fiber *next) {
  current = next;
  here.thread.x = next->number;
}

// Leaves the fiber for the next one, without a stop between them.
void leave() {
  fiber *const self = current, *const next = take_next();
#ifdef LS_SHIM_ASAN
  __sanitizer_start_switch_fiber(&self->fake, next ? next->stack.get() : main_stack,
                                 next ? STACK_BYTES : main_stack_bytes);
#endif
  if (next) go_to(next);
  ls_shim_switch(&self->place, next ? next->place : main_place);
#ifdef LS_SHIM_ASAN
  arrive(self->fake);
#endif
}

// Lets the fibers of the pass go on, one after another.
void enter_pass() {
  fiber *const first = take_next();
  go_to(first);
#ifdef LS_SHIM_ASAN
  void *fake;
  from_main = true;
  __sanitizer_start_switch_fiber(&fake, first->stack.get(), STACK_BYTES);
#endif
  ls_shim_switch(&main_place, first->place);
#ifdef LS_SHIM_ASAN
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

// Says once what is wrong, and gives the fiber up: the block is not gone on with.
template <class... PARTS>
void fail(const char *format, PARTS... parts) {
  if (!failed) {
    const int length = snprintf(text, sizeof text, "%s, block %u,%u, thread %u: ", running->name,
                                here.block.x, here.block.y, current->number);
    snprintf(text + length, sizeof text - static_cast<size_t>(length), format, parts...);
  }
  failed = true;
  leave();
}

void wait() {
  warp_of(current)->ready &= ~lane_bit(current);
  leave();
}

void release_barrier() {
  arrived = 0;
  barrier_result = barrier_any;
  barrier_any = 0;
  for (warp &each : warps) each.ready = each.alive;
}

void fiber_main() {
#ifdef LS_SHIM_ASAN
  arrive(nullptr);
#endif
  running->call(arguments);
  current->done = true;
  gone++;
  warp_of(current)->alive &= ~lane_bit(current);
  warp_of(current)->ready &= ~lane_bit(current);
  if (arrived > 0)
    fail("has left the kernel while others wait at %s:%d", barrier_at.file, barrier_at.line);
  leave();
}

void start(fiber *f, unsigned number) {
  if (!f->stack) f->stack.reset(static_cast<char *>(aligned_alloc(64, STACK_BYTES)));
  if (!f->stack) throw std::bad_alloc();
#ifdef LS_SHIM_ASAN
  if (!f->done) __asan_unpoison_memory_region(f->stack.get(), STACK_BYTES);  // was given up
#endif
  char *end = f->stack.get() + STACK_BYTES - number % LANES * STACK_APART;
  void **top = reinterpret_cast<void **>(end) - 2;
#if defined(__x86_64__)
  *top = reinterpret_cast<void *>(&fiber_main);
  for (int i = 0; i < KEPT_WORDS; i++) *--top = nullptr;
#else
  for (int i = 0; i < KEPT_WORDS; i++) *--top = nullptr;
  top[11] = reinterpret_cast<void *>(&fiber_main);  // x30, where a function returns to
#endif
  f->place = top;
  f->fake = nullptr;
  f->number = number;
  f->done = false;
  f->copies.clear();
  f->group = 0;
}

void describe_waiting() {
  for (unsigned w = 0; w < warps.size() && !failed; w++)
    for (const meeting *m : warps[w].open) {
      if (m->arrived == m->mask) continue;
      snprintf(text, sizeof text,
               "%s, block %u,%u, warp %u: lanes %08x wait at %s:%d for lanes %08x that do not come",
               running->name, here.block.x, here.block.y, w, m->arrived, m->at.file, m->at.line,
               m->mask & ~m->arrived);
      failed = true;
      break;
    }
  if (!failed)
    snprintf(text, sizeof text, "%s, block %u,%u: %u of %u threads come to the barrier at %s:%d",
             running->name, here.block.x, here.block.y, arrived, threads, barrier_at.file,
             barrier_at.line);
  failed = true;
}

// Lets the threads of a warp go on that can: in the order of numbers once, or shuffled and until
// all of them wait for other warps, so that one warp is as far ahead of the others as may be.
bool run_warp(unsigned number, bool shuffled_order) {
  const warp *of = &warps[number];
  bool ran = false;
  while (of->ready && !failed && (shuffled_order || !ran)) {
    pass.first = number * LANES;
    pass.count = pass.at = 0;
    for (uint32_t left = of->ready; left; left &= left - 1)
      pass.lanes[pass.count++] = static_cast<unsigned>(__builtin_ctz(left));
    if (shuffled_order) shuffle_order(pass.lanes, pass.count);
    enter_pass();
    ran = true;
  }
  return ran;
}

// `order` is of warps.
void run_block(std::vector<unsigned> *order, bool shuffled_order) {
  for (shared_block &each : shared_blocks) memset(each.data, POISON, each.bytes);
  if (dynamic_shared) memset(dynamic_shared, POISON, dynamic_storage.size());
  arrived = gone = 0;
  barrier_any = 0;
  for (warp &each : warps) each.alive = 0;
  for (unsigned t = 0; t < threads; t++) {
    start(&fibers[t], t);
    warp_of(&fibers[t])->alive |= lane_bit(&fibers[t]);
  }
  for (warp &each : warps) each.ready = each.alive;
  while (gone < threads && !failed) {
    bool ran = false;
    if (shuffled_order) shuffle_order(order->data(), order->size());
    for (unsigned i = 0; i < order->size() && !failed; i++)
      ran |= run_warp((*order)[i], shuffled_order);
    if (!ran && !failed) describe_waiting();
  }
}

}  // namespace

entry::entry(const char *name_, size_t bytes, unsigned threads_, void (*call_)(const void *))
    : name(name_), argument_bytes(bytes), threads(threads_), call(call_), next(entries) {
  entries = this;
}

int barrier(int predicate, site at) {
  if (gone > 0) fail("waits at %s:%d for %u threads that have left", at.file, at.line, gone);
  if (arrived > 0 && !is_same(at, barrier_at))
    fail("waits at %s:%d, others at %s:%d", at.file, at.line, barrier_at.file, barrier_at.line);
  barrier_at = at;
  barrier_any |= predicate != 0;
  warp_of(current)->ready &= ~lane_bit(current);
  if (++arrived == threads) release_barrier();
  leave();
  return barrier_result;
}

slot *warp_bring(uint32_t mask, site at) {
  const unsigned lane = current->number % LANES;
  warp *w = warp_of(current);
  if (!(mask >> lane & 1))
    fail("calls at %s:%d with mask %08x, which is without its lane %u", at.file, at.line, mask,
         lane);
  if (mask & ~w->alive)
    fail("waits at %s:%d for lanes %08x that are not there", at.file, at.line, mask & ~w->alive);
  meeting *m = nullptr;
  for (meeting *each : w->open) {
    if (each->arrived == each->mask) continue;
    if (each->mask == mask) m = each;
  }
  if (!m) {
    if (ended.empty()) ended.emplace_back(new meeting);
    m = ended.back().release();
    ended.pop_back();
    m->mask = mask;
    m->arrived = m->left = 0;
    m->at = at;
    w->open.push_back(m);
  }
  if (!is_same(m->at, at))
    fail("calls at %s:%d, lanes %08x of its mask at %s:%d", at.file, at.line, m->arrived,
         m->at.file, m->at.line);
  brought = m;
  return &m->slots[lane];
}

const slot *warp_take(resolver resolve) {
  meeting *m = brought;
  warp *w = warp_of(current);
  m->arrived |= lane_bit(current);
  if (m->arrived != m->mask) {
    wait();
  } else {
    if (resolve) resolve(m->slots, m->mask);
    w->ready |= m->mask;
  }
  m->left |= lane_bit(current);
  if (m->left == m->mask) {
    for (size_t i = 0; i < w->open.size(); i++)
      if (w->open[i] == m) w->open.erase(w->open.begin() + static_cast<long>(i--));
    ended.emplace_back(m);
  }
  return &m->slots[current->number % LANES];
}

void resolve_shuffle(slot *slots, uint32_t mask) {
  uint64_t results[LANES];
  for (int l = 0; l < LANES; l++) {
    if (!(mask >> l & 1)) continue;
    const int from = from_slot<shuffled>(slots[l]).from & (LANES - 1);
    results[l] = mask >> from & 1 ? from_slot<uint64_t>(slots[from]) : ~uint64_t{0};
  }
  for (int l = 0; l < LANES; l++)
    if (mask >> l & 1) to_slot(&slots[l], results[l]);
}

void *shared_array(size_t bytes, const std::type_info &type, site at) {
  size_t all = bytes;
  for (shared_block &each : shared_blocks) {
    if (is_same(each.at, at) && each.bytes == bytes && *each.type == type) return each.data;
    all += each.bytes;
  }
  if (all > STATIC_SHARED_BYTES) fail("has %zu bytes of shared arrays", all);
  void *data = aligned_alloc(16, (bytes + 15) / 16 * 16);
  if (!data) throw std::bad_alloc();
  memset(data, POISON, bytes);
  shared_blocks.push_back({bytes, &type, at, data});
  return data;
}

void *shared_dynamic() {
  return dynamic_shared;
}

void copy_begin(void *to, const void *from, int bytes, int kept) {
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) %
      static_cast<uintptr_t>(bytes))
    fail("copies %d bytes that do not lie at a multiple of as many", bytes);
  memset(to, POISON, static_cast<size_t>(bytes));
  current->copies.push_back({to, from, bytes, kept, current->group});
}

void copy_commit() {
  current->group++;
}

void copy_wait(int pending) {
  std::vector<copy> &copies = current->copies;
  size_t left = 0;
  for (const copy each : copies) {
    if (each.group >= current->group - pending) {
      copies[left++] = each;
      continue;
    }
    memset(each.to, 0, static_cast<size_t>(each.bytes));
    memcpy(each.to, each.from, static_cast<size_t>(each.kept));
  }
  copies.resize(left);
}

}  // namespace ls_shim

using namespace ls_shim;

static const entry *find_entry(const ls_shim_launch *launch) {
  char name[128];
  snprintf(name, sizeof name, "%s%s", launch->name[0], launch->name[1] ? launch->name[1] : "");
  for (const entry *each = entries; each; each = each->next)
    if (!strcmp(each->name, name)) return each;
  snprintf(text, sizeof text, "there is no kernel %s", name);
  return nullptr;
}

static const char *prepare(const ls_shim_launch *launch) {
  running = find_entry(launch);
  if (!running) return text;
  const uint64_t blocks = uint64_t{launch->grid[0]} * launch->grid[1] * launch->grid[2];
  if (launch->argument_bytes != running->argument_bytes || launch->block < 1 ||
      launch->block > running->threads || launch->block > MOST_THREADS || blocks == 0 ||
      launch->grid[1] > 65535 || launch->grid[2] > 65535 ||
      launch->shared_bytes > MOST_SHARED_BYTES) {
    snprintf(text, sizeof text,
             "%s is launched with %zu bytes of arguments (%zu), %u threads (up to %u), a grid of "
             "%u,%u,%u and %u bytes of shared memory",
             running->name, launch->argument_bytes, running->argument_bytes, launch->block,
             running->threads, launch->grid[0], launch->grid[1], launch->grid[2],
             launch->shared_bytes);
    return text;
  }
  arguments = launch->arguments;
  threads = launch->block;
  here.block_size = {launch->block, 1, 1};
  here.grid_size = {launch->grid[0], launch->grid[1], launch->grid[2]};
  if (fibers.size() < threads) fibers.resize(threads);
  warps.resize((threads + LANES - 1) / LANES);
  std::vector<unsigned char>(launch->shared_bytes).swap(dynamic_storage);
  dynamic_shared = launch->shared_bytes ? dynamic_storage.data() : nullptr;
  return nullptr;
}

static void clear_state() {
  for (shared_block &each : shared_blocks) free(each.data);
  shared_blocks.clear();
  for (warp &w : warps) {
    for (meeting *m : w.open) delete m;
    w.open.clear();
  }
}

extern "C" const char *ls_shim_run(const ls_shim_launch *launch, uint64_t seed) {
  failed = false;
  if (prepare(launch)) return text;
  order_state = seed;
  const ls_shim::index grid = here.grid_size;
  std::vector<unsigned> order(warps.size()), blocks(grid.x * grid.y * grid.z);
  for (unsigned i = 0; i < order.size(); i++) order[i] = i;
  for (unsigned i = 0; i < blocks.size(); i++) blocks[i] = i;
  if (seed) shuffle_order(blocks.data(), blocks.size());
  for (size_t i = 0; i < blocks.size() && !failed; i++) {
    here.block = {blocks[i] % grid.x, blocks[i] / grid.x % grid.y, blocks[i] / grid.x / grid.y};
    run_block(&order, seed != 0);
  }
  clear_state();
  return failed ? text : nullptr;
}

size_t ls_shim_argument_bytes(const char *name) {
  const ls_shim_launch launch = {{name, nullptr}, {1, 1, 1}, 1, 0, nullptr, 0};
  const entry *of = find_entry(&launch);
  return of ? of->argument_bytes : 0;
}
