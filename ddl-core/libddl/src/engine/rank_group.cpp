#include "engine/rank_group.hpp"

#include <string>
#include <utility>

namespace ddl {

RankGroup::RankGroup(MPI_Comm base, Communicator& world, ProgressEngine& engine, double patience_s)
    : world_(&world), engine_(&engine), patience_s_(patience_s) {
  if (world.size() > 1) {
    messages_ = std::make_unique<Messages>(base, world.topology(), world.limits().timeout_s);
  }
}

RankGroup::RankGroup(MPI_Comm base, const Options& options)
    : patience_s_(options.limits.patience_s),
      base_(base),
      own_(std::make_unique<Communicator>(base, options, true)) {
  own_->set_background(true);
  messages_ = std::make_unique<Messages>(base, own_->topology(), options.limits.timeout_s);
}

RankGroup::RankGroup(const Options& options)
    : patience_s_(options.limits.patience_s), own_(std::make_unique<Communicator>(options)) {}

RankGroup::~RankGroup() {
  // After a failure messages may still be under way to its memory, so it stays.
  if (own_ && own_->failed()) {
    if (messages_) messages_->abandon();
    static_cast<void>(own_.release());
    return;
  }
  messages_.reset();
  own_.reset();
  if (base_ != MPI_COMM_NULL) MPI_Comm_free(&base_);
}

void RankGroup::abandon() {
  base_ = MPI_COMM_NULL;
  if (messages_) messages_->abandon();
  static_cast<void>(own_.release());
}

void RankGroup::call(const std::function<void(Communicator&)>& action) {
  if (world_ == nullptr) {
    const std::lock_guard lock(calling_);
    const TimeLimit limit(*own_, patience_s_);
    own_->make(action);
    return;
  }
  engine_->call(
      [&](Communicator& world) {
        const TimeLimit limit(world, patience_s_);
        action(world);
      },
      true);
}

Messages& RankGroup::messages() {
  if (messages_) return *messages_;
  throw Error(DDL_ERR_ARGUMENT, "a group of one rank has no other to send to or receive from", "in a message",
              "start more ranks");
}

}  // namespace ddl
