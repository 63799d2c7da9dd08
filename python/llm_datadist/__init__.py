# SPDX-License-Identifier: Apache-2.0
"""LLM-DataDist in the shape of Ascend's library, over hixl.kv: a cluster registers its KV caches, links with others,
and pulls from them or pushes to them.

    prompt = LLMDataDist(LLMRole.PROMPT, cluster_id=0)      # listens, and is pulled from
    config = LLMConfig()
    config.listen_ip_info = "127.0.0.1:26000"
    prompt.init(config.generate_options())
    prompt.cache_manager.register_blocks_cache(desc, addrs, BlocksCacheKey(0))

    decoder = LLMDataDist(LLMRole.DECODER, cluster_id=1)
    decoder.init(LLMConfig().generate_options())
    decoder.link_clusters([cluster])                        # an LLMClusterInfo of cluster 0, with where it listens
    decoder.cache_manager.pull_blocks(BlocksCacheKey(0), cache, src_blocks=[3, 1], dst_blocks=[0, 1])

DataDist (by_rank.py) is the article's, whose ranks know each other by number.

Times are milliseconds. docs/python.md says what is here and what is not."""

from .by_rank import DataDist
from .cache_manager import CacheManager
from .datadist import LLMDataDist
from .tasks import CacheTask, LayerSynchronizer
from .values import (BlocksCacheKey, Cache, CacheDesc, CacheKey, CacheKeyByIdAndIndex, KvCache, LLMClusterInfo,
                     LlmConfig, LLMConfig, TransferWithCacheKeyConfig)
from .words import DataType, LLMException, LLMRole, LLMStatusCode, Placement

__all__ = ["BlocksCacheKey", "Cache", "CacheDesc", "CacheKey", "CacheKeyByIdAndIndex", "CacheManager", "CacheTask",
           "DataDist", "DataType", "KvCache", "LLMClusterInfo", "LLMConfig", "LLMDataDist", "LLMException", "LLMRole",
           "LLMStatusCode", "LayerSynchronizer", "LlmConfig", "Placement", "TransferWithCacheKeyConfig"]
