#include "attention/kernel.h"

namespace longspan {

PlanNotes Plan::notes() const {
  return {};
}

}  // namespace longspan
