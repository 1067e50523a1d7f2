// Context parallelism in the C interface: placements, groups of processes, and plans by number.
#include "longspan/parallel.h"

#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "comm/carried.h"
#include "comm/communicator.h"
#include "comm/nccl.h"
#include "core.h"
#include "cp/strategies/sharding.h"
#include "mask/band_list.h"
#include "numbered.h"
#include "support.h"
#ifdef LONGSPAN_WITH_CUDA
#include "base/cuda/cuda.h"
#include "kernels/gpu/plan_memory.h"
#endif

using longspan::python::guarded;

struct longspan_placement {
  longspan::RankTokens tokens;
};

namespace longspan::python {
namespace {

ParallelConfig config_of(const longspan_parallel_config& asked) {
  ParallelConfig config{.strategy = asked.strategy, .nodes = asked.nodes, .kernel = asked.kernel};
  for (int64_t i = 0; i < asked.options; ++i) config.options[asked.names[i]] = asked.values[i];
  return config;
}

Problem parallel_problem(const longspan_masks& masks, const longspan_problem& asked,
                         const longspan_parallel_config& config) {
  Problem problem = problem_of(masks, asked);
  problem.lse_gradient = config.lse_gradient != 0;
  return problem;
}

// Messages by functions of another language.
class CarriedByFunctions : public Carrier {
 public:
  explicit CarriedByFunctions(const longspan_carrier& functions) : functions_(functions) {}

  int64_t start(std::span<const Message> sends, std::span<const Message> receives) override {
    const std::vector<longspan_message> out = plain(sends), in = plain(receives);
    const int64_t number = functions_.start(functions_.context, out.data(), static_cast<int64_t>(out.size()),
                                            in.data(), static_cast<int64_t>(in.size()));
    if (number < 0) throw_reason();
    return number;
  }
  void wait(int64_t transfer) override {
    if (functions_.wait(functions_.context, transfer) != 0) throw_reason();
  }
  void fail(const std::string& reason) override { functions_.fail(functions_.context, reason.c_str()); }

 private:
  static std::vector<longspan_message> plain(std::span<const Message> messages) {
    std::vector<longspan_message> list;
    for (const Message& m : messages) list.push_back({m.data, static_cast<int64_t>(m.bytes), m.peer});
    return list;
  }
  [[noreturn]] static void throw_reason() {
    throw Error(ErrorKind::kPeer, longspan_error(), __FILE__, __LINE__, "");
  }

  const longspan_carrier functions_;
};

// FNV-1a.
class Digest {
 public:
  void add(int64_t value) {
    for (int shift = 0; shift < 64; shift += 8) add_byte(static_cast<uint64_t>(value) >> shift & 255);
  }
  void add(std::string_view text) {
    add(static_cast<int64_t>(text.size()));
    for (const char c : text) add_byte(static_cast<unsigned char>(c));
  }
  int64_t value() const { return static_cast<int64_t>(state_); }

 private:
  void add_byte(uint64_t byte) { state_ = (state_ ^ byte) * 0x100000001b3; }
  uint64_t state_ = 0xcbf29ce484222325;
};

// What the attentions of a group on one device share: they are made and called one after another, on whatever
// streams.
class Turns {
 public:
  explicit Turns(const Device& device) : buffers_(device) {
#ifdef LONGSPAN_WITH_CUDA
    if (device.kind == DeviceKind::kCuda) last_.emplace(device.index, cuda::Event::Timing::kOff);
#endif
  }

  template <class... Arguments>
  ParallelAttention make(const Arguments&... arguments) {
    const std::scoped_lock lock(mutex_);
    return {arguments..., buffers_};
  }

  template <class Pass>
  void take([[maybe_unused]] Stream stream, const Pass& pass) {
    const std::scoped_lock lock(mutex_);
#ifdef LONGSPAN_WITH_CUDA
    LONGSPAN_CHECK_INPUT(!last_ || !gpu::is_captured(cuda::raw(stream)),
                         "attention over several ranks cannot be captured into a CUDA graph: call it outside "
                         "of the capture");
    if (used_) last_->wait_in(stream);
#endif
    pass();
#ifdef LONGSPAN_WITH_CUDA
    if (last_) last_->record(stream);
    used_ = last_.has_value();
#endif
  }

 private:
  std::mutex mutex_;
  const SharedBuffers buffers_;
#ifdef LONGSPAN_WITH_CUDA
  std::optional<cuda::Event> last_;  // the end of the last call
  bool used_ = false;
#endif
};

// An attention of this process's rank.
class Attention {
 public:
  Attention(const Problem& problem, const ParallelConfig& config, const Group& group,
            std::shared_ptr<Turns> turns, const Device& device, const longspan_problem& asked)
      : group_(group),
        turns_(std::move(turns)),
        attention_(turns_->make(problem, config, group, device,
                                asked.backward != 0 ? Direction::kBackward : Direction::kForward)),
        own_(problem),
        info_{attention_.token_count(), described(asked), static_cast<int64_t>(attention_.kept_bytes()),
              problem.lse_gradient} {
    own_.tokens_q = own_.tokens_kv = info_.tokens;
  }

  const longspan_parallel_info& info() const { return info_; }
  void fail(const std::string& reason) { group_.fail(reason); }

  void forward(const longspan_forward_args& args, void* kept, Stream stream) {
    run(stream, [&] {
      attention_.forward(forward_of(args, own_), stream,
                         {static_cast<std::byte*>(kept), kept == nullptr ? 0 : kept_bytes()});
    });
  }

  void backward(const longspan_backward_args& args, const void* kept, Stream stream) {
    run(stream, [&] {
      attention_.backward(backward_of(args, own_), stream,
                          {static_cast<const std::byte*>(kept), kept_bytes()});
    });
  }

 private:
  size_t kept_bytes() const { return static_cast<size_t>(info_.kept_bytes); }

  // A rank that cannot take part tells the others.
  template <class Pass>
  void run(Stream stream, const Pass& pass) {
    try {
      turns_->take(stream, pass);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInput) fail_group(group_.communicator());
      throw;
    } catch (...) {
      fail_group(group_.communicator());
      throw;
    }
  }

  Group group_;
  const std::shared_ptr<Turns> turns_;
  ParallelAttention attention_;
  Problem own_;  // with this rank's number of tokens
  longspan_parallel_info info_;
};

// Never destroyed: at exit, objects of Python may still refer to plans.
Numbered<Attention>& attentions() {
  static auto* const all = new Numbered<Attention>;
  return *all;
}

}  // namespace
}  // namespace longspan::python

using longspan::python::attentions;

struct longspan_group {
  longspan::Group group;
  std::shared_ptr<longspan::python::Turns> turns;
};

int longspan_placement_make(const longspan_masks* masks, const longspan_problem* problem,
                            const longspan_parallel_config* config, longspan_placement** out) {
  return guarded([&] {
    const longspan::Problem whole = longspan::python::parallel_problem(*masks, *problem, *config);
    *out = new longspan_placement{
        longspan::place_tokens(whole, longspan::python::config_of(*config), config->ranks)};
  });
}

void longspan_placement_delete(longspan_placement* placement) {
  delete placement;
}

int longspan_placement_ranges(const longspan_placement* placement, int32_t rank, int64_t* count,
                              const int64_t** ranges) {
  static_assert(sizeof(longspan::Range) == 2 * sizeof(int64_t));
  return guarded([&] {
    const std::vector<longspan::Range>& of_rank = placement->tokens.at(static_cast<size_t>(rank));
    *count = static_cast<int64_t>(of_rank.size());
    *ranges = of_rank.empty() ? nullptr : &of_rank.front().begin;
  });
}

int longspan_documents(const longspan_masks* masks, int64_t* ends, int64_t* count) {
  return guarded([&] {
    longspan::Problem problem;
    problem.tokens_q = masks->heads->front().rows();
    problem.tokens_kv = masks->heads->front().columns();
    problem.masks = masks->heads;
    *count = 0;
    for (const longspan::Range& block : longspan::diagonal_blocks(problem)) ends[(*count)++] = block.end;
  });
}

int longspan_digest(const longspan_masks* masks, const longspan_problem* problem,
                    const longspan_parallel_config* config, const longspan_placement* placement,
                    int64_t* out) {
  return guarded([&] {
    longspan::python::Digest digest;
    for (const longspan::Mask& mask : *masks->heads) {
      for (const int64_t x : {mask.rows(), mask.columns()}) digest.add(x);
      for (const longspan::Band& b : mask.bands())
        for (const int64_t x : {b.q.begin, b.q.end, b.k.begin, b.k.end, b.lo, b.hi}) digest.add(x);
    }
    const longspan_problem& p = *problem;
    for (const int64_t x :
         {p.heads_q, p.heads_kv, p.head_dim, p.head_dim_v, int64_t{p.dtype},
          int64_t{std::bit_cast<int32_t>(p.scale)}, int64_t{std::bit_cast<int32_t>(p.softcap)},
          int64_t{config->nodes}, int64_t{config->lse_gradient}})
      digest.add(x);
    digest.add(config->strategy);
    for (int64_t i = 0; i < config->options; ++i)
      for (const char* text : {config->names[i], config->values[i]}) digest.add(text);
    for (const auto& ranges : placement->tokens) {
      digest.add(static_cast<int64_t>(ranges.size()));
      for (const longspan::Range& range : ranges)
        for (const int64_t x : {range.begin, range.end}) digest.add(x);
    }
    *out = digest.value();
  });
}

void longspan_set_error(const char* reason) {
  longspan::python::failed(longspan::ErrorKind::kPeer, reason);
}

int longspan_group_carried(int32_t rank, int32_t size, const longspan_carrier* carrier,
                           longspan_group** out) {
  return guarded([&] {
    auto carried = std::make_unique<longspan::python::CarriedByFunctions>(*carrier);
    *out = new longspan_group{longspan::Group(longspan::carried_communicator(rank, size, std::move(carried))),
                              std::make_shared<longspan::python::Turns>(longspan::cpu_device())};
  });
}

int longspan_nccl_identifiers(char* out) {
  return guarded([&] {
    const std::string identifiers = longspan::nccl_identifiers();
    if (identifiers.size() != LONGSPAN_NCCL_IDENTIFIERS)
      longspan::python::refuse("NCCL's identifiers have another size than in 2.x", __LINE__);
    std::memcpy(out, identifiers.data(), identifiers.size());
  });
}

int longspan_group_nccl(int32_t rank, int32_t size, const char* identifiers, int32_t cuda_device,
                        int64_t limit_ms, longspan_group** out) {
  return guarded([&] {
    const longspan::Device device = longspan::python::device_of(cuda_device);
    *out = new longspan_group{
        longspan::Group(longspan::nccl_communicator(rank, size, {identifiers, LONGSPAN_NCCL_IDENTIFIERS},
                                                    device, std::chrono::milliseconds(limit_ms))),
        std::make_shared<longspan::python::Turns>(device)};
  });
}

int longspan_group_fail(longspan_group* group, const char* reason) {
  return guarded([&] { group->group.fail(reason); });
}

int longspan_group_watch(longspan_group* group) {
  return guarded([&] { group->group.communicator().watch(); });
}

void longspan_group_delete(longspan_group* group) {
  delete group;
}

int longspan_parallel_make(const longspan_masks* masks, const longspan_problem* problem,
                           const longspan_parallel_config* config, const longspan_placement* placement,
                           longspan_group* group, int64_t* plan) {
  return guarded([&] {
    longspan::ParallelConfig with_tokens = longspan::python::config_of(*config);
    with_tokens.tokens = placement->tokens;
    *plan = attentions().add(std::make_shared<longspan::python::Attention>(
        longspan::python::parallel_problem(*masks, *problem, *config), with_tokens, group->group,
        group->turns, longspan::python::device_of(problem->cuda_device), *problem));
  });
}

int longspan_parallel_get_info(int64_t plan, longspan_parallel_info* out) {
  return guarded([&] { *out = attentions().find(plan)->info(); });
}

void longspan_parallel_delete(int64_t plan) {
  guarded([&] { attentions().remove(plan); });
}

void longspan_parallel_fail(int64_t plan, const char* reason) {
  guarded([&] { attentions().find(plan)->fail(reason); });
}

int longspan_parallel_forward(int64_t plan, const longspan_forward_args* args, void* kept, void* stream) {
  return guarded([&] { attentions().find(plan)->forward(*args, kept, longspan::Stream{stream}); });
}

int longspan_parallel_backward(int64_t plan, const longspan_backward_args* args, const void* kept,
                               void* stream) {
  return guarded([&] { attentions().find(plan)->backward(*args, kept, longspan::Stream{stream}); });
}
