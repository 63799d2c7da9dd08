// SPDX-License-Identifier: Apache-2.0
//
// Every status has a text and a name of its own; numbers that are none are told so; structures keep their layout.
#include <stddef.h>
#include <string.h>

#include "check.h"

enum { CODES_END = 1000 };

int main(void) {
  const char* unknown = hixl_strerror(CODES_END);
  int known = 0;
  CHECK(strcmp(hixl_strerror(HIXL_OK), unknown) != 0);
  CHECK(strcmp(hixl_status_name(HIXL_OK), "OK") == 0);
  CHECK(strcmp(hixl_status_name(HIXL_ERR_PEER_LOST), "PEER_LOST") == 0);
  CHECK(hixl_status_kind(HIXL_ERR_PEER_LOST) == HIXL_KIND_RECONNECT);
  CHECK(hixl_status_kind(HIXL_ERR_BUSY) == HIXL_KIND_RETRY_LATER);
  for (int a = 0; a < CODES_END; ++a) {
    CHECK(hixl_strerror(a) != NULL && hixl_status_name(a) != NULL);
    if (strcmp(hixl_status_name(a), "UNKNOWN") == 0) {
      CHECK(hixl_strerror(a) == unknown);
      CHECK(hixl_status_kind(a) == HIXL_KIND_GIVE_UP);
      continue;
    }
    known += 1;
    CHECK(hixl_strerror(a) != unknown && strlen(hixl_strerror(a)) > 10);
    for (int b = 0; b < a; ++b) {
      CHECK(strcmp(hixl_status_name(b), "UNKNOWN") == 0 || strcmp(hixl_strerror(a), hixl_strerror(b)) != 0);
      CHECK(strcmp(hixl_status_name(b), "UNKNOWN") == 0 || strcmp(hixl_status_name(a), hixl_status_name(b)) != 0);
    }
  }
  CHECK(known >= 50);
  CHECK(strcmp(hixl_strerror(-1), unknown) == 0 && strcmp(hixl_status_name(-2147483647), "UNKNOWN") == 0);

  /* What installed programs were built with. Members may join at the end, none may move. */
  CHECK(offsetof(hixl_init_info_t, max_inline_data) == 20 && offsetof(hixl_init_info_t, store) == 24);
  CHECK(offsetof(hixl_init_info_t, host_store) == 48 && offsetof(hixl_init_info_t, timeout_ms) == 60);
  CHECK(sizeof(hixl_peer_address_t) == 16 && sizeof(HIXL_Addr_t) == 32 && offsetof(HIXL_Addr_t, rank) == 24);
  CHECK(sizeof(HIXL_Descriptor_t) == 72 && offsetof(HIXL_Descriptor_t, remote_addr) == 16);
  CHECK(offsetof(HIXL_Descriptor_t, cb) == 56 && sizeof(hixl_status_t) == 4 && sizeof(hixl_transport_t) == 4);

  CHECK(hixl_last_status() == HIXL_OK && strcmp(hixl_last_error(), "") == 0);
  CHECK_STATUS(hixl_finalize(NULL), HIXL_ERR_INVALID_HANDLE);
  CHECK(hixl_last_status() == HIXL_ERR_INVALID_HANDLE && strstr(hixl_last_error(), "handle") != NULL);
  CHECK(hixl_missing_ranks(NULL, 0) == 0);
  printf("%d statuses\n", known);
  return 0;
}
