"""HTTPS: the service's certificate, clients that check it, and settings that do not fit together."""

from __future__ import annotations

import json
import socket
import ssl
import warnings
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner, Result

from sluice.api.cli import app as cli
from sluice.api.client import ConnectionFailed, Record, RetryPolicy, SluiceClient
from sluice.api.tls import server_context
from sluice.conf.errors import ConfigurationError
from sluice.conf.settings import TlsSettings
from sluice.log_store.errors import AuthenticationFailed, ClusterAuthorizationFailed, InvalidRequest
from tests.support.certificates import PASSWORD, Certificates, make_certificates
from tests.support.server import Server, running


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secure(made: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(
        tmp_path_factory.mktemp("tls") / "root",
        verify=ssl.create_default_context(cafile=made.authority),
        SLUICE_TLS_CERTIFICATE_FILE=str(made.certificate),
        SLUICE_TLS_KEY_FILE=str(made.encrypted_key),
        SLUICE_TLS_KEY_PASSWORD=PASSWORD,
    ) as server:
        yield server


@pytest.fixture(scope="module")
def admin(secure: Server) -> str:
    """The first token."""
    answer = secure.client.post("/v3/clusters/-/tokens", json={"name": "ops", "grants": ["admin"]})
    assert answer.status_code == 201, answer.text
    text: str = answer.json()["token"]
    return text


def sluice(secure: Server, made: Certificates, *arguments: str, token: str = "", **environment: str) -> Result:
    given = {
        "SLUICE_SERVER": secure.url,
        "SLUICE_CA_FILE": str(made.authority),
        "SLUICE_TOKEN": token,
        "COLUMNS": "200",
    }
    return CliRunner().invoke(cli, list(arguments), env=given | environment)


# --- the service -------------------------------------------------------------------------------


def test_the_address_is_https_and_links_say_so(secure: Server, admin: str) -> None:
    assert secure.url.startswith("https://127.0.0.1:")
    answer = secure.client.get("/v3/clusters", headers={"Authorization": f"Bearer {admin}"})
    assert answer.json()["metadata"]["self"].startswith("https://")
    assert secure.client.get("/healthz").json() == {"status": "ok"}


def test_plain_http_gets_nothing(secure: Server) -> None:
    with pytest.raises(httpx.TransportError):
        httpx.get(secure.url.replace("https", "http") + "/healthz", timeout=60)


def test_versions_below_1_2_are_not_spoken(secure: Server, made: Certificates) -> None:
    def spoken(newest: ssl.TLSVersion) -> str | None:
        context = ssl.create_default_context(cafile=made.authority)
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
            context.maximum_version = newest
        context.set_ciphers("ALL:@SECLEVEL=0")
        port = httpx.URL(secure.url).port
        with (
            socket.create_connection(("127.0.0.1", port or 0), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as wrapped,
        ):
            return wrapped.version()

    assert spoken(ssl.TLSVersion.TLSv1_3) == "TLSv1.3"
    assert spoken(ssl.TLSVersion.TLSv1_2) == "TLSv1.2"
    with pytest.raises(ssl.SSLError):
        spoken(ssl.TLSVersion.TLSv1_1)


# --- clients -----------------------------------------------------------------------------------


def test_a_client_checks_the_certificate(secure: Server, made: Certificates, admin: str) -> None:
    once = RetryPolicy(budget_s=0.0)
    with SluiceClient(secure.url, admin, ca_file=str(made.authority)) as client:
        client.topics.create("t")
        client.produce("t", [Record(value=b"a")])
        assert [record.value for record in client.reader("t", stop_at_end=True)] == [b"a"]
    with SluiceClient(secure.url, admin, retry=once) as client, pytest.raises(ConnectionFailed, match="certificate"):
        client.topics.list()
    with pytest.raises(InvalidRequest, match="CA file"):
        SluiceClient(secure.url, ca_file=str(made.key))
    with pytest.raises(InvalidRequest, match="CA file"):
        SluiceClient(secure.url, ca_file=str(made.key) + ".none")
    with pytest.raises(InvalidRequest, match="characters") as refused:
        SluiceClient(secure.url, "hush\r\nX-Evil: 1")
    assert "hush" not in refused.value.message


def test_refusals_are_errors_of_their_names(secure: Server, made: Certificates, admin: str) -> None:
    with SluiceClient(secure.url, ca_file=str(made.authority)) as client:
        with pytest.raises(AuthenticationFailed) as refused:
            client.topics.list()
        assert (refused.value.status, refused.value.error_code) == (401, 40101)  # type: ignore[attr-defined]
    with SluiceClient(secure.url, admin, ca_file=str(made.authority)) as client:
        weak = client.tokens.create("weak", ["consume:topic:t"], expires_in_ms=60_000)
    assert weak.expires_ms == weak.created_ms + 60_000
    assert weak.token not in repr(weak)
    with (
        SluiceClient(secure.url, weak.token, ca_file=str(made.authority)) as client,
        pytest.raises(ClusterAuthorizationFailed),
    ):
        client.tokens.list()


def test_the_commands(secure: Server, made: Certificates, admin: str) -> None:
    created = sluice(
        secure, made, "tokens", "create", "-n", "web", "-g", "produce:topic:w-*", "--expires", "30d", token=admin
    )
    assert created.exit_code == 0, created.stderr
    web = created.stdout.strip()
    assert web.startswith("sluice_")
    assert "cannot be shown again" in created.stderr
    listed = json.loads(sluice(secure, made, "tokens", "list", "--json", token=admin).stdout)
    (mine,) = [one for one in listed if one["name"] == "web"]
    assert (mine["grants"], mine["expires_ms"] - mine["created_ms"]) == (["produce:topic:w-*"], 30 * 86_400_000)
    shown = sluice(secure, made, "tokens", "list", token=admin).stdout
    assert "produce:topic:w-*" in shown
    assert web not in shown

    refused = sluice(secure, made, "topics", "create", "x", token=web)
    assert refused.exit_code == 1
    assert "TOPIC_AUTHORIZATION_FAILED" in refused.stderr
    flag = sluice(secure, made, "topics", "list", "--token", web, "--ca-file", str(made.authority), SLUICE_CA_FILE="")
    assert flag.exit_code == 0, flag.stderr
    revoked = sluice(secure, made, "tokens", "revoke", mine["token_id"], token=admin)
    assert revoked.stdout == f"revoked {mine['token_id']}\n"
    gone = sluice(secure, made, "topics", "list", token=web)
    assert gone.exit_code == 1
    assert "SASL_AUTHENTICATION_FAILED" in gone.stderr
    assert web not in gone.stderr
    unchecked = sluice(secure, made, "topics", "list", token=admin, SLUICE_CA_FILE="")
    assert unchecked.exit_code == 1
    assert "certificate" in unchecked.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("tokens", "create", "-n", "x", "-g", "fly"), 1, "grant 'fly'"),
        (("tokens", "create", "-n", "x", "--expires", "soon"), 2, "--expires 'soon'"),
        (("tokens", "revoke", "none"), 1, "there is no token 'none'"),
        (("topics", "list", "--ca-file", "none.pem"), 1, "cannot use the CA file none.pem"),
    ],
)
def test_wrong_commands_are_one_line(
    secure: Server, made: Certificates, admin: str, arguments: tuple[str, ...], code: int, text: str
) -> None:
    result = sluice(secure, made, *arguments, token=admin)
    assert (result.exit_code, result.stdout) == (code, "")
    assert text in result.stderr
    assert result.stderr.count("\n") == 1


def test_tokens_without_a_service(tmp_path: Path) -> None:
    root = ("--root", str(tmp_path / "root"))
    run = CliRunner()
    first = run.invoke(cli, ["tokens", "create", "-n", "web", "-g", "produce:topic:*", *root])
    assert first.exit_code == 1
    assert "the first token must grant admin" in first.stderr
    made = json.loads(run.invoke(cli, ["tokens", "create", "-n", "ops", "-g", "admin", "--json", *root]).stdout)
    assert made["token"].startswith(f"sluice_{made['token_id']}_")
    (listed,) = json.loads(run.invoke(cli, ["tokens", "list", "--json", *root]).stdout)
    assert listed == {name: value for name, value in made.items() if name != "token"}
    last = run.invoke(cli, ["tokens", "revoke", made["token_id"], *root])
    assert last.exit_code == 1
    assert "the last token that grants admin" in last.stderr


# --- settings ----------------------------------------------------------------------------------


def test_without_files_it_is_plain_http() -> None:
    assert server_context(TlsSettings()) is None


def test_the_context_speaks_1_2_and_newer(made: Certificates) -> None:
    context = server_context(TlsSettings(certificate_file=str(made.certificate), key_file=str(made.key)))
    assert context is not None
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_settings_that_do_not_fit_are_refused_by_name(made: Certificates, tmp_path: Path) -> None:
    certificate, key, missing = str(made.certificate), str(made.key), str(tmp_path / "none.pem")
    empty = tmp_path / "empty.pem"
    empty.touch()
    for given, named, text in (
        ({"certificate_file": certificate}, "tls.key.file", "together with tls.certificate.file"),
        ({"key_file": key}, "tls.certificate.file", "together with tls.key.file"),
        ({"certificate_file": missing, "key_file": key}, "tls.certificate.file", "cannot be read: No such file"),
        ({"certificate_file": certificate, "key_file": missing}, "tls.key.file", "cannot be read: No such file"),
        ({"certificate_file": certificate, "key_file": str(tmp_path)}, "tls.key.file", "cannot be read"),
        ({"certificate_file": str(empty), "key_file": key}, "tls.certificate.file", "must be PEM files"),
        ({"certificate_file": certificate, "key_file": str(made.other_key)}, "tls.key.file", "is not the key of"),
        ({"certificate_file": certificate, "key_file": str(made.encrypted_key)}, "tls.key.file", "is needed"),
        (
            {"certificate_file": certificate, "key_file": str(made.encrypted_key), "key_password": "hush"},
            "tls.key.file",
            "is wrong",
        ),
    ):
        with pytest.raises(ConfigurationError) as refused:
            server_context(TlsSettings(**given))
        assert refused.value.key == named
        assert text in refused.value.rule
        assert given.get(named.removeprefix("tls.").replace(".", "_"), "") == refused.value.value
        assert "hush" not in str(refused.value)


def test_serve_says_what_is_wrong_and_makes_nothing(made: Certificates, tmp_path: Path) -> None:
    environment = {"SLUICE_TLS_CERTIFICATE_FILE": str(made.certificate), "SLUICE_TLS_KEY_FILE": str(made.other_key)}
    root = tmp_path / "root"
    result = CliRunner().invoke(cli, ["serve", "--root", str(root), "--port", "0"], env=environment)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"sluice: tls.key.file = '{made.other_key}'")
    assert not root.exists()
