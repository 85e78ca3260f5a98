"""For the API page: the lines of a docstring that describe parameters, `name: what it is`, become a list."""

from __future__ import annotations

import re
from typing import Any

import griffe


class ParameterLists(griffe.Extension):
    def on_function_instance(self, *, func: griffe.Function, **_: Any) -> None:
        if not func.docstring:
            return
        names = {parameter.name for parameter in func.parameters}
        out: list[str] = []
        for line in func.docstring.value.splitlines():
            described = re.match(r"([\w, ]+): (.*)", line)
            if described and set(re.split(r",\s*", described[1])) <= names:
                if out and out[-1] and not out[-1].startswith("- "):
                    out.append("")  # Markdown wants one before a list
                line = f"- **{described[1]}**: {described[2]}"
            out.append(line)
        func.docstring.value = "\n".join(out)
