"""What is in deploy/kubernetes is valid, and its parts fit one another. No cluster is at hand here."""

from __future__ import annotations

import os
import py_compile
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "deploy" / "kubernetes"
FILES = sorted(FOLDER.glob("*.yaml"))
yaml = pytest.importorskip("yaml", reason="no YAML reader here: pip install kubernetes-validate")
VERSIONS = ("1.31", "1.34")
"""Of Kubernetes: one that is old by now, and one that is new."""


def documents(file: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = list(yaml.safe_load_all(file.read_text()))
    return found


def found(kind: str, name: str = "") -> dict[str, Any]:
    every = [d for f in FILES for d in documents(f)]
    (one,) = [d for d in every if d["kind"] == kind and d["metadata"].get("name", "") == name]
    return one


def settings() -> dict[str, str]:
    text = found("ConfigMap", "meander-spark")["data"]["spark-defaults.conf"]
    lines = [line.split(None, 1) for line in text.splitlines() if line.strip() and line[0] != "#"]
    return {key: value.strip() for key, value in lines}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_resource_fits_the_schema_of_kubernetes(file: Path, version: str) -> None:
    validator = pytest.importorskip(
        "kubernetes_validate",
        reason="no schemas of Kubernetes here: pip install kubernetes-validate",
    )
    for document in documents(file):
        validator.validate(document, version, strict=True)


def test_the_schemas_refuse_what_is_wrong() -> None:
    validator = pytest.importorskip("kubernetes_validate")
    wrong = found("Deployment", "meander-driver")
    wrong["spec"]["replica"] = 1
    with pytest.raises(validator.ValidationError):
        validator.validate(wrong, VERSIONS[0], strict=True)


def test_pods_may_speak_with_one_another_and_are_the_accounts_that_there_are() -> None:
    driver = found("Deployment", "meander-driver")["spec"]["template"]
    executor = found("Pod")
    chosen = found("NetworkPolicy", "meander")["spec"]["podSelector"]["matchLabels"]
    for pod in (driver, executor):
        assert chosen.items() <= pod["metadata"]["labels"].items()
        assert found("ServiceAccount", pod["spec"]["serviceAccountName"])
        assert pod["spec"]["securityContext"]["runAsNonRoot"]
    binding = found("RoleBinding", "meander-driver")
    assert found("Role", binding["roleRef"]["name"])
    assert binding["subjects"][0]["name"] == driver["spec"]["serviceAccountName"]


def test_the_driver_is_where_spark_tells_executors_to_look() -> None:
    told, service = settings(), found("Service", "meander-driver")
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
    assert told["spark.driver.host"] == f"{name}.{namespace}.svc"
    ports = {str(port["port"]) for port in service["spec"]["ports"]}
    assert ports == {told["spark.driver.port"], told["spark.driver.blockManager.port"]}
    labels = found("Deployment", "meander-driver")["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert told["spark.kubernetes.executor.podTemplateFile"] == "/etc/meander/executor.yaml"
    pools = told["spark.scheduler.allocation.file"].partition("site-packages/")[2]
    assert (FOLDER.parents[1] / "src" / pools).is_file()


def test_spark_knows_the_settings_and_the_channel_is_closed() -> None:
    """Spark's own check of names: what it says of a session is of a wrong one alone."""
    told = settings()
    submitted = dict(
        re.findall(r"--conf (spark\.[\w.]+)=(\S+)", (FOLDER / "submit.sh").read_text())
    )
    for found_in in (told, submitted):
        for needed in ("authenticate", "network.crypto.enabled", "io.encryption.enabled"):
            assert found_in[f"spark.{needed}"] == "true"
    for same in ("spark.executor.cores", "spark.executor.memoryOverhead", "spark.executor.memory"):
        assert told[same] == submitted[same]


@pytest.mark.parametrize("script", ["entrypoint.sh", "submit.sh"])
def test_scripts_can_be_read_and_run(script: str) -> None:
    assert os.access(FOLDER / script, os.X_OK)
    subprocess.run(["sh", "-n", str(FOLDER / script)], check=True)


def test_the_application_compiles(tmp_path: Path) -> None:
    py_compile.compile(str(FOLDER / "app.py"), cfile=str(tmp_path / "app.pyc"), doraise=True)


def test_an_executor_is_started_as_spark_says(tmp_path: Path) -> None:
    """With a `java` that writes down how it was called."""
    java = tmp_path / "java"
    java.write_text('#!/bin/sh\nfor word in "$@"; do echo "$word"; done\n')
    java.chmod(0o755)
    said = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SPARK_HOME": "/opt/spark",
        "SPARK_JAVA_OPT_0": "-Dspark.driver.port=7078",
        "SPARK_JAVA_OPT_1": "-Dname=with a space",
        "SPARK_EXECUTOR_MEMORY": "2g",
        "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "4",
        "SPARK_APPLICATION_ID": "spark-1",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "word-count-exec-1",
    }
    entry = str(FOLDER / "entrypoint.sh")
    done = subprocess.run([entry, "executor"], env=said, capture_output=True, text=True, check=True)
    words = done.stdout.splitlines()
    assert words[:4] == ["-Dspark.driver.port=7078", "-Dname=with a space", "-Xms2g", "-Xmx2g"]
    assert words[words.index("--driver-url") + 1] == said["SPARK_DRIVER_URL"]
    assert words[words.index("--podName") + 1] == "word-count-exec-1"
    other = subprocess.run(
        [entry, "echo", "any"], env=said, capture_output=True, text=True, check=True
    )
    assert other.stdout == "any\n"
