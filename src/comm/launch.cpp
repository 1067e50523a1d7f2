#include "comm/launch.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/error.h"

namespace longspan {
namespace {

// One port per job, because two jobs may share a host: above those of well-known services, and below those
// that Linux gives to outgoing connections (32,768 and up), any of which may be taken.
int port_of_job(uint64_t job) {
  constexpr int kFirst = 20000, kEnd = 32768;
  return kFirst + static_cast<int>(job % (kEnd - kFirst));
}

class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  std::string text(const char* name) const {
    const char* value = environment_(name);
    return value == nullptr ? "" : value;
  }
  bool has(const char* name) const { return !text(name).empty(); }

  int number(const char* name, int least, int most) const {
    const std::string value = text(name);
    int result = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    LONGSPAN_CHECK_INPUT(
        error == std::errc() && end == value.data() + value.size() && least <= result && result <= most,
        "{}='{}': must be a whole number from {} to {}", name, value, least, most);
    return result;
  }

  void read_ranks(Launch& launch, const char* rank, const char* ranks, const char* local) const {
    constexpr int kMost = 1 << 20;
    launch.ranks = number(ranks, 1, kMost);
    launch.rank = number(rank, 0, launch.ranks - 1);
    if (has(local)) launch.local_rank = number(local, 0, kMost);
  }

 private:
  const Environment& environment_;
};

// The first host of a Slurm node list: "node03" for "node[03-07,12],other".
std::string first_host(std::string_view list) {
  const size_t bracket = list.find('['), comma = list.find(',');
  if (bracket == std::string_view::npos || comma < bracket) return std::string(list.substr(0, comma));
  const size_t end = list.find_first_of(",-]", bracket + 1);
  return std::string(list.substr(0, bracket)) + std::string(list.substr(bracket + 1, end - bracket - 1));
}

uint64_t hash_of(std::string_view text) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

// Reads the rendezvous address if the user has set it.
void read_meeting_place(Launch& launch, const Reader& read) {
  if (const std::string place = read.text("LONGSPAN_RENDEZVOUS"); !place.empty()) {
    const size_t colon = place.rfind(':');
    int port = 0;
    bool fits = colon != std::string::npos && colon > 0;
    if (fits) {
      const char* end = place.data() + place.size();
      const auto [stop, error] = std::from_chars(place.data() + colon + 1, end, port);
      fits = error == std::errc() && stop == end && 0 < port && port < 65536;
    }
    LONGSPAN_CHECK_INPUT(fits, "LONGSPAN_RENDEZVOUS='{}': must be HOST:PORT, such as node03:29500", place);
    launch.host = place.substr(0, colon);
    launch.port = port;
    return;
  }
  if (read.has("MASTER_ADDR")) launch.host = read.text("MASTER_ADDR");
  if (read.has("MASTER_PORT")) launch.port = read.number("MASTER_PORT", 1, 65535);
}

// If all ranks are on one host, nobody else has to reach it.
void keep_within_host(Launch& launch, const Reader& read, bool one_host) {
  if (one_host && !read.has("LONGSPAN_RENDEZVOUS")) launch.host = "127.0.0.1";
}

// `of_launcher` is what the launcher gives all ranks of a job, or "".
std::string token_from(const Reader& read, const std::string& of_launcher) {
  const std::string given = read.text("LONGSPAN_JOB_TOKEN");
  LONGSPAN_CHECK_INPUT(
      given.empty() || given.size() >= kShortestToken,
      "LONGSPAN_JOB_TOKEN has {} characters: must be a secret of {} or more, such as that of "
      "`openssl rand -hex 16`",
      given.size(), kShortestToken);
  return given.empty() ? of_launcher : given;
}

std::string torchrun_token(const Reader& read) {
  const std::string run = read.text("TORCHELASTIC_RUN_ID");
  return run.empty() || run == "none" ? "" : "torchrun " + run;  // "none" is its preset
}

std::string slurm_token(const Reader& read) {
  return read.has("SLURM_JOB_ID")
             ? fmt::format("Slurm {}.{}", read.text("SLURM_JOB_ID"), read.text("SLURM_STEP_ID"))
             : "";
}

// Open MPI 4 also gives its ranks a random key for its transports.
std::string open_mpi_token(const Reader& read) {
  const std::string job = read.text("PMIX_NAMESPACE") + read.text("OMPI_MCA_ess_base_jobid");
  return job.empty() ? "" : "Open MPI " + job + " " + read.text("OMPI_MCA_orte_precondition_transports");
}

}  // namespace

std::optional<Launch> launch_from_environment(const Environment& environment) {
  const Reader read(environment);
  Launch launch;
  read_meeting_place(launch, read);
  if (read.has("RANK") && read.has("WORLD_SIZE")) {
    launch.launcher = "torchrun";
    read.read_ranks(launch, "RANK", "WORLD_SIZE", "LOCAL_RANK");
    LONGSPAN_CHECK_INPUT(launch.ranks == 1 || !launch.host.empty(),
                         "RANK and WORLD_SIZE are set, but MASTER_ADDR is not: set it to the host of rank 0");
    keep_within_host(
        launch, read,
        read.has("LOCAL_WORLD_SIZE") && read.text("LOCAL_WORLD_SIZE") == read.text("WORLD_SIZE"));
    launch.token = token_from(read, torchrun_token(read));
    if (launch.port == 0) launch.port = 29500;
    // torchrun's own store listens on the port itself
    if (!read.has("LONGSPAN_RENDEZVOUS"))
      launch.port = launch.port < 65535 ? launch.port + 1 : launch.port - 1;
  } else if (read.has("SLURM_PROCID") && (read.has("SLURM_STEP_NUM_TASKS") || read.has("SLURM_NTASKS"))) {
    launch.launcher = "Slurm";
    read.read_ranks(launch, "SLURM_PROCID",
                    read.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS",
                    "SLURM_LOCALID");
    if (launch.host.empty()) {
      const char* list = read.has("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
      launch.host = read.has(list) ? first_host(read.text(list)) : "127.0.0.1";
    }
    keep_within_host(launch, read, read.text("SLURM_STEP_NUM_NODES") == "1");
    launch.token = token_from(read, slurm_token(read));
    if (launch.port == 0)
      launch.port = port_of_job(hash_of(read.text("SLURM_JOB_ID") + "." + read.text("SLURM_STEP_ID")));
  } else if (read.has("OMPI_COMM_WORLD_RANK")) {
    launch.launcher = "Open MPI";
    read.read_ranks(launch, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK");
    const bool one_host = read.has("OMPI_COMM_WORLD_LOCAL_SIZE")
                              ? read.number("OMPI_COMM_WORLD_LOCAL_SIZE", 1, 1 << 20) == launch.ranks
                              : launch.host.empty();
    LONGSPAN_CHECK_INPUT(one_host || !launch.host.empty(),
                         "Open MPI's ranks are on several hosts: set LONGSPAN_RENDEZVOUS=HOST:PORT to where "
                         "rank 0 can be met (mpirun -x LONGSPAN_RENDEZVOUS ...)");
    keep_within_host(launch, read, one_host);
    launch.token = token_from(read, open_mpi_token(read));
    if (launch.port == 0)
      launch.port = port_of_job(hash_of(read.text("PMIX_NAMESPACE") + read.text("OMPI_MCA_ess_base_jobid")));
  } else {
    return std::nullopt;
  }
  return launch;
}

std::optional<Launch> launch_from_environment() {
  return launch_from_environment([](const char* name) { return std::getenv(name); });
}

}  // namespace longspan
