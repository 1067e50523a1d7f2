// The language of --filter: which cases of a suite to run.
//
//   mask=causal,full seqlen>=8K kernel!=cpu-naive
//
// Terms are separated by spaces and must all hold. A term is FIELD OPERATOR VALUES. = and != take a list
// (any of it, none of it) with * as a wildcard; <, <=, > and >= take one number. A field is any axis, heads_q
// or heads_kv. If a case has no value for a field, every operator but != fails.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/spec/case.h"

namespace longspan::bench {

class Filter {
 public:
  Filter() = default;                            // holds for every case
  explicit Filter(std::string_view expression);  // throws an input error that gives the position

  bool matches(const Case& c) const;

  static std::string_view help();

 private:
  enum class Operator { kIn, kNotIn, kLess, kLessEqual, kGreater, kGreaterEqual };
  struct Term {
    std::string field;
    Operator op = Operator::kIn;
    std::vector<std::string> values;  // for kIn and kNotIn, in the form of Axis::get
    double bound = 0;                 // for the other operators
  };

  std::vector<Term> terms_;
};

}  // namespace longspan::bench
