# SPDX-License-Identifier: Apache-2.0
"""CacheTask: KV that moves layer by layer while it is computed."""

import abc
import logging
import threading

import hixl

from .words import LLMStatusCode, status_of

log = logging.getLogger("hixl")


class LayerSynchronizer(abc.ABC):
    """The program's: waits until a layer has been computed."""

    @abc.abstractmethod
    def synchronize_layer(self, layer_index, timeout_in_millis=None):
        """True: its bytes are final. False: the task ends there. `timeout_in_millis` is not given."""


class CacheTask:
    """Made by CacheManager.transfer_cache_async(). A thread of its own asks for one layer after the other."""

    def __init__(self, synchronizer, transfers):
        """`transfers`: (range of layers, Transfer) of each target."""
        self._ended = threading.Event()
        self._results = []
        threading.Thread(target=self._run, args=(synchronizer, transfers), name="llm-datadist-task",
                         daemon=True).start()

    def _run(self, synchronizer, transfers):
        try:
            self._synchronize(synchronizer, transfers)
        except BaseException:  # of the program, SystemExit too: what has not moved does not move any more
            log.exception("llm_datadist: a layer synchronizer raised")
            for _, transfer in transfers:
                transfer.cancel()
        self._results = [self._result_of(transfer) for _, transfer in transfers]
        self._ended.set()

    @staticmethod
    def _synchronize(synchronizer, transfers):
        for layer in sorted(set().union(*(layers for layers, _ in transfers))):
            good = synchronizer.synchronize_layer(layer)
            for layers, transfer in transfers:
                if not good:
                    transfer.cancel()
                elif layer in layers:
                    try:
                        transfer.ready(2 * layer)
                        transfer.ready(2 * layer + 1)
                    except hixl.Error:  # it has failed: its end says how, and the others go on
                        pass
            if not good:
                return

    @staticmethod
    def _result_of(transfer):
        try:
            transfer.wait()
            return LLMStatusCode.LLM_SUCCESS
        except hixl.Error as error:
            return status_of(error)

    def synchronize(self, timeout_in_millis=None):
        """The code of the first target that failed, or LLM_SUCCESS; LLM_TIMEOUT: it has not ended."""
        return next((code for code in self.get_results(timeout_in_millis) if code != LLMStatusCode.LLM_SUCCESS),
                    LLMStatusCode.LLM_SUCCESS)

    def get_results(self, timeout_in_millis=None):
        """The code of each target; LLM_TIMEOUT alone: it has not ended."""
        if not self._ended.wait(None if timeout_in_millis is None else timeout_in_millis / 1e3):
            return [LLMStatusCode.LLM_TIMEOUT]
        return list(self._results)
