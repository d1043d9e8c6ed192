// Completes messages between two ranks, which no collective call's thread may wait for.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "ddl.h"
#include "device_order.hpp"
#include "own_group.hpp"
#include "process.hpp"
#include "work.hpp"

namespace ddl_torch {

// The messages of one group that are under way, and a thread that looks after them while there are any.
class MessageWatch {
 public:
  explicit MessageWatch(std::shared_ptr<const OwnGroup> group);
  // Gives receives up, and waits for nothing: sends go on.
  ~MessageWatch();
  MessageWatch(const MessageWatch&) = delete;
  MessageWatch& operator=(const MessageWatch&) = delete;

  struct Message {
    at::Tensor tensor;  // contiguous
    bool sending;
    int rank;  // of the other; -1: any
    int tag;
    std::chrono::steady_clock::time_point end;
    std::string what;  // for the error when it is not complete by then
    c10::intrusive_ptr<DdlWork> work;
    std::shared_ptr<DeviceOrder> order;  // null where the tensor is in the host's memory

    // Filled in here.
    at::Tensor host{};  // what is sent or received: the tensor itself, or a copy of a GPU's
    std::optional<DDL_Handle> handle{};
    bool started = false;
    std::shared_ptr<c10::Event> copied{};
    int source = -1;
  };
  // Throws where DDL refuses the message.
  void Add(Message message);
  // Gives receives up, and waits for sends. Nothing can be added afterwards.
  void Close();

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::list<Message> arrived;
    int not_sent = 0;  // messages that are not on their way yet
    bool ending = false;
    bool ended = false;
  };

  static void Loop(DDL_Group group, const std::shared_ptr<State>& state);
  static bool Advance(DDL_Group group, Message& message, bool ending, bool may_start);
  static bool Done(DDL_Group group, Message& message, bool may_start);
  static void Start(DDL_Group group, Message& message);
  static bool Copied(Message& message);

  // Outlives the watch while messages are under way.
  const std::shared_ptr<const OwnGroup> group_;
  std::shared_ptr<State> state_;
  bool started_ = false;
  const OwnProcess process_;
};

}  // namespace ddl_torch
