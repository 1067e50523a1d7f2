// Tensor views, which the public header declares.
#pragma once

#include "base/dtype.h"
#include "longspan/base.h"
