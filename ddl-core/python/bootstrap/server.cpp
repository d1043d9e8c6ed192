// Written against the headers of PMIx 4.2; PMIx promises that a program built with them runs with any later
// library of the same soname (libpmix.so.2), such as the 5.0 that Open MPI 5.0 brings.
#include "server.hpp"

#include <pmix.h>
#include <pmix_server.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <future>
#include <mutex>
#include <set>
#include <stdexcept>
#include <utility>

namespace ddl::bootstrap {
namespace {

struct Exchange {
  pmix_modex_cbfunc_t done = nullptr;
  void* of_caller = nullptr;
};

/// PMIx calls plain functions, from a thread of its own.
struct State {
  Job job;
  FramePipe* pipe = nullptr;
  std::mutex mutex;
  std::map<std::uint32_t, Exchange> exchanges;
  std::uint32_t next_exchange = 0;
  bool alone = false;  ///< the rank that carries out exchanges has ended
  std::set<std::uint32_t> finished;
};

State& state() {
  static State only;
  return only;
}

void check(pmix_status_t status, const char* what) {
  if (status == PMIX_SUCCESS || status == PMIX_OPERATION_SUCCEEDED) return;
  throw std::runtime_error(std::string(what) + ": " + PMIx_Error_string(status));
}

void fulfil(pmix_status_t status, void* promise) {
  static_cast<std::promise<pmix_status_t>*>(promise)->set_value(status);
}

/// Calls a PMIx function that answers by a call back, and waits for that.
template <class Call>
void call_and_wait(Call call, const char* what) {
  std::promise<pmix_status_t> promise;
  const pmix_status_t status = call(fulfil, &promise);
  check(status == PMIX_SUCCESS ? promise.get_future().get() : status, what);
}

/// Attributes, as PMIx collects them.
class Attributes {
 public:
  Attributes() : list_(PMIx_Info_list_start()) {}
  ~Attributes() { PMIx_Info_list_release(list_); }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;

  void add(const char* key, const void* value, pmix_data_type_t type) {
    check(PMIx_Info_list_add(list_, key, value, type), key);
  }
  void text(const char* key, const std::string& value) { add(key, value.c_str(), PMIX_STRING); }
  void number(const char* key, std::uint32_t value) { add(key, &value, PMIX_UINT32); }
  void small_number(const char* key, std::size_t value) {
    const auto number = static_cast<std::uint16_t>(value);
    add(key, &number, PMIX_UINT16);
  }
  void rank(const char* key, pmix_rank_t value) { add(key, &value, PMIX_PROC_RANK); }
  void flag(const char* key, bool value) { add(key, &value, PMIX_BOOL); }
  void nested(const char* key, const Attributes& inner) {
    pmix_data_array_t array = inner.array();
    add(key, &array, PMIX_DATA_ARRAY);
    PMIx_Data_array_destruct(&array);
  }
  pmix_data_array_t array() const {
    pmix_data_array_t made{};
    check(PMIx_Info_list_convert(list_, &made), "PMIx_Info_list_convert");
    return made;
  }

 private:
  void* list_;
};

std::string joined(const std::vector<std::uint32_t>& numbers) {
  std::string text;
  for (const std::uint32_t number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

// ---- what ranks ask for by way of PMIx

pmix_status_t client_connected(const pmix_proc_t*, void*, pmix_info_t[], std::size_t, pmix_op_cbfunc_t,
                               void*) {
  return PMIX_OPERATION_SUCCEEDED;
}

pmix_status_t client_finalized(const pmix_proc_t* proc, void*, pmix_op_cbfunc_t, void*) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.finished.insert(proc->rank);
  return PMIX_OPERATION_SUCCEEDED;
}

/// The rank ends itself afterwards; whoever started the ranks ends the others.
pmix_status_t abort_ranks(const pmix_proc_t*, void*, int, const char[], pmix_proc_t[], std::size_t,
                          pmix_op_cbfunc_t, void*) {
  return PMIX_OPERATION_SUCCEEDED;
}

bool all_ranks(const pmix_proc_t procs[], std::size_t count) {
  return (count == 1 && procs[0].rank == PMIX_RANK_WILDCARD) || count == state().job.size();
}

bool all_here(const pmix_proc_t procs[], std::size_t count) {
  const auto& ranks = state().job.hosts[state().job.here].ranks;
  const std::set<pmix_rank_t> here(ranks.begin(), ranks.end());
  for (std::size_t i = 0; i < count; ++i) {
    if (!here.contains(procs[i].rank)) return false;
  }
  return true;
}

void release_text(void* text) { delete static_cast<std::string*>(text); }

void answer(const Exchange& exchange, pmix_status_t status, std::string bytes) {
  auto* const kept = new std::string(std::move(bytes));
  exchange.done(status, kept->data(), kept->size(), exchange.of_caller, release_text, kept);
}

/// PMIx asks once the ranks of this host have come to the fence.
pmix_status_t fence(const pmix_proc_t procs[], std::size_t count, const pmix_info_t[], std::size_t,
                    char* data, std::size_t bytes, pmix_modex_cbfunc_t done, void* of_caller) {
  State& s = state();
  std::string ours(data == nullptr ? "" : std::string(data, bytes));
  const Exchange exchange{done, of_caller};
  if (s.job.hosts.size() == 1 || all_here(procs, count)) {
    answer(exchange, PMIX_SUCCESS, std::move(ours));
    return PMIX_SUCCESS;
  }
  if (!all_ranks(procs, count)) return PMIX_ERR_NOT_SUPPORTED;
  std::uint32_t id = 0;
  {
    const std::lock_guard lock(s.mutex);
    if (s.alone) return PMIX_ERR_LOST_CONNECTION;
    id = s.next_exchange++;
    s.exchanges[id] = exchange;
  }
  if (!s.pipe->write({FrameKind::kFence, id, std::move(ours)})) Server::fail_exchanges();
  return PMIX_SUCCESS;
}

/// Everything that ranks publish went through the fence: what is not here by then is nowhere.
pmix_status_t direct_modex(const pmix_proc_t*, const pmix_info_t[], std::size_t, pmix_modex_cbfunc_t, void*) {
  return PMIX_ERR_NOT_FOUND;
}

pmix_status_t register_events(pmix_status_t*, std::size_t, const pmix_info_t[], std::size_t, pmix_op_cbfunc_t,
                              void*) {
  return PMIX_OPERATION_SUCCEEDED;
}

pmix_status_t deregister_events(pmix_status_t*, std::size_t, pmix_op_cbfunc_t, void*) {
  return PMIX_OPERATION_SUCCEEDED;
}

pmix_status_t notify_event(pmix_status_t, const pmix_proc_t*, pmix_data_range_t, pmix_info_t[], std::size_t,
                           pmix_op_cbfunc_t, void*) {
  return PMIX_OPERATION_SUCCEEDED;
}

/// Ranks name files (shared memory) that the server's library removes when they are gone; it does so only for
/// a host that controls jobs. Nothing else is asked for here.
pmix_status_t job_control(const pmix_proc_t*, const pmix_proc_t[], std::size_t, const pmix_info_t[],
                          std::size_t, pmix_info_cbfunc_t, void*) {
  return PMIX_OPERATION_SUCCEEDED;
}

/// A later library reads a longer table; what these headers do not know stays empty.
struct Functions {
  pmix_server_module_t known{};
  void* later[32] = {};
};

Functions& functions() {
  static Functions table;
  table.known.client_finalized = client_finalized;
  table.known.abort = abort_ranks;
  table.known.fence_nb = fence;
  table.known.direct_modex = direct_modex;
  table.known.register_events = register_events;
  table.known.deregister_events = deregister_events;
  table.known.notify_event = notify_event;
  table.known.job_control = job_control;
  table.known.client_connected2 = client_connected;
  return table;
}

// ---- what ranks are told about the job

std::string rank_folder(const Job& job, std::uint32_t rank) {
  return job.folder + "/job/" + std::to_string(rank);
}

void add_maps(Attributes& job_attributes, const Job& job) {
  std::string names;
  std::string ranks;
  for (const Host& host : job.hosts) {
    names += (names.empty() ? "" : ",") + host.name;
    ranks += (ranks.empty() ? "" : ";") + joined(host.ranks);
  }
  char* text = nullptr;
  check(PMIx_generate_regex(names.c_str(), &text), "PMIx_generate_regex");
  job_attributes.add(PMIX_NODE_MAP, text, PMIX_REGEX);
  std::free(text);
  check(PMIx_generate_ppn(ranks.c_str(), &text), "PMIx_generate_ppn");
  job_attributes.add(PMIX_PROC_MAP, text, PMIX_REGEX);
  std::free(text);
}

void add_host(Attributes& job_attributes, const Host& host, std::size_t index) {
  const auto ranks = static_cast<std::uint32_t>(host.ranks.size());
  Attributes attributes;
  attributes.text(PMIX_HOSTNAME, host.name);
  attributes.number(PMIX_NODEID, static_cast<std::uint32_t>(index));
  attributes.number(PMIX_NODE_SIZE, ranks);
  attributes.number(PMIX_LOCAL_SIZE, ranks);
  attributes.text(PMIX_LOCAL_PEERS, joined(host.ranks));
  attributes.rank(PMIX_LOCALLDR, host.ranks.front());
  job_attributes.nested(PMIX_NODE_INFO_ARRAY, attributes);
}

void add_ranks(Attributes& job_attributes, const Job& job, std::size_t index) {
  const Host& host = job.hosts[index];
  for (std::size_t local = 0; local < host.ranks.size(); ++local) {
    const std::uint32_t rank = host.ranks[local];
    Attributes attributes;
    attributes.rank(PMIX_RANK, rank);
    attributes.rank(PMIX_GLOBAL_RANK, rank);
    attributes.rank(PMIX_APP_RANK, rank);
    attributes.number(PMIX_APPNUM, 0);
    attributes.number(PMIX_NODEID, static_cast<std::uint32_t>(index));
    attributes.text(PMIX_HOSTNAME, host.name);
    attributes.small_number(PMIX_LOCAL_RANK, local);
    attributes.small_number(PMIX_NODE_RANK, local);
    if (index == job.here) attributes.text(PMIX_PROCDIR, rank_folder(job, rank));
    job_attributes.nested(PMIX_PROC_DATA, attributes);
  }
}

void add_job(Attributes& attributes, const Job& job) {
  const Host& here = job.hosts[job.here];
  const auto ranks_here = static_cast<std::uint32_t>(here.ranks.size());
  attributes.text(PMIX_JOBID, job.name_space);
  attributes.number(PMIX_UNIV_SIZE, job.size());
  attributes.number(PMIX_JOB_SIZE, job.size());
  attributes.number(PMIX_MAX_PROCS, job.size());
  attributes.number(PMIX_JOB_NUM_APPS, 1);
  attributes.number(PMIX_NUM_NODES, static_cast<std::uint32_t>(job.hosts.size()));
  attributes.number(PMIX_NODE_SIZE, ranks_here);
  attributes.number(PMIX_LOCAL_SIZE, ranks_here);
  attributes.text(PMIX_LOCAL_PEERS, joined(here.ranks));
  attributes.rank(PMIX_LOCALLDR, here.ranks.front());
  // Ranks that wait then leave their core to the others.
  attributes.flag(PMIX_NODE_OVERSUBSCRIBED, job.oversubscribed);
  attributes.text(PMIX_TMPDIR, job.folder);
  attributes.text(PMIX_NSDIR, job.folder + "/job");
  attributes.flag(PMIX_TDIR_RMCLEAN, true);
  Attributes program;
  program.number(PMIX_APPNUM, 0);
  program.number(PMIX_APP_SIZE, job.size());
  program.rank(PMIX_APPLDR, 0);
  attributes.nested(PMIX_APP_INFO_ARRAY, program);
}

void start_library(const Job& job) {
  Attributes attributes;
  attributes.text(PMIX_SERVER_TMPDIR, job.folder);
  attributes.text(PMIX_SYSTEM_TMPDIR, job.folder);
  attributes.text(PMIX_HOSTNAME, job.hosts[job.here].name);
  attributes.text(PMIX_SERVER_NSPACE, job.name_space + "-server");
  attributes.rank(PMIX_SERVER_RANK, static_cast<pmix_rank_t>(job.here));
  pmix_data_array_t array = attributes.array();
  const pmix_status_t status =
      PMIx_server_init(&functions().known, static_cast<pmix_info_t*>(array.array), array.size);
  PMIx_Data_array_destruct(&array);
  check(status, "PMIx_server_init");
}

void announce(const Job& job) {
  Attributes attributes;
  add_job(attributes, job);
  add_maps(attributes, job);
  for (std::size_t index = 0; index < job.hosts.size(); ++index) {
    add_host(attributes, job.hosts[index], index);
    add_ranks(attributes, job, index);
  }
  pmix_data_array_t array = attributes.array();
  const Host& here = job.hosts[job.here];
  call_and_wait(
      [&](pmix_op_cbfunc_t done, void* of_caller) {
        return PMIx_server_register_nspace(job.name_space.c_str(), static_cast<int>(here.ranks.size()),
                                           static_cast<pmix_info_t*>(array.array), array.size, done,
                                           of_caller);
      },
      "PMIx_server_register_nspace");
  PMIx_Data_array_destruct(&array);
  for (const std::uint32_t rank : here.ranks) {
    std::filesystem::create_directories(rank_folder(job, rank));
    pmix_proc_t proc;
    PMIX_LOAD_PROCID(&proc, job.name_space.c_str(), rank);
    call_and_wait(
        [&](pmix_op_cbfunc_t done, void* of_caller) {
          return PMIx_server_register_client(&proc, getuid(), getgid(), nullptr, done, of_caller);
        },
        "PMIx_server_register_client");
  }
}

}  // namespace

Server::Server(Job job, FramePipe& pipe) {
  State& s = state();
  s.job = std::move(job);
  s.pipe = &pipe;
  start_library(s.job);
  announce(s.job);
}

Server::~Server() {
  const Job& job = state().job;
  // This removes what the ranks have named for removal. Without a call back these calls wait.
  for (const std::uint32_t rank : job.hosts[job.here].ranks) {
    pmix_proc_t proc;
    PMIX_LOAD_PROCID(&proc, job.name_space.c_str(), rank);
    PMIx_server_deregister_client(&proc, nullptr, nullptr);
  }
  PMIx_server_deregister_nspace(job.name_space.c_str(), nullptr, nullptr);
  PMIx_server_finalize();
}

std::map<std::string, std::map<std::string, std::string>> Server::environments() const {
  const Job& job = state().job;
  std::map<std::string, std::map<std::string, std::string>> all;
  for (const std::uint32_t rank : job.hosts[job.here].ranks) {
    pmix_proc_t proc;
    PMIX_LOAD_PROCID(&proc, job.name_space.c_str(), rank);
    char** variables = nullptr;
    check(PMIx_server_setup_fork(&proc, &variables), "PMIx_server_setup_fork");
    for (char** variable = variables; variable != nullptr && *variable != nullptr; ++variable) {
      const std::string text = *variable;
      const std::size_t equals = text.find('=');
      all[std::to_string(rank)][text.substr(0, equals)] = text.substr(equals + 1);
      std::free(*variable);
    }
    std::free(static_cast<void*>(variables));
  }
  return all;
}

void Server::complete_exchange(std::uint32_t id, bool good, std::string bytes) {
  State& s = state();
  Exchange exchange;
  {
    const std::lock_guard lock(s.mutex);
    const auto found = s.exchanges.find(id);
    if (found == s.exchanges.end()) return;
    exchange = found->second;
    s.exchanges.erase(found);
  }
  answer(exchange, good ? PMIX_SUCCESS : PMIX_ERR_LOST_CONNECTION, std::move(bytes));
}

void Server::fail_exchanges() {
  State& s = state();
  std::map<std::uint32_t, Exchange> open;
  {
    const std::lock_guard lock(s.mutex);
    s.alone = true;
    open.swap(s.exchanges);
  }
  for (const auto& [id, exchange] : open) answer(exchange, PMIX_ERR_LOST_CONNECTION, "");
}

bool Server::finished(std::size_t index) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return s.finished.contains(s.job.hosts[s.job.here].ranks[index]);
}

}  // namespace ddl::bootstrap
