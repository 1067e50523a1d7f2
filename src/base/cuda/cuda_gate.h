// A gate in a stream. Work queued behind a shut gate starts at once when the gate opens. Events behind the
// gate therefore measure no launch gaps.
#pragma once

#include "longspan/base.h"

namespace longspan {

class CudaGate {
 public:
  explicit CudaGate(int index);
  ~CudaGate();
  CudaGate(const CudaGate&) = delete;
  CudaGate& operator=(const CudaGate&) = delete;

  // Work put into the stream from now on waits for open(), at most for `timeout_s`. The limit prevents a
  // deadlock when the host waits for the stream or the launch queue is full.
  void shut(Stream stream, double timeout_s);
  void open();
  bool timed_out() const;  // whether the last gate timed out; call it once the stream has passed the gate

 private:
  struct Flags;
  Flags* host_ = nullptr;  // in host memory mapped into the device
  Flags* device_ = nullptr;
  int index_ = 0;
};

}  // namespace longspan
