#include "virtual_cluster.hpp"

#include <cxxabi.h>
#include <sys/mman.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace ddl::sim {
namespace {

constexpr std::size_t kStackBytes = std::size_t{256} << 10;
/// The kernel allows a process some 65,000 mappings, and a guard page splits one.
constexpr std::size_t kMostGuarded = 8192;
constexpr std::size_t kPage = 4096;

/// The thread of a process that answers for it ticks so often.
constexpr Time kBetweenTicks = 100 * kMillisecond;

/// A look at the clock takes a moment, so that who only looks at it comes on.
constexpr Time kLook = 25;

Cluster* g_current = nullptr;

/// What the C++ runtime keeps for a thread of the exceptions under way, of which every fiber has its own.
struct Exceptions {
  void* caught = nullptr;
  unsigned int uncaught = 0;
};

Exceptions& exceptions() { return *reinterpret_cast<Exceptions*>(abi::__cxa_get_globals()); }

#ifdef __x86_64__
extern "C" void ddl_sim_switch(void** from, void* to);
asm(R"(
.text
.type ddl_sim_switch,@function
ddl_sim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size ddl_sim_switch,.-ddl_sim_switch
)");

using Context = void*;
void switch_to(Context& from, Context& to) { ddl_sim_switch(&from, to); }
void prepare(Context& context, char* stack, std::size_t bytes, void (*entry)()) {
  auto** top = reinterpret_cast<void**>(stack + bytes);
  *--top = nullptr;  // where a trace of the stack ends, and aligns it as a call does
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  context = top;
}
#else
using Context = ucontext_t;
void switch_to(Context& from, Context& to) { swapcontext(&from, &to); }
void prepare(Context& context, char* stack, std::size_t bytes, void (*entry)()) {
  getcontext(&context);
  context.uc_stack.ss_sp = stack;
  context.uc_stack.ss_size = bytes;
  context.uc_link = nullptr;
  makecontext(&context, entry, 0);
}
#endif

Context g_scheduler;

}  // namespace

struct Cluster::Fiber {
  int rank = 0;
  std::uint32_t index = 0;
  std::function<void()> action;
  bool own_stack = false;  ///< of a thread
  Context context{};
  Exceptions exceptions;
  char* stack = nullptr;
  std::uint32_t token = 0;
  Time wakes = 0;
  int streak = 0;  ///< waits since something happened
  int echo = 0;    ///< that its host's other ranks are told of what happened so often
  bool computes = false;
  bool killed = false;
  bool done = false;
};

Cluster::Cluster(const std::vector<int>& ranks_of, const Network& network, std::uint64_t seed)
    : network_(network), random_(seed) {
  for (std::size_t h = 0; h < ranks_of.size(); ++h) {
    Host& host = hosts_.emplace_back();
    for (int i = 0; i < ranks_of[h]; ++i) {
      host.ranks.push_back(static_cast<int>(host_of_.size()));
      host_of_.push_back(static_cast<int>(h));
    }
  }
  ranks_.resize(host_of_.size());
  traffic_.resize(host_of_.size());
  mpi_ = std::make_unique<Mpi>(*this);
}

Cluster::~Cluster() {
  for (Fiber& fiber : fibers_) {
    if (fiber.own_stack) std::free(fiber.stack);
  }
  if (stacks_ != nullptr) munmap(stacks_, stack_bytes_);
}

Cluster* Cluster::current() { return g_current; }

void Cluster::push(Time when, Kind kind, std::uint32_t what, std::uint32_t token) {
  events_queue_.push({when, ++order_, kind, what, token});
}

void Cluster::at(Time when, std::function<void()> action) {
  std::uint32_t index = 0;
  if (free_actions_.empty()) {
    index = static_cast<std::uint32_t>(actions_.size());
    actions_.emplace_back();
  } else {
    index = free_actions_.back();
    free_actions_.pop_back();
  }
  actions_[index] = std::move(action);
  push(when, Kind::kAction, index);
}

void Cluster::message_at(Time when, std::uint32_t message) { push(when, Kind::kMessage, message); }

void Cluster::reset_traffic() {
  std::fill(traffic_.begin(), traffic_.end(), Traffic{});
  connections_.clear();
}

Time Cluster::now() {
  local_ += kLook;
  return now_ + local_;
}

void Cluster::schedule(Fiber& fiber, Time when) {
  fiber.wakes = when;
  push(when, Kind::kRun, fiber.index, ++fiber.token);
}

void Cluster::leave() {
  Fiber& fiber = *fiber_;
  fiber.exceptions = exceptions();
  switch_to(fiber.context, g_scheduler);
  exceptions() = fiber.exceptions;
}

void Cluster::enter(Fiber& fiber) {
  running_ = fiber.rank;
  fiber_ = &fiber;
  local_ = 0;
  const Exceptions before = exceptions();
  switch_to(g_scheduler, fiber.context);
  exceptions() = before;
  running_ = -1;
  fiber_ = nullptr;
}

void Cluster::pause(Time requested, bool yields) {
  Fiber& fiber = *fiber_;
  if (fiber.killed) {
    // Time runs on for what waits for its end.
    local_ += 10 * kMillisecond;
    return;
  }
  // The more often in vain the longer, so that a wait costs few switches; an event of this rank, or of others
  // of its host, ends it. A look that comes late is what happens on a busy machine, too.
  const bool alone = ranks_of(host_of(fiber.rank)).size() == 1;
  const Time most = yields && fiber.streak < 48 ? 50 * kMicrosecond : (alone ? 20 : 5) * kMillisecond;
  const Time step = std::min<Time>(kMicrosecond << std::min(fiber.streak, 20), most);
  ++fiber.streak;
  if (fiber.echo > 0) {
    const int echo = --fiber.echo;
    for (const int mate : ranks_of(host_of(fiber.rank))) {
      if (mate == fiber.rank) continue;
      for (Fiber* const other : ranks_[static_cast<std::size_t>(mate)].fibers) {
        other->echo = std::max(other->echo, echo);
        wake(*other);
      }
    }
  }
  const Time wait = std::max(requested, step);
  schedule(fiber, now_ + local_ + wait + random(wait / 4 + 1));
  leave();
}

void Cluster::compute(Time duration) {
  Fiber& fiber = *fiber_;
  fiber.computes = true;
  schedule(fiber, now_ + local_ + duration);
  leave();
  fiber.computes = false;
  fiber.streak = 0;
  throw_if_killed();
}

void Cluster::throw_if_killed() const {
  if (fiber_ != nullptr && fiber_->killed) throw Killed{};
}

void Cluster::wake(Fiber& fiber) {
  if (fiber.done || fiber.computes || &fiber == fiber_) return;
  fiber.streak = 0;
  const Time soon = now_ + local_ + 200 + random(kMicrosecond);
  if (fiber.wakes > soon) schedule(fiber, soon);
}

void Cluster::wake(int rank) {
  for (Fiber* const fiber : ranks_[static_cast<std::size_t>(rank)].fibers) {
    // Others of the host may wait for what this rank makes of it.
    if (fiber != fiber_ && ranks_of(host_of(rank)).size() > 1) fiber->echo = 3;
    wake(*fiber);
  }
}

Cluster::Fiber& Cluster::new_fiber(int rank, char* stack, std::function<void()> action) {
  std::uint32_t index = static_cast<std::uint32_t>(fibers_.size());
  if (stack == nullptr && !free_fibers_.empty()) {
    index = free_fibers_.back();
    free_fibers_.pop_back();
  } else {
    fibers_.emplace_back();
  }
  Fiber& fiber = fibers_[index];
  char* kept = fiber.stack;
  if (stack == nullptr && kept == nullptr) kept = static_cast<char*>(std::aligned_alloc(kPage, kStackBytes));
  const std::uint32_t token = fiber.token;
  fiber = Fiber{};
  fiber.token = token;
  fiber.rank = rank;
  fiber.index = index;
  fiber.own_stack = stack == nullptr;
  fiber.stack = stack == nullptr ? kept : stack;
  fiber.action = std::move(action);
  prepare(fiber.context, fiber.stack, kStackBytes, begin);
  ranks_[static_cast<std::size_t>(rank)].fibers.push_back(&fiber);
  return fiber;
}

void Cluster::begin() {
  Cluster& cluster = *g_current;
  exceptions() = {};
  Fiber& fiber = *cluster.fiber_;
  try {
    fiber.action();
  } catch (const Killed&) {
  }
  fiber.action = nullptr;
  fiber.done = true;
  Rank& rank = cluster.ranks_[static_cast<std::size_t>(fiber.rank)];
  std::erase(rank.fibers, &fiber);
  if (!fiber.own_stack) {
    if (!rank.lost && !rank.ended) {
      rank.ended = true;
      if (!fiber.killed) --cluster.left_;
    }
    cluster.mpi_->forget(fiber.rank);
  } else {
    cluster.free_fibers_.push_back(fiber.index);
  }
  cluster.leave();
  std::abort();
}

void Cluster::start_thread(std::function<void()> action) {
  schedule(new_fiber(running_, nullptr, std::move(action)), now_ + local_ + kMicrosecond);
}

void Cluster::set_tick(std::function<void()> tick) {
  Rank& of = ranks_[static_cast<std::size_t>(running_)];
  const bool first = !of.tick;
  of.tick = std::move(tick);
  if (first) push(now_ + random(kBetweenTicks), Kind::kTick, static_cast<std::uint32_t>(running_));
}

void Cluster::lose_host(int host, Time when) {
  for (const int rank : ranks_of(host)) lose_process(rank, when);
}

void Cluster::lose_process(int rank, Time when) {
  at(when, [this, rank] { lose(rank); });
}

void Cluster::lose(int rank) {
  Rank& of = ranks_[static_cast<std::size_t>(rank)];
  if (of.lost || of.ended) return;
  of.lost = true;
  of.lost_at = now_;
  --left_;
  // Others of its host may look for the end of its process.
  for (const int mate : ranks_of(host_of(rank))) {
    if (mate != rank) wake(mate);
  }
}

void Cluster::stall_host(int host, Time from, Time duration) {
  at(from, [this, host, duration] {
    Time& until = hosts_[static_cast<std::size_t>(host)].stalled_until;
    until = std::max(until, now_ + duration);
  });
}

void Cluster::dispatch(const Event& event) {
  switch (event.kind) {
    case Kind::kMessage:
      mpi_->arrive(event.what);
      return;
    case Kind::kAction: {
      const std::function<void()> action = std::move(actions_[event.what]);
      actions_[event.what] = nullptr;
      free_actions_.push_back(event.what);
      action();
      return;
    }
    default:
      break;
  }
  const int rank = event.kind == Kind::kRun ? fibers_[event.what].rank : static_cast<int>(event.what);
  Rank& of = ranks_[static_cast<std::size_t>(rank)];
  if (of.lost || of.ended) return;
  const Time stalled = hosts_[static_cast<std::size_t>(host_of(rank))].stalled_until;
  if (event.kind == Kind::kTick) {
    if (stalled <= now_) {
      running_ = rank;
      local_ = 0;
      of.tick();
      running_ = -1;
    }
    push(std::max(now_, stalled) + kBetweenTicks + random(kBetweenTicks / 10), Kind::kTick, event.what);
    return;
  }
  Fiber& fiber = fibers_[event.what];
  if (event.token != fiber.token || fiber.done) return;
  if (stalled > now_) {
    schedule(fiber, stalled + random(kMillisecond));
    return;
  }
  enter(fiber);
}

void Cluster::kill(int rank) {
  Rank& of = ranks_[static_cast<std::size_t>(rank)];
  while (!of.fibers.empty()) {
    Fiber& fiber = *of.fibers.back();
    fiber.killed = true;
    enter(fiber);
  }
}

std::vector<int> Cluster::run(const std::function<void(int rank)>& program, Time deadline) {
  g_current = this;
  const std::size_t ranks = ranks_.size();
  const std::size_t each = kStackBytes + kPage;
  stack_bytes_ = ranks * each;
  stacks_ = static_cast<char*>(mmap(nullptr, stack_bytes_, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (stacks_ == MAP_FAILED) std::abort();
  for (std::size_t r = 0; r < ranks; ++r) {
    if (ranks <= kMostGuarded) mprotect(stacks_ + r * each, kPage, PROT_NONE);
    Fiber& fiber = new_fiber(static_cast<int>(r), stacks_ + r * each + kPage,
                             [&program, rank = static_cast<int>(r)] { program(rank); });
    schedule(fiber, random(100 * kMicrosecond));
  }
  left_ += static_cast<int>(ranks);
  while (left_ > 0 && !events_queue_.empty()) {
    const Event event = events_queue_.top();
    if (event.when > deadline) break;
    events_queue_.pop();
    now_ = std::max(now_, event.when);
    local_ = 0;
    ++events_;
    dispatch(event);
  }
  std::vector<int> waiting;
  for (std::size_t r = 0; r < ranks; ++r) {
    if (!ranks_[r].lost && !ranks_[r].ended) waiting.push_back(static_cast<int>(r));
  }
  for (std::size_t r = 0; r < ranks; ++r) kill(static_cast<int>(r));
  g_current = nullptr;
  return waiting;
}

}  // namespace ddl::sim
