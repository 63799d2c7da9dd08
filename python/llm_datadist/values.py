# SPDX-License-Identifier: Apache-2.0
"""What calls of LLM-DataDist are told with: caches and their keys, clusters, settings."""

import math
from typing import NamedTuple, Optional

from .words import BYTES_OF, DataType, Placement, checked

PREFIX_NONE = 2**64 - 1
# Of hixl.kv.CacheKey.model: the two highest bits say which kind of key it is.
MODEL_MAX = 2**62 - 1
BY_BLOCKS, BY_REQUEST, BY_PREFIX, BY_ID = range(4)


def number(value, low, high, name):
    checked(value, int, name)
    if not low <= value <= high:
        raise ValueError(f"{name} is {value}; it must be {low} ... {high}")
    return value


class CacheDesc:
    """num_tensors tensors of one shape each, whose first dimension counts blocks (or, of a cache that is no block
    cache, sequences)."""

    def __init__(self, num_tensors, shape, data_type, placement=Placement.DEVICE, batch_dim_index=0,
                 seq_len_dim_index=-1, kv_tensor_format=None):
        self.num_tensors = number(num_tensors, 1, 240, "num_tensors")
        self.shape = tuple(number(length, 1, 2**48, "a length of shape") for length in shape)
        self.data_type, self.placement = DataType(data_type), Placement(placement)
        if not self.shape or number(batch_dim_index, 0, len(self.shape) - 1, "batch_dim_index") != 0:
            raise ValueError("the first dimension of shape counts blocks or sequences: batch_dim_index must be 0")
        if self.data_type not in BYTES_OF:
            raise ValueError(f"{self.data_type.name} has no size")
        self.batch_dim_index, self.seq_len_dim_index = batch_dim_index, seq_len_dim_index
        self.kv_tensor_format = kv_tensor_format

    @property
    def blocks(self):
        return self.shape[0]

    @property
    def numbers(self):
        """Of one block of one tensor."""
        return math.prod(self.shape[1:])

    @property
    def number_bytes(self):
        return BYTES_OF[self.data_type]

    @property
    def tensor_bytes(self):
        return self.blocks * self.numbers * self.number_bytes


class Cache:
    """Made by CacheManager. tensor_addrs: where each tensor begins."""

    def __init__(self, cache_id, cache_desc, tensor_addrs, is_blocks):
        self.cache_id, self.cache_desc, self.tensor_addrs = cache_id, cache_desc, tuple(tensor_addrs)
        self.is_blocks = is_blocks


KvCache = Cache


class CacheKey(NamedTuple):
    """A sequence of a cache that was registered with cache_keys: by request, or by prefix if that is given."""

    prompt_cluster_id: int
    req_id: int
    model_id: int = 0
    prefix_id: int = PREFIX_NONE

    @property
    def cluster_id(self):
        return self.prompt_cluster_id

    def name(self):
        model = number(self.model_id, 0, MODEL_MAX, "model_id")
        if self.prefix_id != PREFIX_NONE:
            return BY_PREFIX << 62 | model, number(self.prefix_id, 0, PREFIX_NONE, "prefix_id")
        return BY_REQUEST << 62 | model, number(self.req_id, 0, PREFIX_NONE, "req_id")


class CacheKeyByIdAndIndex(NamedTuple):
    """A sequence of a cache by that cache's number in its cluster."""

    cluster_id: int
    cache_id: int
    batch_index: int = 0

    def name(self):
        return BY_ID << 62, number(self.cache_id, 0, PREFIX_NONE, "cache_id")


class BlocksCacheKey(NamedTuple):
    """The block cache of a model."""

    prompt_cluster_id: int
    model_id: int = 0

    @property
    def cluster_id(self):
        return self.prompt_cluster_id

    def name(self):
        return BY_BLOCKS << 62 | number(self.model_id, 0, MODEL_MAX, "model_id"), 0


KEYS = (CacheKey, CacheKeyByIdAndIndex, BlocksCacheKey)


class TransferWithCacheKeyConfig(NamedTuple):
    """Where transfer_cache_async() sends layers to."""

    cache_key: tuple
    src_layer_range: Optional[range] = None
    dst_layer_range: Optional[range] = None
    src_batch_index: int = 0


class LLMClusterInfo:
    """A cluster to link with, and where it listens."""

    def __init__(self):
        self._remote_cluster_id = None
        self.local_ips, self.remote_ips = [], []

    @property
    def remote_cluster_id(self):
        return self._remote_cluster_id

    @remote_cluster_id.setter
    def remote_cluster_id(self, value):
        self._remote_cluster_id = number(value, 0, 2**64 - 1, "remote_cluster_id")

    def append_local_ip_info(self, ip, port):
        self.local_ips.append((checked(ip, str, "ip"), number(port, 0, 65535, "port")))

    def append_remote_ip_info(self, ip, port):
        self.remote_ips.append((checked(ip, str, "ip"), number(port, 1, 65535, "port")))


class LLMConfig:
    """Settings of LLMDataDist.init(). What belongs to devices and their network is taken, and means nothing here."""

    NAMES = ("device_id", "sync_kv_timeout", "listen_ip_info", "enable_cache_manager", "enable_remote_cache_accessible",
             "enable_switch_role", "rdma_traffic_class", "rdma_service_level", "local_comm_res", "transfer_backend",
             "global_resource_config", "link_total_time", "link_retry_count", "mem_pool_cfg", "host_mem_pool_cfg",
             "buf_pool_cfg", "ge_options", "deploy_res_path", "output_max_size", "mem_utilization", "cluster_info")

    def __init__(self):
        self.__dict__.update(dict.fromkeys(self.NAMES))

    def __setattr__(self, name, value):
        if name not in self.NAMES:
            raise AttributeError(f"LLMConfig has no {name}")
        super().__setattr__(name, value)

    def generate_options(self):
        """Those that were set, as the strings that init() takes."""
        return {name: str(value) for name, value in vars(self).items() if value is not None}


LlmConfig = LLMConfig
