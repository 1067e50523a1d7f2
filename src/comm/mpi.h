// Ranks as MPI processes, one rank a process, with tensors in CPU memory.
#pragma once

#include <chrono>
#include <memory>

#include "comm/communicator.h"
#include "comm/rendezvous.h"

namespace longspan {

// Whether this process was started by a launcher of MPI programs (mpirun's, mpiexec's or Slurm's variables
// are set).
bool launched_by_mpi();

// The communicator of all processes of the job; initialises MPI at the first call and finalises it when the
// program ends. A wait that takes longer than `limit` fails the group, as does a rank's fail(): every rank
// then throws its reason; after a wait in vain the job is aborted when the program ends. So does a failure
// that the alarm tells, which must outlive the communicator: a rank's death is known there at once. Throws an
// input error if this build has no MPI.
std::unique_ptr<Communicator> mpi_communicator(std::chrono::milliseconds limit, Alarm* alarm = nullptr);

}  // namespace longspan
