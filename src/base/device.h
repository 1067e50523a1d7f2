// Devices and streams, declared in the public header.
#pragma once

#include "longspan/base.h"
