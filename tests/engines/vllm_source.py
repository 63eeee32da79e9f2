# SPDX-License-Identifier: Apache-2.0
"""
vllm_source.py - vLLM as source text: classes and functions taken out by ast, as they are
asked for, and run with stand-ins; nothing of vLLM is imported

A Release is a folder with the .py files of a wheel.  A name of a module is resolved when
code uses it: its definition is compiled alone, a name that vLLM imports from itself is
looked for where it is defined, and a stand-in of STANDINS goes before both.  What is not
of vLLM, nor of Python, is Anything.
"""
import ast
import builtins
import functools
import importlib
import os
import sys

KEPT = ("classmethod", "staticmethod", "property", "dataclass", "dataclass(frozen=True)",
        "dataclass(frozen=True, kw_only=True)")
PYTHON = set(sys.stdlib_module_names) - {"this", "antigravity"}


class Anything:
    """A module, a function or a value that no rule looks into."""

    def __init__(self, name="anything"):
        self._name = name

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Anything(f"{self._name}.{name}")

    def __call__(self, *args, **kwargs):
        return Anything(f"{self._name}()")

    def __getitem__(self, key):
        return Anything(f"{self._name}[]")

    def __iter__(self):
        return iter(())

    def __mro_entries__(self, bases):
        return ()

    def __bool__(self):
        raise TypeError(f"a rule depends on {self._name}, which has no stand-in")

    def __eq__(self, other):
        return isinstance(other, Anything) and other._name == self._name

    def __hash__(self):
        return hash(self._name)

    def __repr__(self):
        return self._name


def statements(body):
    """Those of a module, and those of its ifs and trys."""
    for node in body:
        yield node
        for part in ("body", "orelse", "handlers", "finalbody"):
            if isinstance(node, (ast.If, ast.Try, ast.With)):
                yield from statements(getattr(node, part, []))
        if isinstance(node, ast.ExceptHandler):
            yield from statements(node.body)


def names_of(node):
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)]
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        return [node.target.id] if isinstance(node.target, ast.Name) else []
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [(a.asname or a.name).split(".")[0] for a in node.names]
    return []


class Names(dict):
    """The builtins of a module's code: what is no global yet is looked for and becomes one."""

    def __init__(self, module):
        super().__init__(vars(builtins), __import__=module.release.import_)
        self.module = module

    def __missing__(self, name):
        value = self.module.find(name)
        self.module.space[name] = value
        return value


@functools.cache
def definitions(path):
    """Name: its definitions in a file, in their order."""
    with open(path, encoding="utf-8") as f:
        tree = ast.parse(f.read())
    out = {}
    for node in statements(tree.body):
        for n in names_of(node):
            out.setdefault(n, []).append(node)
    return out


class Module:
    def __init__(self, release, name, path):
        self.release, self.name, self.path = release, name, path
        self.nodes = definitions(path)
        self.space = {"__builtins__": Names(self), "__name__": "typing"}

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        if name not in self.space:
            self.space[name] = self.find(name)
        return self.space[name]

    def arguments(self, name):
        """Of a function, which need not be one that can run here."""
        return [a.arg for a in self.nodes[name][-1].args.args]

    def find(self, name):
        standin = self.release.standin(self.name, name)
        if standin is not None:
            return standin
        if not self.nodes.get(name):
            return self.release.attribute(self.name, name)
        # the last definition counts; one that names itself means the one before
        node = self.nodes[name].pop()
        try:
            return self.define(node, name)
        finally:
            self.nodes[name].append(node)

    def define(self, node, name):
        if isinstance(node, ast.Import):
            alias = next(a for a in node.names
                         if (a.asname or a.name).split(".")[0] == name)
            return self.release.module(alias.name if alias.asname else
                                       alias.name.split(".")[0])
        if isinstance(node, ast.ImportFrom):
            alias = next(a for a in node.names if (a.asname or a.name) == name)
            base = self.absolute(node)
            return self.release.attribute(base, alias.name)
        return self.run(node, name)

    def absolute(self, node):
        if not node.level:
            return node.module
        parts = self.name.split(".")
        if not self.path.endswith("__init__.py"):
            parts = parts[:-1]
        parts = parts[:len(parts) - node.level + 1]
        return ".".join(parts + ([node.module] if node.module else []))

    def run(self, node, name):
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = []
        elif isinstance(node, ast.ClassDef):
            strip(node)
        code = compile(ast.Module([node], []), self.path, "exec", dont_inherit=True,
                       flags=annotations_flag)
        exec(code, self.space)
        return self.space[name]


annotations_flag = importlib.import_module("__future__").annotations.compiler_flag


def strip(node):
    """A class without what is not the language's own."""
    node.keywords = []
    for n in ast.walk(node):
        if isinstance(n, (ast.FunctionDef, ast.ClassDef)):
            n.decorator_list = [ast.Name("property", ast.Load()) if
                                ast.unparse(d) == "cached_property" else d
                                for d in n.decorator_list
                                if ast.unparse(d) in KEPT + ("cached_property",)]
    ast.fix_missing_locations(node)
    return node


class Release:
    """
    The vLLM below a folder, with stand-ins: {name: value}, and {(module, beginning of
    names): value}.
    """

    def __init__(self, root, standins):
        self.root, self.standins, self.modules = root, standins, {}

    def path(self, name):
        base = os.path.join(self.root, *name.split("."))
        for path in (base + ".py", os.path.join(base, "__init__.py")):
            if os.path.exists(path):
                return path
        return None

    def standin(self, module, name):
        if name in self.standins:
            return self.standins[name]
        return next((v for k, v in self.standins.items() if isinstance(k, tuple) and
                     k[0] == module and name.startswith(k[1])), None)

    def module(self, name):
        if name in self.modules:
            return self.modules[name]
        if name.split(".")[0] == "vllm":
            path = self.path(name)
            out = Module(self, name, path) if path else Anything(name)
        elif name in self.standins:
            out = self.standins[name]
        elif name.split(".")[0] in PYTHON:
            out = importlib.import_module(name)
        else:
            out = Anything(name)
        self.modules[name] = out
        return out

    def attribute(self, module, name):
        standin = self.standin(module, name)
        if standin is not None:
            return standin
        # a name of a package may be a module of it
        below = f"{module}.{name}"
        holder = self.module(module)
        if module.split(".")[0] == "vllm":
            if isinstance(holder, Module) and name in holder.nodes:
                return getattr(holder, name)
            if self.path(below):
                return self.module(below)
            return Anything(below)
        return getattr(holder, name)

    def import_(self, name, globals_=None, locals_=None, fromlist=(), level=0):
        if level:
            raise ImportError("a relative import in a function")
        if not fromlist:
            return self.module(name.split(".")[0])
        return Imported(self, name)

    def where(self, cls):
        """FILE:LINE of a class; None if a function made it."""
        for module in self.modules.values():
            if isinstance(module, Module) and module.space.get(cls.__name__) is cls:
                node = module.nodes[cls.__name__][-1]
                if isinstance(node, ast.ClassDef):
                    return f"{os.path.relpath(module.path, self.root)}:{node.lineno}"
        return None

    def get(self, path):
        """What a dotted path names."""
        module, name = path.rsplit(".", 1)
        return self.attribute(module, name)


class Imported:
    """What "from X import Y" inside a function looks into."""

    def __init__(self, release, name):
        self._release, self._of = release, name

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return self._release.attribute(self._of, name)
