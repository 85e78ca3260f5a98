// The threads of a launch as fibers of one thread of the processor: one runs until it waits for others or returns. Which
// one is next is drawn for each launch: the first that can go on, the last, or any. So where a kernel does not wait as it
// must, the same update gives other bytes.
#include <cuda_runtime.h>

#include <deque>
#include <memory>

namespace card_twin {
namespace {

constexpr std::size_t kStack = 96 << 10, kAlignment = 1024;  // of shared memory

// Keeps what a call must keep, and goes on where the other context stood.
extern "C" void card_twin_switch(void** from, void* to);
#if defined(__aarch64__)
asm(R"(
.text
.global card_twin_switch
card_twin_switch:
  sub sp, sp, #160
  stp x19, x20, [sp]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x2, sp
  str x2, [x0]
  mov sp, x1
  ldp x19, x20, [sp]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
)");
constexpr std::size_t kKept = 160, kReturn = 88;
#elif defined(__x86_64__)
asm(R"(
.text
.global card_twin_switch
card_twin_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
)");
constexpr std::size_t kKept = 56, kReturn = 48;
#else
#error "the twin of a card knows how to switch on aarch64 and x86-64"
#endif

struct Fiber;

// Threads that wait for each other. One that returns is waited for no more.
struct Team {
  unsigned members = 0;
  std::vector<Fiber*> waiting;
};
struct Warp : Team {
  alignas(16) char room[32 * 64];
};
struct Block : Team {
  std::vector<Warp> warps;
  std::vector<char> memory;
};
struct Fiber {
  Place place;
  Block* block;
  void* context;
};

void* scheduler = nullptr;
Fiber* running = nullptr;
std::deque<Fiber*> ready;
const std::function<void()>* to_run = nullptr;

enum class Order { kFirst, kLast, kAny } order = Order::kFirst;
std::uint64_t draw() {
  static std::uint64_t drawn = 1;
  drawn = drawn * 6364136223846793005u + 1442695040888963407u;
  return drawn >> 33;
}

Warp& warp_of(const Fiber& f) { return f.block->warps[f.place.thread / 32]; }

void leave() { card_twin_switch(&running->context, scheduler); }

void go_on_if_all_wait(Team& team) {
  if (team.waiting.empty() || team.waiting.size() < team.members) return;
  ready.insert(ready.end(), team.waiting.begin(), team.waiting.end());
  team.waiting.clear();
}

void wait_for(Team& team) {
  team.waiting.push_back(running);
  go_on_if_all_wait(team);
  leave();
}

void begin() {
  (*to_run)();
  for (Team* team : {static_cast<Team*>(running->block), static_cast<Team*>(&warp_of(*running))}) {
    --team->members;
    go_on_if_all_wait(*team);
  }
  leave();
}

void run_blocks(unsigned first, unsigned count, unsigned blocks, unsigned threads, std::size_t shared) {
  std::vector<Block> room(count);
  std::vector<Fiber> fibers(static_cast<std::size_t>(count) * threads);
  static std::vector<std::unique_ptr<char[]>> stacks;
  while (stacks.size() < fibers.size()) stacks.push_back(std::make_unique_for_overwrite<char[]>(kStack));
  for (unsigned b = 0; b < count; ++b) {
    Block& block = room[b];
    block.members = threads;
    block.warps.resize((threads + 31) / 32);
    block.memory.assign(shared + kAlignment, static_cast<char>(0xff));  // no numbers, until some are written
    const auto after = reinterpret_cast<std::uintptr_t>(block.memory.data()) % kAlignment;
    char* const memory = block.memory.data() + (kAlignment - after) % kAlignment;
    for (unsigned t = 0; t < threads; ++t) {
      const std::size_t i = static_cast<std::size_t>(b) * threads + t;
      Fiber& f = fibers[i];
      f.place = {t, first + b, threads, blocks, memory};
      f.block = &block;
      ++warp_of(f).members;
      char* const top = stacks[i].get() + kStack - reinterpret_cast<std::uintptr_t>(stacks[i].get() + kStack) % 16;
      f.context = top - kKept - 8 * (kKept % 16 != 0);
      std::memset(f.context, 0, kKept);
      void (*const entry)() = begin;
      std::memcpy(static_cast<char*>(f.context) + kReturn, &entry, sizeof entry);
      ready.push_back(&f);
    }
  }
  while (!ready.empty()) {
    if (order == Order::kAny) std::swap(ready[draw() % ready.size()], ready.back());
    running = order == Order::kFirst ? ready.front() : ready.back();
    order == Order::kFirst ? ready.pop_front() : ready.pop_back();
    card_twin_switch(&scheduler, running->context);
  }
  running = nullptr;
}

}  // namespace

const Place& place() { return running->place; }
void wait_in_block() { wait_for(*running->block); }
void wait_in_warp() { wait_for(warp_of(*running)); }
void* warp_room() { return warp_of(*running).room; }
void let_others_run() {
  order == Order::kLast ? ready.push_front(running) : ready.push_back(running);
  leave();
}

void run(unsigned blocks, unsigned threads, std::size_t shared, bool together, const std::function<void()>& thread) {
  to_run = &thread;
  order = static_cast<Order>(draw() % 3);
  if (together) return run_blocks(0, blocks, blocks, threads, shared);
  for (unsigned b = 0; b < blocks; ++b) run_blocks(b, 1, blocks, threads, shared);
}

}  // namespace card_twin
