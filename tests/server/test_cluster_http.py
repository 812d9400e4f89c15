"""The calls over HTTP are the same with a cluster behind them.

Tests of the server with one process, run on two replicas without Ray.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from test_cluster import Local
from test_server import (  # noqa: F401
    test_a_bad_image_among_many_has_a_problem_in_its_place,
    test_a_state_goes_out_and_comes_in_again,
    test_a_stream_of_events_ends_with_its_session,
    test_an_image_as_it_is_in_a_form_and_in_base64,
    test_events_go_on_where_they_were,
    test_features_in_the_place_of_images,
    test_predicting_changes_nothing_and_evidence_has_all_classes,
    test_rename_and_delete,
    test_the_overview_tells_when_something_changed,
)

from helpers import serving
from helpers.serving import Served, served
from ostta.server.cluster.engine import RayEngine
from ostta.server.cluster.replica import ReplicaConfig


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("shared")

    def clustered(pool: Any, settings: Any, store: Any) -> Local:
        engine = Local(folder, pool.backbone)
        RayEngine.__init__(engine, ReplicaConfig(pool.backbone, folder, settings, lease_seconds=30), replicas=2)
        engine.route = lambda id: 0
        return engine

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(serving, "LocalEngine", clustered)
        with served() as running:
            yield running
