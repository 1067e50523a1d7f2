// Who this process is among the processes of a job, from the environment that its launcher set.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace longspan {

struct Launch {
  std::string launcher;  // "torchrun", "Slurm", "Open MPI"
  int rank = 0, ranks = 1;
  int local_rank = 0;  // among those of the same host: which of its GPUs to take
  std::string host;    // where rank 0 can be met
  int port = 0;
};

// Value of a variable; nullptr where it is not set.
using Environment = std::function<const char*(const char* name)>;

// torchrun's RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; else Slurm's SLURM_PROCID,
// SLURM_NTASKS, SLURM_LOCALID and the first host of its node list; else Open MPI's OMPI_COMM_WORLD_RANK,
// _SIZE and _LOCAL_RANK. LONGSPAN_RENDEZVOUS=HOST:PORT, or MASTER_ADDR and MASTER_PORT, say where to meet
// whatever the launcher; Open MPI's ranks on several hosts need one of them. Nothing if none of these
// launched the process. Throws an input error that names the variable for a value that cannot be.
std::optional<Launch> launch_from_environment(const Environment& environment);
std::optional<Launch> launch_from_environment();  // this process's own

}  // namespace longspan
