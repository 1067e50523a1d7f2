// Deliberate faults in builds with LONGSPAN_SM90_FORWARD_FAULTS. They show that compute-sanitizer sees into
// the forward kernel (scripts/sanitize-gpu). Other builds have none.
#pragma once

#include <cstdint>
#include <cstdlib>

#include "kernels/sm90/forward/params.h"

namespace longspan::sm90 {

#ifdef LONGSPAN_SM90_FORWARD_FAULTS
inline constexpr bool kFaulty = true;
#else
inline constexpr bool kFaulty = false;
#endif

enum Fault : int32_t { kNoFault, kRace, kDivergence, kWildWrite, kRaceAtStart };

// The fault that the environment variable LONGSPAN_SM90_FORWARD_FAULT asks for, by number.
inline int32_t fault_asked_for() {
  const char* number = std::getenv("LONGSPAN_SM90_FORWARD_FAULT");
  return number == nullptr ? kNoFault : std::atoi(number);
}

// Writes to notes that the load warp may be writing, with other values: racecheck ignores equal ones by
// default. No warp reads these values.
template <class Note, int kCount>
__device__ __forceinline__ void race_for(const ForwardParams& params, Note (&notes)[kCount]) {
  if (params.fault == kRace)
    for (Note& note : notes) note.unused = -1;
}

// Called by all warps before they work.
template <class Note, int kCount>
__device__ __forceinline__ void fault_at_start(const ForwardParams& params, int warp, int lane,
                                               Note (&notes)[kCount]) {
  if (params.fault == kRaceAtStart) {  // each warp writes its own number to one place, unsynchronized
    if (lane == 0) notes[0].unused = warp;
    __syncthreads();  // before the first item
  }
  if (params.fault == kDivergence) {  // a barrier of whole warps, reached lane by lane
    if (lane == 0)
      asm volatile("bar.sync 0;  // one lane" ::: "memory");
    else
      asm volatile("bar.sync 0;  // the others" ::: "memory");
  }
  if (params.fault == kWildWrite && lane == 0) params.lse[int64_t{1} << 44] = 0.0f;
}

}  // namespace longspan::sm90
