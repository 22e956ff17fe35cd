"""Patching a checkout: what is said, that nothing else changes, and that it goes back to the last byte."""

from __future__ import annotations

import json
import re
import stat
import tempfile

import pytest

from paradyse_megatron.cli.main import main
from paradyse_megatron.compat.version import OLDEST, TOO_NEW
from paradyse_megatron.integration.patches.series import PATCHES, load_series
from tests.integration.trees import VERSIONS, commit, make_tree, run
from tests.ranks import REPOSITORY

TARGET = "pretrain_gpt.py"


def states(capsys, action, tree, status=0):
    """What `paradyse patch ACTION --json` says: state and detail by patch."""
    assert main(["patch", action, "--megatron", str(tree), "--json"]) == status
    return {one["id"]: (one["state"], one["detail"]) for one in json.loads(capsys.readouterr().out)["patches"]}


def refusal(capsys, action, tree):
    assert main(["patch", action, "--megatron", str(tree)]) == 2
    said = capsys.readouterr()
    assert not said.out and said.err.count("\n") == 1
    return said.err


def only(found):
    """The one state that all patches have."""
    assert found
    (state,) = {state for state, _ in found.values()}
    return state


@pytest.mark.parametrize("version", VERSIONS)
def test_a_checkout_is_patched_once_and_comes_back_to_the_last_byte(tmp_path, capsys, version):
    tree = make_tree(tmp_path / "tree", version)
    stock = (tree / TARGET).read_bytes()
    assert only(states(capsys, "check", tree)) == "applicable"
    assert (tree / TARGET).read_bytes() == stock, "check has changed the file"
    assert only(states(capsys, "apply", tree)) == "applied"
    patched = (tree / TARGET).read_bytes()
    assert b"with_dynamic_parallel(pretrain)" in patched
    assert len(patched.splitlines()) <= len(stock.splitlines()) + 4
    assert only(states(capsys, "apply", tree)) == only(states(capsys, "check", tree)) == "applied"
    assert (tree / TARGET).read_bytes() == patched, "applied twice"
    assert only(states(capsys, "revert", tree)) == only(states(capsys, "revert", tree)) == "applicable"
    assert (tree / TARGET).read_bytes() == stock
    assert not run(tree, "status", "--porcelain", "--ignored")
    assert stat.S_IMODE((tree / TARGET).stat().st_mode) == 0o755


def test_a_checkout_inside_another_repository_is_patched_too(tmp_path, capsys):
    tree = make_tree(tmp_path / "mine" / "vendor" / "megatron-lm", repository=tmp_path / "mine")
    assert only(states(capsys, "apply", tree)) == "applied"
    changed = run(tmp_path / "mine", "diff", "--name-only").split()
    assert f"vendor/megatron-lm/{TARGET}" in changed and all(name.endswith(".py") for name in changed)
    assert only(states(capsys, "revert", tree)) == "applicable"
    assert not run(tmp_path / "mine", "status", "--porcelain")


@pytest.mark.parametrize("name", [TARGET, "README.md"])
@pytest.mark.parametrize("staged", [False, True])
def test_changes_of_the_users_are_named_and_left_alone(tmp_path, capsys, name, staged):
    tree = make_tree(tmp_path / "tree")
    for action in ("apply", "revert"):
        (tree / name).write_bytes((tree / name).read_bytes() + b"\nmine\n")
        if staged:
            run(tree, "add", "--all")
        before = {file: (tree / file).read_bytes() for file in (TARGET, "README.md")}
        said = refusal(capsys, action, tree)
        assert name in said and "git stash" in said
        assert {file: (tree / file).read_bytes() for file in before} == before
        assert only(states(capsys, "check", tree, status=1)) in ("applicable", "applied")
        run(tree, "reset", "--quiet", "--hard")
        main(["patch", "apply", "--megatron", str(tree)])
        capsys.readouterr()


def test_untracked_files_are_no_changes(tmp_path, capsys):
    tree = make_tree(tmp_path / "tree")
    (tree / "notes.txt").write_text("mine")
    assert only(states(capsys, "apply", tree)) == "applied"


def test_a_conflict_names_the_hunk_and_nothing_is_changed(tmp_path, capsys):
    tree = make_tree(tmp_path / "tree", "0.17.1")
    text = (tree / TARGET).read_bytes()
    (tree / TARGET).write_bytes(text.replace(b"if has_nvidia_modelopt else None", b"if False else None"))
    commit(tree)
    before = (tree / TARGET).read_bytes()
    for action in ("check", "apply"):
        found = states(capsys, action, tree, status=1)
        state, detail = found["gpt-flags-0.17"]
        assert state == "conflict" and "hunk 2 of 2" in detail and TARGET in detail and "args_defaults=" in detail
        assert found["gpt-hook"] == ("applicable", "")
    assert (tree / TARGET).read_bytes() == before


def test_a_missing_script_is_a_conflict(tmp_path, capsys):
    tree = make_tree(tmp_path / "tree")
    (tree / TARGET).unlink()
    commit(tree)
    found = states(capsys, "apply", tree, status=1)
    for name in ("gpt-flags", "gpt-hook"):
        assert found[name][0] == "conflict" and TARGET in found[name][1]


def test_what_is_missing_of_a_half_patched_checkout_is_added(tmp_path, capsys):
    tree = make_tree(tmp_path / "tree")
    patch = next(patch for patch in load_series() if patch.id == "gpt-hook")
    run(tree, "apply", str(patch.file))
    assert {state for state, _ in states(capsys, "check", tree).values()} == {"applied", "applicable"}
    assert only(states(capsys, "apply", tree)) == "applied"
    assert only(states(capsys, "revert", tree)) == "applicable"
    assert not run(tree, "status", "--porcelain")


def test_committed_patches_are_recognised_and_can_be_taken_out(tmp_path, capsys):
    tree = make_tree(tmp_path / "tree")
    stock = (tree / TARGET).read_bytes()
    states(capsys, "apply", tree)
    commit(tree)
    assert only(states(capsys, "check", tree)) == "applied"
    assert main(["patch", "revert", "--megatron", str(tree)]) == 0
    assert (tree / TARGET).read_bytes() == stock


def test_the_users_git_settings_change_nothing(tmp_path, capsys, monkeypatch):
    tree = make_tree(tmp_path / "tree")
    (tree / TARGET).write_bytes((tree / TARGET).read_bytes().replace(b"pretrain, store =", b"pretrain,  store ="))
    commit(tree)
    (tmp_path / ".gitconfig").write_text("[apply]\n\tignorewhitespace = change\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert states(capsys, "check", tree, status=1)["gpt-hook"][0] == "conflict"


def test_variables_that_name_another_repository_change_nothing(tmp_path, capsys, monkeypatch):
    tree, other = make_tree(tmp_path / "tree"), make_tree(tmp_path / "other", "0.17.1")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert only(states(capsys, "apply", tree)) == "applied"


def test_without_a_repository_one_may_look_but_not_change(tmp_path, capsys):
    tree = make_tree(tmp_path / "tree")
    (tree / ".git").rename(tmp_path / "away")
    assert only(states(capsys, "check", tree, status=1)) == "applicable"
    assert "git init" in refusal(capsys, "apply", tree)


@pytest.mark.parametrize(("version", "part"), [("0.16.1", "0.16.1"), ("0.21.0", "0.21.0")])
def test_an_unsupported_version_is_refused_by_name(tmp_path, capsys, version, part):
    said = refusal(capsys, "apply", make_tree(tmp_path / "tree", version))
    assert part in said and "0.17 up to 0.20" in said


def test_a_folder_that_is_no_checkout_is_refused(tmp_path, capsys):
    assert "not a Megatron-LM checkout" in refusal(capsys, "check", tmp_path)
    assert "--megatron PATH" in (main(["patch", "apply"]) == 2 and capsys.readouterr().err)


def test_list_names_reason_and_end_of_each_patch(capsys):
    assert main(["patch", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert len(listed) >= 3
    assert all(one["reason"] and one["drop_when"] and one["bases"] for one in listed)


def test_the_series_is_complete_and_its_patches_are_small():
    series = load_series()
    assert {patch.file.name for patch in series} == {file.name for file in PATCHES.glob("*.patch")}
    for patch in series:
        assert len(re.findall(r"^\+\+\+ ", patch.text, re.MULTILINE)) == 1, "one file a patch"
        assert sum(line.startswith("+") for hunk in patch.hunks for line in hunk.splitlines()) <= 4
        assert all(re.fullmatch("[0-9a-f]{40}", base.commit) for base in patch.bases)
    for minor in range(OLDEST[1], TOO_NEW[1]):
        needed = [patch.id for patch in series if patch.target == TARGET and patch.is_for(f"0.{minor}.0")]
        assert len(needed) == 2, f"0.{minor} needs flags and hook, and has {needed}"


def test_only_the_command_changes_a_checkout():
    package = REPOSITORY / "paradyse_megatron"
    users = [file for file in package.rglob("*.py") if "patches.change" in file.read_text()]
    assert [file.relative_to(package).as_posix() for file in users] == ["cli/patch.py"]


def test_the_copy_may_lie_in_a_repository_too(tmp_path, capsys, monkeypatch):
    tree, other = make_tree(tmp_path / "tree"), make_tree(tmp_path / "other")
    monkeypatch.setattr(tempfile, "tempdir", str(other / "megatron"))
    assert only(states(capsys, "check", tree)) == "applicable"
    assert only(states(capsys, "apply", tree)) == "applied"
    assert b"with_dynamic_parallel" in (tree / TARGET).read_bytes()
