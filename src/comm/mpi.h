// Ranks as MPI processes, one per rank, with tensors in CPU memory.
#pragma once

#include <chrono>
#include <memory>

#include "comm/communicator.h"
#include "comm/rendezvous.h"

namespace longspan {

// Whether an MPI launcher started this process (variables of mpirun, mpiexec or Slurm are set).
bool launched_by_mpi();

// The communicator of all processes of the job. The first call initialises MPI; program exit finalises it. A
// wait longer than `limit` or a rank's fail() fails the group: every rank then throws the reason. After a
// timed-out wait the job is aborted at program exit. The same holds for failures reported by `alarm`, which
// must outlive the communicator; it reports the death of a rank at once. Throws an input error if this build
// has no MPI.
std::unique_ptr<Communicator> mpi_communicator(std::chrono::milliseconds limit, Alarm* alarm = nullptr);

}  // namespace longspan
