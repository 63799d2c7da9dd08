# SPDX-License-Identifier: Apache-2.0
"""The rules of tidy.py. Each is a function that yields (line, what, remedy), with snippets that it must catch (`bad`)
and must let pass (`good`), by path; `tidy.py --self-test` feeds them through."""

import re

RULES = []  # filled by @rule, in order of this file

# Who may include whom: a room sees itself and these.
ROOMS_BELOW = {
    "base": (),
    "wire": ("base",),
    "runtime": ("base", "wire"),
    "memory": ("base", "wire"),
    "links": ("base", "wire", "runtime", "memory"),
    "peer": ("base", "wire", "runtime", "memory", "links"),
    "group": ("base", "wire", "runtime", "memory", "links", "peer"),
    "core": ("base", "wire", "runtime", "memory", "links", "peer", "group"),
}
OUTER_AREAS = ("src/kv", "src/api", "src/cli", "samples", "bench", "python")  # see include/ only
_VOCABULARY_NAMES = ("error", "failover", "inspect", "kv/layout", "memory", "options", "rdma", "request", "result",
                     "types")
VOCABULARY = tuple(f"hixl/{name}.hpp" for name in _VOCABULARY_NAMES)

# Python packages, and which of the others they see; _meeting of hixl is what they meet by.
PACKAGES_BELOW = {"hixl": (), "ascend_hixl": ("hixl",), "llm_datadist": ("hixl",), "ascend_rt": ("hixl", "ascend_hixl")}

# Third-party headers (by start of the include) and who may use them.
THIRD_PARTY = (
    ("uv", ("src/runtime/uv_", "samples/embed_", "tests/")),
    ("concurrentqueue/", ("src/runtime/mailbox.cpp", "src/runtime/request_table.cpp")),
    ("spdlog", ("src/base/log.cpp",)),
    ("asio/", ("samples/embed_",)),
    ("isa-l", ("src/wire/",)),
    ("doctest/", ("tests/",)),
    ("fmt/", ("src/", "samples/", "bench/", "tests/")),
    ("CLI/", ("src/cli/", "samples/", "bench/", "tests/")),
    ("nlohmann/", ("src/cli/", "src/core/inspect_json.cpp", "samples/", "bench/", "tests/")),
    ("infiniband/", ("src/links/roce/", "tests/")),
    ("tl/", ()),
    ("hixl/tl/", ("include/hixl/result.hpp",)),
)
SYSTEM_FOLDERS = ("sys/", "linux/", "net/", "netinet/", "arpa/", "asm/", "bits/")


def rule(bad, good=()):
    def register(function):
        RULES.append((function, bad, good))
        return function
    return register


def find(file, pattern, lines=None):
    """(line number, match) of each hit in code."""
    for number, line in enumerate(file.code_lines if lines is None else lines, 1):
        for match in re.finditer(pattern, line):
            yield number, match


@rule(bad=[("src/wire/a.cpp", '#include "runtime/loop.hpp"'), ("src/runtime/a.cpp", '#include "memory/lane.hpp"'),
           ("src/memory/a.cpp", '#include "runtime/loop.hpp"'), ("src/peer/a.hpp", '#include "group/barrier.hpp"'),
           ("src/links/a.cpp", '#include "core/core.hpp"'), ("src/base/a.cpp", '#include "../wire/frame.hpp"'),
           ("src/links/a.cpp", "#include <base/bytes.hpp>"), ("src/what/a.cpp", '#include "base/bytes.hpp"')],
      good=[("src/links/tcp/a.cpp", '#include "links/link.hpp"\n#include "runtime/loop.hpp"\n#include "own.hpp"'),
            ("src/core/a.cpp", '#include "group/barrier.hpp"'), ("src/wire/a.cpp", '// #include "core/core.hpp"'),
            ("tests/unit/a.cpp", '#include "core/core.hpp"')])
def rooms_include_downwards(file):
    if not file.area.startswith("src/") or file.area in OUTER_AREAS:
        return
    room = file.area[len("src/"):]
    if room not in ROOMS_BELOW:
        yield 1, f"src/{room} is no known room", "add it to ROOMS_BELOW in tests/tidy/rules.py with the rooms it sees"
        return
    for number, mark, path in file.includes:
        first = path.split("/")[0]
        if ".." in path.split("/"):
            yield number, f"include of {path} goes up the tree", "write it from src/: \"room/file.hpp\""
        elif first in ROOMS_BELOW and "/" in path and mark == "<":
            yield number, f"<{path}> is ours", f'write "{path}"'
        elif first in ROOMS_BELOW and "/" in path and first != room and first not in ROOMS_BELOW[room]:
            yield (number, f"room {room} includes room {first}, against the direction of includes",
                   f"{room} may see: {', '.join(ROOMS_BELOW[room]) or 'no other room'}; move what both need downwards")


@rule(bad=[("src/peer/a.cpp", "#include <hixl/runtime.hpp>"), ("src/links/a.cpp", "#include <hixl/store.hpp>"),
           ("src/wire/a.cpp", '#include "hixl/runtime.hpp"')],
      good=[("src/core/a.cpp", "#include <hixl/runtime.hpp>"), ("src/wire/a.cpp", "#include <hixl/error.hpp>"),
            ("samples/a.cpp", "#include <hixl/runtime.hpp>")])
def rooms_see_the_vocabulary_only(file):
    if not file.area.startswith("src/") or file.area in OUTER_AREAS + ("src/core",):
        return
    for number, _, path in file.includes:
        if path.startswith("hixl/") and path not in VOCABULARY and not path.startswith("hixl/tl/"):
            yield (number, f"only src/core implements {path}",
                   "use the vocabulary headers: " + ", ".join(name[len("hixl/"):] for name in VOCABULARY))


@rule(bad=[("samples/a.cpp", '#include "base/bytes.hpp"'), ("bench/a.cpp", '#include "../src/base/bytes.hpp"'),
           ("src/api/a.cpp", '#include "core/core.hpp"'), ("src/cli/a.cpp", '#include "peer/peer_actor.hpp"')],
      good=[("samples/pd_sim/a.cpp", '#include <hixl/runtime.hpp>\n#include "plan.hpp"'),
            ("src/cli/a.cpp", '#include "cli/verb.hpp"')])
def outer_areas_see_public_headers_only(file):
    if file.area not in OUTER_AREAS:
        return
    for number, _, path in file.includes:
        parts = path.split("/")
        if ".." in parts or (parts[0] in ROOMS_BELOW and len(parts) > 1):
            yield number, f"{file.area} includes {path}", "use the public headers of include/hixl"


@rule(bad=[("include/hixl/a.hpp", "#include <spdlog/spdlog.h>"), ("include/hixl/a.hpp", '#include "base/bytes.hpp"'),
           ("include/hixl/a.hpp", "#include <uv.h>"), ("include/hixl/a.hpp", "#include <sys/uio.h>")],
      good=[("include/hixl/a.hpp", "#include <span>\n#include <hixl/types.hpp>"),
            ("include/hixl/result.hpp", "#include <hixl/tl/expected.hpp>"),
            ("include/hixl/hixl.h", "#include <stdint.h>")])
def public_headers_stand_alone(file):
    if file.area != "include":
        return
    for number, _, path in file.includes:
        standard = "/" not in path and "." not in path
        if not standard and not path.startswith("hixl/") and path not in ("stdint.h", "stddef.h", "stdbool.h"):
            yield number, f"a public header includes {path}", "use the C++ standard library and hixl/ only"


@rule(bad=[("src/links/a.cpp", "#include <uv.h>"), ("src/runtime/loop.cpp", "#include <uv.h>"),
           ("src/runtime/loop.cpp", "#include <concurrentqueue/concurrentqueue.h>"),
           ("src/peer/a.cpp", "#include <spdlog/spdlog.h>"), ("src/memory/a.cpp", "#include <isa-l.h>"),
           ("src/memory/a.cpp", "#include <isa-l/crc.h>"), ("src/base/a.cpp", "#include <doctest/doctest.h>"),
           ("src/base/a.hpp", "#include <tl/expected.hpp>"), ("src/links/a.cpp", "#include <boost/asio.hpp>")],
      good=[("src/runtime/uv_port.cpp", "#include <uv.h>"), ("samples/embed_uv.cpp", "#include <uv.h>"),
            ("src/runtime/mailbox.cpp", "#include <concurrentqueue/concurrentqueue.h>"),
            ("src/links/a.cpp", "#include <sys/uio.h>\n#include <unistd.h>\n#include <vector>\n#include <fmt/core.h>")])
def third_party_headers_have_one_home(file):
    for number, mark, path in file.includes:
        homes = next((homes for start, homes in THIRD_PARTY
                      if path.startswith(start) and (start.endswith("/") or path[len(start)] in "./")), None)
        if homes is not None:
            if not file.path.startswith(homes):
                yield (number, f"{path} is included outside its home",
                       "keep it in: " + (", ".join(home + "*" for home in homes) or "nowhere; use hixl/result.hpp"))
        elif mark == "<" and "/" in path and not path.startswith(SYSTEM_FOLDERS + ("hixl/",)) \
                and path.split("/")[0] not in ROOMS_BELOW:
            yield number, f"{path} has no home", "add the library to THIRD_PARTY in tests/tidy/rules.py, or do without"


@rule(bad=[("python/hixl/integrations/a.py", "from ascend_hixl.door import Door"),
           ("python/llm_datadist/a.py", "import ascend_hixl"), ("python/hixl/a.py", "    import llm_datadist")],
      good=[("python/llm_datadist/a.py", "from hixl import kv"), ("python/ascend_rt/a.py", "import ascend_hixl"),
            ("python/hixl/a.py", "from . import kv"), ("tests/python/a.py", "import ascend_hixl")])
def python_packages_import_downwards(file):
    package = file.path.split("/")[1] if file.path.startswith("python/") and file.path.endswith(".py") else None
    for number, match in find(file, r"^\s*(?:from|import) (\w+)") if package in PACKAGES_BELOW else ():
        other = match.group(1)
        if other in PACKAGES_BELOW and other not in (package, *PACKAGES_BELOW[package]):
            yield number, f"{package} imports {other}", "move what both need to hixl (hixl/_meeting, for how to meet)"


@rule(bad=[("src/base/a.cpp", "#include <span>"), ("tools/a.py", "#!/usr/bin/env python3\nimport os"),
           ("src/base/meson.build", "base_lib = 1"), ("src/base/a.cpp", "\n// SPDX-License-Identifier: Apache-2.0")],
      good=[("src/base/a.cpp", "// SPDX-License-Identifier: Apache-2.0"),
            ("tools/test", "#!/usr/bin/env bash\n# SPDX-License-Identifier: Apache-2.0")])
def licence_comes_first(file):
    after_shebang = 1 if file.lines and file.lines[0].startswith("#!") else 0
    wanted = "SPDX-License-Identifier: Apache-2.0"
    mark = "// " if file.is_cpp else "# "
    if len(file.lines) <= after_shebang or file.lines[after_shebang] != mark + wanted:
        yield after_shebang + 1, "the licence line is not first", f'begin the file with "{mark}{wanted}"'


@rule(bad=[("src/base/a.cpp", "int a;\n" * 401), ("tests/a_test.cpp", "int a;\n" * 500)],
      good=[("src/base/a.cpp", "int a;\n" * 400),
            ("src/base/a.cpp", "// This file is over 400 lines because it is one table.\n" + "int a;\n" * 500)])
def files_are_short(file):
    reason = "over 400 lines because"
    if len(file.lines) > 400 and not any(reason in line for line in file.lines[:15]):
        yield (401, f"{len(file.lines)} lines are more than 400",
               f'split it by ideas, or say in its first 15 lines: "{reason} …"')


@rule(bad=[("include/hixl/a.hpp", "int a;\n" * 200)],
      good=[("include/hixl/a.hpp", "int a;\n" * 199), ("src/base/a.hpp", "int a;\n" * 200)])
def public_headers_are_shorter(file):
    if file.area == "include" and file.is_cpp and len(file.lines) >= 200:
        yield 200, f"a public header of {len(file.lines)} lines", "keep it under 200: one idea a header"


@rule(bad=[("src/links/a.cpp", "std::memcpy(a, b, 8);"), ("src/core/a.cpp", "__builtin_memmove(a, b, 8);"),
           ("src/peer/a.cpp", "memmove (a, b, 8);")],
      good=[("src/memory/a.cpp", "std::memcpy(a, b, 8);"), ("src/links/a.cpp", "int a;  // no memcpy here"),
            ("src/links/a.cpp", 'log("memcpy");')])
def bytes_are_copied_by_devices(file):
    if not file.is_cpp or file.within("src/memory", "src/base", "tests", "bench", "samples"):
        return
    for number, match in find(file, r"\b(?:__builtin_)?mem(?:cpy|move)\b"):
        yield number, f"{match.group()} outside src/memory and src/base", "copy a region's bytes through its Device"


@rule(bad=[("src/links/a.cpp", "std::mutex guard;"), ("src/peer/a.hpp", "std::atomic<int> count;"),
           ("src/wire/a.cpp", "#include <atomic>"), ("src/group/a.cpp", "std::condition_variable ready;"),
           ("include/hixl/a.hpp", "std::atomic_ref<int> a;"), ("src/links/a.cpp", "__atomic_load_n(&a, 0);"),
           ("src/links/a.cpp", "std::scoped_lock lock(guard);")],
      good=[("src/runtime/a.cpp", "std::atomic<int> count;"), ("src/core/a.cpp", "std::mutex guard;"),
            ("src/links/a.cpp", "// A std::atomic would be wrong here.")])
def actors_need_no_locks(file):
    # src/kv and src/api are no actors: they see public headers only, and callers' threads meet in them.
    homes = ("src/runtime", "src/memory", "src/core", "src/kv", "src/api", "tests", "bench", "samples")
    if not file.is_cpp or file.within(*homes):
        return
    pattern = (r"\bstd::(?:\w*mutex\b|atomic\w*|condition_variable\w*|\w+_lock\b|lock_guard\b)"
               r"|\b__atomic_\w+|\b__sync_\w+|\bpthread_(?:mutex|cond|rwlock|spin)\w*"
               r"|#\s*include\s*<(?:mutex|shared_mutex|atomic|condition_variable)>")
    for number, match in find(file, pattern):
        yield (number, f"{match.group()} outside src/runtime, src/memory, src/core, src/kv and src/api",
               "an actor lives on one loop: send it a message instead")


@rule(bad=[("src/links/a.cpp", "std::this_thread::sleep_for(1ms);"), ("tests/a_test.cpp", "usleep(10);"),
           ("tests/a_test.cpp", "nanosleep(&t, nullptr);"), ("src/core/a.cpp", "::sleep(1);"),
           ("tests/a_test.cpp", "  sleep(1);"), ("tests/a.py", "time." + "sleep(1)"),
           ("src/core/a.cpp", "clock_nanosleep(a, b, c, d);"), ("src/core/a.cpp", "std::this_thread::sleep_until(t);")],
      good=[("src/runtime/a.cpp", "port.sleep(until);  // never sleep_for"), ("samples/a.cpp", "sleep_for(1s);"),
            ("src/runtime/a.cpp", "void wake_or_sleep(int a);\nsleep();  // a function of the loop")])
def nobody_sleeps(file):
    if not file.within("src", "include", "tests"):
        return
    pattern = r"\b(?:sleep_for|sleep_until|usleep|(?:clock_)?nanosleep)\b|(?<![\w.>:])(?:::)?sleep\s*\(\s*[^)\s]"
    if file.path.endswith(".py"):
        pattern = r"\btime\." + r"sleep\b"
    for number, match in find(file, pattern):
        yield number, f"{match.group()} is a sleep", "wait for the event itself: a timer of the loop, a future, a read"


@rule(bad=[("src/peer/a.cpp", "auto t = std::chrono::steady_clock::now();"), ("src/links/a.cpp", "getenv(name);"),
           ("src/wire/a.cpp", "std::random_device device;"), ("src/group/a.cpp", "clock_gettime(id, &t);")],
      good=[("src/runtime/uv_port.cpp", "clock_gettime(id, &t);"), ("src/base/log.cpp", "std::getenv(name);"),
            ("tests/a_test.cpp", "std::random_device device;")])
def the_world_is_handed_in(file):
    homes = ("src/runtime", "src/core", "src/cli", "src/base/log.cpp", "src/kv/state.cpp", "src/api/deadline.hpp")
    if not file.is_cpp or not file.within("src") or file.within(*homes):
        return
    pattern = r"\b(?:\w+_clock::now|clock_gettime|gettimeofday|getenv|random_device|getrandom)\b"
    for number, match in find(file, pattern):
        yield (number, f"{match.group()} reads the clock, the environment or randomness",
               "take time from the event port, options from RuntimeOptions, randomness from a seeded Random")


@rule(bad=[("src/base/a.cpp", "// TO" + "DO: later"), ("tools/test", "# FIX" + "ME"),
           ("src/base/a.hpp", "int a;  // XX" + "X")],
      good=[("src/base/a.cpp", 'mkstemp("a.XXXXXX");')])
def nothing_is_left_open(file):
    for number, match in find(file, r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b", file.lines):
        yield number, f"{match.group()} in the tree", "do it now, or put it in the issue list"


@rule(bad=[("src/base/a.cpp", "x" * 121), ("tests/meson.build", "y" * 200)], good=[("src/base/a.cpp", "…" * 120)])
def lines_fit(file):
    for number, line in enumerate(file.lines, 1):
        if len(line) > 120:
            yield number, f"a line of {len(line)} columns", "break it at 120"


@rule(bad=[("src/base/a.cpp", "\tint a;"), ("tools/test", "if true; then\n\techo")], good=[("src/base/a.cpp", "'\\t'")])
def no_tabs(file):
    for number, _ in find(file, "\t", file.lines):
        yield number, "a tab", "indent with spaces; write \\t in a string"


@rule(bad=[("src/base/a.cpp", 'open("/ho' + 'me/me/a");'), ("include/hixl/a.hpp", "// see /wo" + "rk/notes"),
           ("tools/test", "cd /ro" + "ot/hixl"), ("src/memory/a.cpp", 'open("/tm' + 'p/a");')],
      good=[("src/base/a.cpp", 'open("/proc/self/exe");'), ("tests/a_test.cpp", 'mkdtemp("/tm' + 'p/a");'),
            ("tools/test", "cd src/wo" + "rk/now")])
def no_paths_of_one_machine(file):
    pattern = r"(?<![\w.*])/(?:home|work|root" + (r"|tmp" if file.within("src", "include") else "") + r")/"
    for number, match in find(file, pattern, file.lines):
        yield number, f"{match.group()}… is a path of one machine", "take the path from the caller, or a memfd"


@rule(bad=[("src/peer/a.hpp", "class PeerManager {"), ("src/base/a.hpp", "struct StringUtils {"),
           ("include/hixl/a.hpp", "enum class Status {"), ("include/hixl/a.hpp", "using MemDesc = int;")],
      good=[("src/peer/a.hpp", "class PeerActor {"), ("src/peer/a.hpp", "struct StatusText {")])
def names_say_what_things_are(file):
    if not file.is_cpp or not file.within("src", "include"):
        return
    for number, match in find(file, r"\b(?:class|struct|using)\s+(\w*(?:Manager|Helper|Util)s?\w*)"):
        yield number, f"{match.group(1)} says nothing", "name it after what it is: region, link, table, queue, …"
    # Free for the engine-style interfaces, which bring these names from outside.
    reserved = r"MemType|MemDesc|TransferOp(?:Desc)?|Transfer(?:Req|Status|Args|Result)|NotifyDesc|Hixl|Status"
    for number, match in find(file, r"\b(?:class|struct|using)\s+(" + reserved + r")\b"):
        if not file.within("src/api", "include/hixl/ascend_compat.h"):
            yield number, f"{match.group(1)} is kept free for src/api", "choose another name"
