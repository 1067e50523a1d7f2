// Replaces mpi.cpp in a build without MPI.
#include "base/error.h"
#include "comm/mpi.h"
#include "longspan/parallel.h"

namespace longspan {

bool launched_by_mpi() {
  return false;
}

std::unique_ptr<Communicator> mpi_communicator(std::chrono::milliseconds, Alarm*) {
  LONGSPAN_CHECK_INPUT(false,
                       "this build has no MPI: install an MPI library and configure with LONGSPAN_MPI=ON");
  return nullptr;
}

Group mpi_processes(std::chrono::milliseconds limit) {
  return Group(mpi_communicator(limit));
}

}  // namespace longspan
