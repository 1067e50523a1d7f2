#include "sm90_backward_cases.h"

#include <utility>

#include <fmt/format.h>

#include "mask/patterns/patterns.h"

namespace longspan {
namespace {

HeadMasks band(int64_t rows, int64_t columns, int64_t lo, int64_t hi) {
  return {Mask(rows, columns, std::vector<Band>{{{0, rows}, {0, columns}, lo, hi}})};
}

constexpr int64_t kBelow = kUnboundedBelow, kAbove = kUnboundedAbove;

}  // namespace

std::vector<Case> small_cases() {
  std::vector<Case> cases;
  const auto add = [&](std::string name, std::function<HeadMasks()> masks, int64_t q = 1, int64_t kv = 1,
                       int64_t d = 128, DType dtype = DType::kBF16, bool fp32 = false) {
    cases.push_back({std::move(name), std::move(masks), q, kv, d, dtype, fp32});
  };
  for (const int64_t s : {64, 128, 192, 256, 1024})
    add(fmt::format("full-{}", s), [s] { return band(s, s, kBelow, kAbove); });
  add("causal-256", [] { return band(256, 256, kBelow, 0); });
  add(
      "full-512-2:2", [] { return band(512, 512, kBelow, kAbove); }, 2, 2);
  add(
      "full-512-8:2", [] { return band(512, 512, kBelow, kAbove); }, 8, 2);
  add(
      "causal-1024-8:1", [] { return band(1024, 1024, kBelow, 0); }, 8, 1);
  for (const int64_t s : {1, 2, 63, 65, 127, 129, 200, 333, 1000}) {
    add(
        fmt::format("full-{}-4:2", s), [s] { return band(s, s, kBelow, kAbove); }, 4, 2);
    add(
        fmt::format("causal-{}-4:2", s), [s] { return band(s, s, kBelow, 0); }, 4, 2);
  }
  add(
      "window-1500-4:2", [] { return band(1500, 1500, -100, 37); }, 4, 2);
  add(
      "300x2300-4:2", [] { return band(300, 2300, kBelow, 2000); }, 4, 2);
  add(
      "2300x300-4:2-f32", [] { return band(2300, 300, kBelow, -2000); }, 4, 2, 128, DType::kBF16, true);
  add(
      "12300x300-4:2", [] { return band(12300, 300, kBelow, kAbove); }, 4, 2);
  add(
      "empty-500-4:2", [] { return HeadMasks{Mask(500, 500, std::vector<Band>{})}; }, 4, 2);
  add(
      "holes-900-4:2",
      [] {
        std::vector<Band> bands;
        for (int64_t r = 0; r < 900; r += 150)
          for (int64_t c = r; c < 900; c += 40) bands.push_back({{r, r + 50}, {c, c + 13}});
        return HeadMasks{Mask(900, 900, bands)};
      },
      4, 2);
  for (const Pattern& p : patterns())
    add(
        fmt::format("{}-2048-4:2", p.name),
        [&p] {
          return pattern(std::string(p.name).c_str(), 2048, 2,
                         p.block_sparse ? (p.name[0] == 'u' ? 64 : 256) : 0, 0.3, "uniform:50:500");
        },
        4, 2);
  for (const char* name : {"causal_document", "full_document", "share_question", "prefix_lm_document"})
    for (const char* lengths : {"uniform:100:700", "uniform:1:90", "uniform:60:200"})
      for (const bool wide : {false, true})
        add(
            fmt::format("{}-{}-{}", name, lengths, wide ? "4:2" : "8:1-d64-f16"),
            [=] { return pattern(name, 3000, 2, 0, 0.3, lengths); }, wide ? 4 : 8, wide ? 2 : 1,
            wide ? 128 : 64, wide ? DType::kBF16 : DType::kF16);
  add(
      "documents-f32-4:2", [] { return pattern("causal_document", 3000, 2, 0, 0.3, "uniform:100:700"); }, 4,
      2, 128, DType::kBF16, true);
  add(
      "blocks128-2000-4:4", [] { return pattern("uniform_block_sparse", 2000, 4, 128); }, 4, 4);
  // Ordered additions that follow a simulated run.
  add(
      "blocks128-6000-4:4", [] { return pattern("uniform_block_sparse", 6000, 4, 128); }, 4, 4);
  add(
      "blocks128-6000-8:4-one-mask", [] { return pattern("uniform_block_sparse", 6000, 1, 128); }, 8, 4);
  add(
      "blocks64-6000-8:2-d64-f16", [] { return pattern("uniform_block_sparse", 6000, 2, 64); }, 8, 2, 64,
      DType::kF16);
  add(
      "blocks64-6000-8:4", [] { return pattern("uniform_block_sparse", 6000, 4, 64); }, 8, 4);
  add(
      "variable256-6000-8:4", [] { return pattern("variable_block_sparse", 6000, 4, 256); }, 8, 4);
  add(
      "causal_blockwise-4096-64:8", [] { return pattern("causal_blockwise", 4096); }, 64, 8);
  add(
      "causal-4096-64:8", [] { return band(4096, 4096, kBelow, 0); }, 64, 8);
  add(
      "documents-8192-64:8", [] { return pattern("causal_document", 8192); }, 64, 8);
  for (const int64_t s : {64, 127, 129, 300, 2048}) {
    add(
        fmt::format("d64-full-{}-4:2", s), [s] { return band(s, s, kBelow, kAbove); }, 4, 2, 64);
    add(
        fmt::format("d64-window-{}-4:2", s), [s] { return band(s, s, -100, 37); }, 4, 2, 64);
    add(
        fmt::format("d64-one-head-{}-8:1", s), [s] { return band(s, s, kBelow, 0); }, 8, 1, 64);
  }
  for (const int64_t s : {64, 200, 1000}) {
    add(
        fmt::format("f16-causal-{}-4:2", s), [s] { return band(s, s, kBelow, 0); }, 4, 2, 128, DType::kF16);
    add(
        fmt::format("d64-causal-{}-4:2", s), [s] { return band(s, s, kBelow, 0); }, 4, 2, 64);
    add(
        fmt::format("d64-f16-full-{}-4:2", s), [s] { return band(s, s, kBelow, kAbove); }, 4, 2, 64,
        DType::kF16);
  }
  return cases;
}

std::vector<Case> large_cases() {
  std::vector<Case> cases;
  const auto add = [&](std::string name, std::function<HeadMasks()> masks, int64_t q = 64, int64_t kv = 8) {
    cases.push_back({std::move(name), std::move(masks), q, kv});
  };
  for (const int64_t s : {4096, 16384})
    for (const int64_t heads : {32, 64})
      for (const char* name : {"full", "causal", "causal_document", "sliding_window_causal"}) {
        add(
            fmt::format("d64-{}-{}-{}:8", name, s, heads), [name, s] { return pattern(name, s); }, heads, 8);
        cases.back().head_dim = 64;
      }
  for (const int64_t s : {2048, 4096, 8192, 16384, 32768, 49152})
    for (const Pattern& p : patterns())
      if (!p.block_sparse)
        add(fmt::format("{}-{}K", p.name, s / 1024),
            [s, name = std::string(p.name)] { return pattern(name.c_str(), s); });
  for (const int64_t s : {1024, 2048, 3072, 4096, 8192})
    for (const auto& [q, kv] : {std::pair{32, 8}, {40, 8}, {16, 16}, {64, 8}})
      for (const int64_t head_dim : {64, 128}) {
        add(
            fmt::format("d{}-causal-{}-{}:{}", head_dim, s, q, kv), [s] { return band(s, s, kBelow, 0); }, q,
            kv);
        cases.back().head_dim = head_dim;
      }
  // Short documents and narrow windows.
  for (const auto& [q, kv] : {std::pair{32, 8}, {40, 8}, {16, 16}, {64, 8}}) {
    for (const char* name : {"causal_document", "full_document"})
      add(
          fmt::format("short-{}-20000-{}:{}", name, q, kv),
          [=] { return pattern(name, 20000, 1, 0, 0.3, "uniform:100:400"); }, q, kv);
    add(
        fmt::format("short-window-20000-{}:{}", q, kv), [] { return band(20000, 20000, -128, 0); }, q, kv);
  }
  // Wide windows, to one side and to both.
  for (const int64_t heads : {32, 64})
    for (const int64_t window : {2048, 3072, 4096, 6144})
      for (const bool both : {false, true})
        add(
            fmt::format("{}{}-32K-{}:8", both ? "sides" : "window", window, heads),
            [=] { return band(32768, 32768, both ? -window / 2 : 1 - window, both ? window / 2 : 0); }, heads,
            8);
  for (const int64_t s : {8192, 32768, 131072})
    for (const bool causal : {false, true})
      add(
          fmt::format("{}-{}K-16:2", causal ? "causal" : "full", s / 1024),
          [s, causal] { return band(s, s, kBelow, causal ? 0 : kAbove); }, 16, 2);
  for (const int64_t head_dim : {64})
    for (const char* name : {"full", "causal", "causal_document", "full_document"}) {
      add(fmt::format("d{}-{}-32K", head_dim, name), [name] { return pattern(name, 32768); });
      cases.back().head_dim = head_dim;
    }
  for (const double density : {0.1, 0.2, 0.5, 0.8, 1.0}) {
    const auto blocks = [&](const char* kind, int block, int64_t q, int64_t kv) {
      const std::string name = kind;
      add(
          fmt::format("{}{}-48K-{}:{}-{}", name[0] == 'u' ? "blocks" : "variable", block, q, kv, density),
          [=] { return pattern(name.c_str(), 49152, kv, block, density); }, q, kv);
    };
    for (const auto& [q, kv] : {std::pair{4, 4}, {32, 32}, {32, 4}}) {
      for (const int block : {64, 128}) blocks("uniform_block_sparse", block, q, kv);
      if (density < 1 && kv == 4)
        for (const int block : {256, 512}) blocks("variable_block_sparse", block, q, kv);
    }
  }
  for (const auto& [q, kv] : {std::pair{4, 4}, {32, 4}})
    for (const double density : {0.1, 0.2})
      add(
          fmt::format("variable256-16K-{}:{}-{}", q, kv, density),
          [=, kv = kv] { return pattern("variable_block_sparse", 16384, kv, 256, density); }, q, kv);
  return cases;
}

}  // namespace longspan
