// Averages a vector over all ranks:
//   ddlrun -np 3 ./mean_of_ranks
// Each rank starts with its own number, so that three ranks end with the mean of 0, 1 and 2.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "ddl.hpp"

namespace {

void check(int code) {
  if (code == DDL_SUCCESS) return;
  std::fprintf(stderr, "%s\n", ddl_last_error());
  std::exit(1);
}

}  // namespace

int main() {
  check(ddl_init());
  int rank = 0;
  int size = 1;
  check(ddl_rank(&rank));
  check(ddl_size(&size));

  std::vector<float> values(4, static_cast<float>(rank));
  check(ddl_allreduce(values.data(), values.size(), DDL_TYPE_FLOAT, DDL_OP_AVG));

  if (rank == 0) {
    std::printf("mean of %d ranks:", size);
    for (const float value : values) std::printf(" %g", value);
    std::printf("\n");
  }
  check(ddl_finalize());
}
