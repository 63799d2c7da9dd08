# SPDX-License-Identifier: Apache-2.0
"""The names of the tests that meson.build files build, as far as they come of words: a name is put together of quoted
words and of variables of loops over lists and dicts, which stand there or were named before."""

import re

TOKEN = re.compile(r"'''.*?'''|'(?:\\.|[^'\\])*'|#[^\n]*|\w+|\+=|[^\s\w']", re.DOTALL)
CLOSES = {"(": ")", "[": "]", "{": "}"}


def tokens_of(build):
    return [token for token in TOKEN.findall(build) if not token.startswith("#")]


def end_of(tokens, at):
    """Behind the bracket that closes the one at `at`; of anything else, behind it."""
    if tokens[at] not in CLOSES:
        return at + 1
    depth = 0
    for i in range(at, len(tokens)):
        depth += (tokens[i] in CLOSES) - (tokens[i] in CLOSES.values())
        if depth == 0:
            return i + 1
    return len(tokens)


def pieces_of(tokens):
    """What commas part, brackets kept together."""
    pieces, at = [[]], 0
    while at < len(tokens):
        end = end_of(tokens, at)
        if tokens[at] == ",":
            pieces.append([])
        else:
            pieces[-1] += tokens[at:end]
        at = end
    return [piece for piece in pieces if piece]


def word_of(tokens):
    return tokens[0][1:-1] if len(tokens) == 1 and tokens[0].startswith("'") else None


def rows_of(tokens, known):
    """What a loop over this goes through: of a list (word,), of a dict (word, tokens of the value)."""
    if len(tokens) == 1 and tokens[0] in known:
        return [row for expression in known[tokens[0]] for row in rows_of(expression, {})]
    if tokens[:1] == ["["]:
        return [(word_of(piece), None) for piece in pieces_of(tokens[1:-1])]
    if tokens[:1] == ["{"]:
        return [(word_of(piece[:1]), piece[2:]) for piece in pieces_of(tokens[1:-1]) if piece[1:2] == [":"]]
    return []


def assigned(builds):
    """Every variable of these files: what it was given, and what was added to it."""
    known = {}
    for build in builds:
        tokens = tokens_of(build)
        for at in range(1, len(tokens) - 1):
            if tokens[at] in ("=", "+=") and tokens[at - 1].isidentifier() and tokens[at + 1] in CLOSES:
                known.setdefault(tokens[at - 1], []).append(tokens[at + 1:end_of(tokens, at + 1)])
    return known


def names_in(tokens, known, bound):
    """Goes through one block, up to its endforeach; `bound`: variables of the loops around it. (names, the end)"""
    names, at = set(), 0
    while at < len(tokens) and tokens[at] != "endforeach":
        if tokens[at] == "foreach":
            colon = tokens.index(":", at)
            variables = [token for token in tokens[at + 1:colon] if token != ","]
            begin = end_of(tokens, colon + 1)
            over = tokens[colon + 1:begin]
            rows = rows_of(bound[over[0]], known) if len(over) == 1 and isinstance(bound.get(over[0]), list) else \
                rows_of(over, known)
            _, length = names_in(tokens[begin:], known, bound)
            for row in rows:
                names |= names_in(tokens[begin:], known, {**bound, **dict(zip(variables, row))})[0]
            at = begin + length + 1
        elif tokens[at] == "test" and tokens[at + 1:at + 2] == ["("]:
            call = pieces_of(tokens[at + 2:end_of(tokens, at + 1) - 1])
            parts = [token[1:-1] if token.startswith("'") else bound.get(token) for token in call[0] if token != "+"]
            if all(isinstance(part, str) for part in parts):
                names.add("".join(parts))
            at += 2
        else:
            at += 1
    return names, at


def names_of(build, known):
    """`known`: assigned() of all files."""
    return names_in(tokens_of(build), known, {})[0]
