// SPDX-License-Identifier: Apache-2.0
//
// Reach: which links of a peer take what now; see LinkInfo.
#pragma once

namespace hixl::peer {

class LinkActor;

struct Reach {
  const LinkActor* windows = nullptr;
  const LinkActor* other_memory = nullptr;
  const LinkActor* device_memory = nullptr;
  const LinkActor* words = nullptr;
};

}  // namespace hixl::peer
