// Wrong arguments of a pass, for every kernel of this build that runs here: each is an Error that names the
// argument, nothing is written, and the plan still works.
#include <cstring>

#include "unit/api/misuse.h"

namespace longspan {
namespace {

std::vector<std::string> kernels_here(const Problem& problem) {
  std::vector<std::string> names;
  for (const std::string& name : kernel_names()) {
    if (unsupported_reason(name, problem, Direction::kBackward, cpu_device()).empty()) names.push_back(name);
  }
  return names;
}

template <class Args>
struct Wrong {
  std::vector<std::string> parts;  // of the message
  std::function<void(Args&)> change;
};

// Mistakes that a tensor of either pass may have.
template <class Args>
void add_tensor_mistakes(std::vector<Wrong<Args>>& all, const std::string& name, TensorView Args::*member,
                         bool output) {
  const auto add = [&](std::vector<std::string> parts, std::function<void(TensorView&)> change) {
    parts.push_back(name);
    all.push_back({std::move(parts), [=](Args& args) { change(args.*member); }});
  };
  add({"null", "elements"}, [](TensorView& t) { t.data = nullptr; });
  add({"is f16", "must be bf16"}, [](TensorView& t) { t.dtype = DType::kF16; });
  add({"is f32", "must be bf16"}, [](TensorView& t) { t.dtype = DType::kF32; });
  add({"no dtype", "77"}, [](TensorView& t) { t.dtype = static_cast<DType>(77); });
  add({"tokens", "as the problem says"}, [](TensorView& t) { ++t.tokens; });
  add({"-1 tokens"}, [](TensorView& t) { t.tokens = -1; });
  add({"heads"}, [](TensorView& t) { t.heads -= 1; });
  add({"head_dim 8"}, [](TensorView& t) { t.head_dim = 8; });
  add({"token_stride", "-64"}, [](TensorView& t) { t.token_stride = -64; });
  add({"head_stride", "-16"}, [](TensorView& t) { t.head_stride = -16; });
  add({"token_stride"}, [](TensorView& t) { t.token_stride = int64_t{1} << 61; });
  add({"aligned to 2 bytes"}, [](TensorView& t) { t.data = static_cast<char*>(t.data) + 1; });
  if (!output) return;
  add({"overlap", "strides"}, [](TensorView& t) { t.head_stride = 8; });
  add({"overlap", "strides"}, [](TensorView& t) { t.token_stride = 0; });
}

std::vector<Wrong<ForwardArgs>> wrong_forward() {
  std::vector<Wrong<ForwardArgs>> all = {
      {{"lse is null", "192 floats"}, [](ForwardArgs& a) { a.lse = nullptr; }},
      {{"lse", "aligned to 4"}, [](ForwardArgs& a) { a.lse = reinterpret_cast<float*>(uintptr_t{0x1001}); }},
      {{"part_lse", "merges no partial results"}, [](ForwardArgs& a) { a.part_lse = a.lse; }},
      {{"sinks", "aligned to 4"},
       [](ForwardArgs& a) { a.sinks = reinterpret_cast<float*>(uintptr_t{0x1001}); }},
      {{"lse overlaps sinks"}, [](ForwardArgs& a) { a.sinks = a.lse; }},
      {{"o overlaps q"}, [](ForwardArgs& a) { a.o = a.q; }},
      {{"lse overlaps o"}, [](ForwardArgs& a) { a.lse = static_cast<float*>(a.o.data); }},
      {{"lse overlaps v"}, [](ForwardArgs& a) { a.lse = static_cast<float*>(a.v.data) + 7; }},
      {{"workspace is null"}, [](ForwardArgs& a) { a.workspace = nullptr; }},
      {{"workspace", "aligned to 256"},
       [](ForwardArgs& a) { a.workspace = static_cast<char*>(a.workspace) + 64; }},
      {{"workspace has 100 bytes"}, [](ForwardArgs& a) { a.workspace_size = 100; }},
      {{"workspace overlaps"}, [](ForwardArgs& a) { a.workspace = a.q.data; }},
  };
  add_tensor_mistakes(all, "q", &ForwardArgs::q, false);
  add_tensor_mistakes(all, "k", &ForwardArgs::k, false);
  add_tensor_mistakes(all, "v", &ForwardArgs::v, false);
  add_tensor_mistakes(all, "o", &ForwardArgs::o, true);
  return all;
}

std::vector<Wrong<BackwardArgs>> wrong_backward() {
  std::vector<Wrong<BackwardArgs>> all = {
      {{"lse is null"}, [](BackwardArgs& a) { a.lse = nullptr; }},
      {{"dsinks is null"}, [](BackwardArgs& a) { a.sinks = a.lse; }},
      {{"sinks is null"}, [](BackwardArgs& a) { a.dsinks = static_cast<float*>(a.dq.data); }},
      {{"dsinks overlaps lse"}, [](BackwardArgs& a) { a.sinks = a.dsinks = const_cast<float*>(a.lse); }},
      {{"dq overlaps q"}, [](BackwardArgs& a) { a.dq = a.q; }},
      {{"dq overlaps dout"}, [](BackwardArgs& a) { a.dq = a.dout; }},
      {{"dv overlaps dk"}, [](BackwardArgs& a) { a.dv = a.dk; }},
      {{"dk overlaps lse"}, [](BackwardArgs& a) { a.lse = static_cast<float*>(a.dk.data); }},
      {{"workspace is null"}, [](BackwardArgs& a) { a.workspace = nullptr; }},
      {{"workspace has 1 bytes"}, [](BackwardArgs& a) { a.workspace_size = 1; }},
      {{"workspace overlaps"}, [](BackwardArgs& a) { a.workspace = a.dv.data; }},
  };
  add_tensor_mistakes(all, "q", &BackwardArgs::q, false);
  add_tensor_mistakes(all, "k", &BackwardArgs::k, false);
  add_tensor_mistakes(all, "v", &BackwardArgs::v, false);
  add_tensor_mistakes(all, "o", &BackwardArgs::o, false);
  add_tensor_mistakes(all, "dout", &BackwardArgs::dout, false);
  add_tensor_mistakes(all, "dq", &BackwardArgs::dq, true);
  add_tensor_mistakes(all, "dk", &BackwardArgs::dk, true);
  add_tensor_mistakes(all, "dv", &BackwardArgs::dv, true);
  return all;
}

std::string bytes_of(const TensorView& view) {
  return {static_cast<const char*>(view.data), view.bytes()};
}

TEST(PlanMisuse, EveryWrongArgumentIsNamedAndThePlanSurvives) {
  const Problem problem = small_problem();
  const auto kernels = kernels_here(problem);
  ASSERT_THAT(kernels, testing::IsSupersetOf({"cpu-naive", "cpu-flash"}));
  for (const std::string& kernel : kernels) {
    SCOPED_TRACE(kernel);
    const auto plan = make_plan(problem, cpu_device(), Direction::kBackward, kernel);
    Arguments right(problem, plan.get());
    plan->forward(right.forward, {});
    const std::string o = bytes_of(right.forward.o);
    plan->backward(right.backward, {});
    const std::string dq = bytes_of(right.backward.dq);
    for (const auto& wrong : wrong_forward()) {
      ForwardArgs args = right.forward;
      wrong.change(args);
      expect_input_error(wrong.parts, [&] { plan->forward(args, {}); });
    }
    for (const auto& wrong : wrong_backward()) {
      BackwardArgs args = right.backward;
      wrong.change(args);
      expect_input_error(wrong.parts, [&] { plan->backward(args, {}); });
    }
    EXPECT_EQ(bytes_of(right.forward.o), o);
    EXPECT_EQ(bytes_of(right.backward.dq), dq);
    plan->forward(right.forward, {});
    plan->backward(right.backward, {});
    EXPECT_EQ(bytes_of(right.forward.o), o);
    EXPECT_EQ(bytes_of(right.backward.dq), dq);
  }
}

TEST(PlanMisuse, APlanOfAnotherProblem) {
  for (const std::string& kernel : kernels_here(small_problem())) {
    SCOPED_TRACE(kernel);
    const auto plan = make_plan(small_problem(), cpu_device(), Direction::kBackward, kernel);
    Problem other = small_problem();
    other.tokens_q = 96;
    other.set_mask(Mask(96, 40, {Band{{0, 96}, {0, 40}}}));
    Arguments args(other, plan.get());
    expect_input_error({"q has 96 tokens", "must have 48"}, [&] { plan->forward(args.forward, {}); });
    expect_input_error({"q has 96 tokens"}, [&] { plan->backward(args.backward, {}); });
    Arguments of_f32(small_problem(DType::kF32), plan.get());
    expect_input_error({"q is f32"}, [&] { plan->forward(of_f32.forward, {}); });
  }
}

TEST(PlanMisuse, ABackwardPassThatWasNotPlanned) {
  const Problem problem = small_problem();
  for (const std::string& kernel : kernels_here(problem)) {
    const auto both = make_plan(problem, cpu_device(), Direction::kBackward, kernel);
    const auto plan = make_plan(problem, cpu_device(), Direction::kForward, kernel);
    Arguments args(problem, both.get());
    expect_input_error({"no backward pass", "kBackward"}, [&] { plan->backward(args.backward, {}); });
  }
}

// The outputs may be of f32 where the problem says so, and only those.
TEST(PlanMisuse, OutputsInF32) {
  Problem problem = small_problem();
  problem.fp32_output = true;
  problem.own_rows = true;
  const auto plan = make_plan(problem, cpu_device());
  Arguments args(problem, plan.get());
  std::vector<float> wide(static_cast<size_t>(args.forward.o.elements()));
  args.forward.o.dtype = DType::kF32;
  args.forward.o.data = wide.data();
  expect_input_error({"o is f32", "must be bf16"}, [&] { plan->forward(args.forward, {}); });
  args.backward.dk.dtype = args.backward.dv.dtype = DType::kF32;
  std::vector<float> dk(static_cast<size_t>(args.backward.dk.elements())), dv = dk;
  args.backward.dk.data = dk.data();
  args.backward.dv.data = dv.data();
  plan->backward(args.backward, {});
}

// The parts of a packed tensor interleave without sharing memory, in each order of its dimensions.
TEST(PlanMisuse, PackedTensorsAreAllowed) {
  const int64_t tokens = 48, heads = 4, dim = 16;
  Problem problem = small_problem(DType::kF32);
  problem.tokens_kv = tokens;
  problem.heads_kv = heads;
  problem.set_mask(Mask::window(tokens, kUnboundedAbove, 0));
  struct Layout {
    const char* name;
    int64_t part, token, head;  // strides
  };
  for (const Layout& layout : {Layout{"[tokens, 3, heads, dim]", heads * dim, 3 * heads * dim, dim},
                               Layout{"[tokens, heads, 3, dim]", dim, 3 * heads * dim, 3 * dim},
                               Layout{"[heads, 3, tokens, dim]", tokens * dim, dim, 3 * tokens * dim},
                               Layout{"[3, heads, tokens, dim]", heads * tokens * dim, dim, tokens * dim}}) {
    SCOPED_TRACE(layout.name);
    for (const std::string& kernel : kernels_here(problem)) {
      SCOPED_TRACE(kernel);
      const auto plan = make_plan(problem, cpu_device(), Direction::kBackward, kernel);
      Arguments args(problem, plan.get());
      plan->forward(args.forward, {});
      plan->backward(args.backward, {});
      std::vector<float> packed(static_cast<size_t>(3 * tokens * heads * dim));
      const auto part = [&](int64_t i) {
        return TensorView{
            packed.data() + i * layout.part, DType::kF32, tokens, heads, dim, layout.token, layout.head};
      };
      BackwardArgs backward = args.backward;
      backward.dq = part(0);
      backward.dk = part(1);
      backward.dv = part(2);
      plan->backward(backward, {});
      for (const auto& [dense, strided] :
           {std::pair{args.backward.dq, backward.dq}, std::pair{args.backward.dk, backward.dk},
            std::pair{args.backward.dv, backward.dv}}) {
        for (int64_t t = 0; t < tokens; ++t) {
          for (int64_t h = 0; h < heads; ++h)
            ASSERT_EQ(0, std::memcmp(dense.row_address(t, h), strided.row_address(t, h), 4 * dim));
        }
      }
      backward.dv = part(1);
      expect_input_error({"dv overlaps dk"}, [&] { plan->backward(backward, {}); });
    }
  }
}

}  // namespace
}  // namespace longspan
