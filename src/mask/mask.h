// Masks as Longspan's own sources see them: the public class, and the type of its bands.
#pragma once

#include "longspan/mask.h"
#include "mask/band.h"
#include "mask/band_list.h"
