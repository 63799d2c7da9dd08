// SPDX-License-Identifier: Apache-2.0
//
// HIXL for C and C++: the whole C interface, the engine style, and, in C++, Ascend's own class names. docs/c_api.md is
// the way into it.
#ifndef HIXL_HIXL_H
#define HIXL_HIXL_H

#include <hixl/comm.h>
#include <hixl/context.h>
#include <hixl/engine.h>
#include <hixl/status.h>
#include <hixl/transfer.h>

#ifdef __cplusplus
#include <hixl/ascend_compat.h>
#endif

#endif
