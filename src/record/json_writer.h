// The visitor that writes a record as JSON. to_json(s) works for every struct that has a visit() as in
// fields.h.
#pragma once

#include <cmath>

#include "record/base64.h"
#include "record/fields.h"

namespace longspan::record {

namespace detail {

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <class T>
struct IsNamed : std::false_type {};
template <class T>
struct IsNamed<Named<T>> : std::true_type {};
template <class T>
struct IsNamed<std::map<std::string, T>> : std::true_type {};
template <class T>
struct IsList : std::false_type {};
template <class T>
struct IsList<std::vector<T>> : std::true_type {};
template <class T, size_t kCount>
struct IsList<std::array<T, kCount>> : std::true_type {};
template <class T>
struct IsOpen : std::false_type {};
template <class T>
struct IsOpen<Open<T>> : std::true_type {};

}  // namespace detail

template <class T>
Json encode(const T& value);

class JsonWriter {
 public:
  template <class T>
  void field(const char* key, const T& value, const char* /*meaning*/, unsigned flags = 0) {
    const bool none = is_none(value);
    if (none && (flags & kNull) != 0) {
      object.push_back({key, nullptr});
    } else if (!none || (!detail::IsOptional<T>::value && (flags & kOmitted) == 0)) {
      object.push_back({key, encode(value)});
    }
  }

  Json object = Json::object();

 private:
  template <class T>
  static bool is_none(const T& value) {
    if constexpr (requires { value.has_value(); }) return !value.has_value();
    if constexpr (requires { value.json.is_null(); }) return value.json.is_null();
    if constexpr (requires { value.empty(); }) return value.empty();
    if constexpr (std::is_arithmetic_v<T>) return value == T{};
    return false;
  }
};

// A move is a list of its fields: a plan holds thousands.
class ListWriter {
 public:
  template <class T>
  void field(const char* /*key*/, const T& value, const char* /*meaning*/, unsigned /*flags*/ = 0) {
    list.push_back(encode(value));
  }
  Json list = Json::array();
};

template <class T>
Json encode(const T& value) {
  if constexpr (detail::IsOptional<T>::value) {
    return value ? encode(*value) : Json();
  } else if constexpr (std::same_as<T, double>) {
    return std::isfinite(value) ? Json(value) : Json();
  } else if constexpr (std::is_arithmetic_v<T> || std::same_as<T, std::string>) {
    return value;
  } else if constexpr (std::same_as<T, Status>) {
    return name_of(value);
  } else if constexpr (std::same_as<T, Interval>) {
    return {value.lo, value.hi};
  } else if constexpr (std::same_as<T, std::pair<int64_t, int64_t>>) {
    return {value.first, value.second};
  } else if constexpr (std::same_as<T, std::vector<uint8_t>>) {
    return base64(value);
  } else if constexpr (detail::IsNamed<T>::value) {
    Json object = Json::object();
    for (const auto& [name, item] : value) object.push_back({name, encode(item)});
    return object;
  } else if constexpr (detail::IsList<T>::value) {
    Json list = Json::array();
    for (const auto& item : value) list.push_back(encode(item));
    return list;
  } else if constexpr (detail::IsOpen<T>::value || std::same_as<T, Workload>) {
    return value.json;
  } else if constexpr (std::same_as<T, PlanMove>) {
    ListWriter writer;
    visit(writer, value);
    return std::move(writer.list);
  } else {
    JsonWriter writer;
    visit(writer, value);
    return std::move(writer.object);
  }
}

}  // namespace longspan::record
