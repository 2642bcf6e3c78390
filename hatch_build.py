"""Build hook: a wheel carries rules/ and cli.py inside the package, an editable install leaves them where they are.

Without it (`force-include` in pyproject.toml) an editable install would get copies that shadow the checkout.
"""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class InsidePackage(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "standard":
            build_data["force_include"].update({"rules": "graph2torch/rules", "cli.py": "graph2torch/cli.py"})
