// Completes messages between two ranks, which no collective call's thread may wait for.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "ddl.h"
#include "process.hpp"
#include "work.hpp"

namespace ddl_torch {

// The messages of one group that are under way, and a thread that looks after them while there are any.
class MessageWatch {
 public:
  explicit MessageWatch(DDL_Group group);
  // Waits for sends, and gives receives up; in a forked process it does neither.
  ~MessageWatch();
  MessageWatch(const MessageWatch&) = delete;
  MessageWatch& operator=(const MessageWatch&) = delete;

  struct Message {
    DDL_Handle handle;
    c10::intrusive_ptr<DdlWork> work;
    std::chrono::steady_clock::time_point end;
    std::string what;  // for the error when it is not complete by then
    bool sending;
  };
  void Add(Message message);

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::list<Message> arrived;
    bool ending = false;
    bool ended = false;
  };

  static void Loop(DDL_Group group, const std::shared_ptr<State>& state);
  static bool Advance(DDL_Group group, Message& message, bool ending);

  const DDL_Group group_;
  std::shared_ptr<State> state_;
  bool started_ = false;
  const OwnProcess process_;
};

}  // namespace ddl_torch
