# SPDX-License-Identifier: Apache-2.0
"""What a connector of vLLM derives from: vLLM's own classes in a process that has loaded them, as every vLLM has that
loads a connector; anywhere else classes with the same methods."""

import enum
import sys


class KVConnectorRole(enum.Enum):
    """Which half of the engine an instance belongs to."""

    SCHEDULER = 0
    WORKER = 1


class KVConnectorMetadata:
    """What the scheduler's half tells the workers' in a step."""


class KVConnectorHandshakeMetadata:
    """What a worker's half tells the scheduler's at the start."""


class KVConnectorBase_V1:
    """What vLLM's own does that a connector leans on."""

    def __init__(self, vllm_config, role, kv_cache_config=None):
        self._vllm_config, self._role, self._kv_cache_config = vllm_config, role, kv_cache_config
        self._connector_metadata = None

    @property
    def role(self):
        return self._role

    def bind_connector_metadata(self, connector_metadata):
        self._connector_metadata = connector_metadata

    def clear_connector_metadata(self):
        self._connector_metadata = None

    def _get_connector_metadata(self):
        return self._connector_metadata


_loaded = sys.modules.get("vllm.distributed.kv_transfer.kv_connector.v1.base")
if _loaded is not None:
    KVConnectorRole, KVConnectorMetadata = _loaded.KVConnectorRole, _loaded.KVConnectorMetadata
    KVConnectorBase_V1 = _loaded.KVConnectorBase_V1
    # Of later versions only; without it the scheduler's half is told by nobody, and the port has to be fixed.
    KVConnectorHandshakeMetadata = getattr(_loaded, "KVConnectorHandshakeMetadata", KVConnectorHandshakeMetadata)
