"""What the documents say is true where a machine can tell: links, commands, snippets, lists, numbers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

import sluice.api.consumers_v2_models
import sluice.api.errors
import sluice.api.http_protocol
import sluice.ingest.hooks
import sluice.jobs.leases
import sluice.log_store.errors
import sluice.streaming.http_errors
from sluice.log_store.delta_log import decode_commit
from sluice.log_store.errors import SluiceError
from tests.support.documents import DOCUMENTS, ROOT, anchors, blocks, check_command, column, commands

DOCS = ROOT / "docs"
PROTOCOL = DOCS / "protocol.md"
NUMBERS = [*(f"I-{n}" for n in range(1, 13)), *(f"R-{n}" for n in range(1, 15))]
SHELL = ("", "sh", "sh tour", "bash")
"""Fences that may hold commands; those without a language often do."""
ERROR_MODULES = (
    sluice.api.consumers_v2_models,
    sluice.api.errors,
    sluice.api.http_protocol,
    sluice.ingest.hooks,
    sluice.jobs.leases,
    sluice.log_store.errors,
    sluice.streaming.http_errors,
)
every_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


@every_document
def test_relative_links_lead_somewhere(document: Path):
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (document.parent / path).resolve() if path else document
        assert linked.exists(), f"{target} in {document.name}"
        if anchor:
            assert anchor in anchors(linked), f"{target} in {document.name}"


# --- commands and snippets -----------------------------------------------------------------------


@every_document
def test_commands_in_blocks_exist_with_their_options(document: Path):
    for block in blocks(document):
        if block.language in SHELL:
            for words in commands(block.text):
                check_command(words)


@every_document
def test_commands_in_sentences_exist_with_their_options(document: Path):
    """A sentence may leave arguments out, so what follows an option is not looked at."""
    for span in re.findall(r"`sluice ([a-z][^`|]+)`", document.read_text()):
        words = span.split()
        if words[0] not in ("listening", "jobs", "backup", "restore"):
            spoken = [word.strip(",") for word in words if "…" not in word]
            check_command([*spoken, "its value"] if spoken[-1].startswith("-") else spoken)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("sluice topics make orders", "no command sluice topics make"),
        ("sluice produce orders --keyed", "no option --keyed"),
        ("cat x | sluice consume orders -o", "needs a value"),
        ("sluice jobs run retention --dry", "no option --dry"),
    ],
)
def test_a_wrong_command_would_be_noticed(wrong: str, why: str):
    (words,) = commands(wrong)
    with pytest.raises(AssertionError, match=why):
        check_command(words)


@every_document
def test_json_and_toml_blocks_can_be_read(document: Path):
    for block in blocks(document):
        text = block.text.replace("…", "")
        if block.language == "json":
            json.loads(text)
        elif block.language == "toml":
            tomllib.loads(text)
        elif block.language == "python":
            compile(re.sub(r"^ {3}(?=\S| )", "", text, flags=re.MULTILINE), document.name, "exec")


def test_the_snippets_of_the_library_run(tmp_path: Path):
    snippets = "\n".join(block.text for block in blocks(DOCS / "library.md", "python"))
    assert snippets
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", snippets],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for claimed in re.findall(r"print\(.*\)  # (.*)$", snippets, flags=re.MULTILINE):
        assert claimed in done.stdout.splitlines()


@every_document
def test_targets_of_make_exist(document: Path):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)", document.read_text()))
    for block in blocks(document, ""):
        named |= set(re.findall(r"^make ([a-z-]+)", block.text, flags=re.MULTILINE))
    assert named <= targets


def test_make_bench_measures_growth_at_its_full_size():
    """As CONTRIBUTING.md says: a shorter run would not show what months do."""
    recipe = re.search(r"^bench:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert recipe is not None
    assert "-m bench --full\n" in recipe[1]


@every_document
def test_files_that_are_named_exist(document: Path):
    for name in re.findall(r"\b(?:examples|tests|conf|bench)/[\w/.-]+\.(?:py|toml|json|yml)\b", document.read_text()):
        if "…" not in name and "<" not in name:
            assert (ROOT / name).exists(), f"{name} in {document.name}"


# --- lists ---------------------------------------------------------------------------------------


def _error_names() -> Iterator[str]:
    """Of every error class, whoever defines it."""
    waiting: list[type[SluiceError]] = [SluiceError]
    while waiting:
        found = waiting.pop()
        waiting += found.__subclasses__()
        if found.__module__ in {module.__name__ for module in ERROR_MODULES}:
            yield found.error


def test_troubleshooting_has_every_error_by_its_name():
    explained = re.findall(r"^\| `([A-Z][A-Z_]+)` \|", (DOCS / "troubleshooting.md").read_text(), flags=re.MULTILINE)
    assert len(explained) == len(set(explained)), "an error is explained twice"
    assert set(explained) == set(_error_names())


def test_the_examples_are_all_in_their_list():
    listed = re.findall(r"\]\((\w+\.py)\)", (ROOT / "examples" / "README.md").read_text())
    assert sorted(listed) == sorted(path.name for path in (ROOT / "examples").glob("*.py"))


def test_topic_configs_are_all_named_to_those_who_move():
    from sluice.log_store.topic import TopicConfig

    text = (DOCS / "moving-from-kafka.md").read_text()
    names = {
        str(attribute.metadata["key"].name)
        for attribute in TopicConfig.__dataclass_fields__.values()
        if attribute.metadata
    }
    assert names
    assert {name for name in names if f"`{name}`" not in text} == set()


def test_options_of_the_kafka_source_are_all_named_to_those_who_move():
    """Those that the page about the source lists: whoever adds one says whether Kafka has it."""
    page = (DOCS / "moving-from-kafka.md").read_text()
    ours = {"path", "server", "token", "ca.file", "columns", "group.id"}
    for cell in column(DOCS / "spark.md", "Options")[1:]:
        for name in re.findall(r"`([\w.]+)`", cell):
            if not name.startswith(("s3.", "storage.")):
                assert f"`{name}`" in page or name in ours, name


# --- pictures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("picture", sorted((DOCS / "images").glob("*.svg")), ids=lambda path: path.name)
def test_pictures_are_used_named_and_have_two_schemes(picture: Path):
    tree = ElementTree.parse(picture)
    text = picture.read_text()
    assert tree.find("{http://www.w3.org/2000/svg}title") is not None
    assert tree.find("{http://www.w3.org/2000/svg}desc") is not None
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"(href|src)=|url\((?!#)|<script", text), "a picture loads nothing"
    used = [document for document in DOCUMENTS if f"images/{picture.name})" in document.read_text()]
    assert used, f"{picture.name} is in no document"


# --- the protocol and the decisions --------------------------------------------------------------


def test_the_commit_in_the_protocol_is_a_real_one():
    (block,) = blocks(PROTOCOL, "json commit")
    commit = decode_commit(9, block.text.encode())
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
