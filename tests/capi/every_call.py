#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the calls of every_call_test.c: every function that the C headers declare, with arguments of every kind that a
careless program may give it. A function that joins a header is called without anybody's help, and one with a parameter
of a type or name that is not known here fails the build.

    every_call.py SYMBOLS OUTPUT HEADER...
"""

import itertools
import pathlib
import random
import re
import sys

CALLS_MAX = 160  # of one function; beyond that as many of them, drawn
HANDLES = {"hixl_ctx_t": "ctx", "hixl_comm_t": "comm", "hixl_conn_t": "conn", "HIXL_Context_t": "context",
           "HIXL_BatchDescriptor_t": "batch", "hixl_request_t": "request"}
SAME = {"HIXL_Engine_t": "hixl_ctx_t", "HIXL_MultiContext_t": "HIXL_Context_t", "HIXL_Request_t": "hixl_request_t",
        "hixl_put_request_t": "hixl_request_t", "hixl_get_request_t": "hixl_request_t",
        "HIXL_Status_t": "hixl_status_t", "HIXL_Callback_t": "hixl_callback_t",
        "HIXL_EngineConfig_t": "hixl_init_info_t", "HIXL_Op_t": "int32_t", "hixl_transport_t": "int32_t",
        "hixl_report_t": "int32_t"}
KINDS = 6  # of handles, as every_call_test.c has them; the last one lives, if any does
INTEGERS = {"int": ["INT_MIN", "-2", "INT_MAX", "0"], "int32_t": ["INT32_MIN", "-1", "INT32_MAX", "0"],
            "uint32_t": ["UINT32_MAX", "7", "0"], "uint64_t": ["0", "UINT64_MAX", "1", "at_stack", "at_memory"],
            "size_t": ["SIZE_MAX", "SIZE_MAX / 2", "0", "8"], "hixl_status_t": ["INT32_MIN", "-1", "12345", "55"]}
NAMED = {"timeout_ms": ["INT_MIN", "-2", "0"],  # none that waits
         "local_addr": ["0", "at_stack", "at_memory"],  # since a small put copies from there, as memcpy() does
         "count": ["-1", "0", "1"], "max": ["-1", "0", "1"], "peers": ["(size_t)-1", "0", "1"]}
# They end what lives, which they get only when it is over.
ENDS = {"hixl_finalize", "hixl_finalize_timeout", "HIXL_Finalize", "hixl_comm_destroy", "hixl_disconnect",
        "HIXL_DestroyContext", "HIXL_BatchDestroy", "hixl_request_drop", "hixl_free", "hixl_deregister",
        "HIXL_DeregisterBuffer"}
BEGIN = {"hixl_init_sized", "HIXL_InitSized"}  # no handle makes them fail, and what they begin has to be ended


def declared(headers):
    """(result, name, [(type, parameter)]) of each function."""
    for header in headers:
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", pathlib.Path(header).read_text(), flags=re.DOTALL)
        for result, name, inside in re.findall(r"HIXL_API ([\w ]+?\**) ?\b(\w+)\(([^)]*)\);", text):
            pieces = [] if inside.strip() == "void" else [" ".join(piece.split()) for piece in inside.split(",")]
            yield result.strip(), name, [re.fullmatch(r"(.*?[\s*])(\w+)", piece).groups() for piece in pieces]


def plain(kind):
    kind = kind.strip()
    stars = kind.count("*")
    word = kind.replace("*", "").replace("const", "").strip()
    return SAME.get(word, word), stars


def values_of(kind, name, last):
    """What a parameter may be: text of C."""
    word, stars = plain(kind)
    if stars == 0 and word in HANDLES:
        return [f"{HANDLES[word]}s[{i}]" for i in range(KINDS if last else KINDS - 1)]
    if stars == 0 and name in NAMED:
        return [text.replace("-1", "(size_t)-1") if word == "size_t" and "(" not in text else text
                for text in NAMED[name]]
    if stars == 0 and word in INTEGERS:
        return INTEGERS[word]
    if stars == 0 and word == "hixl_callback_t":
        return ["NULL", "nothing"]
    if stars == 1 and word in HANDLES:  # a copy, since it may be taken for an output
        return ["NULL"] + [f"({word}[2]){{{HANDLES[word]}s[{i}]}}" for i in range(KINDS if last else KINDS - 1)]
    if stars == 1 and word == "hixl_init_info_t":
        return ["NULL", "&wrong_info", "&newer_info"]
    if stars == 1 and word == "HIXL_Descriptor_t":
        return ["NULL", "&descriptors[0]", "&descriptors[1]", "&descriptors[2]"]
    if stars == 1 and word in ("int", "int32_t", "uint32_t", "uint64_t", "size_t", "hixl_status_t"):
        return ["NULL", f"({word}[2]){{0}}"]
    if stars == 1 and word == "hixl_peer_address_t":
        return ["NULL", "(hixl_peer_address_t[2]){{0, 0}}"]
    if (stars, word) in ((1, "void"), (1, "char")):
        return ["NULL", "memory"] if word == "void" else ["NULL", "text"]
    if (stars, word) == (2, "void"):
        return ["NULL", "(void*[1]){NULL}"] if "const" not in kind else ["NULL", "(const void*[1]){NULL}"]
    raise SystemExit(f"no values are known for the parameter '{kind}{name}'")


def sensible(parameters, values):
    """Not: an array or a text with a length that it has not. No library can see that."""
    given = [(plain(kind), name, value) for (kind, name), value in zip(parameters, values)]
    arrays = any(stars > 0 and value != "NULL" for (_, stars), _, value in given)
    told = any(word in ("char", "hixl_init_info_t") and value != "NULL" for (word, _), _, value in given)
    many = any(name in ("count", "max", "peers") and "(size_t)-1" in value for _, name, value in given)
    long = any(name in ("size", "config_size", "info_size") and "SIZE" in value for _, name, value in given)
    return not (many and arrays) and not (long and told)


def calls_of(result, name, parameters, draw):
    choices = [["NULL", "&begun"] if name in BEGIN and plain(kind) == ("hixl_ctx_t", 1) else
               values_of(kind, parameter, name not in ENDS) for kind, parameter in parameters]
    calls = [values for values in itertools.product(*choices) if sensible(parameters, values)]
    if len(calls) > CALLS_MAX:
        calls = draw.sample(calls, CALLS_MAX)
    first = plain(parameters[0][0]) if parameters else ("", 0)
    for values in calls:
        # 1: it must be refused; over: it must be when nothing lives any more; 0: any answer that there is.
        lives = bool(values) and f"[{KINDS - 1}]" in values[0]
        refused = "0"
        if first[1] == 0 and first[0] in HANDLES or first == ("hixl_request_t", 1):
            refused = ("0" if first[0] == "hixl_request_t" else "over") if lives else "1"
        call = f"{name}({', '.join(values)})"
        word, stars = plain(result)
        if (word, stars) == ("hixl_status_t", 0):
            yield f'answered({call}, {refused}, "{name}");'
        elif stars == 0 and word in HANDLES:
            yield f'made({call}, {refused}, "{name}");'
        elif word == "int" and refused != "0":
            yield f"CHECK(({call} == -1) == ({refused}));"
        elif word == "char":
            yield f"CHECK({call} != NULL);"
        elif word == "HIXL_Addr_t":
            yield f"CHECK({call}.generation == 0 || !({refused}));"
        else:
            yield f"(void){call};"
        if name in BEGIN:
            yield "end_begun();"


def main():
    symbols, output, *headers = sys.argv[1:]
    listed = {line for line in pathlib.Path(symbols).read_text().split("\n") if line and not line.startswith("#")}
    draw = random.Random(1)
    functions = sorted(declared(headers), key=lambda one: one[1])
    missing = listed ^ {name for _, name, _ in functions}
    if missing:
        raise SystemExit(f"listed, or found in the headers, but not both: {' '.join(sorted(missing))}")
    lines = ["/* Written by every_call.py. */"]
    for result, name, parameters in functions:
        lines.append(f"static void call_{name}(int over) {{")
        lines += ["  char text[64];", "  (void)over;", "  (void)text;"]
        lines += ["  " + line for line in calls_of(result, name, parameters, draw)]
        lines.append("}")
    lines.append("static void call_all(int over, int begin) {")
    for _, name, _ in functions:
        lines.append(f"  {'if (begin) ' if name in BEGIN else ''}call_{name}(over);")
    lines.append("}")
    pathlib.Path(output).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
