#include "engine/wire_residuals.hpp"

#include <algorithm>
#include <utility>

#include "support/hash.hpp"

namespace ddl {
namespace {

/// Names of tensors that were given up are remembered up to so many.
constexpr std::size_t kMostGivenUp = std::size_t{1} << 16;

}  // namespace

const BufferList& WireResiduals::of(std::string_view name, const BufferList& buffers) {
  ++calls_;
  const std::size_t n = buffers.buffers();
  const auto lines = static_cast<std::size_t>(std::count(name.begin(), name.end(), '\n')) + 1;
  const bool own_names = lines == n;
  std::vector<void*> pointers;
  std::vector<std::size_t> counts;
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t end = own_names ? std::min(name.find('\n'), name.size()) : name.size();
    const std::uint64_t words[] = {hash_bytes(name.data(), end), buffers.count(i), own_names ? 0 : i};
    if (own_names) name.remove_prefix(std::min(end + 1, name.size()));
    pointers.push_back(find(hash_bytes(words, sizeof words), buffers.count(i)).data());
    counts.push_back(buffers.count(i));
  }
  give_up_old();
  list_.emplace(pointers.data(), counts.data(), n, DDL_TYPE_FLOAT);
  return *list_;
}

std::vector<float>& WireResiduals::find(std::uint64_t key, std::size_t count) {
  if (const auto found = by_key_.find(key); found != by_key_.end()) {
    kept_.splice(kept_.begin(), kept_, found->second);
  } else {
    Kept made{key, 0, std::vector<float>(count, 0.0F)};
    if (given_up_.erase(key) != 0) limit_ += count;
    kept_.push_front(std::move(made));
    by_key_.emplace(key, kept_.begin());
    floats_ += count;
  }
  kept_.front().call = calls_;
  return kept_.front().values;
}

void WireResiduals::give_up_old() {
  while (floats_ > limit_ && kept_.back().call != calls_) {
    if (given_up_.size() >= kMostGivenUp) given_up_.clear();
    given_up_.insert(kept_.back().key);
    floats_ -= kept_.back().values.size();
    by_key_.erase(kept_.back().key);
    kept_.pop_back();
  }
}

}  // namespace ddl
