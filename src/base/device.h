// Devices and streams, which the public header declares.
#pragma once

#include "longspan/base.h"
