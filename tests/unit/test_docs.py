"""What the documents say is true where a machine can tell: links, snippets, examples, numbers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from sluice.log_store.delta_log import decode_commit

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PROTOCOL = ROOT / "docs" / "protocol.md"
NUMBERS = [*(f"I-{n}" for n in range(1, 13)), *(f"R-{n}" for n in range(1, 15))]


def _blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", document.read_text(), flags=re.DOTALL | re.MULTILINE)


def _anchors(document: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", document.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_lead_somewhere(document: Path):
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (document.parent / path).resolve() if path else document
        assert linked.exists(), f"{target} in {document.name}"
        if anchor:
            assert anchor in _anchors(linked), f"{target} in {document.name}"


def test_the_snippets_of_the_readme_run(tmp_path: Path):
    snippets = _blocks(ROOT / "README.md", "python")
    assert snippets
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(snippets)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for claimed in re.findall(r"print\(.*\)  # (.*)$", "\n".join(snippets), flags=re.MULTILINE):
        assert claimed in done.stdout.splitlines()


def test_commands_of_the_readme_are_targets_of_make():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+)", (ROOT / "README.md").read_text()))
    assert named <= targets


def test_the_commit_in_the_protocol_is_a_real_one():
    (text,) = _blocks(PROTOCOL, "json commit")
    commit = decode_commit(9, text.encode())
    assert commit.ours
    assert commit.details["kind"] == "claim"


@pytest.mark.parametrize("number", NUMBERS)
def test_every_number_is_defined_once_and_has_its_row(number: str):
    text = PROTOCOL.read_text()
    assert len(re.findall(rf"^- \*\*{number}[ *]", text, flags=re.MULTILINE)) == 1
    (row,) = re.findall(rf"^\| {number} \| (.*) \|$", text, flags=re.MULTILINE)
    spelled = re.compile(rf"{number}(?!\d)|_{number.lower().replace('-', '')}(?!\d)")
    for path in re.findall(r"\]\(\.\./(.*?)\)", row):
        assert spelled.search((ROOT / path).read_text()), f"{path} does not cite {number}"


def test_the_index_lists_every_decision():
    folder = ROOT / "docs" / "adr"
    listed = re.findall(r"\]\((\d{4}-.*?\.md)\)", (folder / "README.md").read_text())
    assert listed == sorted(path.name for path in folder.glob("[0-9]*.md"))
    for number, name in enumerate(listed, start=1):
        assert name.startswith(f"{number:04d}-")
        headings = re.findall(r"^## (.*)$", (folder / name).read_text(), flags=re.MULTILINE)
        assert (headings[0], headings[1], headings[-1]) == ("Context", "Decision", "Consequences")
