"""Turns a Python program into C++ that Sandtide's C SDK serves.

    python sandtide_glue.py SOURCE DIRECTORY

writes `program.hpp` (Pythran's C++) and `glue.cpp` (a main function) to DIRECTORY, and prints the
directory of Pythran's headers. `sandtide build` calls it and compiles the result;
docs/python-pythran.md says what SOURCE may look like.
"""

import ast
import logging
import os
import re
import sys

HANDLER = "on_client_request"
EVENTS = {
    "on_save": (
        0, "def on_save():", "sandtide_pythran::on_save([] { return program::on_save()(); });"),
    "on_restore": (
        1, "def on_restore(state):",
        "sandtide_pythran::on_restore([](const sandtide_pythran::str &state) "
        "{ program::on_restore()(state); });"),
}
PARAMETERS = (
    "method", "target", "path", "query", "authority", "headers", "body", "id", "time", "random",
)

GLUE = """\
#include "program.hpp"

#include "sandtide_pythran.hpp"

int main()
{{
    namespace program = __pythran_program;
    {events}
    return sandtide_pythran::serve(
        [] {{ {boot} }},
        [](const sandtide_pythran::Request &request) {{
            (void)request;
            return program::{handler}()({arguments});
        }});
}}
"""


class Refused(Exception):
    """The source is not a program that can be served."""

    def __init__(self, line, what, hint):
        super().__init__(what)
        self.line, self.hint = line, hint


def function(tree, name):
    """The top-level function `name`, or None."""
    found = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name]
    return found[-1] if found else None


def parameters(node):
    """The names of a function's parameters, if it has plain ones only."""
    args = node.args
    if args.vararg or args.kwarg or args.kwonlyargs or args.posonlyargs or args.defaults:
        raise Refused(
            node.lineno,
            f"`{node.name}` has parameters with defaults or stars",
            "list the parameters by name: " + ", ".join(PARAMETERS),
        )
    return [arg.arg for arg in args.args]


def check(tree):
    """The names of the handler's parameters, whether there is an `on_init`, and which events."""
    handler, init = function(tree, HANDLER), function(tree, "on_init")
    if handler is None:
        raise Refused(1, f"there is no function `{HANDLER}`",
                      f"define `def {HANDLER}():`; see docs/python-pythran.md")
    names = parameters(handler)
    for name in names:
        if name not in PARAMETERS:
            raise Refused(handler.lineno, f"`{HANDLER}` has an unknown parameter `{name}`",
                          "the parameters can be: " + ", ".join(PARAMETERS))
    if init is not None and parameters(init):
        raise Refused(init.lineno, "`on_init` has parameters", "define `def on_init():`")
    events = []
    for name, (count, form, _) in EVENTS.items():
        node = function(tree, name)
        if node is None:
            continue
        if len(parameters(node)) != count:
            raise Refused(node.lineno, f"`{name}` has other parameters than it is called with",
                          f"define `{form}`; see docs/python-pythran.md")
        events.append(name)
    return names, init is not None, events


def translate(source, directory):
    """Writes Pythran's C++ for `source`."""
    try:
        from pythran.errors import PythranSyntaxError
        from pythran.toolchain import compile_pythranfile
    except ImportError as error:
        raise Refused(None, f"Pythran cannot be imported: {error}",
                      f"{sys.executable} -m pip install 'pythran==0.19.*'") from error
    # Nothing is exported to CPython, on purpose; Pythran would warn.
    logging.getLogger("pythran").setLevel(logging.ERROR)
    try:
        compile_pythranfile(source, os.path.join(directory, "program.hpp"),
                            module_name="program", cpponly=True)
    except (PythranSyntaxError, SyntaxError) as error:
        raise Refused(None, f"Pythran cannot compile it:\n{error}",
                      "Pythran compiles a part of Python: "
                      "https://pythran.readthedocs.io/en/latest/SUPPORT.html") from error


def glue(names, has_init, events, translated):
    """The main function."""
    # Pythran computes a module's values when they are first used: here, before any request.
    values = re.findall(r"static typename (\w+)::type::result_type tmp_global\b", translated)
    boot = [f"program::{name}()();" for name in values]
    if has_init:
        boot.append("program::on_init()();")
    return GLUE.format(handler=HANDLER, boot=" ".join(boot),
                       events="\n    ".join(EVENTS[name][2] for name in events),
                       arguments=", ".join(f"request.{name}()" for name in names))


def main(source, directory):
    """Writes both files; prints the directory of Pythran's headers."""
    try:
        with open(source, encoding="utf-8") as file:
            tree = ast.parse(file.read(), source)
        names, has_init, events = check(tree)
        translate(source, directory)
    except SyntaxError as error:
        sys.exit(f"{source}:{error.lineno}: {error.msg}")
    except Refused as error:
        place = f"{source}:{error.line}" if error.line else source
        sys.exit(f"{place}: {error}\nhint: {error.hint}")
    with open(os.path.join(directory, "program.hpp"), encoding="utf-8") as file:
        translated = file.read()
    with open(os.path.join(directory, "glue.cpp"), "w", encoding="utf-8") as file:
        file.write(glue(names, has_init, events, translated))
    import pythran
    print(os.path.dirname(os.path.abspath(pythran.__file__)))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
