# SPDX-License-Identifier: Apache-2.0
"""Source files as the rules of tidy.py see them: raw lines, and code with comments and strings blanked out."""

import os
import re
import subprocess
from functools import cached_property

CPP_ENDINGS = (".cpp", ".hpp", ".c", ".h")
OTHER_ENDINGS = (".py", ".sh", ".build")
OTHER_NAMES = ("meson_options.txt", "meson.options")

# Comments, raw strings, strings and characters, in the order in which C++ would see them. A digit separator (1'000)
# is no character literal.
_CPP_TOKEN = re.compile(
    r"""//[^\n]* | /\*.*?\*/ | R"(?P<tag>[^()\s\\]{0,16})\(.*?\)(?P=tag)" | "(?:\\.|[^"\\\n])*" |
        (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'""",
    re.DOTALL | re.VERBOSE)
_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def blank(text):
    """The same length and lines, without the characters."""
    return re.sub(r"[^\n]", " ", text)


class SourceFile:
    def __init__(self, path, text):
        self.path = path
        self.text = text
        self.lines = text.split("\n")
        if self.lines[-1] == "":
            self.lines.pop()

    @cached_property
    def is_cpp(self):
        return self.path.endswith(CPP_ENDINGS)

    @cached_property
    def code_lines(self):
        """C++ lines without comments and literals; other languages as they are."""
        if not self.is_cpp:
            return self.lines
        return _CPP_TOKEN.sub(lambda match: blank(match.group()), self.text).split("\n")

    @cached_property
    def includes(self):
        """(line number, '<' or '"', path) of each include that is not commented out."""
        if not self.is_cpp:
            return []
        found = []
        for number, (line, code) in enumerate(zip(self.lines, self.code_lines), 1):
            match = _INCLUDE.match(line)
            if match and code.lstrip().startswith("#"):
                found.append((number, match.group(1), match.group(2)))
        return found

    @cached_property
    def area(self):
        """'src/links' for a file of that room, else its top folder: 'include', 'tests', 'samples', …"""
        parts = self.path.split("/")
        if parts[0] == "src" and len(parts) > 2:
            return "src/" + parts[1]
        return parts[0] if len(parts) > 1 else ""

    def within(self, *places):
        """True for a file in one of these folders, or one of these files."""
        return any(self.path == place or self.path.startswith(place + "/") for place in places)


def _is_source(root, path):
    name = os.path.basename(path)
    if name.endswith(CPP_ENDINGS + OTHER_ENDINGS) or name in OTHER_NAMES:
        return True
    if "." in name and not name.startswith("."):
        return False
    with open(os.path.join(root, path), "rb") as file:  # scripts without an ending
        return file.read(2) == b"#!"


def _listed_by_git(root):
    try:
        top = subprocess.run(["git", "-C", root, "rev-parse", "--show-toplevel"], capture_output=True, text=True)
        if top.returncode != 0 or os.path.realpath(top.stdout.strip()) != os.path.realpath(root):
            return None
        listing = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard", "-z"],
                                 capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return [path for path in listing.stdout.split("\0") if path]


def _walked(root):
    found = []
    for folder, folders, files in os.walk(root):
        inside = os.path.relpath(folder, root)
        folders[:] = [name for name in folders if name not in (".git", "__pycache__")
                      and not (inside == "." and name.startswith("build")) and inside != "subprojects"]
        found += [os.path.normpath(os.path.join(inside, name)) for name in files]
    return found


def load_tree(root):
    """Every source file below `root` that git tracks or would track; without git, every one outside build folders."""
    paths = _listed_by_git(root)
    if paths is None:
        paths = _walked(root)
    files = []
    for path in sorted(set(paths)):
        whole = os.path.join(root, path)
        if os.path.isfile(whole) and not os.path.islink(whole) and _is_source(root, path):
            with open(whole, encoding="utf-8", errors="replace") as file:
                files.append(SourceFile(path, file.read()))
    return files
