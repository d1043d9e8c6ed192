// Random sequences of collective calls on random layouts of hosts. What every rank contributes is a function
// of the seed, so that each rank checks results against float64 or whole numbers by itself; bits are compared
// among all ranks.
//
// usage, under mpirun: fuzz_collectives SECONDS SEED [EPISODE]   worlds of the seeds from SEED on, for so
// long; 0: SEED alone
//                      fuzz_collectives lost SEED                one rank of that world is killed in the
//                      midst
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "ddl_mpi.hpp"
#include "plan/planner.hpp"
#include "reference.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define POISON(at, bytes) ASAN_POISON_MEMORY_REGION(at, bytes)
#define UNPOISON(at, bytes) ASAN_UNPOISON_MEMORY_REGION(at, bytes)
extern "C" void __sanitizer_set_death_callback(void (*callback)());
#else
#define POISON(at, bytes) static_cast<void>(at)
#define UNPOISON(at, bytes) static_cast<void>(at)
#endif

namespace {

constexpr DDL_Type kTypes[] = {DDL_TYPE_FLOAT,    DDL_TYPE_HALF,  DDL_TYPE_DOUBLE,
                               DDL_TYPE_BFLOAT16, DDL_TYPE_INT32, DDL_TYPE_INT64};
constexpr DDL_Op kOps[] = {DDL_OP_SUM, DDL_OP_MIN, DDL_OP_MAX, DDL_OP_PRODUCT, DDL_OP_AVG};
constexpr const char* kTypeNames[] = {"float", "half", "double", "bfloat16", "int32", "int64"};
constexpr const char* kOpNames[] = {"sum", "min", "max", "product", "avg"};

std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(mix(seed)) {}
  std::uint64_t next() { return mix(state_++); }
  std::size_t below(std::size_t n) { return n == 0 ? 0 : next() % n; }
  bool one_in(std::size_t n) { return below(n) == 0; }
  double unit() { return static_cast<double>(next() >> 11) / 9007199254740992.0; }
  template <class T>
  T of(std::initializer_list<T> values) {
    return values.begin()[below(values.size())];
  }
  template <class T, std::size_t n>
  T of(const T (&values)[n]) {
    return values[below(n)];
  }
  template <class T>
  void shuffle(std::vector<T>& values) {
    for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[below(i)]);
  }

 private:
  std::uint64_t state_;
};

// --- What is under way, for the last words of a process ---

char under_way[1200] = "nothing";
char world_text[600] = "";

void say_what_is_under_way() {
  const auto say = [](const char* text) { return write(STDERR_FILENO, text, std::strlen(text)) >= 0; };
  if (!say("FAILED ") || !say(world_text) || !say("\n  in ") || !say(under_way) || !say("\n")) _exit(2);
}

void last_words(int signal) {
  say_what_is_under_way();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

[[noreturn]] [[gnu::format(printf, 1, 2)]] void fail(const char* format, ...) {
  char text[1500];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  std::fprintf(stderr, "FAILED %s\n  in %s\n  %s\n", world_text, under_way, text);
  // Others may have something to say as well.
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

void expect_success(int status, const char* what) {
  if (status != DDL_SUCCESS) fail("%s: %s", what, ddl_last_error());
}

/// Leaves the processor to the ranks that have something to do.
void wait_politely(MPI_Request request, std::chrono::microseconds pause) {
  for (int done = 0;;) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done != 0) return;
    std::this_thread::sleep_for(pause);
  }
}

// --- Values ---

enum class Values {
  kExact,     ///< small whole numbers, or powers of two: no order of additions rounds
  kPlain,     ///< of ordinary size
  kSpecial,   ///< now and then NaN, infinities, zeros, subnormal numbers
  kDense,     ///< many of these
  kHuge,      ///< their sum does not fit, but their average does
  kPositive,  ///< the same, all of one sign
  kTiny,      ///< subnormal numbers
  kFull,      ///< any bits: of whole numbers
};
constexpr const char* kValuesNames[] = {"exact", "plain",    "special", "dense",
                                        "huge",  "positive", "tiny",    "full"};

struct Limits {
  double largest, least;
};

Limits limits_of(DDL_Type type) {
  switch (type) {
    case DDL_TYPE_HALF:
      return {65504, std::ldexp(1, -24)};
    case DDL_TYPE_BFLOAT16:
      return {std::ldexp(1.9921875, 127), std::ldexp(1, -133)};
    case DDL_TYPE_FLOAT:
      return {std::numeric_limits<float>::max(), std::numeric_limits<float>::denorm_min()};
    default:
      return {std::numeric_limits<double>::max(), std::numeric_limits<double>::denorm_min()};
  }
}

std::size_t width_of(DDL_Type type) { return ddl_type_size(type); }

constexpr std::size_t kPalette = 1024;
constexpr double kMostRanks = 16;

/// What inputs are made of.
struct Palette {
  std::vector<char> bytes;
  std::vector<double> floats;
  std::vector<std::int64_t> whole;
};

const Palette& palette_of(DDL_Type type, Values values, bool product, bool within_half) {
  static std::map<std::tuple<DDL_Type, Values, bool, bool>, Palette> made;
  Palette& palette = made[{type, values, product, within_half}];
  if (!palette.bytes.empty()) return palette;
  Random random(99);
  const std::size_t width = width_of(type);
  palette.bytes.resize(kPalette * width);
  const Limits limits = limits_of(type);
  // Sums in float32, and in float64 of doubles, must fit.
  const double huge = within_half || type == DDL_TYPE_HALF ? 65504 * 0.98 : limits.largest / kMostRanks;
  // What is next to nothing may become 0 in a product, and an infinity then NaN.
  const double least = product ? 0 : limits.least;
  const double specials[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, -0.0, least, -least};
  for (std::size_t i = 0; i < kPalette; ++i) {
    if (reference::is_integer(type)) {
      std::int64_t value = static_cast<std::int64_t>(random.below(17)) - 8;
      if (values != Values::kExact) value = static_cast<std::int64_t>(random.next());
      if (type == DDL_TYPE_INT32) value = static_cast<std::int32_t>(static_cast<std::uint64_t>(value));
      palette.whole.push_back(value);
      const auto small = static_cast<std::int32_t>(value);
      std::memcpy(&palette.bytes[i * width], width == 4 ? static_cast<const void*>(&small) : &value, width);
      continue;
    }
    const double sign = random.one_in(2) ? -1 : 1;
    double value = sign * (product ? 0.5 + 1.5 * random.unit() : 2 * random.unit());
    if (values == Values::kExact) {
      value = product ? sign * std::ldexp(1, static_cast<int>(random.below(3)) - 1)
                      : static_cast<double>(random.below(17)) - 8;
    }
    if (values == Values::kHuge) value = sign * huge * (0.5 + 0.5 * random.unit());
    if (values == Values::kPositive) value = huge * (0.5 + 0.5 * random.unit());
    if (values == Values::kTiny) value = sign * limits.least * static_cast<double>(random.below(100));
    if ((values == Values::kSpecial && random.one_in(48)) || (values == Values::kDense && random.one_in(3)))
      value = random.of(specials);
    reference::write(palette.bytes.data(), i, type, value);
    palette.floats.push_back(reference::read(palette.bytes.data(), i, type));
  }
  return palette;
}

// --- The world: a layout, options ---

struct World {
  std::uint64_t seed = 0;
  int ranks = 1;
  std::string hosts;    ///< as in DDL_EMULATE_HOSTS
  std::string domains;  ///< as in DDL_EMULATE_DOMAINS
  std::size_t host_count = 1;
  int tiers = 0;  ///< above the hosts, at most
  std::string options;
  char mode = 'p';
  std::string determinism = "run";
  std::string wire = "full";
  bool rehearsed = true;
  ddl::LinkModel links;
};

World draw_world(std::uint64_t seed, int most_ranks) {
  Random random(seed);
  World world;
  world.seed = seed;
  // Of its own, so that a seed still means the same hosts and options.
  Random domains(mix(seed) + 33);
  if (domains.one_in(2)) world.domains = std::to_string(1 + domains.below(5));
  const auto most = static_cast<std::size_t>(most_ranks);
  // So many hosts that their leaders pass on the sums of others.
  const bool many = most > 8 && random.one_in(3);
  std::size_t ranks = random.one_in(20) ? 1 : std::min(most, 2 + random.below(most - 1));
  if (many) ranks = 9 + random.below(most - 8);
  world.ranks = static_cast<int>(ranks);
  world.host_count =
      random.one_in(5) ? 1 : std::min(ranks, 2 + random.below(std::min<std::size_t>(6, ranks) - 1));
  if (many) world.host_count = 9 + random.below(ranks - 8);
  std::vector<std::size_t> hosts(world.host_count, ranks / world.host_count);
  hosts[0] += ranks % world.host_count;
  if (random.below(3) != 0) {
    hosts.assign(world.host_count, 1);
    for (std::size_t i = world.host_count; i < ranks; ++i) ++hosts[random.below(world.host_count)];
  }
  const bool racks = random.one_in(3);
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (i > 0) world.hosts += racks && random.one_in(2) ? (random.one_in(6) ? "//" : "/") : ",";
    world.hosts += std::to_string(hosts[i]);
  }
  if (world.host_count > 1) {
    world.tiers = world.hosts.find("//") != std::string::npos ? 3 : racks ? 2 : 1;
  }
  world.mode = random.of({'p', 'p', 'p', 'p', 'p', 'p', 'r', 'c', 'm'});
  world.options = std::string("-mode ") + world.mode;
  if (random.one_in(12)) {
    // One machine, which -mode takes apart.
    world.hosts = std::to_string(ranks);
    std::size_t left = ranks;
    std::string dims;
    for (std::size_t parts = 0; parts < 3; ++parts) {
      std::vector<std::size_t> divisors;
      for (std::size_t d = 1; d <= left; ++d) {
        if (left % d == 0) divisors.push_back(d);
      }
      const std::size_t dim = parts == 2 ? left : divisors[random.below(divisors.size())];
      left /= dim;
      dims += (parts == 0 ? ":" : "x") + std::to_string(dim);
    }
    world.options += dims;
    world.host_count = ranks;
    world.tiers = 2;
  } else if (random.one_in(10)) {
    world.options += " -topology none";
  } else if (world.host_count > 1 && random.one_in(6)) {
    // Racks whose hosts do not follow each other.
    std::string racks_of[3];
    for (std::size_t host = 0; host <= world.host_count; ++host) {
      std::string& rack = racks_of[random.below(3)];
      rack += (rack.empty() ? "" : ",") + ("\"emulated" + std::to_string(host) + '"');
    }
    std::string groups;
    for (const std::string& rack : racks_of) {
      if (!rack.empty()) groups += (groups.empty() ? "" : ",") + ("{\"hosts\":[" + rack + "]}");
    }
    world.options += " -topology {\"version\":1,\"groups\":[" + groups + "]}";
    world.tiers = 2;
  }
  world.determinism = random.of({"run", "run", "off", "off", "placement"});
  if (world.determinism != "run") world.options += " -deterministic " + world.determinism;
  if (random.one_in(3)) world.wire = random.of({"fp16", "bf16", "q8"});
  if (world.wire != "full") world.options += " -wire " + world.wire;
  // Nobody is late but on purpose, and a hang is one after this.
  world.options += " -timeout 120 -patience 120";
  world.rehearsed = !random.one_in(8);
  world.links = ddl::LinkModel::assumed(1);
  world.links.tiers.clear();
  for (int tier = 0; tier < 4; ++tier) {
    world.links.tiers.push_back({std::pow(10, -6 + 3 * random.unit()), std::pow(10, 8 + 3 * random.unit())});
  }
  world.links.origin = "rehearsed";
  return world;
}

World world;
MPI_Comm world_comm = MPI_COMM_NULL;
int world_rank = 0;

// --- Buffers ---

constexpr std::size_t kGuard = 64;

/// Memory between two guards, which nobody may touch.
class Guarded {
 public:
  Guarded(std::size_t bytes, std::size_t shift)
      : bytes_(bytes), at_(kGuard + shift), size_(bytes + 3 * kGuard), all_(new char[size_]) {
    std::memset(all_.get(), 0x5a, size_);
    poison();
  }
  Guarded(Guarded&&) = default;
  ~Guarded() {
    if (all_) UNPOISON(all_.get(), size_);
  }

  char* data() { return all_.get() + at_; }
  std::size_t bytes() const { return bytes_; }
  bool intact() {
    UNPOISON(all_.get(), size_);
    const auto kept = [](char byte) { return byte == 0x5a; };
    const char* const all = all_.get();
    const bool good = std::all_of(all, all + at_, kept) && std::all_of(all + at_ + bytes_, all + size_, kept);
    poison();
    return good;
  }

 private:
  void poison() {
    POISON(all_.get(), at_);
    POISON(all_.get() + at_ + bytes_, size_ - at_ - bytes_);
  }

  std::size_t bytes_, at_, size_;
  std::unique_ptr<char[]> all_;
};

// --- Calls ---

enum class Kind {
  kAllreduce,
  kPlain,
  kReduce,
  kBroadcast,
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kExchange,
  kBarrier
};
constexpr const char* kKindNames[] = {"allreduce",  "allreduce_plain", "reduce",
                                      "broadcast",  "reduce_scatter",  "all_gather",
                                      "all_to_all", "exchange",        "barrier"};

struct Call {
  Kind kind = Kind::kAllreduce;
  DDL_Type type = DDL_TYPE_FLOAT;
  DDL_Op op = DDL_OP_SUM;
  Values values = Values::kPlain;
  std::vector<std::size_t> counts{0};  ///< of the buffers; of block calls, that of a block
  int root = 0;
  int priority = 0;
  std::uint64_t id = 0;  ///< what the inputs are made of
  std::uint64_t variant = 0;
  std::string name;

  std::size_t count() const {
    std::size_t all = 0;
    for (const std::size_t count : counts) all += count;
    return all;
  }
  bool reduces() const {
    return kind == Kind::kAllreduce || kind == Kind::kPlain || kind == Kind::kReduce ||
           kind == Kind::kReduceScatter;
  }
  std::string text() const {
    std::string text = kKindNames[static_cast<int>(kind)];
    if (kind == Kind::kBarrier) return text;
    text += std::string(" of ") + kTypeNames[type];
    if (reduces()) text += std::string(", ") + kOpNames[op];
    text += std::string(", values ") + kValuesNames[static_cast<int>(values)] + ", counts";
    for (const std::size_t count : counts) text += " " + std::to_string(count);
    return text + ", root " + std::to_string(root) + (name.empty() ? "" : ", named " + name);
  }
};

/// Those who make a call: the world, a group, or the ranks of a communicator.
struct Members {
  int size = 1;
  int me = 0;  ///< -1: none of them
  std::optional<DDL_Group> group;
  MPI_Comm comm = MPI_COMM_NULL;
};

/// A call with its buffers.
class Made {
 public:
  Made(Call call, const Members& of)
      : call_(std::move(call)),
        members_(of),
        ranks_(static_cast<std::size_t>(of.size)),
        me_(static_cast<std::size_t>(of.me)),
        width_(width_of(call_.type)),
        palette_(palette_of(call_.type, call_.values, call_.reduces() && call_.op == DDL_OP_PRODUCT,
                            world.wire == "fp16" && call_.type == DDL_TYPE_FLOAT)) {
    const std::size_t count = call_.count();
    const auto shift = [&] { return (call_.variant / 64 + in_.size()) % 8 * width_; };
    const auto take = [&](std::vector<Guarded>& list, std::size_t elements) {
      list.emplace_back(elements * width_, shift());
    };
    switch (call_.kind) {
      case Kind::kBarrier:
        return;
      case Kind::kExchange:
        for (std::size_t r = 0; r < ranks_; ++r) {
          take(in_, block(me_, r));
          take(out_, block(r, me_));
          fill(in_.back().data(), me_, r * 1000, block(me_, r));
        }
        return;
      case Kind::kReduceScatter:
      case Kind::kAllToAll:
        take(in_, count * ranks_);
        take(out_, count);
        if (call_.kind == Kind::kAllToAll) {
          out_.clear();
          take(out_, count * ranks_);
        }
        fill(in_[0].data(), me_, 0, count * ranks_);
        return;
      case Kind::kAllGather:
        take(in_, count);
        take(out_, count * ranks_);
        fill(in_[0].data(), me_, 0, count);
        return;
      default:
        for (std::size_t at = 0; const std::size_t each : call_.counts) {
          take(in_, each);
          fill(in_.back().data(), me_, at, each);
          at += each;
        }
    }
  }

  const Call& call() const { return call_; }

  int make() {
    DDL_Handle none = 0;
    return start(none, false);
  }

  /// Makes or starts it.
  int start(DDL_Handle& handle, bool only_start) {
    pointers_.clear();
    for (Guarded& buffer : in_) {
      pointers_.push_back(buffer.bytes() == 0 && call_.variant % 2 == 0 ? nullptr : buffer.data());
    }
    void* const first = pointers_.empty() ? nullptr : pointers_[0];
    void* const out = out_.empty() || out_[0].bytes() == 0 ? nullptr : out_[0].data();
    const char* const name = call_.name.empty() ? nullptr : call_.name.c_str();
    const std::size_t count = call_.counts[0];
    const std::size_t n = call_.counts.size();
    const DDL_Type type = call_.type;
    const DDL_Op op = call_.op;
    const bool variant = call_.variant / 2 % 2 == 0;
    if (members_.comm != MPI_COMM_NULL) {
      const MPI_Datatype types[] = {MPI_FLOAT,         MPI_DATATYPE_NULL, MPI_DOUBLE,
                                    MPI_DATATYPE_NULL, MPI_INT32_T,       MPI_INT64_T};
      const MPI_Op ops[] = {MPI_SUM, MPI_MIN, MPI_MAX, MPI_PROD, MPI_OP_NULL};
      return ddl_allreduce_mpi(nullptr, first, count, types[type], ops[op], members_.comm);
    }
    if (only_start && variant && call_.kind == Kind::kAllreduce) {
      return ddl_allreduce_start(pointers_.data(), call_.counts.data(), n, type, op, name, call_.priority,
                                 &handle);
    }
    if (only_start && variant && call_.kind == Kind::kBroadcast) {
      return ddl_broadcast_start(pointers_.data(), call_.counts.data(), n, type, call_.root, name,
                                 call_.priority, &handle);
    }
    if (call_.kind == Kind::kExchange) return exchange_in(*members_.group, name);
    if (only_start || members_.group || (call_.kind != Kind::kPlain && call_.variant / 4 % 4 == 0)) {
      DDL_Call value{};
      value.size = sizeof value;
      value.collective = collective();
      value.bufs = pointers_.data();
      value.counts = call_.counts.data();
      value.n = n;
      value.in = first;
      value.out = out;
      value.count = count;
      value.type = type;
      value.op = op;
      value.root = call_.root;
      value.priority = call_.priority;
      value.name = name;
      value.group = members_.group.value_or(0);
      return only_start ? ddl_call_start(&value, &handle) : ddl_call(&value);
    }
    switch (call_.kind) {
      case Kind::kAllreduce:
        return n == 1 && name == nullptr && variant
                   ? ddl_allreduce(first, count, type, op)
                   : ddl_allreduce_n(pointers_.data(), call_.counts.data(), n, type, op, name);
      case Kind::kPlain:
        return ddl_allreduce_plain(first, count, type, op);
      case Kind::kReduce:
        return ddl_reduce(first, count, type, op, call_.root, name);
      case Kind::kBroadcast:
        return n == 1 && variant
                   ? ddl_broadcast(first, count, type, call_.root, name)
                   : ddl_broadcast_n(pointers_.data(), call_.counts.data(), n, type, call_.root, name);
      case Kind::kReduceScatter:
        return ddl_reduce_scatter(first, out, count, type, op, name);
      case Kind::kAllGather:
        return ddl_all_gather(first, out, count, type, name);
      case Kind::kAllToAll:
        return ddl_all_to_all(first, out, count, type, name);
      default:
        return ddl_barrier();
    }
  }

  /// Of a call that is made as a value.
  DDL_Collective collective() const {
    switch (call_.kind) {
      case Kind::kReduce:
        return DDL_REDUCE;
      case Kind::kBroadcast:
        return DDL_BROADCAST;
      case Kind::kReduceScatter:
        return DDL_REDUCE_SCATTER;
      case Kind::kAllGather:
        return DDL_ALL_GATHER;
      case Kind::kAllToAll:
        return DDL_ALL_TO_ALL;
      case Kind::kBarrier:
        return DDL_BARRIER;
      default:
        return DDL_ALLREDUCE;
    }
  }

  /// Fails where a result, an input that is only read, or a guard is not what it should be.
  void check() {
    check_guards();
    const std::size_t count = call_.count();
    switch (call_.kind) {
      case Kind::kBarrier:
        return;
      case Kind::kExchange:
        for (std::size_t r = 0; r < ranks_; ++r) {
          expect_same(out_[r].data(), r, me_ * 1000, block(r, me_), "block");
          expect_same(in_[r].data(), me_, r * 1000, block(me_, r), "input");
        }
        return;
      case Kind::kBroadcast:
        for_each_buffer([&](Guarded& buffer, std::size_t at, std::size_t each) {
          expect_same(buffer.data(), static_cast<std::size_t>(call_.root), at, each, "buffer");
        });
        return;
      case Kind::kAllGather:
        for (std::size_t r = 0; r < ranks_; ++r)
          expect_same(out_[0].data() + r * count * width_, r, 0, count, "block");
        expect_same(in_[0].data(), me_, 0, count, "input");
        return;
      case Kind::kAllToAll:
        for (std::size_t r = 0; r < ranks_; ++r)
          expect_same(out_[0].data() + r * count * width_, r, me_ * count, count, "block");
        expect_same(in_[0].data(), me_, 0, count * ranks_, "input");
        return;
      case Kind::kReduceScatter:
        expect_reduced(out_[0].data(), me_ * count, 0, count);
        expect_same(in_[0].data(), me_, 0, count * ranks_, "input");
        return;
      case Kind::kReduce:
        for_each_buffer([&](Guarded& buffer, std::size_t at, std::size_t each) {
          if (call_.root == members_.me) {
            expect_reduced(buffer.data(), at, 0, each);
          } else {
            expect_same(buffer.data(), me_, at, each, "buffer, which is only read,");
          }
        });
        return;
      default:
        // Each rank checks a part: the bits of all are compared.
        const std::size_t begin = count * me_ / ranks_;
        const std::size_t end = count * (me_ + 1) / ranks_;
        for_each_buffer([&](Guarded& buffer, std::size_t at, std::size_t each) {
          const std::size_t from = std::max(begin, at);
          const std::size_t to = std::min(end, at + each);
          if (from < to) expect_reduced(buffer.data(), at, from - at, to - at);
        });
    }
  }

  void check_guards() {
    for (Guarded& buffer : in_) {
      if (!buffer.intact()) fail("bytes beside a buffer were written");
    }
    for (Guarded& buffer : out_) {
      if (!buffer.intact()) fail("bytes beside a result were written");
    }
  }

  /// Of what all ranks have alike; 0: nothing.
  /// @param any_nan  one NaN is as good as another
  std::uint64_t digest(bool any_nan = false) {
    const bool alike = call_.kind == Kind::kAllreduce || call_.kind == Kind::kPlain ||
                       call_.kind == Kind::kBroadcast || call_.kind == Kind::kAllGather;
    if (!alike) return 0;
    std::uint64_t digest = call_.count();
    for (Guarded& buffer : call_.kind == Kind::kAllGather ? out_ : in_) {
      for (std::size_t i = 0; i < buffer.bytes() / width_; ++i) {
        std::uint64_t word = 0;
        std::memcpy(&word, buffer.data() + i * width_, width_);
        if (any_nan && std::isnan(reference::read(buffer.data(), i, call_.type))) word = ~std::uint64_t{0};
        digest = (digest ^ word) * 0x9e3779b97f4a7c15;
        digest ^= digest >> 29;
      }
    }
    return digest;
  }

  /// After a failure the buffers are the program's: nothing may write to them any more.
  void take_back() {
    for (std::vector<Guarded>* list : {&in_, &out_}) {
      for (Guarded& buffer : *list) std::memset(buffer.data(), 0x33, buffer.bytes());
    }
  }
  void check_taken_back() {
    check_guards();
    for (std::vector<Guarded>* list : {&in_, &out_}) {
      for (Guarded& buffer : *list) {
        const char* const data = buffer.data();
        if (!std::all_of(data, data + buffer.bytes(), [](char byte) { return byte == 0x33; }))
          fail("a buffer was written after its call had failed");
      }
    }
  }

 private:
  std::size_t block(std::size_t from, std::size_t to) const {
    const std::uint64_t drawn = mix(call_.id + from * 131 + to);
    return drawn % 3 == 0 ? 0 : (drawn >> 8) % (call_.counts[0] + 1);
  }

  const char* element(std::size_t rank, std::size_t i) const {
    return &palette_.bytes[index(rank, i) * width_];
  }
  std::size_t index(std::size_t rank, std::size_t i) const {
    return mix(call_.id + rank * 0x10000000000 + i) % kPalette;
  }
  void fill(char* to, std::size_t rank, std::size_t begin, std::size_t count) const {
    for (std::size_t i = 0; i < count; ++i) std::memcpy(to + i * width_, element(rank, begin + i), width_);
  }

  template <class Action>
  void for_each_buffer(Action action) {
    for (std::size_t at = 0, b = 0; b < in_.size(); at += call_.counts[b], ++b)
      action(in_[b], at, call_.counts[b]);
  }

  int exchange_in(DDL_Group group, const char* name) {
    std::vector<const void*> in;
    std::vector<void*> to;
    std::vector<std::size_t> in_bytes, out_bytes;
    for (std::size_t r = 0; r < ranks_; ++r) {
      in.push_back(in_[r].data());
      to.push_back(out_[r].data());
      in_bytes.push_back(in_[r].bytes());
      out_bytes.push_back(out_[r].bytes());
    }
    return ddl_group_exchange(group, in.data(), in_bytes.data(), to.data(), out_bytes.data(), name);
  }

  void expect_same(const char* got, std::size_t rank, std::size_t begin, std::size_t count,
                   const char* what) const {
    for (std::size_t i = 0; i < count; ++i) {
      if (std::memcmp(got + i * width_, element(rank, begin + i), width_) == 0) continue;
      fail("%s: element %zu of %zu is not that of rank %zu: %.9g", what, i, count, rank,
           reference::read(got, i, call_.type));
    }
  }

  /// @param got  elements from `at` of the whole on
  void expect_reduced(const char* got, std::size_t at, std::size_t from, std::size_t to) const {
    for (std::size_t i = from; i < to; ++i) {
      if (reference::is_integer(call_.type)) {
        expect_whole(got, at, i);
      } else {
        expect_float(got, at, i);
      }
    }
  }

  std::string inputs(std::size_t i) const {
    std::string text;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const std::size_t at = index(rank, i);
      char value[40];
      std::snprintf(value, sizeof value, " %.9g",
                    palette_.floats.empty() ? static_cast<double>(palette_.whole[at]) : palette_.floats[at]);
      text += value;
    }
    return text;
  }

  void expect_whole(const char* got, std::size_t at, std::size_t i) const {
    const auto narrow = [&](std::int64_t value) {
      return call_.type == DDL_TYPE_INT32 ? static_cast<std::int32_t>(static_cast<std::uint64_t>(value))
                                          : value;
    };
    std::int64_t expected = palette_.whole[index(0, at + i)];
    for (std::size_t rank = 1; rank < ranks_; ++rank)
      expected = narrow(reference::combine(call_.op, expected, palette_.whole[index(rank, at + i)]));
    if (call_.op == DDL_OP_AVG) expected /= static_cast<std::int64_t>(ranks_);
    std::int64_t value = 0;
    std::int32_t small = 0;
    std::memcpy(width_ == 4 ? static_cast<void*>(&small) : &value, got + i * width_, width_);
    if (width_ == 4) value = small;
    if (value != expected) {
      fail("element %zu is %lld, expected %lld; inputs%s", at + i, static_cast<long long>(value),
           static_cast<long long>(expected), inputs(at + i).c_str());
    }
  }

  void expect_float(const char* got, std::size_t at, std::size_t i) const {
    double expected = palette_.floats[index(0, at + i)];
    double magnitude = std::fabs(expected);
    double largest = std::isfinite(expected) ? magnitude : 0;
    for (std::size_t rank = 1; rank < ranks_; ++rank) {
      // Largest values are half of what fits, divided by the ranks.
      const double next = palette_.floats[index(rank, at + i)];
      expected = reference::combine(call_.op, expected, next);
      magnitude = call_.op == DDL_OP_PRODUCT ? magnitude * std::fabs(next) : magnitude + std::fabs(next);
      if (std::isfinite(next)) largest = std::max(largest, std::fabs(next));
    }
    const auto ranks = static_cast<double>(ranks_);
    const double divisor = call_.op == DDL_OP_AVG ? ranks : 1;
    expected /= divisor;
    magnitude /= divisor;
    const double value = reference::read(got, i, call_.type);
    const bool good = std::isnan(expected)   ? std::isnan(value)
                      : std::isinf(expected) ? value == expected
                                             : std::fabs(value - expected) <= tolerance(magnitude, ranks);
    if (!good) {
      fail("element %zu is %.9g, expected %.9g within %.3g; inputs%s", at + i, value, expected,
           tolerance(magnitude, ranks), inputs(at + i).c_str());
    }
  }

  double tolerance(double magnitude, double ranks) const {
    if (call_.op == DDL_OP_MIN || call_.op == DDL_OP_MAX) return 0;
    const bool encoded = call_.kind == Kind::kAllreduce && call_.type == DDL_TYPE_FLOAT &&
                         world.wire != "full" && world.host_count > 1 &&
                         (call_.op == DDL_OP_SUM || call_.op == DDL_OP_AVG);
    if (call_.values == Values::kExact && call_.op != DDL_OP_AVG && !(encoded && world.wire == "q8"))
      return 0;
    const double rounding = (ranks + 2) * reference::unit_roundoff(call_.type) * magnitude;
    // Of a product the others may multiply what was rounded in the range of subnormal numbers.
    const double below = std::ldexp(limits_of(call_.type).least, call_.op == DDL_OP_PRODUCT ? 16 : 5);
    if (!encoded) return rounding + below;
    // docs/reference/wire-formats.md, Error of a whole all-reduce
    const bool q8 = world.wire == "q8";
    const double unit = world.wire == "fp16"   ? std::ldexp(1, -11)
                        : world.wire == "bf16" ? std::ldexp(1, -8)
                                               : (1 + std::ldexp(1, -14)) / 252;
    if (q8) {
      // every block may have the largest of all, and a name brings the residual of the call before
      double most = 0;
      for (const double x : palette_.floats) {
        if (std::isfinite(x)) most = std::max(most, std::fabs(x));
      }
      magnitude = most * (call_.op == DDL_OP_AVG ? 1 : ranks) * (call_.name.empty() ? 1 : 3);
    }
    const double least = world.wire == "fp16" ? std::ldexp(1, -25) : std::ldexp(1.001, -126);
    return rounding + below + (std::pow(1 + unit, world.tiers + 1) - 1) * magnitude * 1.01 +
           2 * ranks * least;
  }

  Call call_;
  Members members_;
  std::size_t ranks_, me_, width_;
  const Palette& palette_;
  std::vector<Guarded> in_, out_;
  std::vector<void*> pointers_;
};

// --- Drawing calls ---

/// An element more or less than where the library begins to do something else.
std::size_t draw_count(Random& random, std::size_t width, const Members& of) {
  const std::size_t kib = 1024;
  std::size_t bytes = 0;
  switch (random.below(8)) {
    case 0:
      return random.below(4);
    case 1:
      return random.below(3) * static_cast<std::size_t>(of.size) + random.below(3);
    case 2:
      return random.below(9) * 256 + random.below(3);
    case 3:
      return random.below(40 * kib) / width;
    case 4:
      // the planner's records
      bytes = ((4 + random.below(4)) << random.below(19)) / 4;
      break;
    case 5:
      bytes = 1024 * kib / world.host_count;
      break;
    default:
      bytes = random.of({8 * kib, 32 * kib, 32 * kib, 64 * kib, 64 * kib, 128 * kib, 128 * kib, 128 * kib,
                         256 * kib, 512 * kib, 1024 * kib, 4096 * kib});
  }
  if (bytes > 256 * kib && random.below(bytes / (256 * kib)) > 0)
    bytes = random.of({64 * kib, 128 * kib, 192 * kib});
  const std::size_t count = bytes / width + random.below(3);
  return count == 0 ? 0 : count - 1;
}

void draw_reduction(Random& random, Call& call) {
  call.op = random.of(kOps);
  call.values = random.of({Values::kExact, Values::kPlain, Values::kPlain, Values::kSpecial, Values::kSpecial,
                           Values::kDense, Values::kHuge, Values::kPositive, Values::kTiny});
  if (reference::is_integer(call.type)) call.values = random.of({Values::kExact, Values::kFull});
  const bool huge = call.values == Values::kHuge || call.values == Values::kPositive;
  if (huge && (call.op == DDL_OP_SUM || call.op == DDL_OP_PRODUCT)) call.op = DDL_OP_AVG;
  if (call.values == Values::kTiny && call.op == DDL_OP_PRODUCT) call.op = DDL_OP_SUM;
}

void draw_name(Random& random, Call& call) {
  if (!random.one_in(3)) return;
  // What q8 keeps for a name is of about the size of what comes under it.
  call.name = std::string(random.of({"loss", "weights"})) + ", " + kOpNames[call.op] + " of " +
              kValuesNames[static_cast<int>(call.values)];
}

Call draw_call(Random& random, Kind kind, const Members& of) {
  Call call;
  call.kind = kind;
  call.id = random.next();
  call.variant = random.next();
  call.priority = static_cast<int>(random.below(4));
  call.type = random.of(kTypes);
  call.root = static_cast<int>(random.below(static_cast<std::size_t>(of.size)));
  draw_reduction(random, call);
  draw_name(random, call);
  if (kind == Kind::kPlain) call.name.clear();
  const std::size_t width = width_of(call.type);
  std::size_t count = draw_count(random, width, of);
  if (kind == Kind::kReduceScatter || kind == Kind::kAllGather || kind == Kind::kAllToAll) {
    if (random.one_in(2) || count * width > 64 * 1024) count /= static_cast<std::size_t>(of.size);
  }
  call.counts = {count};
  if ((kind == Kind::kAllreduce || kind == Kind::kBroadcast) && random.one_in(3)) {
    // one call of the same size, in pieces
    call.counts.clear();
    for (std::size_t left = count; left > 0 || call.counts.empty();) {
      const std::size_t piece = call.counts.size() == 5 ? left : random.below(left + 1);
      call.counts.push_back(piece);
      left -= piece;
    }
    random.shuffle(call.counts);
  }
  return call;
}

Kind draw_kind(Random& random, bool group) {
  if (random.one_in(2)) return Kind::kAllreduce;
  const Kind kind = random.of({Kind::kPlain, Kind::kReduce, Kind::kBroadcast, Kind::kReduceScatter,
                               Kind::kAllGather, Kind::kAllToAll, Kind::kExchange, Kind::kBarrier});
  if (group) return kind == Kind::kPlain ? Kind::kAllreduce : kind;
  return kind == Kind::kExchange ? Kind::kAllreduce : kind;
}

// --- Episodes: sequences that belong together ---

/// Calls whose results are to be compared among their ranks.
struct Compared {
  std::uint64_t digest;  ///< 0 where this rank had none
  std::string text;
};

class Episode {
 public:
  Episode(const World& of, std::size_t number)
      : number_(number),
        random_(mix(of.seed) + number),
        own_(random_.next() + static_cast<std::uint64_t>(world_rank)) {
    everyone_.size = of.ranks;
    everyone_.me = world_rank;
  }

  void play() {
    switch (random_.below(10)) {
      case 0:
      case 1:
      case 2:
        twins();
        break;
      case 3:
      case 4:
      case 5:
        mixture();
        break;
      case 6:
      case 7:
        started();
        break;
      case 8:
        groups();
        break;
      default:
        communicators();
    }
    compare();
  }

 private:
  void late() {
    if (own_.one_in(24)) std::this_thread::sleep_for(std::chrono::microseconds(own_.below(4000)));
  }

  void note(const std::string& what) {
    std::snprintf(under_way, sizeof under_way, "episode %zu, call %zu, rank %d: %s", number_, calls_,
                  world_rank, what.c_str());
    ++calls_;
  }

  std::uint64_t make(const Call& call, const Members& of) {
    note(call.text());
    if (of.me < 0) {
      compared_.push_back({0, under_way});
      return 0;
    }
    Made made(call, of);
    late();
    expect_success(made.make(), "the call");
    made.check();
    compared_.push_back({made.digest(), under_way});
    return made.digest(true);
  }

  /// A size at a threshold, and then larger and smaller ones that the planner may take for the same.
  void twins(const Members* members = nullptr) {
    const Members& of = members != nullptr ? *members : everyone_;
    Call call = draw_call(random_, Kind::kAllreduce, of);
    if (of.comm != MPI_COMM_NULL) fit_mpi(call);
    call.name.clear();
    call.counts = {call.count()};
    const std::size_t width = width_of(call.type);
    if (random_.one_in(2))
      call.counts[0] = random_.of({std::size_t{131072}, std::size_t{65536}, std::size_t{32768}}) / width;
    const std::size_t first = call.counts[0];
    const std::size_t firsts = 1 + random_.below(3);
    const std::size_t others = first * width > (std::size_t{512} << 10) ? 6 : 12 + random_.below(18);
    // two sizes alone repeat often enough to meet all candidates
    std::size_t sizes[2];
    for (std::size_t& size : sizes) size = first + (random_.one_in(3) ? 1 : random_.below(first / 4 + 1));
    std::map<std::size_t, std::uint64_t> bits;
    for (std::size_t i = 0; i < firsts + others; ++i) {
      call.counts[0] = i < firsts ? first : sizes[random_.below(2)];
      call.variant = random_.next();
      const std::uint64_t digest = make(call, of);
      if (of.me < 0 || world.determinism == "off" || world.mode == 'm') continue;
      // what is encoded for the network is promised to be the same on all ranks, not in all calls
      if (call.type == DDL_TYPE_FLOAT && world.wire != "full") continue;
      const auto [known, fresh] = bits.emplace(call.counts[0], digest);
      if (!fresh && known->second != digest) fail("the same inputs have given other bits before");
    }
  }

  void mixture() {
    for (std::size_t left = 4 + random_.below(16); left > 0; --left)
      make(draw_call(random_, draw_kind(random_, false), everyone_), everyone_);
  }

  /// Calls that are under way at once, some of which are made together; and some between them that are not
  /// started.
  void started() {
    const DDL_Type types[] = {random_.of(kTypes), random_.of(kTypes)};
    const DDL_Op ops[] = {random_.of(kOps), DDL_OP_SUM};
    struct Open {
      std::unique_ptr<Made> made;
      DDL_Handle handle;
      std::string text;
      std::size_t place;
    };
    std::vector<Open> open;
    for (std::size_t left = 2 + random_.below(12); left > 0; --left) {
      Kind kind = Kind::kAllreduce;
      if (random_.one_in(3)) {
        kind = random_.of(
            {Kind::kBroadcast, Kind::kReduce, Kind::kReduceScatter, Kind::kAllGather, Kind::kAllToAll});
      }
      Call call = draw_call(random_, kind, everyone_);
      if (random_.below(4) != 0) {
        call.type = types[random_.below(2)];
        draw_reduction(random_, call);
        if (call.values != Values::kHuge && call.values != Values::kPositive && call.values != Values::kTiny)
          call.op = ops[random_.below(2)];
      }
      if (!random_.one_in(4))
        call.name = "tensor " + std::to_string(open.size()) + " of " + std::to_string(number_);
      note("started " + call.text());
      late();
      auto made = std::make_unique<Made>(call, everyone_);
      DDL_Handle handle = 0;
      expect_success(made->start(handle, true), "starting the call");
      open.push_back({std::move(made), handle, under_way, compared_.size()});
      compared_.push_back({0, under_way});
      if (random_.one_in(6)) make(draw_call(random_, draw_kind(random_, false), everyone_), everyone_);
    }
    own_.shuffle(open);
    for (Open& call : open) {
      std::snprintf(under_way, sizeof under_way, "%s", call.text.c_str());
      late();
      int done = 0;
      if (own_.one_in(2)) expect_success(ddl_test(call.handle, &done), "ddl_test");
      expect_success(ddl_wait(call.handle), "ddl_wait");
      call.made->check();
      compared_[call.place].digest = call.made->digest();
    }
  }

  /// Of groups that exist at the same time each rank is in one at most.
  void groups() {
    std::vector<int> ranks;
    for (int rank = 0; rank < world.ranks; ++rank) ranks.push_back(rank);
    random_.shuffle(ranks);
    const std::size_t cut = 1 + random_.below(ranks.size());
    const bool all = random_.one_in(5);
    std::vector<std::vector<int>> of(2);
    of[0].assign(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(cut));
    of[1].assign(ranks.begin() + static_cast<std::ptrdiff_t>(cut), ranks.end());
    if (all) {
      of.resize(1);
      std::sort(ranks.begin(), ranks.end());
      of[0] = ranks;
    }
    for (const std::vector<int>& members : of) {
      Members group;
      group.size = static_cast<int>(members.size());
      const auto found = std::find(members.begin(), members.end(), world_rank);
      group.me = found == members.end() ? -1 : static_cast<int>(found - members.begin());
      if (members.empty()) continue;
      note("ddl_group_create of " + std::to_string(members.size()));
      DDL_Group handle = 0;
      if (group.me >= 0) {
        late();
        expect_success(ddl_group_create(members.data(), all ? 0 : members.size(), 0, &handle),
                       "ddl_group_create");
        group.group = handle;
      }
      if (random_.one_in(3)) twins(&group);
      for (std::size_t left = 2 + random_.below(8); left > 0; --left)
        make(draw_call(random_, draw_kind(random_, true), group), group);
      note("ddl_group_free");
      if (group.me >= 0) expect_success(ddl_group_free(handle), "ddl_group_free");
    }
  }

  static void fit_mpi(Call& call) {
    if (call.type == DDL_TYPE_HALF) call.type = DDL_TYPE_FLOAT;
    if (call.type == DDL_TYPE_BFLOAT16) call.type = DDL_TYPE_DOUBLE;
    if (call.op == DDL_OP_AVG) {
      call.op = DDL_OP_MAX;
    }
    call.counts = {call.count()};
    call.name.clear();
  }

  void communicators() {
    const std::uint64_t colors = random_.next();
    const auto color_of = [&](int rank) {
      return static_cast<int>(mix(colors + static_cast<std::uint64_t>(rank)) % 2);
    };
    Members of;
    note("MPI_Comm_split");
    MPI_Comm_split(world_comm, color_of(world_rank), random_.one_in(2) ? -world_rank : world_rank, &of.comm);
    // Both parts make the same calls, of sizes that do not depend on the part.
    MPI_Comm_size(of.comm, &of.size);
    MPI_Comm_rank(of.comm, &of.me);
    const std::size_t before = compared_.size();
    Members any = of;
    any.size = 2;
    if (random_.one_in(2)) {
      const Random same = random_;
      twins(&of);
      random_ = same;
      static_cast<void>(random_.next());
    }
    for (std::size_t left = 2 + random_.below(5); left > 0; --left) {
      Call call = draw_call(random_, Kind::kAllreduce, any);
      fit_mpi(call);
      make(call, of);
    }
    // Of two communicators: compared in each.
    compare(of.comm, before);
    note("MPI_Comm_free");
    MPI_Comm_free(&of.comm);
  }

  void compare(MPI_Comm among = world_comm, std::size_t from = 0) {
    const std::size_t count = compared_.size() - from;
    std::vector<std::uint64_t> most;
    for (std::size_t i = from; i < compared_.size(); ++i) {
      const std::uint64_t digest = compared_[i].digest;
      most.push_back(digest);
      most.push_back(digest == 0 ? 0 : ~digest);
    }
    MPI_Request request = MPI_REQUEST_NULL;
    std::vector<std::uint64_t> found(most.size());
    MPI_Iallreduce(most.data(), found.data(), static_cast<int>(most.size()), MPI_UINT64_T, MPI_MAX, among,
                   &request);
    wait_politely(request, std::chrono::microseconds(300));
    for (std::size_t i = 0; i < count; ++i) {
      if (found[2 * i] == ~found[2 * i + 1] || (found[2 * i] == 0 && found[2 * i + 1] == 0)) continue;
      std::snprintf(under_way, sizeof under_way, "%s", compared_[from + i].text.c_str());
      fail("ranks have different bits");
    }
    compared_.resize(from);
  }

  std::size_t number_;
  Random random_;
  Random own_;  ///< of this rank, for what must not matter
  Members everyone_;
  std::size_t calls_ = 0;
  std::vector<Compared> compared_;
};

constexpr std::size_t kEpisodes = 8;

void begin_world(const World& drawn, MPI_Comm comm, int job_ranks) {
  world = drawn;
  world_comm = comm;
  MPI_Comm_rank(comm, &world_rank);
  std::string hosts = world.hosts;
  if (world.ranks < job_ranks) hosts += "," + std::to_string(job_ranks - world.ranks);
  setenv("DDL_EMULATE_HOSTS", hosts.c_str(), 1);
  setenv("DDL_EMULATE_DOMAINS", world.domains.c_str(), 1);
  ddl::rehearsed_links.reset();
  if (world.rehearsed) ddl::rehearsed_links = world.links;
  std::snprintf(world_text, sizeof world_text, "seed %llu: %d of %d ranks, hosts %s, domains of %s, %s%s",
                static_cast<unsigned long long>(world.seed), world.ranks, job_ranks, world.hosts.c_str(),
                world.domains.empty() ? "all" : world.domains.c_str(), world.options.c_str(),
                world.rehearsed ? "" : ", by the clock");
  std::snprintf(under_way, sizeof under_way, "ddl_init of rank %d", world_rank);
  expect_success(ddl_init_mpi(world.options.c_str(), comm), "ddl_init_mpi");
}

void say_over(MPI_Comm comm, std::uint64_t& word) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibcast(&word, 1, MPI_UINT64_T, 0, comm, &request);
  wait_politely(request, std::chrono::milliseconds(2));
}

MPI_Comm first_ranks(int count, int rank) {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank < count ? 0 : MPI_UNDEFINED, rank, &comm);
  return comm;
}

int run_worlds(double seconds, std::uint64_t seed, std::optional<std::size_t> episode) {
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const auto begun = std::chrono::steady_clock::now();
  const auto time_is_left = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count() < seconds;
  };
  const bool one = seconds <= 0;
  std::uint64_t worlds = 0, episodes = 0;
  for (;; ++worlds, ++seed) {
    std::uint64_t go_on = one ? worlds == 0 : time_is_left();
    say_over(MPI_COMM_WORLD, go_on);
    if (go_on == 0) break;
    const World drawn = draw_world(seed, ranks);
    MPI_Comm comm = first_ranks(drawn.ranks, rank);
    if (comm == MPI_COMM_NULL) continue;
    begin_world(drawn, comm, ranks);
    if (rank == 0) {
      std::printf("%s\n", world_text);
      std::fflush(stdout);
    }
    for (std::size_t i = 0; i < kEpisodes; ++i) {
      if (episode && *episode != i) continue;
      std::uint64_t next = one || time_is_left();
      say_over(comm, next);
      if (next == 0) break;
      Episode(world, i).play();
      ++episodes;
    }
    std::snprintf(under_way, sizeof under_way, "ddl_finalize of rank %d", rank);
    expect_success(ddl_finalize(), "ddl_finalize");
    MPI_Comm_free(&comm);
  }
  if (rank == 0) {
    std::printf("passed: %llu worlds, %llu episodes\n", static_cast<unsigned long long>(worlds),
                static_cast<unsigned long long>(episodes));
  }
  MPI_Finalize();
  return 0;
}

/// One rank is killed before, in or after one of its calls. All others have to get the same error that names
/// it, and their buffers back.
int lose_a_rank(std::uint64_t seed) {
  constexpr std::size_t kCalls = 300;
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  World drawn = draw_world(seed, ranks);
  // Everybody takes part, and nobody waits within MPI itself.
  drawn.ranks = ranks;
  Random random(mix(seed) + 77);
  // Who is alone on its host has nobody who sees its end: the others have to wait for the time limit.
  const bool alone = ranks > 1 && random.one_in(6);
  std::vector<int> hosts;
  for (int left = ranks - (alone ? 1 : 0); left > 0; left -= hosts.back()) {
    hosts.push_back(left < 4 ? left : 2 + static_cast<int>(random.below(static_cast<std::size_t>(left) - 3)));
  }
  if (alone) hosts.push_back(1);
  drawn.host_count = hosts.size();
  drawn.hosts.clear();
  for (const int host : hosts)
    drawn.hosts += (drawn.hosts.empty() ? "" : random.one_in(4) ? "/" : ",") + std::to_string(host);
  drawn.tiers = 2;
  drawn.mode = random.of({'p', 'p', 'r', 'c'});
  drawn.options = std::string("-mode ") + drawn.mode + " -timeout 30 -patience 120";
  drawn.wire = "full";
  drawn.determinism = "run";
  begin_world(drawn, MPI_COMM_WORLD, ranks);
  const int victim = alone ? ranks - 1 : static_cast<int>(random.below(static_cast<std::size_t>(ranks)));
  const std::size_t last = 1 + random.below(30);
  const std::size_t after_us = random.one_in(3) ? 0 : random.below(3000);
  if (rank == 0) {
    std::printf("%s; rank %d is lost %zu us after call %zu began\n", world_text, victim, after_us, last);
    std::fflush(stdout);
  }
  Members everyone;
  everyone.size = ranks;
  everyone.me = rank;
  std::thread killer;
  std::vector<std::unique_ptr<Made>> calls;
  std::string error;
  int status = DDL_SUCCESS;
  for (std::size_t i = 0; i < kCalls && status == DDL_SUCCESS; ++i) {
    if (rank == victim && i == last) {
      if (after_us == 0) std::raise(SIGKILL);
      killer = std::thread([after_us] {
        std::this_thread::sleep_for(std::chrono::microseconds(after_us));
        kill(getpid(), SIGKILL);
      });
    }
    calls.clear();
    std::vector<DDL_Handle> handles;
    const std::size_t together = random.one_in(3) ? 1 + random.below(5) : 0;
    for (std::size_t c = 0; c < std::max<std::size_t>(together, 1); ++c) {
      Kind kind = draw_kind(random, false);
      if (kind == Kind::kPlain || (together > 0 && kind == Kind::kBarrier)) kind = Kind::kAllreduce;
      const Call call = draw_call(random, kind, everyone);
      std::snprintf(under_way, sizeof under_way, "call %zu, rank %d: %s", i, rank, call.text().c_str());
      calls.push_back(std::make_unique<Made>(call, everyone));
      if (together == 0) {
        status = calls.back()->make();
      } else {
        handles.emplace_back();
        expect_success(calls.back()->start(handles.back(), true), "starting the call");
      }
    }
    if (status != DDL_SUCCESS) error = ddl_last_error();
    for (const DDL_Handle handle : handles) {
      const int its = ddl_wait(handle);
      if (its == DDL_SUCCESS) continue;
      if (status != DDL_SUCCESS && (its != status || error != ddl_last_error()))
        fail("two errors: %s, and %s", error.c_str(), ddl_last_error());
      status = its;
      error = ddl_last_error();
    }
    for (const auto& call : calls) call->check_guards();
  }
  if (rank == victim && killer.joinable()) killer.join();
  if (status == DDL_SUCCESS) fail("nobody was missed in %zu calls", kCalls);
  if (status != (alone ? DDL_ERR_TIMEOUT : DDL_ERR_PEER_LOST) ||
      error.find("rank " + std::to_string(victim) + " ") == std::string::npos)
    fail("rank %d is lost, but the error is: %s", victim, error.c_str());
  for (const auto& call : calls) call->take_back();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  float value = 1;
  const int again = ddl_allreduce(&value, 1, DDL_TYPE_FLOAT, DDL_OP_SUM);
  if (again != status || error != ddl_last_error())
    fail("the next call's error is another one: %s", ddl_last_error());
  for (const auto& call : calls) call->check_taken_back();
  ddl_finalize();
  std::printf("lost: %s\n", error.c_str());
  std::fflush(stdout);
  _exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s SECONDS SEED [EPISODE] | lost SEED\n", argv[0]);
    return 2;
  }
  // Links that others measured would make another run of it.
  setenv("DDL_CACHE_DIR", "/dev/null/none", 1);
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_set_death_callback(say_what_is_under_way);
#else
  std::signal(SIGSEGV, last_words);
  std::signal(SIGBUS, last_words);
#endif
  std::signal(SIGABRT, last_words);
  const std::uint64_t seed = std::strtoull(argv[2], nullptr, 10);
  if (first == "lost") return lose_a_rank(seed);
  std::optional<std::size_t> episode;
  if (argc > 3) episode = std::strtoull(argv[3], nullptr, 10);
  return run_worlds(std::atof(argv[1]), seed, episode);
}
