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

/// Slurm numbers the batch script, an interactive shell and the like from here on; their variables describe
/// the allocation, not them.
constexpr unsigned kSpecialSteps = 0xfffffff0;

void look_for_ranks_without_mpi(Launcher& launcher) {
  const auto rank = number_in("RANK");
  const int world_size = number_in("WORLD_SIZE").value_or(1);
  if (rank && world_size > 1) {
    launcher.ranks_without_mpi = "the environment says rank " + std::to_string(*rank) + " of " +
                                 std::to_string(world_size) +
                                 " (RANK, WORLD_SIZE), but its author set up no MPI";
    launcher.remedy =
        "in Python import ddl before MPI is initialised, with MASTER_ADDR and MASTER_PORT set, as torchrun "
        "does; "
        "else start the program with ddlrun or mpirun; to run alone, unset RANK and WORLD_SIZE";
    return;
  }
  const auto task = number_in("SLURM_PROCID");
  const int tasks = number_in("SLURM_STEP_NUM_TASKS").value_or(1);
  const char* step = std::getenv("SLURM_STEP_ID");
  if (task && tasks > 1 && step != nullptr && std::strtoul(step, nullptr, 10) < kSpecialSteps) {
    launcher.ranks_without_mpi = "Slurm says task " + std::to_string(*task) + " of " + std::to_string(tasks) +
                                 " (SLURM_PROCID, SLURM_STEP_NUM_TASKS), but srun set up no MPI";
    launcher.remedy =
        "start the program with srun --mpi=pmix, ddlrun or mpirun; to run each task alone, unset "
        "SLURM_STEP_NUM_TASKS";
  }
}

}  // namespace

bool child_of_rank() {
  const char* mark = std::getenv("DDL_RANK_PROCESS");
  if (mark == nullptr) return false;
  const char* job = std::getenv("PMIX_NAMESPACE");
  const std::string text = mark;
  const std::size_t colon = text.find(':');
  return colon != std::string::npos && (job == nullptr || text.substr(colon + 1) == job) &&
         text.substr(0, colon) != std::to_string(getpid());
}

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
  if (!launcher.present) look_for_ranks_without_mpi(launcher);
  return launcher;
}

}  // namespace ddl
