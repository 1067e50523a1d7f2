#include "record/json.h"

#include "base/error.h"
#include "record/json_checks.h"

namespace longspan::record {

Json parse_json(std::string_view text) {
  check_json(text);
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
