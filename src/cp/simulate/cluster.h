// A cluster as the simulation sees it: what a GPU computes and copies, and what links carry.
#pragma once

#include "attention/kernel_cost.h"

namespace longspan::simulate {

// The speed of a kernel over that of its cost model, which is fitted to sustained runs. It falls from `burst`
// to `sustained` as a pass computes, by 1/e every settle_s seconds.
struct Clock {
  double burst = 1, sustained = 1;
  double settle_s = 1;
};

// The memory of one GPU, for what the executor does beside attention.
struct MemoryCost {
  double bytes_per_s = 1;          // packing, merging, converting
  double operation_s = 0;          // each such operation, and each exchange that is posted
  double partial_bytes_per_s = 0;  // a kernel's reading and writing of partial results; 0: bytes_per_s
};

// Links. A rank's port connects it to its node, and a network interface to other nodes.
struct LinkCost {
  double port_bytes_per_s = 1;       // each way, while the GPU has nothing else to do
  double beside_bytes_per_s = 1;     // each way, while a kernel computes
  double flow_bytes_per_s = 0;       // of one rank to one other; 0: no limit but the ports'
  double latency_s = 0;              // from both ends being ready to the first byte
  double kernel_slowdown = 0;        // share of its speed that a kernel loses while data comes or goes
  double interface_bytes_per_s = 0;  // each way; 0: there is one node
  double interface_latency_s = 0;
  int ranks_per_interface = 1;
  // Interfaces of the same number in their node form a rail. Data between rails crosses the spine, which
  // carries 1 / oversubscription of what a node's interfaces do.
  double oversubscription = 1;
  // The receiver copies what arrives itself, while it waits, as ranks on the CPU do.
  bool receiver_copies = false;
  bool takes_rows = true;  // rows with gaps are sent as they lie, as between thread ranks
};

struct Cluster {
  KernelCost kernel;
  Clock clock;
  MemoryCost memory;
  LinkCost links;
};

}  // namespace longspan::simulate
