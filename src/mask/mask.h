// The public Mask class and its band type, for Longspan's own sources.
#pragma once

#include "longspan/mask.h"
#include "mask/band.h"
#include "mask/band_list.h"
