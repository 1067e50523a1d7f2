// The counting oracle: inputs for which the true output counts visible pairs. It checks every row, key and
// head in linear time at any length.
//
// Forward: with q = 0, each of a row's n keys has weight 1/n, and lse = log n. v_j is the sum of the unit
// vectors of the key's slots (hashes of the key and of its block of 64, slot_sums.h), so o holds each slot's
// share of the keys. It shows which keys were seen, not only how many.
//
// Backward: v_j = s_j e_0, where s_j is 1 or -1 by another hash, and dout_i = e_0 + the unit vectors of i's
// slots:
//   dp_ij = s_j, delta_i = m_i, the mean of s over the row's keys, ds_ij = (s_j - m_i) / n_i;
//   k = 0, q_i = the unit vectors of i's slots:
//     dk_j[t] = scale * sum of ds_ij over rows i of slot t that see j,
//     dv_j[1 + t] = sum of 1 / n_i over the same rows, dv_j[0] over all rows, dq = 0;
//   q = 0, k_j = the unit vectors of j's slots:
//     dq_i[t] = scale * sum of ds_ij over keys j of slot t that i sees, dk = 0.
#pragma once

#include <string>

#include "attention/kernel.h"
#include "attention/oracle/slot_sums.h"
#include "attention/tensors.h"

namespace longspan {

// Whether the oracle applies: head_dim and head_dim_v hold the slots, and q = 0 gives each key the same
// score and all of the softmax, which ALiBi and sinks do not.
bool countable(const Problem& problem);
void check_countable(const Problem& problem);  // throws if not

// Runs the plan on these inputs, overwriting the tensors. Returns "" or what is wrong and where.
std::string counting_forward(Plan& plan, const Problem& problem, ProblemTensors& tensors);
std::string counting_backward(Plan& plan, const Problem& problem, ProblemTensors& tensors);

}  // namespace longspan
