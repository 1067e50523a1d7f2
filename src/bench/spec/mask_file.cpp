// Reading and writing masks as JSON.
#include "bench/spec/mask_file.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <ostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/input_file.h"
#include "record/json_checks.h"

namespace longspan {
namespace {

using nlohmann::json;

// Part of a value for a message: printable characters only, cut to a length that fits on one line.
std::string excerpt(std::string text) {
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  if (text.size() > 80) text = text.substr(0, 80) + "...";
  return text;
}

std::string excerpt(const json& value) {
  return excerpt(value.dump(-1, ' ', true, json::error_handler_t::replace));
}

class Reader {
 public:
  explicit Reader(const std::string& name) : name_(name) {}

  HeadMasks read(std::string_view text) {
    const json file = parse(text);
    LONGSPAN_CHECK_INPUT(file.is_object(), "{}: must be an object with \"seqlen\" and \"heads\", is {}",
                         name_, excerpt(file));
    check_keys(file, "",
               {"pattern", "seqlen", "rows", "columns", "seed", "index", "lengths", "params", "heads",
                "bands", "area", "density", "comment"});
    read_size(file);
    HeadMasks masks;
    if (file.contains("bands")) {
      LONGSPAN_CHECK_INPUT(!file.contains("heads"), "{}: has both \"bands\" and \"heads\"; give one of them",
                           name_);
      masks.push_back(read_head(file, ""));
      return masks;
    }
    LONGSPAN_CHECK_INPUT(file.contains("heads"),
                         "{}: has no \"heads\": a list with one {{\"bands\": [...]}} for all "
                         "heads, or one per KV head",
                         name_);
    const json& heads = file["heads"];
    LONGSPAN_CHECK_INPUT(heads.is_array() && !heads.empty(),
                         "{}: heads: must be a list of at least one head, is {}", name_, excerpt(heads));
    int64_t area = 0;
    for (size_t i = 0; i < heads.size(); ++i) {
      const std::string place = fmt::format("heads[{}]", i);
      LONGSPAN_CHECK_INPUT(heads[i].is_object(), "{}: {}: must be an object with \"bands\", is {}", name_,
                           place, excerpt(heads[i]));
      check_keys(heads[i], place, {"bands", "area", "comment"});
      masks.push_back(read_head(heads[i], place));
      area += masks.back().area();
    }
    check_area(file, "", area);
    return masks;
  }

 private:
  json parse(std::string_view text) {
    try {
      record::check_json(text);
      return json::parse(text.begin(), text.end());
    } catch (const Error& error) {
      LONGSPAN_CHECK_INPUT(false, "{}: {}", name_, error.what());
    } catch (const json::exception& error) {
      // Drops the prefix of "[json.exception.parse_error.101] parse error at line 1, column 5: ...".
      std::string message = error.what();
      const size_t bracket = message.find("] ");
      if (bracket != std::string::npos) message = message.substr(bracket + 2);
      for (char& c : message)
        if (c < ' ' || c > '~') c = '?';
      LONGSPAN_CHECK_INPUT(false, "{}: is not JSON: {}", name_, message.substr(0, 300));
    }
    return {};
  }

  static std::string join(const std::string& place, std::string_view key) {
    return place.empty() ? std::string(key) : fmt::format("{}.{}", place, key);
  }

  void check_keys(const json& object, const std::string& place, const std::vector<std::string_view>& known) {
    for (const auto& [key, value] : object.items()) {
      const bool is_known = std::find(known.begin(), known.end(), key) != known.end();
      LONGSPAN_CHECK_INPUT(is_known, "{}: key \"{}\" is unknown; the keys here are {}", name_,
                           excerpt(join(place, key)), fmt::join(known, ", "));
    }
  }

  int64_t read_integer(const json& value, const std::string& place, int64_t least, int64_t most) {
    // A number beyond int64 is stored unsigned or as a float.
    const bool fits =
        value.is_number_integer() &&
        !(value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX));
    LONGSPAN_CHECK_INPUT(fits && least <= value.get<int64_t>() && value.get<int64_t>() <= most,
                         "{}: {}: must be a whole number from {} to {}, is {}", name_, place, least, most,
                         excerpt(value));
    return value.get<int64_t>();
  }

  void read_size(const json& file) {
    if (file.contains("seqlen")) {
      LONGSPAN_CHECK_INPUT(
          !file.contains("rows") && !file.contains("columns"),
          "{}: has both \"seqlen\" and \"rows\" or \"columns\"; give \"seqlen\" for a square mask, "
          "or both of the others",
          name_);
      rows_ = columns_ = read_integer(file["seqlen"], "seqlen", 0, kMaxTokens);
      return;
    }
    LONGSPAN_CHECK_INPUT(file.contains("rows") && file.contains("columns"),
                         "{}: needs \"seqlen\", the sequence length in tokens, or \"rows\" and \"columns\"",
                         name_);
    rows_ = read_integer(file["rows"], "rows", 0, kMaxTokens);
    columns_ = read_integer(file["columns"], "columns", 0, kMaxTokens);
  }

  Band read_band(const json& value, const std::string& list, size_t number) {
    const std::string place = fmt::format("{}[{}]", list, number);
    LONGSPAN_CHECK_INPUT(value.is_array() && (value.size() == 4 || value.size() == 6),
                         "{}: {}: must be [q0, q1, k0, k1] or [q0, q1, k0, k1, lo, hi], is {}", name_, place,
                         excerpt(value));
    auto range = [&](size_t first, int64_t limit) {
      Range range;
      range.begin = read_integer(value[first], fmt::format("{}[{}]", place, first), 0, limit);
      range.end = read_integer(value[first + 1], fmt::format("{}[{}]", place, first + 1), range.begin, limit);
      return range;
    };
    Band band{range(0, rows_), range(2, columns_)};
    if (value.size() == 4) return band;
    auto bound = [&](size_t i, int64_t unbounded) {
      if (value[i].is_null()) return unbounded;
      return read_integer(value[i], fmt::format("{}[{}]", place, i), -kMaxTokens, kMaxTokens);
    };
    band.lo = bound(4, kUnboundedBelow);
    band.hi = bound(5, kUnboundedAbove);
    return band;
  }

  Mask read_head(const json& head, const std::string& place) {
    const std::string list = join(place, "bands");
    LONGSPAN_CHECK_INPUT(head.contains("bands") && head["bands"].is_array(),
                         "{}: {}: must be a list of bands, [q0, q1, k0, k1, lo, hi] each, {}", name_, list,
                         head.contains("bands") ? "is " + excerpt(head["bands"]) : "but is missing");
    const json& values = head["bands"];
    std::vector<Band> bands;
    bands.reserve(values.size());
    for (size_t i = 0; i < values.size(); ++i) bands.push_back(read_band(values[i], list, i));
    Mask mask = checked_mask(bands, list);
    check_area(head, place, mask.area());
    return mask;
  }

  Mask checked_mask(const std::vector<Band>& bands, const std::string& list) {
    try {
      return Mask(rows_, columns_, bands);
    } catch (const Error& error) {
      LONGSPAN_CHECK_INPUT(error.kind() != ErrorKind::kInput, "{}: {}: {}", name_, list, error.what());
      throw;
    }
  }

  // The area is optional. If it is given, it must match the bands.
  void check_area(const json& object, const std::string& place, int64_t area) {
    if (!object.contains("area")) return;
    const json& value = object["area"];
    LONGSPAN_CHECK_INPUT(
        value.is_number_integer() && value == area,
        "{}: {}: is {}, but the bands show {} pairs; correct the bands or leave out the area", name_,
        join(place, "area"), excerpt(value), area);
  }

  const std::string& name_;
  int64_t rows_ = 0, columns_ = 0;
};

// Buffers text for a stream. The buffer does not grow with the mask.
class Writer {
 public:
  explicit Writer(std::ostream& out) : out_(out) {}
  ~Writer() { flush(); }

  template <class... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(buffer_), format, std::forward<Args>(args)...);
    if (buffer_.size() > size_t{1} << 16) flush();
  }

  void heads(const HeadMasks& masks) {
    print("\"heads\":[");
    for (size_t i = 0; i < masks.size(); ++i) {
      print("{}{{\"bands\":[", i == 0 ? "" : ",");
      bool first = true;
      for (const Band& band : masks[i].bands())
        print("{}{}", std::exchange(first, false) ? "" : ",", to_string(band));
      print("],\"area\":{}}}", masks[i].area());
    }
    print("]");
  }

 private:
  void flush() {
    out_.write(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
    buffer_.clear();
  }

  std::ostream& out_;
  fmt::memory_buffer buffer_;
};

}  // namespace

HeadMasks parse_masks(std::string_view text, const std::string& name) {
  return Reader(name).read(text);
}

HeadMasks read_masks(const std::string& path) {
  return parse_masks(read_input_file(path, kMaskFile), path);
}

void write_masks(const HeadMasks& masks, std::ostream& out) {
  LONGSPAN_CHECK(!masks.empty(), "no masks to write");
  Writer writer(out);
  const Mask& mask = masks.front();
  if (mask.rows() == mask.columns())
    writer.print("{{\"seqlen\":{},", mask.rows());
  else
    writer.print("{{\"rows\":{},\"columns\":{},", mask.rows(), mask.columns());
  writer.heads(masks);
  writer.print("}}\n");
}

void write_masks(const DrawnMask& drawn, std::ostream& out) {
  Writer writer(out);
  writer.print("{{\"pattern\":{},\"seqlen\":{},\"seed\":{},\"index\":{},\"lengths\":[{}],\"params\":{{",
               json(drawn.pattern).dump(), drawn.options.seqlen, drawn.options.seed, drawn.options.index,
               fmt::join(drawn.document_lengths, ","));
  const char* separator = "";
  auto param = [&](std::string_view name, const std::string& value) {
    writer.print("{}\"{}\":{}", std::exchange(separator, ","), name, value);
  };
  if (!drawn.lengths.empty())
    param("lengths", json(drawn.lengths).dump(-1, ' ', false, json::error_handler_t::replace));
  for (const auto& [name, value] : drawn.params) {
    const bool number = std::holds_alternative<int64_t>(value) || std::holds_alternative<double>(value);
    param(name, number ? to_text(value) : json(to_text(value)).dump());
  }
  writer.print("}},");
  writer.heads(drawn.masks);
  writer.print(",\"area\":{},\"density\":{}}}\n", drawn.area(), drawn.density());
}

}  // namespace longspan
