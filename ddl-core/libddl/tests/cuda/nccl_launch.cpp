#include "nccl_launch.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include "nccl_reduction.hpp"
#include "settings.hpp"

namespace stand_in {
namespace {

/// Elements whose values come in the same order of ranks.
constexpr std::size_t kBlock = 4096;
/// What is moved before other streams have their turn.
constexpr std::size_t kStep = 1 << 20;

/// With nccl_serial: the launch that fills each device, so that no other one begins.
std::mutex filled_mutex;
std::map<int, const Launch*> filled;

bool reduces(Kind kind) {
  return kind == Kind::kAllReduce || kind == Kind::kReduceScatter || kind == Kind::kReduce;
}

}  // namespace

const char* name_of_kind(Kind kind) {
  constexpr const char* kNames[] = {"AllReduce", "ReduceScatter", "AllGather", "Reduce", "Broadcast"};
  return kNames[static_cast<int>(kind)];
}

Launch::Launch(std::shared_ptr<Communicator> communicator, std::vector<Collective> collectives,
               std::vector<Message> messages, bool never_ends)
    : communicator_(std::move(communicator)),
      never_ends_(never_ends),
      random_(static_cast<unsigned>(setting(Setting::kSeed)) * 31 +
              static_cast<unsigned>(communicator_->rank)) {
  const auto many = static_cast<std::int32_t>(collectives.size());
  for (Collective& call : collectives) {
    Running one;
    one.call = std::move(call);
    one.call.signature.position = static_cast<std::int32_t>(running_.size());
    one.call.signature.of = many;
    one.seen.resize(static_cast<std::size_t>(communicator_->ranks));
    running_.push_back(std::move(one));
  }
  for (const Message& message : messages) travelling_.push_back({message});
  const std::lock_guard lock(communicator_->mutex);
  communicator_->order.push_back(this);
}

Launch::~Launch() {
  const std::lock_guard lock(communicator_->mutex);
  auto& order = communicator_->order;
  order.erase(std::remove(order.begin(), order.end(), this), order.end());
  const std::lock_guard filled_lock(filled_mutex);
  const auto found = filled.find(communicator_->device);
  if (found != filled.end() && found->second == this) filled.erase(found);
}

bool Launch::may_begin() {
  const std::lock_guard lock(communicator_->mutex);
  if (communicator_->order.front() != this) return false;
  if (setting(Setting::kNcclSerial) == 0) return true;
  const std::lock_guard filled_lock(filled_mutex);
  return filled.emplace(communicator_->device, this).first->second == this;
}

std::string Launch::described(const Signature& signature) const {
  std::string text = std::string(name_of_kind(signature.kind)) + " of " + std::to_string(signature.count) +
                     " x " + name_of_type(signature.type);
  if (reduces(signature.kind)) text += std::string(", ") + name_of_op(signature.op);
  if (signature.kind == Kind::kReduce || signature.kind == Kind::kBroadcast) {
    text += ", root " + std::to_string(signature.root);
  }
  return text + ", " + std::to_string(signature.position + 1) + " of " + std::to_string(signature.of) +
         " in its group call";
}

Part& Launch::part(const Running& one, int rank) const {
  return communicator_->meeting->member(rank).parts[one.number % kParts];
}

/// Who writes which bytes of the result, and where they go on this rank.
void Launch::plan(Running& one) const {
  const Signature& call = one.call.signature;
  const auto ranks = static_cast<std::size_t>(communicator_->ranks);
  const auto rank = static_cast<std::size_t>(communicator_->rank);
  const std::size_t size = size_of(call.type);
  const auto share = [&](std::size_t of) {  // the first element of a rank's share
    return call.count / ranks * of + call.count % ranks * of / ranks;
  };
  switch (call.kind) {
    case Kind::kAllReduce:
    case Kind::kReduce:
      one.first = share(rank);
      one.last = share(rank + 1);
      if (call.kind == Kind::kReduce && call.root != communicator_->rank) return;
      for (std::size_t of = 0; of < ranks; ++of) {
        one.pieces.push_back({static_cast<int>(of), (share(of + 1) - share(of)) * size, share(of) * size});
      }
      return;
    case Kind::kReduceScatter:
      one.first = rank * call.count;
      one.last = one.first + call.count;
      one.pieces.push_back({communicator_->rank, call.count * size, 0});
      return;
    case Kind::kAllGather:
      one.last = call.count;
      for (std::size_t of = 0; of < ranks; ++of) {
        one.pieces.push_back({static_cast<int>(of), call.count * size, of * call.count * size});
      }
      return;
    case Kind::kBroadcast:
      one.last = call.root == communicator_->rank ? call.count : 0;
      one.pieces.push_back({call.root, call.count * size, 0});
      return;
  }
}

void Launch::begin() {
  Communicator& own = *communicator_;
  const std::lock_guard lock(own.mutex);
  const int half = static_cast<int>(own.collective_launches % 2);
  if (!running_.empty()) ++own.collective_launches;
  std::uint64_t scratch = own.meeting->scratch(own.rank, half);
  for (Running& one : running_) {
    plan(one);
    one.number = own.collectives++;
    one.scratch = scratch;
    scratch += (one.last - one.first) * size_of(one.call.signature.type);
    if (scratch > own.meeting->scratch(own.rank, half + 1)) die("a group call on more than 8 GiB of results");
    Part& part = this->part(one, own.rank);
    part.signature = one.call.signature;
    part.in = one.call.source;
    part.scratch = one.scratch;
    part.written.store(0, std::memory_order_relaxed);
    part.sequence.store(one.number + 1, std::memory_order_release);
  }
  for (Travelling& one : travelling_) {
    auto& numbers = one.message.sends ? own.sent : own.received;
    one.number = numbers[static_cast<std::size_t>(one.message.peer)]++;
  }
  begun_ = true;
  count(Count::kNcclBegun);
}

/// Whether all ranks are at this collective, with the same arguments.
bool Launch::arrive(Running& one) {
  bool all = true;
  for (int rank = 0; rank < communicator_->ranks; ++rank) {
    if (one.seen[static_cast<std::size_t>(rank)]) continue;
    const Part& other = part(one, rank);
    if (other.sequence.load(std::memory_order_acquire) != one.number + 1) {
      all = false;
      continue;
    }
    one.seen[static_cast<std::size_t>(rank)] = true;
    if (other.signature == one.call.signature) continue;
    die("communicator %s of %d ranks: collective %llu is %s on rank %d, and %s on rank %d: NCCL would hang, "
        "or "
        "give wrong results",
        communicator_->name.c_str(), communicator_->ranks, static_cast<unsigned long long>(one.number + 1),
        described(one.call.signature).c_str(), communicator_->rank, described(other.signature).c_str(), rank);
  }
  return all;
}

/// The sum of a block goes round the ranks from a place that depends on the block.
bool Launch::reduce_block(Running& one, std::size_t count) {
  const Signature& call = one.call.signature;
  const std::size_t size = size_of(call.type);
  const int ranks = communicator_->ranks;
  alignas(8) char result[kBlock * 8];
  alignas(8) char in[kBlock * 8];
  const std::size_t place = one.at / kBlock + static_cast<std::size_t>(communicator_->rank) + 1;
  for (int turn = 0; turn < ranks; ++turn) {
    const int rank =
        static_cast<int>((place + static_cast<std::size_t>(turn)) % static_cast<std::size_t>(ranks));
    const std::size_t offset = (one.first + one.at) * size;
    if (rank == communicator_->rank) {
      std::memcpy(in, one.call.in + offset, count * size);
    } else if (!one.sources[static_cast<std::size_t>(rank)]->read(in, count * size, offset)) {
      return false;  // the process is gone
    }
    reduce(call.type, call.op, ranks, {turn == 0, turn + 1 == ranks}, result, in, count);
  }
  write_all(communicator_->meeting->file(), result, count * size, one.scratch + one.at * size);
  return true;
}

bool Launch::write_share(Running& one) {
  const std::size_t size = size_of(one.call.signature.type);
  const std::size_t all = one.last - one.first;
  std::size_t moved = 0;
  while (one.at < all && moved < kStep && !communicator_->aborted) {
    if (reduces(one.call.signature.kind)) {
      const std::size_t count = std::min(kBlock, all - one.at);
      if (!reduce_block(one, count)) return false;
      one.at += count;
      moved += count * size;
    } else {
      const std::size_t count = std::min(kStep / size, all - one.at);
      write_all(communicator_->meeting->file(), one.call.in + one.at * size, count * size,
                one.scratch + one.at * size);
      one.at += count;
      moved += count * size;
    }
  }
  if (one.at < all) return true;
  one.at = 0;
  one.stage = Stage::kWaitingForOthers;
  part(one, communicator_->rank).written.store(1, std::memory_order_release);
  return true;
}

bool Launch::read_result(Running& one) {
  std::size_t moved = 0;
  while (one.piece < one.pieces.size() && moved < kStep) {
    const Piece& piece = one.pieces[one.piece];
    const std::size_t bytes = std::min(kStep, piece.bytes - one.at);
    const std::uint64_t from = part(one, piece.rank).scratch + one.at;
    if (!read_all(communicator_->meeting->file(), one.call.out + piece.out + one.at, bytes, from)) {
      die("communicator %s: its scratch is cut off", communicator_->name.c_str());
    }
    one.at += bytes;
    moved += bytes;
    if (one.at < piece.bytes) continue;
    one.at = 0;
    ++one.piece;
  }
  if (one.piece == one.pieces.size()) one.stage = Stage::kDone;
  return true;
}

/// Whether anything moved.
bool Launch::step(Running& one) {
  switch (one.stage) {
    case Stage::kArriving:
      if (!arrive(one)) return false;
      for (int rank = 0; rank < communicator_->ranks && reduces(one.call.signature.kind); ++rank) {
        one.sources.push_back(std::make_unique<OpenSource>(part(one, rank).in));
      }
      one.stage = Stage::kWriting;
      return true;
    case Stage::kWriting:
      return write_share(one);
    case Stage::kWaitingForOthers: {
      // Inputs may change, and results be read, once all of their readers and writers are done.
      const Signature& call = one.call.signature;
      for (int rank = 0; rank < communicator_->ranks; ++rank) {
        if (call.kind == Kind::kBroadcast && rank != call.root) continue;
        if (part(one, rank).written.load(std::memory_order_acquire) == 0) return false;
      }
      one.stage = Stage::kReading;
      return true;
    }
    case Stage::kReading:
      return read_result(one);
    case Stage::kDone:
      return false;
  }
  return false;
}

bool Launch::step(Travelling& one) {
  if (one.done) return false;
  const Message& message = one.message;
  const int own = communicator_->rank;
  Mail& mail = communicator_->meeting->mail(message.sends ? own : message.peer,
                                            message.sends ? message.peer : own, one.number);
  if (message.sends && !one.published) {
    if (one.number >= kMails && mail.taken.load(std::memory_order_acquire) != one.number - kMails + 1)
      return false;
    mail.count = message.count;
    mail.type = message.type;
    mail.from = message.source;
    mail.sequence.store(one.number + 1, std::memory_order_release);
    one.published = true;
    return true;
  }
  if (message.sends) {
    one.done = mail.taken.load(std::memory_order_acquire) == one.number + 1;
    return one.done;
  }
  if (mail.sequence.load(std::memory_order_acquire) != one.number + 1) return false;
  if (mail.count != message.count || mail.type != message.type) {
    die("communicator %s: message %llu from rank %d to rank %d has %llu x %s, and is received as %llu x %s",
        communicator_->name.c_str(), static_cast<unsigned long long>(one.number + 1), message.peer, own,
        static_cast<unsigned long long>(mail.count), name_of_type(mail.type),
        static_cast<unsigned long long>(message.count), name_of_type(message.type));
  }
  if (message.count > 0 &&
      !OpenSource(mail.from).read(message.at, message.count * size_of(message.type), 0)) {
    return false;
  }
  mail.taken.store(one.number + 1, std::memory_order_release);
  one.done = true;
  return true;
}

/// What an aborted operation was to write is half done.
void Launch::spoil() {
  if (!begun_) return;
  for (const Running& one : running_) {
    if (one.stage == Stage::kDone || one.pieces.empty()) continue;
    const Piece& piece = one.pieces.front();
    if (one.call.out != nullptr) std::memset(one.call.out + piece.out, 0xff, (piece.bytes + 1) / 2);
  }
}

Progress Launch::advance() {
  if (communicator_->aborted) {
    spoil();
    count(Count::kNcclAborted);
    return Progress::kEnded;
  }
  if (!begun_) {
    if (!may_begin()) return Progress::kWaiting;
    begin();
  }
  bool moved = false;
  bool all_done = true;
  // Nothing orders the operations of a group call.
  std::vector<std::size_t> turns(running_.size());
  for (std::size_t i = 0; i < turns.size(); ++i) turns[i] = i;
  std::shuffle(turns.begin(), turns.end(), random_);
  for (const std::size_t i : turns) {
    moved = step(running_[i]) || moved;
    all_done = all_done && running_[i].stage == Stage::kDone;
  }
  for (Travelling& one : travelling_) {
    moved = step(one) || moved;
    all_done = all_done && one.done;
  }
  if (all_done && !never_ends_ && communicator_->error == 0) return Progress::kEnded;
  return moved ? Progress::kMoved : Progress::kWaiting;
}

}  // namespace stand_in
