"""The process: settings are read once and refused with a remedy; logs give nothing away."""

from __future__ import annotations

import argparse
import gc
import io
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kopf
import pytest
import structlog

from adjoin import app
from adjoin.app import (
    Settings,
    SettingsError,
    add_arguments,
    configure_interpreter,
    configure_logging,
    read_settings,
)


def read(*flags: str, **environment: str) -> Settings:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    names = {f"ADJOIN_{name.upper()}": value for name, value in environment.items()}
    return read_settings(parser.parse_args(["--webhook-service=hook", *flags]), names)


class TestSettings:
    def test_what_the_chart_gives_is_enough(self) -> None:
        settings = read(
            "--log-level=info",
            "--log-format=json",
            "--webhook-port=9443",
            "--webhook-configuration=adjoin",
            "--metrics-port=8080",
            "--resync-seconds=300",
            "--node-metrics-seconds=30",
            namespace="adjoin-system",
            identity="pod-uid",
        )
        assert settings.namespace == "adjoin-system"
        assert settings.identity == "pod-uid"
        assert settings.webhook_hosts == ("hook.adjoin-system.svc",)
        assert (settings.webhook_port, settings.metrics_port, settings.resync_seconds) == (9443, 8080, 300.0)
        assert settings.lease == "adjoin"

    def test_a_flag_wins_over_the_environment(self) -> None:
        assert read("--namespace=a", namespace="b").namespace == "a"

    def test_the_url_of_the_webhook_names_the_host_to_serve(self) -> None:
        settings = read("--webhook-url=https://127.0.0.1:9443", namespace="n")
        assert settings.webhook_hosts == ("127.0.0.1", "hook.n.svc")

    def test_two_replicas_of_one_host_are_two(self) -> None:
        assert read(namespace="n").identity != read(namespace="n").identity

    @pytest.mark.parametrize(
        ("flags", "remedy"),
        [
            pytest.param(("--webhook-port=x",), "--webhook-port=x: a number from 0 to 65535", id="no number"),
            pytest.param(("--webhook-port=70000",), "a number from 0 to 65535", id="no port"),
            pytest.param(("--resync-seconds=nan",), "--resync-seconds=nan: a number from 1", id="NaN"),
            pytest.param(("--resync-seconds=0",), "a number from 1", id="too often"),
            pytest.param(("--node-metrics-seconds=0.1",), "a number from 1 to 3600 is needed, or 0", id="all the time"),
            pytest.param(("--webhook-url=http://x",), "https://HOST:PORT is needed", id="no TLS"),
            pytest.param(("--webhook-url=https://",), "https://HOST:PORT is needed", id="no host"),
        ],
    )
    def test_what_cannot_work_is_refused_with_a_remedy(self, flags: tuple[str, ...], remedy: str) -> None:
        with pytest.raises(SettingsError, match=remedy):
            read(*flags, namespace="n")

    def test_without_a_namespace_it_does_not_start(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(app, "SERVICE_ACCOUNT_NAMESPACE", tmp_path / "namespace")
        with pytest.raises(SettingsError, match="ADJOIN_NAMESPACE"):
            read()
        (tmp_path / "namespace").write_text("from-the-pod\n")
        assert read().namespace == "from-the-pod"

    def test_the_api_server_must_be_able_to_reach_admission(self) -> None:
        parser = argparse.ArgumentParser()
        add_arguments(parser)
        with pytest.raises(SettingsError, match="--webhook-service or --webhook-url"):
            read_settings(parser.parse_args([]), {"ADJOIN_NAMESPACE": "n"})
        folder = read_settings(parser.parse_args(["--webhook-cert-dir=/certs"]), {"ADJOIN_NAMESPACE": "n"})
        assert folder.webhook_certificates == Path("/certs")

    def test_settings_cannot_be_changed(self) -> None:
        with pytest.raises(AttributeError):
            read(namespace="n").namespace = "other"  # type: ignore[misc]


def test_d14_a_decision_does_not_keep_the_interpreter_from_admission_for_long() -> None:
    """What the loop waits for after every read and write while a decision is made; `make bench` shows what it costs."""
    before, thresholds = sys.getswitchinterval(), gc.get_threshold()
    try:
        configure_interpreter()
        assert sys.getswitchinterval() == pytest.approx(0.001)
    finally:
        sys.setswitchinterval(before)
        gc.set_threshold(*thresholds)


class TestLogging:
    @pytest.fixture(autouse=True)
    def restored(self) -> Iterator[None]:
        root = logging.getLogger()
        handlers, level, config = root.handlers[:], root.level, structlog.get_config()
        yield
        root.handlers[:], root.level = handlers, level
        structlog.configure(**config)

    def lines(self, monkeypatch: pytest.MonkeyPatch, speak: Any) -> list[dict[str, Any]]:
        stream = io.StringIO()
        monkeypatch.setattr(sys, "stderr", stream)
        configure_logging("info", "json")
        speak()
        return [json.loads(line) for line in stream.getvalue().splitlines()]

    def test_our_lines_and_those_of_libraries_look_alike(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def speak() -> None:
            structlog.get_logger("adjoin.x").info("ours", claim="team/job")
            logging.getLogger("aiohttp.server").warning("theirs %s", 1)

        ours, theirs = self.lines(monkeypatch, speak)
        assert (ours["event"], ours["claim"], ours["level"], ours["logger"]) == ("ours", "team/job", "info", "adjoin.x")
        assert (theirs["event"], theirs["level"], theirs["logger"]) == ("theirs 1", "warning", "aiohttp.server")
        assert {"timestamp"} <= ours.keys() & theirs.keys()

    def test_kopf_names_its_object_and_is_silent_about_every_event(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def speak() -> None:
            reference = {"kind": "DeviceClaim", "namespace": "team", "name": "job"}
            logging.getLogger("kopf.objects").info("Handler 'x' succeeded.", extra={"k8s_ref": reference})
            more = {"k8s_ref": reference, "settings": kopf.OperatorSettings()}
            logging.getLogger("kopf.objects").warning("odd", extra=more)

        (line,) = self.lines(monkeypatch, speak)
        assert (line["event"], line["object"]) == ("odd", "DeviceClaim team/job")
        assert "settings" not in line

    @pytest.mark.parametrize("format_", ["json", "console"])
    def test_a_traceback_shows_no_values(self, monkeypatch: pytest.MonkeyPatch, format_: str) -> None:
        stream = io.StringIO()
        monkeypatch.setattr(sys, "stderr", stream)
        configure_logging("info", format_)
        private = "".join(("to", "ken-", "value"))
        try:
            raise ValueError("boom") if private else None  # type: ignore[misc]
        except ValueError:
            structlog.get_logger("adjoin.x").exception("failed")
        assert "boom" in stream.getvalue()
        assert private not in stream.getvalue()
