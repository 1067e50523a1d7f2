// Wrong uses of groups and of ParallelAttention: each is an Error that says what is wrong.
#include <limits>

#include <fmt/format.h>

#include "longspan/parallel.h"
#include "unit/api/misuse.h"

namespace longspan {
namespace {

using std::chrono::milliseconds;

Problem square_problem() {
  Problem problem = small_problem(DType::kF32);
  problem.tokens_kv = problem.tokens_q = 64;
  problem.set_mask(Mask::window(64, kUnboundedAbove, 0));
  return problem;
}

// What a rank's forward pass keeps.
struct KeptMemory {
  explicit KeptMemory(const ParallelAttention& attention) : buffer(attention.kept_bytes(), cpu_device()) {}
  std::span<std::byte> bytes() const { return {buffer.as<std::byte>(), buffer.bytes()}; }
  Buffer buffer;
};

// The arguments of a rank with these tokens.
Arguments arguments_of(const ParallelAttention& attention, Problem problem) {
  problem.tokens_q = problem.tokens_kv = attention.token_count();
  return Arguments(problem);
}

TEST(GroupMisuse, RanksLimitsAndBodies) {
  for (const int ranks : {0, -1, 4097, std::numeric_limits<int>::max()})
    expect_input_error({fmt::format("{} ranks", ranks), "4096"}, [&] { Group::threads(ranks); });
  for (const milliseconds limit :
       {milliseconds(0), milliseconds(-5), milliseconds::max(), milliseconds::min()})
    expect_input_error({"time limit", "30 days"}, [&] { Group::threads(2, limit); });
  expect_input_error({"without a communicator"}, [] { Group(nullptr); });
  const auto ends = Group::threads(2);
  expect_input_error({"no body"}, [&] { run_ranks(ends, nullptr); });
  expect_input_error({"no rank"}, [] { run_ranks({}, [](const Group&) {}); });
  const std::vector<Group> twice = {ends[0], ends[1], ends[0]};
  expect_input_error({"rank 0 is given twice"}, [&] { run_ranks(twice, [](const Group&) {}); });
  const Topology none{1, 0}, two{1, 2};
  expect_input_error({"rank 0"}, [&] { static_cast<void>(none.node_of(0)); });
  for (const int rank : {-1, 2}) {
    expect_input_error({fmt::format("rank {}", rank), "0 to 1"},
                       [&] { static_cast<void>(two.node_of(rank)); });
  }
}

TEST(GroupMisuse, AnEndThatWasMovedFromIsStillAnEnd) {
  auto ends = Group::threads(2);
  const Group other(std::move(ends[1]));
  EXPECT_EQ(ends[1].rank(), 1);  // NOLINT(bugprone-use-after-move): that is the test
  EXPECT_EQ(other.size(), 2);
}

// What a body throws ends its group, whatever its type.
TEST(GroupMisuse, AnExceptionOfAnyTypeEndsTheGroup) {
  const auto ends = Group::threads(2);
  EXPECT_THROW(run_ranks(ends,
                         [](const Group& mine) {
                           if (mine.rank() == 1) throw 7;
                         }),
               int);
  const Problem problem = square_problem();
  expect_error(ErrorKind::kPeer, {"rank 1 failed", "no std::exception"}, [&] {
    ParallelAttention attention(problem, {}, ends[0], cpu_device());
    Arguments args = arguments_of(attention, problem);
    attention.forward(args.forward, {});
  });
}

TEST(ParallelMisuse, WrongConfigurations) {
  const Problem problem = square_problem();
  const auto ends = Group::threads(2);
  const auto attend = [&](const Problem& p, const ParallelConfig& config) {
    ParallelAttention(p, config, ends[0], cpu_device());
  };
  expect_input_error({"'no-such'"}, [&] { attend(problem, {.strategy = "no-such"}); });
  expect_input_error({"'no-such'"}, [&] { attend(problem, {.kernel = "no-such"}); });
  expect_input_error({"no-such", "does not apply"}, [&] {
    attend(problem, {.options = {{"no-such", "1"}}});
  });
  for (const int nodes : {0, -1, 3}) {
    expect_input_error({fmt::format("{} nodes for 2 ranks", nodes)},
                       [&] { attend(problem, {.nodes = nodes}); });
  }
  expect_input_error({"tokens of 1 ranks are given for 2"}, [&] {
    attend(problem, {.tokens = {{{0, 64}}}});
  });
  expect_input_error({"token 32 is given to no rank"}, [&] {
    attend(problem, {.tokens = {{{0, 32}}, {{33, 64}}}});
  });
  for (const int ranks : {0, -1}) {
    expect_input_error({fmt::format("{} ranks", ranks)},
                       [&] { static_cast<void>(place_tokens(problem, {}, ranks)); });
  }
  Problem wide = problem;
  wide.fp32_output = true;
  expect_input_error({"fp32_output"}, [&] { attend(wide, {}); });
  Problem alibi = problem;
  alibi.alibi_slopes.assign(static_cast<size_t>(problem.heads_q), 0.1f);
  expect_input_error({"alibi_slopes", "over ranks"}, [&] { attend(alibi, {}); });
  Problem sinks = problem;
  sinks.sinks.assign(static_cast<size_t>(problem.heads_q), 1.0f);
  expect_input_error({"sinks are set"}, [&] { attend(sinks, {}); });
  Problem cross = problem;
  cross.tokens_kv = 40;
  cross.set_mask(Mask(64, 40, {Band{{0, 64}, {0, 40}}}));
  for (const std::string& strategy : strategy_names())
    expect_input_error({"64 queries and 40 keys"}, [&] { attend(cross, {.strategy = strategy}); });
}

TEST(ParallelMisuse, WrongArgumentsOnEveryStrategy) {
  const Problem problem = square_problem();
  for (const std::string& strategy : strategy_names()) {
    SCOPED_TRACE(strategy);
    ParallelAttention attention(problem, {.strategy = strategy}, Group::threads(1).front(), cpu_device());
    const Arguments args = arguments_of(attention, problem);
    const KeptMemory kept(attention);
    ForwardArgs forward = args.forward;
    forward.k.data = nullptr;
    expect_input_error({"k is null"}, [&] { attention.forward(forward, {}); });
    forward = args.forward;
    forward.q.tokens = 63;
    expect_input_error({"q has 63 tokens"}, [&] { attention.forward(forward, {}); });
    forward = args.forward;
    forward.sinks = forward.lse;
    expect_input_error({"sinks", "over ranks", "add_sinks()"}, [&] { attention.forward(forward, {}); });
    forward = args.forward;
    forward.o.dtype = DType::kBF16;
    expect_input_error({"o is bf16"}, [&] { attention.forward(forward, {}); });
    attention.forward(args.forward, {}, kept.bytes());
    BackwardArgs backward = args.backward;
    backward.dq = backward.dout;
    expect_input_error({"dq overlaps dout"}, [&] { attention.backward(backward, {}, kept.bytes()); });
    backward = args.backward;
    backward.lse = nullptr;
    expect_input_error({"lse is null"}, [&] { attention.backward(backward, {}, kept.bytes()); });
    attention.backward(args.backward, {}, kept.bytes());

    ParallelAttention only(problem, {.strategy = strategy}, Group::threads(1).front(), cpu_device(),
                           Direction::kForward);
    EXPECT_EQ(only.kept_bytes(), 0u);
    only.forward(args.forward, {});
    expect_input_error({"no backward pass"}, [&] { only.backward(args.backward, {}, {}); });
  }
}

TEST(ParallelMisuse, WrongMemoryForWhatIsKept) {
  const Problem problem = square_problem();
  int keeping = 0;
  for (const std::string& strategy : strategy_names()) {
    SCOPED_TRACE(strategy);
    run_ranks(Group::threads(2), [&](const Group& mine) {
      ParallelAttention attention(problem, {.strategy = strategy}, mine, cpu_device());
      const Arguments args = arguments_of(attention, problem);
      const size_t needed = attention.kept_bytes();
      if (needed == 0) {
        attention.forward(args.forward, {});
        attention.backward(args.backward, {}, {});
        return;
      }
      if (mine.rank() == 0) ++keeping;
      const Buffer memory(needed + 256, cpu_device());
      const auto at = [&](size_t offset, size_t bytes) {
        return std::span(memory.as<std::byte>() + offset, bytes);
      };
      for (const auto& call : std::vector<std::function<void(std::span<std::byte>)>>{
               [&](auto kept) { attention.forward(args.forward, {}, kept); },
               [&](auto kept) { attention.backward(args.backward, {}, kept); }}) {
        expect_input_error({fmt::format("kept has {} bytes", needed - 1), fmt::format("needs {}", needed)},
                           [&] { call(at(0, needed - 1)); });
        expect_input_error({"kept is at", "aligned to 64 bytes"}, [&] { call(at(16, needed)); });
      }
      expect_input_error({"kept is null", fmt::format("{} bytes", needed)},
                         [&] { attention.backward(args.backward, {}, {}); });
      ForwardArgs forward = args.forward;
      forward.o.data = memory.data();
      expect_input_error({"kept overlaps o"}, [&] { attention.forward(forward, {}, at(0, needed)); });
      BackwardArgs backward = args.backward;
      backward.dk.data = memory.data();
      expect_input_error({"dk overlaps kept"}, [&] { attention.backward(backward, {}, at(0, needed)); });
      attention.forward(args.forward, {}, at(256, needed));
      attention.backward(args.backward, {}, at(256, needed));
    });
  }
  EXPECT_GE(keeping, 2);
}

TEST(ParallelMisuse, AnObjectThatWasMovedFrom) {
  const Problem problem = square_problem();
  ParallelAttention first(problem, {}, Group::threads(1).front(), cpu_device());
  const Arguments args = arguments_of(first, problem);
  ParallelAttention second(std::move(first));
  second.forward(args.forward, {});
  // NOLINTBEGIN(bugprone-use-after-move): that is the test
  expect_input_error({"moved from"}, [&] { static_cast<void>(first.tokens()); });
  expect_input_error({"moved from"}, [&] { static_cast<void>(first.token_count()); });
  expect_input_error({"moved from"}, [&] { static_cast<void>(first.kept_bytes()); });
  expect_input_error({"moved from"}, [&] { static_cast<void>(first.rank_tokens()); });
  expect_input_error({"moved from"}, [&] { first.forward(args.forward, {}); });
  expect_input_error({"moved from"}, [&] { first.backward(args.backward, {}, {}); });
  expect_input_error({"moved from"}, [&] { first.finish({}); });
  // NOLINTEND(bugprone-use-after-move)
}

// Every call after the failure of a group throws its reason, on each rank.
TEST(ParallelMisuse, CallsAfterAFailure) {
  const Problem problem = square_problem();
  const auto ends = Group::threads(2);
  std::vector<std::unique_ptr<ParallelAttention>> attentions(2);
  run_ranks(ends, [&](const Group& mine) {
    attentions[static_cast<size_t>(mine.rank())] =
        std::make_unique<ParallelAttention>(problem, ParallelConfig{}, mine, cpu_device());
  });
  Group(ends[1]).fail("the cat sat on it");
  for (const auto& attention : attentions) {
    const Arguments args = arguments_of(*attention, problem);
    const KeptMemory kept(*attention);
    for (int i = 0; i < 2; ++i) {
      expect_error(ErrorKind::kPeer, {"the cat sat on it"}, [&] { attention->forward(args.forward, {}); });
      expect_error(ErrorKind::kPeer, {"the cat sat on it"},
                   [&] { attention->backward(args.backward, {}, kept.bytes()); });
    }
  }
}

// Ranks that planned different problems disagree about the bytes of a message.
TEST(ParallelMisuse, RanksWithDifferentProblems) {
  const auto ends = Group::threads(2, milliseconds(60000));
  expect_error(ErrorKind::kPeer, {"bytes"}, [&] {
    run_ranks(ends, [&](const Group& mine) {
      Problem problem = square_problem();
      problem.head_dim = mine.rank() == 0 ? 16 : 32;
      ParallelAttention attention(problem, {.strategy = "ring-p2p"}, mine, cpu_device());
      const Arguments args = arguments_of(attention, problem);
      attention.forward(args.forward, {});
    });
  });
}

// The other end is gone: the wait ends at its limit.
TEST(ParallelMisuse, ARankThatIsGone) {
  auto ends = Group::threads(2, milliseconds(50));
  const Group mine = ends[0];
  ends.clear();
  const Problem problem = square_problem();
  ParallelAttention attention(problem, {.strategy = "ring-p2p"}, mine, cpu_device());
  const Arguments args = arguments_of(attention, problem);
  expect_error(ErrorKind::kPeer, {"rank 1 did not", "within 50 ms"},
               [&] { attention.forward(args.forward, {}); });
}

}  // namespace
}  // namespace longspan
