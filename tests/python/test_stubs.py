# SPDX-License-Identifier: Apache-2.0
"""The type stubs name exactly what the extension has, and the parameters that it takes."""

import ast
import os
import unittest

import hixl
from hixl import _core

STUBS = os.path.join(os.path.dirname(_core.__file__), "_core.pyi")


def stub_classes():
    with open(STUBS, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return classes, functions


class Stubs(unittest.TestCase):
    def names(self, classes, name):
        found = {node.name: node for node in classes[name].body if isinstance(node, ast.FunctionDef)}
        for base in classes[name].bases:
            if isinstance(base, ast.Name) and base.id in classes:
                found = {**self.names(classes, base.id), **found}
        return found

    def test_every_name_is_there(self):
        classes, functions = stub_classes()
        public = {name for name in dir(_core) if not name.startswith("__")}
        self.assertEqual(public, {name for name in classes if not name.startswith("_")} | functions)
        for name in public - functions - {"Completion"}:
            kind = getattr(_core, name)
            own = {one for one in vars(kind) if not one.startswith("_")}
            self.assertEqual(own, {one for one in self.names(classes, name) if not one.startswith("_")}, name)
        self.assertEqual({"error", "user_data", "bytes", "value", "written"},
                         set(self.names(classes, "Completion")))

    def test_every_coroutine_is_there(self):
        from hixl import aio
        with open(STUBS.replace("_core.pyi", "aio.pyi"), encoding="utf-8") as file:
            stub, = (node for node in ast.parse(file.read()).body
                     if isinstance(node, ast.ClassDef) and node.name == "Runtime")
        self.assertEqual({node.name for node in stub.body}, {name for name in vars(aio.Runtime) if name[0] != "_"})

    def test_parameters_are_taken_by_their_names(self):
        """A wrong value for each parameter is told as such, and not as a parameter that there is not."""
        classes, _ = stub_classes()
        with hixl.Runtime() as rank:
            for name, node in self.names(classes, "Runtime").items():
                if any(isinstance(one, ast.Name) and one.id == "property" for one in node.decorator_list):
                    continue
                parameters = [one.arg for one in node.args.args[1:] + node.args.kwonlyargs]
                if not parameters:
                    continue
                with self.assertRaises((TypeError, ValueError), msg=name) as caught:
                    getattr(rank, name)(**{one: object() for one in parameters})
                self.assertNotIn("has no argument", str(caught.exception))
                with self.assertRaisesRegex(TypeError, "has no argument 'no_such'"):
                    getattr(rank, name)(no_such=1)


if __name__ == "__main__":
    unittest.main()
