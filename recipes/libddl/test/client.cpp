// A client as users write it: averages nothing, sums its rank over all ranks, and links the historical
// library too.
#include <cstdio>
#include <ddl.hpp>
#include <vector>

int main() {
  int rank = -1, size = -1;
  if (ddl_init(nullptr) != DDL_SUCCESS || ddl_rank(&rank) != DDL_SUCCESS || ddl_size(&size) != DDL_SUCCESS)
    return 1;
  std::vector<float> values(100003, static_cast<float>(rank + 1));
  if (ddl_allreduce(values.data(), values.size()) != DDL_SUCCESS) return 2;
  const float expected = static_cast<float>(size * (size + 1) / 2);
  for (float value : values)
    if (value != expected) return 3;
  std::printf("rank %d of %d: %g\n", rank, size, values.front());
  return ddl_finalize() == DDL_SUCCESS ? 0 : 4;
}
