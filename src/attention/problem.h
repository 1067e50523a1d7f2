// What is to be computed, which the public header declares.
#pragma once

#include "longspan/attention.h"
#include "mask/mask.h"
