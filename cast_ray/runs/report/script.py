"""The page's modules as one script, for HTML files that load nothing."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path

import serve

WEB = Path(serve.__file__).parent / "web"
_IMPORT = re.compile(r'^import \{(.+)\} from "\./(.+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?(?:function|class|const) (\w+))", re.MULTILINE)


@cache
def page_script(entry: str = "report.js") -> str:
    """Return a module and all that it imports, each in a scope of its own, in one script."""
    modules: dict[str, str] = {}
    _add(entry, modules)
    return "\n".join(["const modules = {};", *modules.values()])


def script_hash(script: str) -> str:
    """Return what a content security policy calls a script that may run."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def _add(name: str, modules: dict[str, str]) -> None:
    """Add a module behind those that it imports."""
    text = (WEB / name).read_text(encoding="utf-8")
    for _, imported in _IMPORT.findall(text):
        if imported not in modules:
            _add(imported, modules)
    names = ", ".join(exported for _, exported in _EXPORT.findall(text))
    body = _EXPORT.sub(r"\1", _IMPORT.sub(r'const {\1} = modules["\2"];', text))
    modules[name] = f'modules["{name}"] = (() => {{\n{body}\nreturn {{ {names} }};\n}})();'
