"""The container's files, read and held to our rules; no Docker engine is needed."""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from helpers.paths import ROOT
from ostta.server.metrics import ABOUT, Metrics

DEPLOY = ROOT / "deploy"


def instructions() -> list[tuple[str, str]]:
    """What the Dockerfile says, one instruction after the other, without remarks."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    whole = re.sub(r"\\\n\s*", "", "\n".join(lines))
    found = [line.split(maxsplit=1) for line in whole.splitlines() if line.strip()]
    return [(each[0], each[1]) for each in found]


def stages() -> list[list[tuple[str, str]]]:
    """The instructions of each stage; those before the first are left out."""
    parts: list[list[tuple[str, str]]] = []
    for each in instructions():
        if each[0] == "FROM":
            parts.append([])
        if parts:
            parts[-1].append(each)
    return parts


def values(name: str, stage: int = -1) -> list[str]:
    return [rest for kind, rest in stages()[stage] if kind == name]


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


COMPOSE = loaded(ROOT / "compose.yaml")


def test_the_image_is_made_in_two_stages_of_public_images() -> None:
    names = [values("FROM", number)[0] for number in range(len(stages()))]
    assert names == ["python:${PYTHON}-slim AS build", "python:${PYTHON}-slim"]
    # Nothing but what was installed comes over: no source, no tool of the builder.
    assert values("COPY") == ["--from=build /opt/ostta /opt/ostta"]
    assert ("ARG", "TORCH=cpu") in stages()[0]
    assert any("download.pytorch.org/whl/${TORCH}" in rest for rest in values("RUN", 0))
    # A version of Python that the package takes.
    default = dict(rest.split("=") for kind, rest in instructions() if kind == "ARG")["PYTHON"]
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"Programming Language :: Python :: {default}" in wanted["classifiers"]
    extras = next(rest for kind, rest in stages()[0] if kind == "ARG" and rest.startswith("EXTRAS=")).partition("=")[2]
    assert set(extras.split(",")) <= set(wanted["optional-dependencies"])
    assert "serve" in extras


def test_it_runs_as_nobody_in_particular_with_one_volume_and_a_health_check() -> None:
    user = values("USER")[-1]
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user)
    last = [kind for kind, _ in stages()[-1]]
    assert last.index("USER") > max(place for place, kind in enumerate(last) if kind in ("RUN", "COPY"))
    assert values("VOLUME") == ["/var/lib/ostta"]
    assert "/health" in values("HEALTHCHECK")[0]
    assert values("STOPSIGNAL") == ["SIGTERM"]
    # As lists, so that signals reach the server and no shell.
    entry, command = json.loads(values("ENTRYPOINT")[0]), json.loads(values("CMD")[0])
    assert (entry, command[0]) == (["ostta"], "serve")
    assert command[command.index("--state-dir") + 1].startswith("/var/lib/ostta/")
    assert command[command.index("--token-file") + 1].startswith("/run/secrets/")


def test_no_secret_can_get_into_a_layer() -> None:
    words = re.compile(r"token|secret|password|api_?key|credential", re.IGNORECASE)
    for kind, rest in instructions():
        if kind in ("ARG", "ENV", "COPY", "ADD", "LABEL"):
            assert not words.search(rest), rest
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split("\n")
    rules = [line for line in ignored if line and not line.startswith("#")]
    assert rules[0] == "*"
    sent = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    copied = {word for rest in values("COPY", 0) for word in shlex.split(rest)[:-1]}
    assert sent == copied
    for name in sent:
        assert (ROOT / name).exists()
    kept_out = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    for secret in COMPOSE["secrets"].values():
        assert secret["file"] in kept_out
        assert not (ROOT / secret["file"]).exists()


def test_the_command_line_knows_every_option_that_the_files_name() -> None:
    from ostta.cli.app import app

    shown = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "400", "TERM": "dumb"}).output
    named = [*json.loads(values("CMD")[0]), *COMPOSE["services"]["server"]["command"]]
    options = {word.partition("=")[0] for word in named if word.startswith("--")}
    assert {"--host", "--state-dir", "--token-file", "--name"} <= options
    for option in options:
        assert option in shown, option


def test_compose_has_what_it_names() -> None:
    services = COMPOSE["services"]
    assert set(services) == {"server", "prometheus", "grafana"}
    for name, service in services.items():
        assert ("build" in service) != ("image" in service)
        assert not service.get("privileged")
        assert service["cap_drop"] == ["ALL"]
        assert set(service["secrets"]) <= set(COMPOSE["secrets"]), name
        for port in service["ports"]:
            assert port.startswith("127.0.0.1:")
        for volume in service["volumes"]:
            place = volume.split(":")[0]
            assert (ROOT / place).exists() if place.startswith("./") else place in COMPOSE["volumes"], place
        for other in service.get("depends_on", ()):
            assert other in services
    for name in ("prometheus", "grafana"):
        # Public images, of a version.
        assert re.fullmatch(r"(prom/prometheus|grafana/grafana):v?\d+\.\d+\.\d+", services[name]["image"])
    assert services["server"]["read_only"]


def test_prometheus_asks_the_server_with_the_token() -> None:
    (job,) = loaded(DEPLOY / "prometheus" / "prometheus.yml")["scrape_configs"]
    assert job["authorization"] == {"type": "Bearer", "credentials_file": "/run/secrets/ostta_token"}
    assert (job["metrics_path"], job["static_configs"]) == ("/metrics", [{"targets": ["server:8000"]}])
    assert "--name=server" in COMPOSE["services"]["server"]["command"]
    assert "ostta_token" in COMPOSE["services"]["prometheus"]["secrets"]


def test_every_figure_on_the_dashboard_is_one_that_the_server_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import grafana

    path = DEPLOY / "grafana" / "dashboards" / "ostta.json"
    board = json.loads(path.read_text(encoding="utf-8"))
    assert board == grafana.dashboard(), "run `python tools/grafana.py`"
    del sys.modules["grafana"]
    given = Metrics()
    given.answered("/sessions/{id}/images", 200, 0.1)
    text = given.text(dict.fromkeys(ABOUT, 1.0)).decode()
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(queries) > 10
    for query in queries:
        for name in re.findall(r"ostta_\w+", query):
            assert re.search(rf"^{name}[ {{]", text, flags=re.MULTILINE), name
    (source,) = loaded(DEPLOY / "grafana" / "provisioning" / "datasources" / "prometheus.yaml")["datasources"]
    assert {panel["datasource"]["uid"] for panel in board["panels"]} == {source["uid"]}
    assert source["url"] == "http://prometheus:9090"
    (provider,) = loaded(DEPLOY / "grafana" / "provisioning" / "dashboards" / "ostta.yaml")["providers"]
    mounted = [volume.split(":")[1] for volume in COMPOSE["services"]["grafana"]["volumes"]]
    assert provider["options"]["path"] in mounted
    places = [panel["gridPos"] for panel in board["panels"]]
    assert all(place["x"] + place["w"] <= 24 for place in places)
