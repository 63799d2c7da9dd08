# SPDX-License-Identifier: Apache-2.0
"""HixlConnector: a KVConnectorBase_V1 of vLLM. KV of a prompt moves from a prefill engine to a decode engine, block by
block, over hixl.kv.

    {"kv_connector": "HixlConnector", "kv_connector_module_path": "hixl.integrations.vllm_connector",
     "kv_role": "kv_producer", "kv_connector_extra_config": {"host": "127.0.0.1"}}

A request comes to the prefill engine with kv_transfer_params {"do_remote_decode": True}. When its prompt has been
computed the prefill keeps the blocks and gives params, with which the request goes to the decode engine. That loads
before the request runs: blocks that did not come are named by get_block_ids_with_load_errors(), all others are whole.

Owner: the engine; shutdown() ends it. Threads: the engine's own calls; loads have threads of their own."""

import contextlib
import logging
import threading
from typing import Dict, List, NamedTuple, Tuple

from hixl import _meeting as meeting

from .engine_link import Decode, Prefill
from .paged_cache import paged_cache
from .vllm_base import KVConnectorBase_V1, KVConnectorHandshakeMetadata, KVConnectorMetadata, KVConnectorRole

# kv_connector_extra_config: where the prefill listens, port + rank for each rank, 0: any that is free; who moves the
# bytes, the decode ("pull") or the prefill ("push"); seconds for a step, and for which blocks nobody fetches are kept.
DEFAULTS = {"host": "127.0.0.1", "port": 0, "mode": "pull", "timeout": 30.0, "hold": 480.0}
# How a request ends whose prompt has been computed whole.
COMPUTED = ("FINISHED_STOPPED", "FINISHED_LENGTH_CAPPED")

log = logging.getLogger("hixl")


class Load(NamedTuple):
    """Blocks that a request of this engine lacks, and where they are. No targets: they need not be kept any longer."""

    request: str
    addresses: List[Tuple[str, int]]  # of each rank of the prefill
    remote_request: str
    sources: List[int]
    targets: List[int]


class HixlMetadata(KVConnectorMetadata):
    """Of one step."""

    def __init__(self, loads, holds):
        self.loads: List[Load] = loads
        self.holds: Dict[str, List[int]] = holds


class HixlAddress(KVConnectorHandshakeMetadata):
    """Where a rank of a prefill listens."""

    def __init__(self, host, port):
        self.host, self.port = host, port


class HixlConnector(KVConnectorBase_V1):
    def __init__(self, vllm_config, role, kv_cache_config=None):
        """ValueError: an option that there is not, or a wrong one."""
        super().__init__(vllm_config, role, kv_cache_config)
        config = vllm_config.kv_transfer_config
        given = dict(getattr(config, "kv_connector_extra_config", None) or {})
        if set(given) - set(DEFAULTS):
            raise ValueError(f"unknown options of HixlConnector: {sorted(set(given) - set(DEFAULTS))}")
        options = {**DEFAULTS, **given}
        if options["mode"] not in ("pull", "push"):
            raise ValueError(f"mode is {options['mode']!r}; it must be 'pull' or 'push'")
        if config.kv_role not in ("kv_producer", "kv_consumer", "kv_both"):
            raise ValueError(f"kv_role is {config.kv_role!r}; it must be kv_producer, kv_consumer or kv_both")
        if role == KVConnectorRole.SCHEDULER:
            self._half = Scheduler(config.engine_id, vllm_config.cache_config.block_size)
        else:
            self._half = Worker(vllm_config.parallel_config.rank, config.kv_role, options)

    # ---- the scheduler's half ----
    def set_xfer_handshake_metadata(self, metadata):
        self._half.addresses = [(metadata[rank].host, metadata[rank].port) for rank in sorted(metadata)]

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        return self._half.matched(request, num_computed_tokens)

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        self._half.allocated(request, blocks, num_external_tokens)

    def build_connector_meta(self, scheduler_output):
        return self._half.metadata()

    def update_connector_output(self, connector_output):
        self._half.loading.difference_update(connector_output.finished_recving or ())

    def request_finished(self, request, block_ids):
        return self._half.finished(request, block_ids)

    # ---- the workers' half ----
    def register_kv_caches(self, kv_caches):
        """ValueError, BufferError: tensors that cannot be moved; paged_cache() says which can."""
        self._half.register(kv_caches)

    def get_handshake_metadata(self):
        return self._half.address()

    def start_load_kv(self, forward_context, **kwargs):
        """Returns at once: get_finished() tells the end."""
        self._half.begin(self._get_connector_metadata())

    def wait_for_layer_load(self, layer_name):
        """Nothing to wait for: a request whose blocks are loaded runs afterwards."""

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs):
        """Nothing to do: the layers are fetched from where they are."""

    def wait_for_save(self):
        """Nothing to wait for."""

    def get_finished(self, finished_req_ids):
        """(requests whose blocks the prefill may use again, requests whose loads have ended)"""
        return self._half.ended(finished_req_ids)

    def get_block_ids_with_load_errors(self):
        """Of the loads that get_finished() has named since the last call."""
        return self._half.take_failed()

    def shutdown(self):
        self._half.close()


class Scheduler:
    def __init__(self, engine_id, block_size):
        self._engine_id, self._block_size = engine_id, block_size
        self.addresses, self.loading = [], set()
        self._loads, self._holds = [], {}

    @staticmethod
    def matched(request, num_computed_tokens):
        params = request.kv_transfer_params or {}
        count = len(request.prompt_token_ids) - num_computed_tokens
        return (count, True) if params.get("do_remote_prefill") and count > 0 else (0, False)

    def allocated(self, request, blocks, num_external_tokens):
        params = request.kv_transfer_params or {}
        if not params.get("do_remote_prefill"):
            return
        sources = targets = []
        if num_external_tokens > 0:
            tokens = len(request.prompt_token_ids)
            first, end = (tokens - num_external_tokens) // self._block_size, -(-tokens // self._block_size)
            sources = list(params["remote_block_ids"][first:end])
            targets = list(blocks.get_unhashed_block_ids()[:end - first])
            self.loading.add(request.request_id)
        self._load(request, params, sources, targets)

    def _load(self, request, params, sources, targets):
        params["do_remote_prefill"] = False  # once
        self._loads.append(Load(request.request_id, [tuple(one) for one in params["remote_addresses"]],
                                params["remote_request_id"], sources, targets))

    def metadata(self):
        made = HixlMetadata(self._loads, self._holds)
        self._loads, self._holds = [], {}
        return made

    def finished(self, request, block_ids):
        """(whether get_finished() will say when the blocks are free, params for the decode engine)"""
        params = request.kv_transfer_params or {}
        if params.get("do_remote_prefill"):  # it has ended before it had blocks: the prefill's are for nobody
            self._load(request, params, [], [])
            return False, None
        if request.request_id in self.loading:
            return True, None
        if not params.get("do_remote_decode") or not block_ids or request.status.name not in COMPUTED:
            return False, None
        if not self.addresses:
            log.warning("request %s: no worker has said where it listens; nobody can fetch its blocks",
                        request.request_id)
            return False, None
        self._holds[request.request_id] = list(block_ids)
        return True, {"do_remote_prefill": True, "do_remote_decode": False, "remote_engine_id": self._engine_id,
                      "remote_request_id": request.request_id, "remote_block_ids": list(block_ids),
                      "remote_addresses": [list(one) for one in self.addresses]}

    def close(self):
        pass


class Loading:
    """A load under way, in a thread of its own."""

    def __init__(self, decode, rank, load):
        self.load, self.whole, self.aborted = load, set(), threading.Event()
        self._decode, self._rank = decode, rank
        self.thread = threading.Thread(target=self._run, name="hixl-load", daemon=True)
        self.thread.start()

    def _run(self):
        load = self.load
        try:
            if self._decode is None:
                raise ValueError("this engine's kv_role is kv_producer: it loads nothing")
            if len(load.sources) != len(load.targets) or self._rank >= len(load.addresses):
                raise ValueError(f"{len(load.sources)} blocks of {len(load.addresses)} ranks are no match for "
                                 f"{len(load.targets)} blocks of rank {self._rank}")
            self._decode.load(load.addresses[self._rank], load.remote_request,
                              list(zip(load.sources, load.targets)), self.whole, self.aborted)
        except Exception as error:  # whatever it is: what is not whole is reported
            log.warning("request %s: %d of %d blocks have come: %s", load.request, len(self.whole), len(load.targets),
                        error)


class Worker:
    def __init__(self, rank, kv_role, options):
        self._rank, self._kv_role, self._of_config = rank, kv_role, options
        self._prefill = self._decode = None
        self._loadings, self._failed = [], set()

    def register(self, kv_caches):
        of, cache = self._of_config, paged_cache(kv_caches)
        options = meeting.options_at(of["host"])
        if self._kv_role != "kv_consumer":
            port = of["port"] and of["port"] + self._rank
            self._prefill = Prefill(cache, options, port, of["timeout"], of["hold"])
        if self._kv_role != "kv_producer":
            self._decode = Decode(cache, options, of["timeout"], of["mode"] == "push")

    def address(self):
        return None if self._prefill is None else HixlAddress(*self._prefill.address)

    def begin(self, metadata):
        for request, blocks in metadata.holds.items():
            self._prefill.hold(request, blocks)
        for load in metadata.loads:
            self._loadings.append(Loading(self._decode, self._rank, load))

    def ended(self, finished_req_ids):
        received, still = set(), []
        for loading in self._loadings:
            if loading.load.request in finished_req_ids:
                loading.aborted.set()
            if loading.thread.is_alive():
                still.append(loading)
            elif loading.load.targets:
                received.add(loading.load.request)
                if not loading.aborted.is_set():
                    self._failed.update(set(loading.load.targets) - loading.whole)
        self._loadings = still
        sent = self._prefill.take_released() if self._prefill is not None else set()
        return sent or None, received or None

    def take_failed(self):
        failed, self._failed = self._failed, set()
        return failed

    def close(self):
        for loading in self._loadings:
            loading.aborted.set()
        for loading in self._loadings:
            loading.thread.join()
        with contextlib.ExitStack() as ends:  # each ends, whatever becomes of the other
            for side in (self._prefill, self._decode):
                if side is not None:
                    ends.callback(side.close)
