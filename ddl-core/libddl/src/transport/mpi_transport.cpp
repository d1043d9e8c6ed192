#include "transport/mpi_transport.hpp"

#include <array>
#include <string>

#include "support/error.hpp"
#include "transport/bounded_wait.hpp"

namespace ddl {

void check_mpi(int rc, const char* call) {
  if (rc == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(rc, text.data(), &length);
  throw Error(DDL_ERR_MPI, std::string(call) + " failed: " + text.data(), "between hosts",
              "check the network and the output of the other ranks");
}

MPI_Comm communicator_of(MPI_Comm all, const std::vector<int>& ranks, int tag) {
  MPI_Group whole = MPI_GROUP_NULL;
  MPI_Group some = MPI_GROUP_NULL;
  MPI_Comm made = MPI_COMM_NULL;
  check_mpi(MPI_Comm_group(all, &whole), "MPI_Comm_group");
  check_mpi(MPI_Group_incl(whole, static_cast<int>(ranks.size()), ranks.data(), &some), "MPI_Group_incl");
  check_mpi(MPI_Comm_create_group(all, some, tag, &made), "MPI_Comm_create_group");
  MPI_Group_free(&some);
  MPI_Group_free(&whole);
  return made;
}

bool Requests::test() {
  if (requests_.empty()) return true;
  int done = 0;
  check_mpi(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE),
            "MPI_Testall");
  if (done != 0) requests_.clear();
  return done != 0;
}

MpiTransport::MpiTransport(MPI_Comm base, double limit_s) {
  const Awaited awaited{"a rank", "in the making of a communicator",
                        "look at the output of the others, or raise -timeout in DDL_OPTIONS"};
  data_ = duplicate_within(base, limit_s, awaited);
  control_ = duplicate_within(base, limit_s, awaited);
  MPI_Comm_set_errhandler(data_, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(control_, MPI_ERRORS_RETURN);
  const int* most = nullptr;
  int known = 0;
  check_mpi(MPI_Comm_get_attr(data_, MPI_TAG_UB, &most, &known), "MPI_Comm_get_attr");
  // MPI promises 32767 only.
  const std::size_t tags = known != 0 ? static_cast<std::size_t>(*most) / kTags : 0;
  sizes_ = tags > kFirstSize ? tags - kFirstSize : 0;
}

MpiTransport::~MpiTransport() {
  if (abandoned_) return;
  if (data_ != MPI_COMM_NULL) MPI_Comm_free(&data_);
  if (control_ != MPI_COMM_NULL) MPI_Comm_free(&control_);
}

void MpiTransport::send(const void* from, std::size_t bytes, int rank, int tag, Requests& requests) const {
  check_mpi(MPI_Isend(from, static_cast<int>(bytes), MPI_BYTE, rank, tag, data_, requests.add()),
            "MPI_Isend");
}

void MpiTransport::receive(void* to, std::size_t bytes, int rank, int tag, Requests& requests) const {
  check_mpi(MPI_Irecv(to, static_cast<int>(bytes), MPI_BYTE, rank, tag, data_, requests.add()), "MPI_Irecv");
}

}  // namespace ddl
