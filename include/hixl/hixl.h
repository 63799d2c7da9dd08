// SPDX-License-Identifier: Apache-2.0
//
// HIXL for C and C++: the whole C interface and the engine style.
#ifndef HIXL_HIXL_H
#define HIXL_HIXL_H

#include <hixl/comm.h>
#include <hixl/context.h>
#include <hixl/engine.h>
#include <hixl/status.h>
#include <hixl/transfer.h>

#endif
