// SPDX-License-Identifier: Apache-2.0
//
// Checks of the C programs here: the first that fails says where and ends the rank.
#ifndef HIXL_TESTS_CHECK_H
#define HIXL_TESTS_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#include <hixl/hixl.h>

#define PATIENCE_MS 30000

#define CHECK(what)                                                                                          \
  do {                                                                                                       \
    if (!(what)) {                                                                                           \
      fprintf(stderr, "%s:%d: not so: %s (last error: %s)\n", __FILE__, __LINE__, #what, hixl_last_error()); \
      exit(1);                                                                                               \
    }                                                                                                        \
  } while (0)

#define CHECK_STATUS(call, wanted)                                                                           \
  do {                                                                                                       \
    const hixl_status_t got_ = (call);                                                                       \
    if (got_ != (wanted)) {                                                                                  \
      fprintf(stderr, "%s:%d: %s gave %s, not %s (%s)\n", __FILE__, __LINE__, #call, hixl_status_name(got_), \
              hixl_status_name(wanted), hixl_last_error());                                                  \
      exit(1);                                                                                               \
    }                                                                                                        \
  } while (0)

#define CHECK_OK(call) CHECK_STATUS(call, HIXL_OK)

static inline uint64_t address_of(const void* data) { return (uint64_t)(uintptr_t)data; }

#endif
