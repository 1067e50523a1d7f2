// A gate in a stream: work behind it is queued while it is shut, and starts at once when it opens. Between
// two events behind a gate there is then no time in which the GPU waited for the host to launch something.
#pragma once

#include "base/device.h"

namespace longspan {

class CudaGate {
 public:
  explicit CudaGate(int index);
  ~CudaGate();
  CudaGate(const CudaGate&) = delete;
  CudaGate& operator=(const CudaGate&) = delete;

  // What is put into the stream from now on waits for open(), for `timeout_s` at most: work that itself waits
  // for the stream, or that overfills the launch queue, would otherwise wait for ever.
  void shut(Stream stream, double timeout_s);
  void open();
  bool timed_out() const;  // the last gate was not opened in time; ask once the stream has passed it

 private:
  struct Flags;
  Flags* host_ = nullptr;  // in host memory that the device sees
  Flags* device_ = nullptr;
  int index_ = 0;
};

}  // namespace longspan
