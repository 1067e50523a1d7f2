// The visitor that reads a record from JSON and checks it. Every error is an input error that names the key.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "base/error.h"
#include "record/json_writer.h"

namespace longspan::record {

template <class T>
T from_json(const Json& json);

class JsonReader {
 public:
  // `parent` and `key` say where the object is nested, for error messages.
  explicit JsonReader(const Json& object, const JsonReader* parent = nullptr, const char* key = "")
      : object_(object), parent_(parent), key_(key) {}

  template <class T>
  void field(const char* key, T& value, const char* /*meaning*/, unsigned flags = 0) {
    known_.push_back(key);
    const auto found = object_.find(key);
    if (found != object_.end() && !found->is_null()) {
      read(*found, key, flags, value);
      if constexpr (std::same_as<T, std::string>) {
        if ((flags & kRequired) != 0 && value.empty()) fail("'{}' is missing or empty", key);
      }
    } else if ((flags & kRequired) != 0) {
      fail(std::same_as<T, std::string> ? "'{}' is missing or empty" : "'{}' is missing", key);
    }
  }

  // The keys that no field has read.
  Json others() const {
    Json rest = Json::object();
    for (const auto& [key, value] : object_.items()) {
      if (std::find(known_.begin(), known_.end(), key) == known_.end())
        rest.push_back({key, shallow_copy(value)});
    }
    return rest;
  }

  template <class... Arguments>
  [[noreturn]] void fail(fmt::string_view format, const Arguments&... arguments) const {
    std::string where;
    for (const JsonReader* reader = this; reader->parent_ != nullptr; reader = reader->parent_)
      where = fmt::format("'{}': {}", reader->key_, where);
    throw Error(ErrorKind::kInput, where + fmt::vformat(format, fmt::make_format_args(arguments...)),
                __FILE__, __LINE__, "");
  }

 private:
  // Flags of a list apply to each item.
  template <class T>
  void read(const Json& json, const char* key, unsigned flags, T& value) const {
    if constexpr (detail::IsOptional<T>::value) {
      read(json, key, flags, value.emplace());
    } else if constexpr (std::same_as<T, double>) {
      value = number(json, key, flags);
    } else if constexpr (std::same_as<T, bool>) {
      if (!json.is_boolean()) fail("'{}' is a JSON {}; it must be true or false", key, json.type_name());
      value = json.get<bool>();
    } else if constexpr (std::integral<T>) {
      value = whole<T>(json, key, flags);
    } else if constexpr (std::same_as<T, std::string>) {
      if (!json.is_string()) fail("'{}' is a JSON {}, not a string", key, json.type_name());
      value = json.get<std::string>();
    } else if constexpr (std::same_as<T, Status>) {
      read_status(json, key, value);
    } else if constexpr (std::same_as<T, std::vector<uint8_t>>) {
      std::string text;
      read(json, key, flags, text);
      value = decode_base64(text).value_or(std::vector<uint8_t>());  // check(Picture) reports bad text
    } else if constexpr (detail::IsNamed<T>::value) {
      read_named(json, key, flags, value);
    } else if constexpr (detail::IsOpen<T>::value) {
      value.json = shallow_copy(object(json, key));
    } else {
      read_structured(json, key, flags, value);
    }
  }

  // An interval with a null end counts as absent.
  void read(const Json& json, const char* key, unsigned flags, std::optional<Interval>& value) const {
    if (list(json, key).size() != 2) fail("'{}' must be [lo, hi]", key);
    if (json[0].is_null() || json[1].is_null()) return;
    value = Interval{number(json[0], key, flags | kPositive), number(json[1], key, flags | kPositive)};
    if (value->lo > value->hi) fail("'{}' must be [lo, hi] with lo <= hi", key);
  }

  template <class T>
  void read_structured(const Json& json, const char* key, unsigned flags, T& value) const {
    if constexpr (std::same_as<T, std::pair<int64_t, int64_t>>) {
      if (list(json, key).size() != 2) fail("'{}' must hold [begin, end] pairs", key);
      read(json[0], key, flags, value.first);
      read(json[1], key, flags, value.second);
    } else if constexpr (requires { value.push_back(value.front()); }) {
      if (list(json, key).empty() && (flags & kByRank) != 0)
        fail("'{}' must hold a number for each rank", key);
      value.clear();
      value.reserve(json.size());
      for (const Json& item : json) read(item, key, flags, value.emplace_back());
    } else if constexpr (detail::IsList<T>::value) {
      if (list(json, key).size() != value.size()) fail("'{}' must hold {} numbers", key, value.size());
      for (size_t i = 0; i < value.size(); ++i) read(json[i], key, flags, value[i]);
    } else if constexpr (std::same_as<T, PlanMove>) {
      read_move(json, key, value);
    } else {
      JsonReader reader(object(json, key), this, key);
      visit(reader, value);
      reader.finish(value);
    }
  }

  template <class T>
  void finish(T& value) const {
    if constexpr (std::same_as<T, Workload>) {
      value.json = shallow_copy(object_);
      value.option_facts = value.options.facts();
      value.extra = facts_of(others());
    }
    if constexpr (requires { check(value); }) {
      if (const std::string wrong = check(value); !wrong.empty()) fail("{}", wrong);
    }
  }

  template <class T>
  void read_named(const Json& json, const char* key, unsigned flags, T& value) const {
    for (const auto& [name, item] : object(json, key).items()) {
      typename T::value_type::second_type element{};
      if constexpr (std::same_as<decltype(element), double>) {
        element = item.is_null() ? std::nan("") : number(item, key, flags);
      } else {
        if (item.is_null()) continue;
        read(item, key, flags, element);
      }
      value.insert(value.end(), typename T::value_type{name, std::move(element)});
    }
  }

  void read_status(const Json& json, const char* key, Status& status) const {
    std::string text;
    read(json, key, 0, text);
    for (const Status one : {Status::kOk, Status::kSkipped, Status::kFailed}) {
      if (text == name_of(one)) {
        status = one;
        return;
      }
    }
    fail("status '{}' is unknown; it is one of ok, skipped, failed", text);
  }

  void read_move(const Json& json, const char* key, PlanMove& move) const {
    if (!json.is_array() || json.size() != 4) fail("'{}' must hold [operand, from, to, bytes] each", key);
    read(json[0], key, 0, move.what);
    read(json[1], key, 0, move.from);
    read(json[2], key, 0, move.to);
    read(json[3], key, 0, move.bytes);
  }

  const Json& object(const Json& json, const char* key) const {
    if (!json.is_object()) fail("'{}' is a JSON {}, not an object", key, json.type_name());
    return json;
  }

  const Json& list(const Json& json, const char* key) const {
    if (!json.is_array()) fail("'{}' is a JSON {}, not an array", key, json.type_name());
    return json;
  }

  double number(const Json& json, const char* key, unsigned flags) const {
    if (!json.is_number()) fail("'{}' is a JSON {}, not a number", key, json.type_name());
    const double value = json.get<double>();
    if ((flags & kPositive) != 0 && !(value > 0)) fail("'{}' is {}; it must be above 0", key, value);
    if ((flags & kAnySign) == 0 && !(value >= 0)) fail("'{}' is {}; it cannot be below 0", key, value);
    return value;
  }

  template <std::integral T>
  T whole(const Json& json, const char* key, unsigned flags) const {
    const double value = number(json, key, flags);
    constexpr double kExact = 9007199254740992.0;  // 2^53: beyond it a double skips integers
    const bool exact = std::fabs(value) <= kExact && value == std::floor(value);
    const bool fits = (flags & kUnlimited) != 0 && json.is_number_integer() &&
                      (json.is_number_unsigned()
                           ? json.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<T>::max())
                           : std::signed_integral<T>);
    if (!exact && !fits) fail("'{}' is {}; it must be a whole number up to 2^53", key, value);
    if (exact && !(value <= static_cast<double>(std::numeric_limits<T>::max())))
      fail("'{}' is {}; it is too large", key, value);
    return json.is_number_integer() ? json.get<T>() : static_cast<T>(value);
  }

  const Json& object_;
  const JsonReader* parent_;
  const char* key_;
  std::vector<std::string_view> known_;

  template <class T>
  friend T from_json(const Json& json);
};

template <class T>
T from_json(const Json& json) {
  T value;
  LONGSPAN_CHECK_INPUT(json.is_object(), "a JSON {}, not an object", json.type_name());
  JsonReader reader(json);
  visit(reader, value);
  reader.finish(value);
  return value;
}

}  // namespace longspan::record
