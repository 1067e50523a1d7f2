#include "record/json.h"

#include "base/error.h"

namespace longspan::record {

Json parse_json(std::string_view text) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    LONGSPAN_CHECK_INPUT(false, "not valid JSON ({})", error.what());
  }
  return {};
}

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace longspan::record
