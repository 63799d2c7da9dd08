#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The verbs that look at this host, in both forms: diag_host_test.py HIXL_DIAG HIXL_RUN [TEST ...]

Machines that this one is not (two NUMA nodes, RDMA cards) are folders of files as their kernels have them."""

import os
import resource
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

import diag  # noqa: E402

KIB = 1 << 10
MIB = 1 << 20


class Machine:
    """Files below a folder, as --root takes it."""

    def __init__(self):
        self.root = tempfile.mkdtemp(prefix="hixl-machine-")
        self.write("proc/meminfo", "MemTotal: 8 kB\nMemAvailable: 4 kB\nHugePages_Total: 3\nHugePages_Free: 2\n"
                                   "Hugepagesize: 2048 kB\n")
        self.status(cpus="0-7", capabilities=1 << 14)  # of CAP_IPC_LOCK
        self.write("proc/net/route", "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
                                     "eth0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\n")

    def write(self, path, text):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def status(self, cpus, capabilities):
        self.write("proc/self/status", f"Name:\thixl_diag\nCapEff:\t{capabilities:016x}\nCpus_allowed_list:\t{cpus}\n")

    def node(self, number, cpus):
        folder = f"sys/devices/system/node/node{number}"
        self.write(f"{folder}/cpulist", f"{cpus}\n")
        self.write(f"{folder}/meminfo", f"Node {number} MemTotal:  2048 kB\nNode {number} MemFree:  1024 kB\n")

    def nic(self, name, node, state="up"):
        folder = f"sys/class/net/{name}"
        for file, text in (("operstate", state), ("mtu", 9000), ("speed", 100000), ("device/numa_node", node)):
            self.write(f"{folder}/{file}", f"{text}\n")
        os.symlink("../../../bus/pci/drivers/mlx5_core", os.path.join(self.root, folder, "device/driver"))

    def rdma(self, name, node, interface, state="4: ACTIVE", layer="Ethernet"):
        folder = f"sys/class/infiniband/{name}"
        for file, text in (("fw_ver", "16.35"), ("device/numa_node", node), ("ports/1/state", state),
                           ("ports/1/phys_state", "5: LinkUp" if "ACTIVE" in state else "3: Disabled"),
                           ("ports/1/rate", "100 Gb/sec (4X EDR)"), ("ports/1/link_layer", layer),
                           ("ports/1/gid_attrs/ndevs/0", interface), ("ports/1/gid_attrs/ndevs/1", interface)):
            self.write(f"{folder}/{file}", f"{text}\n")


class HostTest(diag.DiagTest):
    def machine(self):
        machine = Machine()
        self.addCleanup(shutil.rmtree, machine.root)
        return machine

    def both(self, *arguments, code=0, **more):
        """Text, and what the JSON form says."""
        text, ended = self.diag(*arguments, **more), self.diag(*arguments, "--json", **more)
        self.assertEqual((text.code, ended.code), (code, code), (text, ended))
        return text.out, ended.json


class Cards(HostTest):
    def test_the_state_of_cards(self):
        """F183: without rights, and in words when there is no RDMA device."""
        machine = self.machine()
        text, told = self.both("nic", "--root", machine.root)
        self.assertEqual(text, "no network interface\nno RDMA device\n")
        self.assertEqual(told, {"nics": [], "rdma_ports": []})
        machine.nic("eth0", 1)
        machine.rdma("mlx5_0", 1, "eth0")
        machine.rdma("mlx5_1", 0, "eth1", state="1: DOWN")
        text, told = self.both("nic", "--root", machine.root)
        self.assertEqual(text.splitlines(), [
            "eth0: up, mtu 9000, 100000 Mbit/s, driver mlx5_core, node 1",
            "mlx5_0 port 1: ACTIVE (LinkUp), 100 Gb/sec (4X EDR), Ethernet, eth0, firmware 16.35, node 1",
            "mlx5_1 port 1: DOWN (Disabled), 100 Gb/sec (4X EDR), Ethernet, eth1, firmware 16.35, node 0"])
        self.assertEqual([(port["device"], port["state"]) for port in told["rdma_ports"]],
                         [("mlx5_0", "ACTIVE"), ("mlx5_1", "DOWN")])

    def test_this_host_has_a_loopback(self):
        prefix = ["setpriv", "--reuid=65534", "--clear-groups"] if os.geteuid() == 0 else []
        if subprocess.run([*prefix, "test", "-x", diag.PROGRAM], check=False).returncode != 0:
            self.skipTest("users without rights cannot execute what was built here")
        text, told = self.both("nic", prefix=prefix)
        self.assertIn("lo: ", text)
        loopback = [nic for nic in told["nics"] if nic["name"] == "lo"]
        self.assertEqual(len(loopback), 1)
        self.assertIsNone(loopback[0]["driver"])


class Links(HostTest):
    def chosen(self, told):
        return [link["kind"] for link in told if link["chosen"]]

    def test_the_choice_on_one_host(self):
        """F37: what is taken for which setting, and why. What this system refuses (pcie) may be missing."""
        table = (("", "hccs"), ("auto", "hccs"), ("tcp", "tcp"), ("hccs", "hccs"), ("hccs,tcp", "hccs"),
                 ("roce,tcp", "tcp"), ("roce,hccs", "hccs"))
        for setting, best in table:
            with self.subTest(links=setting):
                text, told = self.both("links", env={"HIXL_LINKS": setting})
                self.assertEqual({link["kind"] for link in told}, {"hccs", "pcie", "roce", "ub", "tcp"})
                self.assertEqual(self.chosen(told)[0], best)
                self.assertTrue(all(link["reason"] and link["state"] for link in told))
                self.assertIn("REASON", text)
                if setting not in ("", "auto"):
                    self.assertTrue({link["kind"] for link in told if link["up"]} <= set(setting.split(",")))

    def test_a_forced_kind_is_that_or_nothing(self):
        self.fails("link", 17, "links", "--links", "ub")
        told = self.fails("local", 19, "links", "--links", "what")
        self.assertIn("hccs, pcie, roce, ub, tcp", told["remedy"])

    def test_the_choice_between_hosts(self):
        """F37: memory cannot be shared there, and the row says so."""
        left, right = self.host(), self.host()
        left.connect(right, "v0")
        left.sh("ip address add 10.77.1.1/24 dev v0")
        right.sh("ip address add 10.77.1.2/24 dev v0")
        self.serve("--bind", "10.77.1.2", "--insecure", on=right, port=9999)
        text, told = self.both("links", "10.77.1.2", on=left)
        self.assertEqual(self.chosen(told), ["tcp"])
        self.assertEqual({link["rank"] for link in told}, {0})
        hccs = next(link for link in told if link["kind"] == "hccs")
        self.assertFalse(hccs["up"])
        self.assertTrue(hccs["reason"])
        self.assertIn("tcp", text)

    def test_nobody_to_have_links_with(self):
        self.fails("resolve", 10, "links", "x.invalid")

    def test_topo(self):
        """F37: this machine, with what the library makes of it; and the files of another one."""
        text, told = self.both("topo")
        self.assertIn("between two ranks of this host:", text)
        self.assertEqual(self.chosen(told["links"])[0], "hccs")
        machine = self.machine()
        machine.node(0, "0-3")
        machine.node(1, "4-7")
        machine.write("sys/bus/pci/devices/0000:81:00.0/class", "0x030200\n")
        machine.write("sys/bus/pci/devices/0000:81:00.0/vendor", "0x10de\n")
        machine.write("sys/bus/pci/devices/0000:81:00.0/numa_node", "1\n")
        machine.write("sys/bus/pci/devices/0000:00:1f.0/class", "0x060100\n")
        text, told = self.both("topo", "--root", machine.root)
        self.assertIn("node 1: processors 4-7, 2.0 MiB, 1.0 MiB free\n", text)
        self.assertIn("0000:81:00.0: vendor 0x10de, class 0x030200, node 1\n", text)
        self.assertEqual([node["total_bytes"] for node in told["nodes"]], [2 * MIB, 2 * MIB])
        self.assertEqual(len(told["accelerators"]), 1)
        self.assertNotIn("links", told)
        self.assertEqual(self.diag("topo", "--links", "ub", "--json").code, 17)


class Memory(HostTest):
    MODEL = ["mem", "--layers", 80, "--kv-heads", 64, "--head-dim", 128]

    def test_a_buffer_for_the_articles_model(self):
        """F179: 80 layers of 8192 numbers, K and V of 2 bytes, 30 % more than the tokens, in whole blocks."""
        token = 80 * 8192 * 2 * 2
        text, told = self.both(*self.MODEL, "--tokens", 1000)
        self.assertEqual((told["token_bytes"], told["kv_bytes"]), (token, 1000 * token))
        self.assertEqual(told["blocks"], -(-1300 // 16))
        self.assertEqual(told["buffer_bytes"], told["blocks"] * 16 * token)
        self.assertEqual(told["huge_pages_2m"], -(-told["buffer_bytes"] // (2 * MIB)))
        self.assertIn(f"({told['buffer_bytes']} bytes): 82 blocks, 30 % head-room", text)
        _, part = self.both(*self.MODEL, "--tokens", 1000, "--tp", 8, "--pp", 2, "--headroom", 0)
        self.assertEqual(part["buffer_bytes"], 63 * 16 * token // 16)

    def test_more_than_there_is(self):
        text, told = self.both(*self.MODEL, "--tokens", 100_000_000, code=1)
        self.assertIn("does not fit", text)
        self.assertGreater(told["buffer_bytes"], told["available_bytes"])

    def test_no_such_model(self):
        ended = self.diag("mem", "--layers", 0, "--kv-heads", 8, "--head-dim", 128, "--tokens", 1)
        self.assertEqual(ended.code, 2)
        self.assertIn("--layers", ended.err)
        told = self.fails("local", 19, "mem", "--layers", 4096, "--kv-heads", 65536, "--head-dim", 1 << 20, "--tokens",
                          1 << 40)
        self.assertIn("OUT_OF_RANGE", told["message"])
        self.assertEqual(self.diag("mem", "--layers", 80).code, 2)
        ended = self.diag(*self.MODEL, "--tokens", 1, "--form", "bogus")
        self.assertEqual(ended.code, 2)
        for text in (ended.err, self.diag("mem", "--help").out):
            self.assertTrue(text.isprintable() or text.replace("\n", "").isprintable(), repr(text))
            for name in ("separate", "block_interleaved", "token_interleaved", "latent"):
                self.assertIn(name, text)
        for tokens in (-1, 0, 2**63, 2**64, "many"):
            self.assertEqual(self.diag(*self.MODEL, "--tokens", tokens).code, 2)


class Doctor(HostTest):
    def findings(self, *arguments, code=0, **more):
        text, told = self.both("doctor", *arguments, code=code, **more)
        self.assertEqual(told["ok"], code == 0)
        for one in told["findings"]:
            if one["subject"] in ("huge_pages", "ports"):  # others may have changed them meanwhile
                continue
            self.assertIn(f"{one['subject']}: {one['found']}", text)
            if one["health"] in ("warn", "bad"):
                self.assertTrue(one["remedy"], one)
                self.assertIn(one["remedy"], text)
        return told["findings"]

    def of(self, findings, subject):
        return [(one["health"], one["found"], one["remedy"] or "") for one in findings if one["subject"] == subject]

    def test_locked_memory(self):
        """With RDMA cards 64 KiB is a fault, without it is a note; who may lock all is not bound."""
        machine = self.machine()
        machine.status(cpus="0-7", capabilities=0)
        few = ["prlimit", f"--memlock={64 * KIB}:{64 * KIB}"]
        (health, found, remedy), = self.of(self.findings("--root", machine.root, prefix=few), "memlock")
        self.assertEqual(health, "note")
        self.assertIn("64.0 KiB", found)
        machine.rdma("mlx5_0", 0, "eth0")
        (health, found, remedy), = self.of(self.findings("--root", machine.root, code=1, prefix=few), "memlock")
        self.assertEqual(health, "bad")
        self.assertIn("ulimit -l unlimited", remedy)
        machine.status(cpus="0-7", capabilities=1 << 14)
        (health, found, remedy), = self.of(self.findings("--root", machine.root, prefix=few), "memlock")
        self.assertEqual(health, "note")
        self.assertIn("CAP_IPC_LOCK", found)

    def test_descriptors(self):
        hard = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 4096)
        for soft, health, code in ((100, "bad", 1), (500, "warn", 0), (hard, "ok", 0)):
            findings = self.findings(code=code, prefix=["prlimit", f"--nofile={soft}:{hard}"])
            (seen, found, remedy), = self.of(findings, "files")
            self.assertEqual(seen, health, found)
            self.assertIn(str(soft), found)
            if soft < hard:
                self.assertIn(f"ulimit -n {hard}", remedy)

    def test_address_space(self):
        self.assertEqual(self.of(self.findings(), "address_space"), [])
        (health, found, remedy), = self.of(self.findings(prefix=["prlimit", f"--as={8 << 30}"]), "address_space")
        self.assertEqual((health, remedy), ("warn", "ulimit -v unlimited"))
        self.assertIn("8.0 GiB", found)

    def test_far_memory(self):
        """F181: a process on one node and a card on another; near ones, and machines of one node, are well."""
        machine = self.machine()
        machine.node(0, "0-3")
        machine.nic("eth0", 1)
        machine.rdma("mlx5_0", 1, "eth0")
        self.assertEqual(self.of(self.findings("--root", machine.root), "numa")[0][0], "ok")
        machine.node(1, "4-7")
        for cpus, health in (("1-2", "warn"), ("4,6", "ok"), ("0-7", "note")):
            machine.status(cpus=cpus, capabilities=1 << 14)
            rows = self.of(self.findings("--root", machine.root), "numa")
            self.assertEqual({row[0] for row in rows}, {health}, rows)
            if health == "ok":
                continue
            self.assertEqual(len(rows), 2)
            self.assertIn("mlx5_0 is on node 1", rows[0][1])
            self.assertIn("eth0 is on node 1", rows[1][1])
            self.assertIn("numactl --cpunodebind=1 --membind=1", rows[0][2])

    def test_rdma_ports(self):
        machine = self.machine()
        machine.rdma("mlx5_0", 0, "eth0")
        machine.rdma("mlx5_2", 0, "", layer="InfiniBand")
        rows = self.of(self.findings("--root", machine.root), "rdma")
        self.assertEqual([row[0] for row in rows], ["ok", "note"])
        machine.rdma("mlx5_1", 0, "eth1", state="1: DOWN")
        rows = self.of(self.findings("--root", machine.root, code=1), "rdma")
        self.assertEqual(rows[1][0], "bad")
        self.assertIn("ip link set eth1 up", rows[1][2])

    def test_pages_and_rights(self):
        machine = self.machine()
        findings = self.findings("--root", machine.root)
        self.assertEqual(self.of(findings, "huge_pages")[0][:2], ("ok", "3 of 2048 kB, 2 free"))
        self.assertEqual(self.of(findings, "cross_memory")[0][0], "ok")
        machine.write("proc/sys/kernel/yama/ptrace_scope", "1\n")
        machine.write("proc/meminfo", "HugePages_Total: 0\nHugepagesize: 2048 kB\n")
        machine.write("sys/fs/cgroup/memory.max", f"{512 * MIB}\n")
        findings = self.findings("--root", machine.root)
        self.assertIn("vm.nr_hugepages", self.of(findings, "huge_pages")[0][2])
        self.assertEqual(self.of(findings, "cross_memory")[0][0], "warn")
        self.assertIn("kernel.yama.ptrace_scope=0", self.of(findings, "cross_memory")[0][2])
        self.assertIn("512.0 MiB", self.of(findings, "memory_group")[0][1])

    def test_routes_and_ports(self):
        """In a network of its own, where nothing else listens."""
        host = self.host()
        findings = self.findings(on=host)
        self.assertEqual(self.of(findings, "route")[0][0], "note")
        self.assertEqual([row[0] for row in self.of(findings, "ports")], ["ok", "ok"])
        self.serve(on=host, port=9999)
        rows = self.of(self.findings(on=host), "ports")
        self.assertEqual([row[0] for row in rows], ["note", "ok"])
        self.assertIn("ss -ltnp", rows[0][2])

    def test_another_host(self):
        """F185: doctor HOST says that no route leads there, and which command makes one."""
        host = self.host()
        host.sh("ip link add d0 type veth peer name d1; ip address add 10.77.1.1/24 dev d0; ip link set d0 up")
        (health, found, remedy), = self.of(self.findings("10.99.0.7", on=host, code=1), "host")
        self.assertEqual(health, "bad")
        self.assertIn("no_route: 10.99.0.7:9999", found)
        self.assertIn("ip route add 10.99.0.7/32 via GATEWAY dev d0", remedy)
        self.serve(on=host, port=9999)
        (health, _, _), = self.of(self.findings("127.0.0.1", on=host), "host")
        self.assertEqual(health, "ok")


if __name__ == "__main__":
    diag.main()
