// Tensor views, declared in the public header.
#pragma once

#include "base/dtype.h"
#include "longspan/base.h"
