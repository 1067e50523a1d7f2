#include "cli/environment.h"

#include <cstdlib>

#include "base/error.h"
#include "base/parallel.h"
#include "peers/peers_folder.h"

namespace longspan::cli {

void check_environment() {
  thread_count();  // reads and checks LONGSPAN_THREADS
  const char* peers = std::getenv("LONGSPAN_PEERS");
  LONGSPAN_CHECK_INPUT(peers == nullptr || !peers::peers_folder().path.empty(),
                       "LONGSPAN_PEERS='{}': must be a folder with worker.py", peers);
}

}  // namespace longspan::cli
