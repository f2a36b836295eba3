"""The page in Chromium, through Playwright; --browser runs this."""

import os
import shutil
import signal
from urllib.parse import urlencode

import pytest

from tests.adapters.playground.conftest import SLOW, long

pytestmark = pytest.mark.browser

ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
DONE = "#status:has-text('derived in')"
INPUTS = "; ".join(f"{name}: {sizes}" for name, sizes in SLOW["inputs"].items())


@pytest.fixture(scope="module")
def chromium():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium, request):
    """Opens the page of a server in a tab of its own. What goes wrong in a tab fails the test."""
    wrong = []
    context = chromium.new_context(permissions=["clipboard-read", "clipboard-write"])
    context.set_default_timeout(20_000)

    def open_page(server, **entries):
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(error))
        page.on("console", lambda message: wrong.append(message.text))
        page.on("request", lambda sent: wrong.extend([sent.url] * (server.address not in sent.url)))
        page.goto(f"{server.address}/#{urlencode(entries)}" if entries else server.address)
        return page

    yield open_page
    context.close()
    assert not wrong


def test_an_example_is_there_at_first(server, open_page):
    page = open_page(server)
    page.locator(DONE).wait_for()
    assert page.input_value("#text") == "x'*A*x"
    assert page.locator("#kind-gradient math").count() == 1
    assert "A" in page.text_content("#kind-gradient math")


def test_typing_declares_inputs_and_shows_formulas(server, open_page):
    page = open_page(server, f="X", **{"in": "X: n n"})
    page.locator(DONE).wait_for()
    page.focus("#text")
    page.keyboard.press("End")
    page.keyboard.type("*B*X")
    page.locator("[aria-label='Sizes of B']").wait_for()
    page.locator("#kind-vjp .formula").nth(1).wait_for()
    assert page.input_value("[aria-label='Sizes of B']") == "n n"
    page.get_by_label("Differentiate by B").uncheck()
    page.locator("#kind-vjp .formula").nth(1).wait_for(state="detached")


def test_sizes_follow_the_whole_text(server, open_page):
    page = open_page(server, f="A*x", **{"in": "A: m n; x: n"})
    page.locator(DONE).wait_for()
    page.focus("#text")
    page.keyboard.press("End")
    page.keyboard.type(" - mu")
    page.locator("[aria-label='Sizes of mu']").wait_for()
    page.wait_for_function("document.querySelector('[aria-label=\"Sizes of mu\"]').value === 'm'")
    assert page.locator("#remarks li").count() == 0
    page.fill("[aria-label='Sizes of mu']", "")
    page.locator("#remarks", has_text="mu is a scalar").wait_for()


def test_definitions_in_derivations_are_not_cut(server, open_page):
    page = open_page(server, f="softmax(W*x+b)", **{"in": "W: k d; x: d; b: k"}, open="steps")
    page.set_viewport_size({"width": 400, "height": 800})
    page.locator(DONE).wait_for()
    cut = page.evaluate(
        """[...document.querySelectorAll("#steps .math")]
        .filter((each) => each.scrollWidth > each.clientWidth + 1)
        .map((each) => each.textContent)"""
    )
    assert cut == []


def test_every_example_is_derived(server, open_page):
    page = open_page(server)
    for chip in page.locator(".chip").all():
        page.locator(DONE).wait_for()
        page.evaluate("document.querySelector('#status').textContent = ''")
        chip.click()
    page.locator(DONE).wait_for()
    assert page.locator("#error").is_hidden()


def test_copies_are_the_texts(server, open_page):
    page = open_page(server, f="X*X", **{"in": "X: n n"})
    page.locator(DONE).wait_for()
    page.get_by_role("button", name="VJP by X as NumPy").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == (
        "import numpy as np\n\n\ndef vjp(X, cotangent):\n"
        "    return cotangent @ X.T + X.T @ cotangent"
    )
    page.get_by_role("radio", name="LaTeX").check(force=True)
    assert page.inner_text("#kind-value pre") == "Y = X^{2}"


def test_an_error_is_marked_and_announced(server, open_page):
    page = open_page(server, f="sum(A*u)", **{"in": "A: m n; u: m"})
    page.locator("#error").wait_for()
    assert page.locator("#error").get_attribute("role") == "alert"
    assert page.inner_text("#error mark") == "*"
    assert page.get_attribute("#text", "aria-invalid") == "true"
    page.fill("[aria-label='Sizes of u']", "n")
    page.locator("#error").wait_for(state="hidden")
    page.locator(DONE).wait_for()


def test_a_slow_derivation_is_stopped_and_shows_what_it_has(strict, open_page):
    page = open_page(strict, f=SLOW["text"], **{"in": INPUTS})
    page.locator("#error", has_text="stopped after 5 seconds").wait_for()
    assert page.locator("#kind-value math").count() == 1
    page.fill("#text", "X*A")
    page.locator(DONE).wait_for()
    assert page.locator("#error").is_hidden()


def test_a_killed_process_is_told_of(server, open_page):
    page = open_page(server, f=SLOW["text"], **{"in": INPUTS})
    page.locator("#kind-value").wait_for()
    for process in [*server.processes.running]:
        os.kill(process.pid, signal.SIGKILL)
    page.locator("#error", has_text="SIGKILL").wait_for()
    page.fill("#text", "X*A")
    page.locator(DONE).wait_for()


def test_typing_on_ends_what_nobody_waits_for(server, open_page):
    page = open_page(server, f=SLOW["text"], **{"in": INPUTS})
    page.locator("#kind-value").wait_for()
    (slow,) = server.processes.running
    page.fill("#text", "X*A")
    page.locator(DONE).wait_for()
    slow.join(5)
    assert not slow.is_alive()


def test_two_tabs_do_not_disturb_each_other(server, open_page):
    first = open_page(server, f=long(2)["text"], **{"in": INPUTS})
    first.locator("#kind-value").wait_for()
    second = open_page(server, f="inv(X)", **{"in": "X: n n invertible"})
    second.locator(DONE).wait_for()
    first.locator(DONE).wait_for()
    assert "det" in first.inner_text("#kind-value") and second.input_value("#text") == "inv(X)"
    assert first.locator("#kind-hvp").count() == 1


def test_a_link_holds_the_state(server, open_page):
    page = open_page(server, f="x'*A*x", **{"in": "x: n; A: n n symmetric"}, wrt="x")
    page.locator(DONE).wait_for()
    page.locator("#structure summary").click()
    page.locator("#size-n").fill("7")
    page.get_by_role("radio", name="Index").check(force=True)
    page.locator("figcaption b", has_text="7 × 7").wait_for()
    page.get_by_role("button", name="Copy link").click()
    other = open_page(server)
    other.goto("about:blank")
    other.goto(page.evaluate("navigator.clipboard.readText()"))
    other.locator("figcaption b", has_text="7 × 7").wait_for()
    assert other.input_value("[aria-label='Structure of A']") == "symmetric"
    assert not other.get_by_label("Differentiate by A").is_checked()
    assert other.inner_text("#kind-gradient pre") == page.inner_text("#kind-gradient pre")


def test_the_page_is_used_by_keyboard_alone(server, open_page):
    page = open_page(server, f="x'*x", **{"in": "x: n"})
    page.locator(DONE).wait_for()
    page.focus("#text")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.ariaLabel") == "Sizes of x"
    page.focus("#text")
    page.keyboard.press("Control+Enter")
    page.locator("#verify .start", has_text="Stop").wait_for()
    page.locator("#verify .progress").wait_for()
    page.locator("#verify .start").click()
    page.locator("#verify .start", has_text="Verify").wait_for()


@pytest.mark.parametrize("width", [360, 800, 1400])
def test_nothing_is_wider_than_the_page(server, open_page, width):
    page = open_page(
        server, f="softmax(W*x+b)", **{"in": "W: k d; x: d; b: k"}, open="steps,structure"
    )
    page.set_viewport_size({"width": width, "height": 800})
    page.locator(DONE).wait_for()
    page.locator("figure canvas").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_everything_that_is_used_has_a_name(server, open_page):
    page = open_page(server, f="x'*A*x", **{"in": "x: n; A: n n"}, open="steps,structure,verify")
    page.locator(DONE).wait_for()
    nameless = page.evaluate(
        """[...document.querySelectorAll("button, input, select, textarea, canvas, summary")]
        .filter((each) => !(each.ariaLabel || each.labels?.length || each.textContent.trim()))
        .map((each) => each.outerHTML)"""
    )
    assert nameless == []
