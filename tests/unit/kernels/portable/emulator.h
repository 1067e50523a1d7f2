// Runs a kernel that is written over the portable kernels' primitives on the CPU, one block after another.
// The threads of a block are fibers that meet at warp instructions and barriers. Shared memory is checked:
// bounds and alignment, reads of what nobody wrote, of a cp.async before its wait, and of what another thread
// wrote without a barrier in between.
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

namespace longspan::portable {

// What the emulation throws out of run_grid() when a kernel does what no GPU defines.
struct EmulationError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Runs `kernel` for each thread of each block. Block b + 1 begins when block b has ended.
void run_grid(int64_t blocks, int threads, uint32_t shared_bytes, const std::function<void()>& kernel);

// The parts of a primitive that need the emulator's state; emulated_isa.h is written over them. All act for
// the thread that runs.
namespace emulator {

int thread();
int block();
uint32_t shared_base();  // where shared memory begins: not 0, as on a GPU

// Waits for all threads of the warp to come to the same instruction. The last one runs `together` with the
// arguments that each thread gave, by lane.
using Together = void (*)(void* const (&arguments)[32]);
void meet(const char* instruction, void* arguments, Together together);
void sync_block();
void sync_warp();

// Shared memory. `by_warp`: ldmatrix, which gives data to all lanes, whoever wrote it.
void read_shared(uint32_t from, void* to, uint32_t bytes, bool by_warp = false);
void write_shared(uint32_t to, const void* from, uint32_t bytes);
void copy_async(uint32_t to, const void* from, uint32_t bytes);  // from null: zeros
void commit_group();
void wait_groups(int left);

[[noreturn]] void fail(const std::string& what);

}  // namespace emulator
}  // namespace longspan::portable
