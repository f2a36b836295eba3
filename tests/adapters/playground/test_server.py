"""The playground's requests by HTTP: who may ask, limits, and what comes back."""

import base64
import io
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from xml.etree import ElementTree

import httpx
import numpy as np
import pytest

from derivatrix.compiler.frontends.notation.declaration import text_function
from derivatrix.compiler.ir.interpret import evaluate
from derivatrix.compiler.playground.worker import LIMITS
from derivatrix.compiler.report.mathml import mathml
from tests.adapters.playground.conftest import SLOW

SQUARE = {"text": "X*X", "inputs": {"X": "n n"}, "wrt": ["X"]}


def ask(server, name, data, **headers):
    """The answers of a request; one that is refused has an error alone."""
    response = httpx.post(f"{server.address}/ask/{name}", json=data, headers=headers, timeout=300)
    answers = [json.loads(line) for line in response.text.splitlines()]
    assert response.status_code == 200 or "error" in answers[0], response.text
    return answers


def found(answers, key):
    return next(answer[key] for answer in answers if key in answer)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "attacker.example"}, 403),
        ({"Host": "127.0.0.1.attacker.example"}, 403),
        ({"Host": "localhost:1", "Origin": "http://localhost:1"}, 200),
        ({"Host": "localhost:1", "Origin": "http://localhost:2"}, 403),
        ({"Origin": "http://attacker.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Content-Type": "text/plain"}, 415),
    ],
)
def test_only_the_page_itself_may_ask(server, headers, status):
    own = {"Content-Type": "application/json", **headers}
    response = httpx.post(
        f"{server.address}/ask/derive", content=json.dumps(SQUARE), headers=own, timeout=60
    )
    assert response.status_code == status
    assert "default-src 'none'" in response.headers["content-security-policy"]


@pytest.mark.parametrize(
    "path", ["/", "/page.css", "/style.css", "/script.js", "/code.css", "/icon.svg"]
)
def test_the_page_is_for_its_own_names_only(server, path):
    assert httpx.get(server.address + path).status_code == 200
    assert httpx.get(server.address + path, headers={"Host": "attacker.example"}).status_code == 403


@pytest.mark.parametrize("path", ["/server.py", "/../server.py", "/%2e%2e/server.py", "/page"])
def test_no_other_file_is_served(server, path):
    assert httpx.get(server.address + path).status_code == 404


@pytest.mark.parametrize(
    ("content", "status"),
    [(b" " * 70_000, 413), (b"[" * 70_000, 413)],
)
def test_a_request_is_small(server, content, status):
    headers = {"Content-Type": "application/json"}
    url = f"{server.address}/ask/derive"
    assert httpx.post(url, content=content, headers=headers).status_code == status
    assert httpx.post(f"{server.address}/ask/run", json={}).status_code == 404


DEEP = b"[" * 60_000
WRONG_BODIES = [b"", b"{", b"[1]", b"3", b"null", b"\xff\xfe", DEEP, b'{"text": ' + DEEP]
WRONG_FIELDS = [
    {"text": None},
    {"text": 3},
    {"text": "x" * 5000},
    {"inputs": None},
    {"inputs": ["X"]},
    {"inputs": {"X": 2}},
    {"inputs": {"X": "n" * 300}},
    {"wrt": "X"},
    {"wrt": [["X"]]},
    {"guessed": "X"},
]
WRONG_SIZES = [None, {}, [3], {"n": "3"}, {"n": True}, {"n": 2.5}, {"n": None}, {"n": [[3]]}]
WRONG_SIZES += [{"n": 0}, {"n": 10**30}, {"m": 3}]


def refused(server, name, content):
    """The error that a request is refused with: a sentence of its own, and no more."""
    headers = {"Content-Type": "application/json"}
    url = f"{server.address}/ask/{name}"
    response = httpx.post(url, content=content, headers=headers, timeout=300)
    error = response.json()
    assert response.status_code == 400 and error.keys() == {"error", "text"}, response.text
    assert len(error["text"]) < 300
    return error


@pytest.mark.parametrize("name", LIMITS)
def test_wrong_requests_are_refused(server, name):
    sized = {**SQUARE, "sizes": {"n": 3}}
    bodies = [json.dumps({**sized, **changed}).encode() for changed in WRONG_FIELDS]
    for content in [*WRONG_BODIES, *bodies]:
        assert refused(server, name, content)["error"] == "DeclarationError"
    assert not server.processes.running


@pytest.mark.parametrize("sizes", WRONG_SIZES)
def test_wrong_sizes_are_refused(server, sizes):
    error = refused(server, "structure", json.dumps({**SQUARE, "sizes": sizes}).encode())
    assert error["error"] == "ShapeError" and "size" in error["text"]


@pytest.mark.parametrize("name", ["structure", "module"])
@pytest.mark.parametrize(
    "changed",
    [
        {"text": "Z"},
        {"text": "("},
        {"text": "(" * 3000},
        {"text": "X\ud800"},
        {"inputs": {"X": "n n", "\ud800": "n"}},
        {"inputs": {"X": "n^n n"}},
        {"wrt": ["Q"]},
        {"wrt": ["X", "X"]},
    ],
)
def test_wrong_functions_are_refused(server, name, changed):
    data = {**SQUARE, "sizes": {"n": 3}, **changed}
    error = refused(server, name, json.dumps(data).encode())
    assert error["error"] in ("DeclarationError", "NotationError")


def test_a_size_that_the_function_cannot_have_is_refused(server):
    data = {"text": "X[2, 0]", "inputs": {"X": "n n"}, "wrt": [], "sizes": {"n": 2}}
    error = refused(server, "structure", json.dumps(data).encode())
    assert error["error"] == "ShapeError" and "n >= 3" in error["text"]


def test_what_is_broken_off_is_no_fault_of_the_server(server, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("uvicorn.error"), "handlers", [caplog.handler])
    host, port = server.address.removeprefix("http://").split(":")
    head = "POST /ask/derive HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    body = json.dumps(SQUARE)
    for length, content in ((5000, "{"), (len(body), body)):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(f"{head}Content-Length: {length}\r\n\r\n{content}".encode())
            time.sleep(0.2)
    assert "done" in ask(server, "derive", SQUARE)[-1]
    assert not caplog.records


def test_formulas_come_in_all_styles(server):
    answers = ask(server, "derive", SQUARE)
    kinds = {answer["kind"]: answer["formulas"] for answer in answers if "kind" in answer}
    assert list(kinds) == ["value", "vjp", "jvp", "jacobian"]
    (vjp,) = kinds["vjp"]
    function = text_function("X*X", "X: n n", name="f")
    assert f"    return {function.formula('vjp', style='numpy')}" in vjp["texts"]["numpy"]
    assert vjp["texts"]["unicode"].endswith(function.formula("vjp"))
    assert {"latex", "index"} <= vjp["texts"].keys()
    ElementTree.fromstring(vjp["math"])
    assert len(found(answers, "steps")[0]["lines"]) == 2
    assert answers[-1] == {"done": True}


def test_the_declaration_in_python_is_the_function(server):
    data = {"text": "x'*A*x", "inputs": {"x": "n", "A": "n n symmetric"}, "wrt": ["x"]}
    scope = {}
    exec(found(ask(server, "derive", data), "python")["text"], scope)
    expected = text_function("x'*A*x", "x: n, A: n n symmetric", ["x"], "f")
    assert scope["f"].expression is expected.expression and scope["f"].wrt == ("x",)


def test_inputs_without_sizes_get_those_that_fit(server):
    data = {"text": "A*x - mu", "inputs": {"A": "5 n"}, "wrt": []}
    answers = ask(server, "derive", data)
    assert found(answers, "inputs") == {"A": "5 n", "x": "n", "mu": "5"}
    assert found(answers, "remarks") == []
    data = {"text": "A*x - mu", "inputs": {"A": "n", "x": "", "mu": ""}, "guessed": ["A", "x"]}
    answers = ask(server, "derive", {**data, "wrt": []})
    assert found(answers, "inputs") == {"A": "m n", "x": "n", "mu": ""}
    (remark,) = found(answers, "remarks")
    assert "mu is a scalar" in remark


def test_texts_to_copy_are_functions(server):
    formulas = found(ask(server, "derive", {**SQUARE, "text": "X*X + X"}), "formulas")
    texts = formulas[0]["texts"]
    for style in ("numpy", "jax", "torch"):
        assert "def value(X):" in texts[style]
    scope = {}
    exec(texts["numpy"], scope)
    np.testing.assert_array_equal(scope["value"](np.eye(2)), 2 * np.eye(2))


def test_an_error_points_at_its_place(server):
    data = {"text": "sum(A*u)", "inputs": {"A": "m n", "u": "m"}, "wrt": []}
    names, error = ask(server, "derive", data)
    assert names == {"names": ["A", "u"], "inputs": data["inputs"]}
    assert error["error"] == "NotationError"
    *_, line, caret = error["text"].split("\n")
    assert line[caret.index("^")] == "*"


def test_no_text_is_run(server, tmp_path):
    target = tmp_path / "made"
    text = f"__import__('os').mkdir('{target}')"
    for place in (
        {"text": text},
        {"inputs": {"X": text}},
        {"inputs": {text: "n"}},
        {"wrt": [text]},
    ):
        assert "error" in ask(server, "derive", {**SQUARE, **place})[-1]
    sizes = {"n": f"[{text}]"}
    assert ask(server, "structure", {**SQUARE, "sizes": sizes})[-1]["error"] == "ShapeError"
    assert not target.exists()


def test_the_picture_is_where_the_jacobian_is_not_zero(server):
    (block,) = found(ask(server, "structure", {**SQUARE, "sizes": {"n": 4}}), "blocks")
    cells = np.frombuffer(base64.b64decode(block["cells"]), np.int8).reshape(16, 16)
    function = text_function("X*X", "X: n n")
    (jacobian,) = function.derivatives.results("jacobian").values()
    value = np.random.default_rng(1).normal(size=(4, 4))
    dense = evaluate(jacobian, {"X": value}, {"n": 4}).reshape(16, 16)
    assert ((cells != 0) == (dense != 0)).all()
    assert block["nonzero"] == np.count_nonzero(dense)


def test_a_picture_that_is_too_large_is_an_error(server):
    data = {"text": "kron(A, B)", "inputs": {"A": "n n", "B": "n n"}, "wrt": []}
    error = ask(server, "structure", {**data, "sizes": {"n": 16}})[-1]
    assert error["error"] == "ShapeError" and "entries" in error["text"]


def test_a_slow_request_is_stopped(strict):
    began = time.monotonic()
    answers = ask(strict, "derive", SLOW)
    assert answers[-1] == {"error": "TimeoutError", "text": "stopped after 5 seconds"}
    assert any(answer.get("kind") == "value" for answer in answers)
    assert time.monotonic() - began < 15
    assert not strict.processes.running


def test_memory_is_limited(strict):
    answer = ask(strict, "module", SQUARE)[-1]
    assert answer["error"] in ("MemoryError", "Killed", "Crash")
    assert "done" in ask(strict, "derive", SQUARE)[-1]


def test_a_killed_process_is_an_error_and_the_next_request_is_answered(server):
    answers = []
    thread = threading.Thread(target=lambda: answers.extend(ask(server, "derive", SLOW)))
    thread.start()
    while not server.processes.running:
        time.sleep(0.05)
    time.sleep(0.3)
    for process in [*server.processes.running]:
        os.kill(process.pid, signal.SIGKILL)
    thread.join()
    assert answers[-1]["error"] == "Killed" and "SIGKILL" in answers[-1]["text"]
    assert "done" in ask(server, "derive", SQUARE)[-1]


def test_a_request_ends_with_who_asked(server):
    with (
        pytest.raises(httpx.ReadTimeout),
        httpx.stream("POST", f"{server.address}/ask/derive", json=SLOW, timeout=2) as response,
    ):
        for _ in response.iter_lines():
            pass
    deadline = time.monotonic() + 3
    while server.processes.running and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not server.processes.running


def test_the_module_is_verified_and_measured_and_packed(server, tmp_path):
    verified = ask(server, "verify", SQUARE)
    assert any("point" in answer.get("progress", "") for answer in verified)
    assert "Passed" in found(verified, "report")
    assert {*os.listdir(server.processes.folder)} <= {"cache", "numba"}
    measured = ask(server, "measure", SQUARE)
    drawing = [answer["plot"] for answer in measured if "plot" in answer][-1]
    ElementTree.fromstring(f"<div>{drawing}</div>")
    assert "derivatrix" in drawing and "NumPy" in drawing
    archive = base64.b64decode(found(ask(server, "package", SQUARE), "zip"))
    with zipfile.ZipFile(io.BytesIO(archive)) as packed:
        assert {"generated/f.py", "generated/certificate.md"} <= {*packed.namelist()}
        packed.extractall(tmp_path)
    code = "import generated.f as f; print(f.vjp([[2.0]], [[1.0]]))"
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert process.stdout.strip() == "[[4.]]", process.stderr


@pytest.mark.parametrize(
    "latex",
    [
        r"\begin{aligned} [\nabla y]_{ij} &= x \\ \text{where } t &= [x]_{i} \end{aligned}",
        r"\begin{bmatrix} [A]_{1} & b \\ c & d \end{bmatrix}",
        r"\begin{cases} [x]_{i} & x \ge 0 \\ 0 & \text{otherwise} \end{cases}",
    ],
)
def test_environments_become_tables(latex):
    root = ElementTree.fromstring(mathml(latex))
    rows = [element for element in root.iter() if element.tag.endswith("mtr")]
    assert [len(row) for row in rows] == [2, 2]
    assert "&" not in "".join(root.itertext())


def test_what_is_broken_off_at_once_leaves_no_process(server):
    for wait in (0.001, 0.01, 0.02, 0.05, 0.1):
        with pytest.raises(httpx.TimeoutException):
            httpx.post(f"{server.address}/ask/derive", json=SLOW, timeout=wait)
    deadline = time.monotonic() + 5
    while server.processes.running and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not server.processes.running
    assert {*os.listdir(server.processes.folder)} <= {"cache", "numba"}
