// The library serves a program built with these headers.
#include <pmix.h>
#include <pmix_server.h>

#include <cstring>

int main() {
  struct {
    pmix_server_module_t known{};
    void* later[32] = {};
  } functions;
  if (PMIx_server_init(&functions.known, nullptr, 0) != PMIX_SUCCESS) return 1;
  char* ranks = nullptr;
  if (PMIx_generate_ppn("0,1;2,3", &ranks) != PMIX_SUCCESS || ranks == nullptr) return 2;
  if (std::strcmp(PMIx_Error_string(PMIX_ERR_NOT_FOUND), "PMIX_ERR_NOT_FOUND") != 0 &&
      std::strcmp(PMIx_Error_string(PMIX_ERR_NOT_FOUND), "NOT-FOUND") != 0) {
    return 3;
  }
  return PMIx_server_finalize() == PMIX_SUCCESS ? 0 : 4;
}
