// The attention problem, declared in the public header.
#pragma once

#include "longspan/attention.h"
#include "mask/mask.h"
