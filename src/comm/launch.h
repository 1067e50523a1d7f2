// This process's rank in its job, from the environment set by the launcher.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace longspan {

struct Launch {
  std::string launcher;  // "torchrun", "Slurm", "Open MPI"
  int rank = 0, ranks = 1;
  int local_rank = 0;  // rank within the host; selects the GPU
  std::string host;    // the host of rank 0, which listens there and nowhere else
  int port = 0;
  std::string token;  // what the ranks of the job know and strangers do not; empty if there is nothing
};

constexpr size_t kShortestToken = 16;  // of LONGSPAN_JOB_TOKEN

// Looks up a variable; returns nullptr if it is not set.
using Environment = std::function<const char*(const char* name)>;

// Reads torchrun's RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; else Slurm's SLURM_PROCID,
// SLURM_NTASKS, SLURM_LOCALID and the first host of its node list; else Open MPI's OMPI_COMM_WORLD_RANK,
// _SIZE and _LOCAL_RANK. LONGSPAN_RENDEZVOUS=HOST:PORT, or MASTER_ADDR and MASTER_PORT, override the meeting
// point of any launcher; Open MPI ranks on several hosts need one of them. If all ranks are on one host, they
// meet at its loopback address unless LONGSPAN_RENDEZVOUS says otherwise.
//
// The token is LONGSPAN_JOB_TOKEN, else torchrun's run id, Slurm's job and step, or Open MPI's namespace and
// transport key. SECURITY.md says how good each is.
//
// Returns nothing if none of these launched the process. Throws an input error that names the variable if its
// value is invalid.
std::optional<Launch> launch_from_environment(const Environment& environment);
std::optional<Launch> launch_from_environment();  // for the environment of this process

}  // namespace longspan
