// How a failure of DDL becomes an exception of PyTorch.
#pragma once

namespace ddl_torch {

// Throws when a DDL call just made on this thread has failed: c10::ValueError for a wrong argument, else
// c10::DistBackendError, which Python knows as torch.distributed.DistBackendError. Both carry DDL's own text.
void Check(int ddl_result);

}  // namespace ddl_torch
