#include "core.h"

#include <algorithm>
#include <map>
#include <string>

#include "api/find_kernel.h"
#include "mask/picture.h"
#include "planned.h"
#include "support.h"

using longspan::Direction;
using longspan::HeadMasks;
using longspan::Mask;
using longspan::python::backward_of;
using longspan::python::device_of;
using longspan::python::follow;
using longspan::python::forward_of;
using longspan::python::guarded;
using longspan::python::Planned;
using longspan::python::plans;
using longspan::python::problem_of;
using longspan::python::refuse;

namespace longspan::python {
namespace {
thread_local std::string t_error;
}  // namespace

int failed(ErrorKind kind, std::string message) {
  t_error = std::move(message);
  return 1 + static_cast<int>(kind);
}

void refuse(const std::string& message, int line) {
  throw Error(ErrorKind::kInput, message, __FILE__, line, "");
}

Device device_of(int32_t cuda_device) {
  if (cuda_device < 0) return cpu_device();
  static const std::vector<Device> all = devices();
  for (const Device& device : all)
    if (device.kind == DeviceKind::kCuda && device.index == cuda_device) return device;
  std::string reason = no_cuda_reason();
  if (reason.empty()) reason = "there is no such device";
  throw Error(ErrorKind::kUnsupported, "tensors on cuda:" + std::to_string(cuda_device) + ": " + reason,
              __FILE__, __LINE__, "");
}

Problem problem_of(const longspan_masks& masks, const longspan_problem& asked) {
  Problem p;
  p.tokens_q = masks.heads->front().rows();
  p.tokens_kv = masks.heads->front().columns();
  p.heads_q = asked.heads_q;
  p.heads_kv = asked.heads_kv;
  p.head_dim = asked.head_dim;
  p.head_dim_v = asked.head_dim_v;
  p.dtype = static_cast<DType>(asked.dtype);
  p.scale = asked.scale;
  p.deterministic = asked.deterministic != 0;
  p.lse_gradient = asked.backward != 0;
  p.same_launches = asked.same_launches != 0;
  p.softcap = asked.softcap;
  if (asked.alibi_slopes != nullptr && asked.heads_q > 0)
    p.alibi_slopes.assign(asked.alibi_slopes, asked.alibi_slopes + asked.heads_q);
  p.masks = masks.heads;
  return p;
}

longspan_problem described(const longspan_problem& asked) {
  longspan_problem description = asked;
  if (description.head_dim_v == 0) description.head_dim_v = description.head_dim;
  description.alibi_slopes = nullptr;
  return description;
}

ForwardArgs forward_of(const longspan_forward_args& args, const Problem& p) {
  return {.q = rows(args.q, p, p.head_dim),
          .k = keys(args.k, p, p.head_dim),
          .v = keys(args.v, p, p.dim_v()),
          .o = rows(args.o, p, p.dim_v()),
          .lse = args.lse,
          .workspace = args.workspace,
          .sinks = args.sinks};
}

BackwardArgs backward_of(const longspan_backward_args& args, const Problem& p) {
  return {.q = rows(args.q, p, p.head_dim),
          .k = keys(args.k, p, p.head_dim),
          .v = keys(args.v, p, p.dim_v()),
          .o = rows(args.o, p, p.dim_v()),
          .dout = rows(args.dout, p, p.dim_v()),
          .lse = args.lse,
          .dq = rows(args.dq, p, p.head_dim),
          .dk = keys(args.dk, p, p.head_dim),
          .dv = keys(args.dv, p, p.dim_v()),
          .workspace = args.workspace,
          .dlse = args.dlse,
          .sinks = args.sinks,
          .dsinks = args.dsinks};
}

}  // namespace longspan::python

namespace {

const Mask& mask_of(const longspan_masks* masks, int64_t head) {
  const HeadMasks& all = *masks->heads;
  if (head < 0 || head >= static_cast<int64_t>(all.size()))
    refuse("head " + std::to_string(head) + ": there are " + std::to_string(all.size()) + " masks", __LINE__);
  return all[static_cast<size_t>(head)];
}

longspan_masks* made(HeadMasks masks) {
  return new longspan_masks{std::make_shared<const HeadMasks>(std::move(masks))};
}

}  // namespace

const char* longspan_error(void) {
  return longspan::python::t_error.c_str();
}

const char* longspan_version(void) {
  return LONGSPAN_VERSION;
}

int longspan_has_cuda(void) {
#ifdef LONGSPAN_WITH_CUDA
  return 1;
#else
  return 0;
#endif
}

int longspan_masks_from_bands(int64_t rows, int64_t columns, const int64_t* bands, int64_t count,
                              longspan_masks** out) {
  return guarded([&] {
    std::vector<longspan::Band> list;
    list.reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t* b = bands + 6 * i;
      list.push_back({{b[0], b[1]}, {b[2], b[3]}, b[4], b[5]});
    }
    *out = made({Mask(rows, columns, list)});
  });
}

int longspan_masks_from_dense(const uint8_t* visible, int64_t rows, int64_t columns, longspan_masks** out) {
  return guarded([&] { *out = made({Mask::from_dense(visible, rows, columns)}); });
}

int longspan_masks_of_pattern(const char* pattern, int64_t seqlen, const char* const* names,
                              const char* const* values, int64_t options, longspan_masks** out) {
  return guarded([&] {
    std::map<std::string, std::string> given;
    for (int64_t i = 0; i < options; ++i) given[names[i]] = values[i];
    *out = made(longspan::pattern_masks(pattern, seqlen, given));
  });
}

int longspan_masks_per_head(const longspan_masks* const* masks, int64_t count, longspan_masks** out) {
  return guarded([&] {
    HeadMasks all;
    for (int64_t i = 0; i < count; ++i) {
      const Mask& mask = mask_of(masks[i], 0);
      if (masks[i]->heads->size() != 1)
        refuse("mask " + std::to_string(i) + " differs by head already", __LINE__);
      if (!all.empty() && (mask.rows() != all[0].rows() || mask.columns() != all[0].columns()))
        refuse("mask " + std::to_string(i) + " has another size than mask 0", __LINE__);
      all.push_back(mask);
    }
    if (all.empty()) refuse("no masks: there must be one for each KV head", __LINE__);
    *out = made(std::move(all));
  });
}

int longspan_masks_intersected(const longspan_masks* a, const longspan_masks* b, longspan_masks** out) {
  return guarded([&] {
    const size_t heads = std::max(a->heads->size(), b->heads->size());
    for (const auto* masks : {a, b})
      if (masks->heads->size() != 1 && masks->heads->size() != heads)
        refuse("masks for " + std::to_string(a->heads->size()) + " and " + std::to_string(b->heads->size()) +
                   " heads: the numbers must be the same, or one of them 1",
               __LINE__);
    HeadMasks all;
    const auto of_head = [](const longspan_masks* masks, size_t h) -> const Mask& {
      return (*masks->heads)[masks->heads->size() == 1 ? 0 : h];
    };
    for (size_t h = 0; h < heads; ++h) all.push_back(of_head(a, h).intersected(of_head(b, h)));
    *out = made(std::move(all));
  });
}

void longspan_masks_delete(longspan_masks* masks) {
  delete masks;
}

int longspan_masks_get_info(const longspan_masks* masks, longspan_masks_info* out) {
  const HeadMasks& all = *masks->heads;
  *out = {static_cast<int64_t>(all.size()), all[0].rows(), all[0].columns(), 0};
  for (const Mask& mask : all) out->area += mask.area();
  return 0;
}

int longspan_masks_band_count(const longspan_masks* masks, int64_t head, int64_t* out) {
  return guarded([&] { *out = static_cast<int64_t>(mask_of(masks, head).band_vector().size()); });
}

int longspan_masks_bands(const longspan_masks* masks, int64_t head, int64_t* out) {
  return guarded([&] {
    for (const longspan::Band& band : mask_of(masks, head).band_vector())
      for (const int64_t x : {band.q.begin, band.q.end, band.k.begin, band.k.end, band.lo, band.hi})
        *out++ = x;
  });
}

int longspan_masks_dense(const longspan_masks* masks, int64_t head, uint8_t* out) {
  return guarded([&] {
    const std::vector<uint8_t> dense = mask_of(masks, head).dense();
    std::copy(dense.begin(), dense.end(), out);
  });
}

int longspan_masks_visible_counts(const longspan_masks* masks, int64_t head, int64_t* out) {
  return guarded([&] {
    const std::vector<int64_t> counts = mask_of(masks, head).visible_counts();
    std::copy(counts.begin(), counts.end(), out);
  });
}

int longspan_masks_density(const longspan_masks* masks, int64_t head, int32_t size, uint8_t* out) {
  return guarded([&] {
    const std::vector<uint8_t> grid = longspan::density_grid(mask_of(masks, head), size);
    std::copy(grid.begin(), grid.end(), out);
  });
}

int longspan_patterns(const char** out) {
  return guarded([&] {
    static const std::string names = [] {
      std::string all;
      for (const std::string& name : longspan::pattern_names()) all += (all.empty() ? "" : " ") + name;
      return all;
    }();
    *out = names.c_str();
  });
}

int longspan_plan_make(const longspan_masks* masks, const longspan_problem* asked, const char* kernel,
                       int64_t* plan) {
  return guarded([&] {
    auto planned = std::make_shared<Planned>();
    planned->asked = longspan::python::described(*asked);
    planned->device = device_of(asked->cuda_device);
    planned->problem = problem_of(*masks, *asked);
    const longspan::Problem& p = planned->problem;
    const Direction until = asked->backward != 0 ? Direction::kBackward : Direction::kForward;
    // Not make_plan(): its plans check every pointer again, which the operators and the kernels do.
    const longspan::Kernel& found = longspan::find_kernel(p, planned->device, until, kernel);
    planned->plan = until == Direction::kForward ? found.plan_forward(p, planned->device)
                                                 : found.plan(p, planned->device);
    planned->kernel = found.name();
    planned->forward_bytes = static_cast<int64_t>(planned->plan->workspace_bytes(Direction::kForward));
    if (asked->backward != 0)
      planned->backward_bytes = static_cast<int64_t>(planned->plan->workspace_bytes(Direction::kBackward));
    *plan = plans().add(std::move(planned));
  });
}

int longspan_plan_get_info(int64_t plan, longspan_plan_info* out) {
  return guarded([&] {
    const std::shared_ptr<Planned> p = plans().find(plan);
    *out = {p->problem.tokens_q, p->problem.tokens_kv, p->asked,
            p->forward_bytes,    p->backward_bytes,    static_cast<int64_t>(p->plan->plan_bytes())};
  });
}

int longspan_plan_kernel(int64_t plan, const char** out) {
  return guarded([&] { *out = plans().find(plan)->kernel.c_str(); });
}

void longspan_plan_delete(int64_t plan) {
  guarded([&] { plans().remove(plan); });
}

int longspan_plan_follow(int64_t plan, int64_t old, void* const* graphs, void* const* ready, int64_t count,
                         void* stream) {
  return guarded([&] {
    std::vector<longspan::python::Graph> all;
    for (int64_t i = 0; i < count; ++i) all.push_back({graphs[i], ready[i]});
    follow(plans().find(plan), plans().find(old), all, longspan::Stream{stream});
  });
}

int longspan_forward(int64_t plan, const longspan_forward_args* args, void* stream) {
  return guarded([&] {
    const std::shared_ptr<Planned> planned = plans().find(plan);
    const longspan::ForwardArgs all = forward_of(*args, planned->problem);
    planned->run([all](longspan::Plan& by, longspan::Stream in) { by.forward(all, in); },
                 longspan::Stream{stream});
  });
}

int longspan_backward(int64_t plan, const longspan_backward_args* args, void* stream) {
  return guarded([&] {
    const std::shared_ptr<Planned> planned = plans().find(plan);
    if (planned->asked.backward == 0)
      refuse("this plan has no backward pass: make it with backward=True", __LINE__);
    const longspan::BackwardArgs all = backward_of(*args, planned->problem);
    planned->run([all](longspan::Plan& by, longspan::Stream in) { by.backward(all, in); },
                 longspan::Stream{stream});
  });
}
