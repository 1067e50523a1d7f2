#include "cli/environment.h"

#include "base/parallel.h"
#include "peers/peers_folder.h"

namespace longspan::cli {

// Each reads its variables and checks them.
void check_environment() {
  thread_count();         // LONGSPAN_THREADS
  peers::peers_folder();  // LONGSPAN_PEERS
}

}  // namespace longspan::cli
