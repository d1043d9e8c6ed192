#include "engine/launcher.hpp"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string>

namespace ddl {
namespace {

std::optional<int> number_in(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  int number = 0;
  const char* const end = text + std::strlen(text);
  const auto [next, error] = std::from_chars(text, end, number);
  if (error != std::errc() || next != end || number < 0) return std::nullopt;
  return number;
}

std::optional<int> first_of(std::initializer_list<const char*> variables) {
  for (const char* variable : variables) {
    if (const auto number = number_in(variable)) return number;
  }
  return std::nullopt;
}

/// A rank written in Python marks its environment with its process and job: programs it starts inherit the
/// launcher's variables, but are no ranks. A launcher started from within makes another job.
bool child_of_rank() {
  const char* mark = std::getenv("DDL_RANK_PROCESS");
  const char* job = std::getenv("PMIX_NAMESPACE");
  if (mark == nullptr || job == nullptr || *job == 0) return false;
  const std::string text = mark;
  const std::size_t colon = text.find(':');
  return colon != std::string::npos && text.substr(colon + 1) == job &&
         text.substr(0, colon) != std::to_string(getpid());
}

}  // namespace

Launcher detect_launcher() {
  Launcher launcher;
  if (child_of_rank()) return launcher;
  launcher.expected_rank = first_of({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"});
  launcher.expected_size = first_of({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"});
  launcher.present = launcher.expected_rank || launcher.expected_size;
  // srun --mpi=pmix sets PMIX_RANK, but tells the size only in its own words. Inside an allocation without a
  // PMI the same variables describe the batch script, which is no rank.
  if (launcher.present && !launcher.expected_size) {
    launcher.expected_size = first_of({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"});
  }
  return launcher;
}

}  // namespace ddl
