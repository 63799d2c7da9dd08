# SPDX-License-Identifier: Apache-2.0
"""LLMDataDist: one cluster. Owner: the program; finalize() or the end of the interpreter ends it. Threads: any call
from any thread. Any number of them may be in a process."""

import concurrent.futures
import contextlib
import itertools
import logging
import threading

import hixl
from hixl import _meeting as meeting
from hixl import kv

from .cache_manager import CacheManager
from .values import LLMConfig, number
from .words import ROLE_OF, LLMException, LLMRole, LLMStatusCode, checked, status_of, told
from .world import World

LINES = meeting.Protocol("llm_datadist", 1)
CLUSTERS_MAX = 16  # in one call
SYNC_KV_TIMEOUT_MS = 1000

log = logging.getLogger("hixl")


def unless_gone(call, *arguments):
    """What a cluster that is gone, and a guest that ends, answer is no failure."""
    try:
        call(*arguments)
    except hixl.Reconnect:
        pass
    except hixl.Error as error:
        if error.code != hixl.ErrorCode.STOPPED:
            raise


class Guest(World):
    """In the world of a cluster that has linked with ours, until that is gone."""

    def __init__(self, owner, **options):
        super().__init__(ROLE_OF[owner.role], links_max=1, **options)
        self._owner = owner

    def close(self):
        super().close()  # until then it counts: who hides a cache waits for it
        with self._owner._lock:
            self._owner._guests.discard(self)


class LLMDataDist:
    def __init__(self, role, cluster_id):
        self.role, self.cluster_id = LLMRole(role), number(cluster_id, 0, 2**64 - 1, "cluster_id")
        self._lock = threading.RLock()
        self._registering = threading.Lock()  # before _lock; held while others are waited for, as _lock never is
        self._own = self._manager = self._door = self._store = None
        self._guests, self._links, self._caches = set(), {}, {}
        self._ranks = itertools.count(1)

    def init(self, options):
        """`options`: of LLMConfig.generate_options(). Beyond loopback listen_ip_info needs HIXL_INSECURE=1, as links
        and keys of the environment (HIXL_LINKS, ...) hold here too. ValueError: an option that there is not."""
        unknown = set(options) - set(LLMConfig.NAMES)
        if unknown:
            raise ValueError(f"unknown options: {sorted(unknown)}")
        host, port = "127.0.0.1", None
        if "listen_ip_info" in options:
            host, port = meeting.host_and_port("tcp://" + options["listen_ip_info"])
            port = number(int(port), 0, 65535, "the port of listen_ip_info")
        timeout_s = number(int(options.get("sync_kv_timeout", SYNC_KV_TIMEOUT_MS)), 1, 2**31 - 1,
                           "sync_kv_timeout") / 1e3
        with told(), self._lock:
            if self._own is not None:
                raise LLMException("init() has been called already")
            self._options = meeting.options_at(host)
            self._store = hixl.Store(meeting.url_at(host, 0), self._options["insecure"])
            try:
                self._own = World(ROLE_OF[self.role], rank=0, store=self._store.url, **self._options)
                self._manager = CacheManager(self, timeout_s)
                if port is not None:
                    self._door = meeting.Door(LINES, host, port, self._enter)
            except BaseException:
                self.finalize()
                raise

    def _inited(self):
        if self._own is None:
            raise RuntimeError("init() has to be called before")
        return self._own

    @property
    def cache_manager(self):
        self._inited()
        return self._manager

    @property
    def listen_port(self):
        """Where others link with this cluster; None: nowhere."""
        return None if self._door is None else self._door.port

    def _enter(self, sock, deadline):
        """A cluster links with this one."""
        store, rank = LINES.world_offered(LINES.receive(sock, deadline), sock)
        guest = Guest(self, rank=rank, store=store, **{**self._options, "connect_timeout": meeting.left(deadline)})
        try:
            with self._lock:
                if self._own is None:
                    raise meeting.fail("STOPPED", "the cluster has been finalized")
                for shown in self._caches.values():
                    guest.add(*shown)
                guest.dist.switch_role(ROLE_OF[self.role])
                self._guests.add(guest)
            LINES.send(sock, deadline, cluster=self.cluster_id)
            failed, = guest.dist.link([0], meeting.left(deadline))
            if failed is not None:
                raise failed
            LINES.send(sock, deadline)  # neither side is done before the other one is
        except BaseException:
            guest.close()
            raise
        return guest

    def link_clusters(self, clusters, timeout=3000):
        """(LLM_SUCCESS or LLM_LINK_FAILED, [the code of each]). One side links, and that side moves KV."""
        self._inited()
        deadline = meeting.deadline_of(timeout)
        if len(clusters) > CLUSTERS_MAX:
            return LLMStatusCode.LLM_CLUSTER_NUM_EXCEED_LIMIT, []
        with concurrent.futures.ThreadPoolExecutor(max(1, len(clusters))) as threads:
            codes = list(threads.map(lambda cluster: self._link(cluster, deadline), clusters))
        good = all(code == LLMStatusCode.LLM_SUCCESS for code in codes)
        return LLMStatusCode.LLM_SUCCESS if good else LLMStatusCode.LLM_LINK_FAILED, codes

    def _link(self, cluster, deadline):
        number_of_it = cluster.remote_cluster_id
        if number_of_it is None or not cluster.remote_ips:
            return LLMStatusCode.LLM_PARAM_INVALID
        with self._lock:
            own = self._inited()
            if number_of_it in self._links:
                link = self._links[number_of_it]
                if link is None:
                    return LLMStatusCode.LLM_PROCESSING_LINK
                if own.dist.link_state(link[0]) == kv.LinkState.LINKED:
                    return LLMStatusCode.LLM_ALREADY_LINK
                link[1].close()
            self._links[number_of_it] = None
            store = self._store.url
        link = None
        try:
            link = self._make_link(own, store, cluster, deadline)
            return LLMStatusCode.LLM_SUCCESS
        except (hixl.Error, OSError) as error:
            log.warning("llm_datadist: no link with cluster %d: %s", number_of_it, error)
            return LLMStatusCode.LLM_LINK_FAILED
        finally:
            with self._lock:
                if link is None:
                    self._links.pop(number_of_it, None)
                else:
                    self._links[number_of_it] = link

    def _make_link(self, own, store, cluster, deadline):
        """(rank, socket)"""
        rank, sock = next(self._ranks), meeting.dial(*cluster.remote_ips[0], deadline)
        try:
            LINES.offer_world(sock, deadline, store, rank)
            there = LINES.answer(sock, deadline).get("cluster")
            if there != cluster.remote_cluster_id:
                raise meeting.fail("WRONG_PEER", f"there is cluster {there}")
            failed, = own.dist.link([rank], meeting.left(deadline))
            if failed is not None:
                raise failed
            LINES.answer(sock, deadline)
        except BaseException:
            sock.close()
            raise
        return rank, sock

    def unlink_clusters(self, clusters, timeout=3000, force=False):
        """(LLM_SUCCESS or LLM_UNLINK_FAILED, [the code of each]). `force` means nothing here."""
        own, deadline, codes = self._inited(), meeting.deadline_of(timeout), []
        for cluster in clusters:
            with self._lock:
                link = self._links.pop(cluster.remote_cluster_id, None)
            if link is None:
                codes.append(LLMStatusCode.LLM_NOT_YET_LINK)
                continue
            try:
                own.dist.unlink(link[0], meeting.left(deadline))
                codes.append(LLMStatusCode.LLM_SUCCESS)
            except hixl.Error as error:
                codes.append(status_of(error))
            link[1].close()  # it leaves our world
        good = all(code == LLMStatusCode.LLM_SUCCESS for code in codes)
        return LLMStatusCode.LLM_SUCCESS if good else LLMStatusCode.LLM_UNLINK_FAILED, codes

    def _rank_of(self, cluster_id):
        with self._lock:
            link = self._links.get(cluster_id)
        if link is None:
            raise LLMException(f"cluster {cluster_id} is not linked", LLMStatusCode.LLM_NOT_YET_LINK)
        return link[0]

    def switch_role(self, role, switch_options=None):
        """From now on others, and this cluster, may do what the new role allows. `switch_options` mean nothing here."""
        role = LLMRole(checked(role, LLMRole, "role"))
        with told(), self._lock:
            worlds = self._inited(), *self._guests
            self.role = role
        with told(), contextlib.ExitStack() as all_of_them:
            for world in worlds:
                all_of_them.callback(unless_gone, world.dist.switch_role, ROLE_OF[role])

    def _show(self, cache, names, accessible):
        """Registers it in our world, and in those where others look for it: in all or in none."""
        with told(), self._registering:
            try:
                with self._lock:
                    self._inited().add(cache, names)
                    if accessible:
                        self._caches[cache.cache_id] = cache, names
                        for guest in self._guests:
                            unless_gone(guest.add, cache, names)
            except BaseException:
                self._remove(cache.cache_id)
                raise

    def _hide(self, cache_id):
        with told(), self._registering:
            self._remove(cache_id)

    def _remove(self, cache_id):
        with self._lock:
            self._caches.pop(cache_id, None)  # who comes from now on does not get it
            worlds = self._inited(), *self._guests
        for world in worlds:
            world.remove(cache_id)

    def finalize(self):
        """Ends links and registrations. Nobody touches memory of caches afterwards."""
        with self._lock:
            own, door, guests, links = self._own, self._door, list(self._guests), self._links
            self._links = {}
            store, self._store = self._store, None
            self._own = self._door = self._manager = None
            self._caches.clear()
        with told(), contextlib.ExitStack() as ends:  # each ends, whatever becomes of others; from the last one on
            if store is not None:
                ends.callback(store.close)
            for world in (own, *guests):
                if world is not None:
                    ends.callback(world.close)
            for link in filter(None, links.values()):
                ends.callback(link[1].close)
            if door is not None:
                ends.callback(door.close)
