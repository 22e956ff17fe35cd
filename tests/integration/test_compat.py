"""Version differences that can be seen with one Megatron; the rest needs checkouts (training/test_versions.py)."""

from __future__ import annotations

import functools
import re
import sys

import pytest

from paradyse_megatron import cpu
from paradyse_megatron.compat import version
from tests.ranks import REPOSITORY


@pytest.mark.parametrize(
    ("text", "is_good"),
    [
        ("0.16.1", False),
        ("0.17.0", True),
        ("0.19.2", True),
        ("0.20.0+1a", True),
        ("0.21.0rc1", False),
        ("1.0", False),
    ],
)
def test_supported_versions(text, is_good):
    assert version.is_supported(text) is is_good
    if not is_good:
        with pytest.raises(ValueError, match=re.escape(f"megatron-core {text} was found, but")):
            version.refuse_unsupported(text, "was found")


def test_the_installed_version_is_supported(monkeypatch):
    from megatron.core import package_info

    version.check_version()
    monkeypatch.setattr(package_info, "__version__", "0.16.1")
    with pytest.raises(ValueError, match=r"0\.16\.1"):
        version.check_version()


def test_the_version_of_a_checkout_is_read_and_not_imported(tmp_path):
    info = tmp_path / "megatron" / "core" / "package_info.py"
    info.parent.mkdir(parents=True)
    info.write_text("raise SystemExit\nMAJOR = 0\nMINOR = 18\nPATCH = 2\n")
    assert version.version_of_checkout(tmp_path) == "0.18.2"
    info.write_text("__version__ = '0.18.2'\n")
    with pytest.raises(ValueError, match="does not say MAJOR"):
        version.version_of_checkout(tmp_path)


@pytest.fixture
def mlp_classes():
    cpu.enable()
    from megatron.core.transformer.mlp import MLP

    class Ours(MLP):
        pass

    yield MLP, Ours
    cpu.disable()


def test_our_mlp_goes_where_the_stock_one_was(mlp_classes):
    from megatron.core.transformer.spec_utils import ModuleSpec

    from paradyse_megatron.compat.layers import with_mlp_class

    stock, ours = mlp_classes
    old = ModuleSpec(module=stock, submodules="parts")
    assert (with_mlp_class(old, ours).module, with_mlp_class(old, ours).submodules) == (ours, "parts")
    assert old.module is stock
    new = functools.partial(stock.as_mlp_submodule, submodules="parts")
    changed = with_mlp_class(new, ours)
    assert changed.func == ours.as_mlp_submodule and changed.keywords == {"submodules": "parts"}


def test_experts_stay_megatrons(mlp_classes):
    from megatron.core.transformer.spec_utils import ModuleSpec

    from paradyse_megatron.compat.layers import with_mlp_class

    experts = ModuleSpec(module=object)
    assert with_mlp_class(experts, mlp_classes[1]) is experts
    assert with_mlp_class(functools.partial(print), mlp_classes[1]).func is print


def test_version_numbers_are_compared_in_compat_alone():
    package = REPOSITORY / "paradyse_megatron"
    asking = re.compile(r"package_info|is_mcore_min_version|metadata\.version\(\s*[\"']megatron")
    users = {file.relative_to(package).parts[0] for file in package.rglob("*.py") if asking.search(file.read_text())}
    assert users <= {"compat", "integration"}, users


def test_the_script_is_untouched_without_the_flag(monkeypatch):
    from paradyse_megatron.integration import hook

    def pretrain() -> None: ...

    monkeypatch.setattr(sys, "argv", ["pretrain_gpt.py", "--paradyse-plan", "ring"])
    assert hook.with_dynamic_parallel(pretrain) is pretrain
    monkeypatch.setattr(sys, "argv", ["pretrain_gpt.py", "--dynamic-parallel"])
    assert hook.with_dynamic_parallel(pretrain) is not pretrain


def test_flags_are_added_to_those_of_the_script():
    import argparse

    from paradyse_megatron.integration import hook

    def theirs(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
        parser.add_argument("--theirs", action="store_true")
        return parser

    parsed = hook.with_flags(theirs)(argparse.ArgumentParser()).parse_args(["--theirs", "--dynamic-parallel"])
    assert parsed.theirs and parsed.dynamic_parallel
    assert hook.with_flags(None)(argparse.ArgumentParser()).parse_args([]).dynamic_parallel is False
