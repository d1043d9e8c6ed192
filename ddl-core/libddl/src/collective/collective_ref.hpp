#pragma once

namespace ddl {

/// Whatever moves the data of a call, any of the collectives, seen by what runs it. Owns nothing.
class CollectiveRef {
 public:
  /// No data: the call only compares and synchronises.
  CollectiveRef() = default;
  template <class Collective>
  explicit CollectiveRef(Collective& collective)
      : object_(&collective),
        step_([](void* object, bool locally_agreed, bool globally_agreed) {
          return static_cast<Collective*>(object)->step(locally_agreed, globally_agreed);
        }),
        done_([](const void* object) { return static_cast<const Collective*>(object)->done(); }) {}

  explicit operator bool() const { return object_ != nullptr; }
  /// Goes on without blocking; true when something moved.
  bool step(bool locally_agreed, bool globally_agreed) const {
    return step_(object_, locally_agreed, globally_agreed);
  }
  bool done() const { return object_ == nullptr || done_(object_); }

 private:
  void* object_ = nullptr;
  bool (*step_)(void*, bool, bool) = nullptr;
  bool (*done_)(const void*) = nullptr;
};

}  // namespace ddl
