"""What every page must do in a browser, at two widths, light and dark."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, program

WINDOWS = ((400, True), (1280, False))

# The lowest contrast of text to what is behind it (WCAG 2.2), and the text. Text of pictures counts where it
# stands on the page itself; over a coloured bar or cell Plotly chooses its colour by the contrast.
_CONTRAST = """
(() => {
  const read = (text) => {
    const found = text.match(/[\\d.]+/g).map(Number);
    return { rgb: found.slice(0, 3), alpha: found.length > 3 ? found[3] : 1 };
  };
  const light = (rgb) => {
    const linear = (x) => (x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = rgb.map((x) => linear(x / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const told = read(getComputedStyle(one).backgroundColor);
      if (told.alpha > 0.99) return told.rgb;
    }
    return matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18] : [255, 255, 255];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let worst = [99, ""], seen = 0;
  while (walker.nextNode()) {
    const node = walker.currentNode, element = node.parentElement;
    if (!node.textContent.trim() || !element.getClientRects().length) continue;
    if (element.closest("script, style")) continue;
    if (element.closest(".bartext, .heatmaplayer, .hm-text, .heatmap-label, .barlayer, .topology")) continue;
    const style = getComputedStyle(element);
    const ink = read(element.closest("svg") ? style.fill : style.color).rgb;
    const [a, b] = [light(ink), light(behind(element.closest("svg") ? element.closest(".plot") : element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    seen += 1;
    if (ratio < worst[0]) worst = [ratio, node.textContent.trim().slice(0, 60)];
  }
  return { ratio: worst[0], text: worst[1], seen };
})()
"""
_WIDEST = """
[...document.querySelectorAll("body *")]
  .filter((one) => one.getBoundingClientRect().right > innerWidth + 1)
  .filter((one) => !one.closest(".scroll, pre, .plot, .heard, .skip"))
  .map((one) => one.tagName + "." + one.className + ": " + one.textContent.trim().slice(0, 40)).slice(0, 5)
"""
_PLOTS = """
[...document.querySelectorAll(".plot")].map((one) => {
  const drawing = one.querySelector("svg.main-svg");
  const box = drawing ? drawing.getBoundingClientRect() : { width: 0, height: 0 };
  const marks = [...one.querySelectorAll(".plot-container path, .plot-container image")].filter((mark) => {
    const own = mark.getBoundingClientRect();
    return own.width > 1 || own.height > 1;
  });
  const outside = one.getBoundingClientRect();
  return { label: one.getAttribute("aria-label"), width: box.width, height: box.height, marks: marks.length,
           place: outside.width };
})
"""


def need_browser() -> str:
    """The browser; the test is skipped, with what to install, where there is none."""
    found = program()
    if found is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium-headless-shell")
    return found


def check_drawn(browser: Browser, page: Path, plots: int) -> None:
    """No error, no request, nothing wider than the window, every picture drawn."""
    for width, dark in WINDOWS:
        browser.show(page, width, dark)
        assert browser.errors == [], (width, dark)
        assert browser.requests == []
        wide = browser.value("document.documentElement.scrollWidth")
        assert wide <= width, (width, wide, browser.value(_WIDEST))
        drawn: list[dict[str, Any]] = browser.value(_PLOTS)
        assert len(drawn) == plots
        for one in drawn:
            assert one["label"], one
            assert one["height"] >= 200 and 200 <= one["width"] <= one["place"] + 1, one
            assert one["marks"] >= 3, one


def check_colours(browser: Browser, page: Path) -> None:
    """Light and dark differ, and text can be read in both."""
    backgrounds = []
    for dark in (False, True):
        browser.show(page, 1280, dark)
        browser.value("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        browser.settle()
        backgrounds.append(browser.value("getComputedStyle(document.body).backgroundColor"))
        told = browser.value(_CONTRAST)
        assert told["seen"] > 10
        assert told["ratio"] >= 4.5, (dark, told)
    assert backgrounds[0] != backgrounds[1]


def check_structure(browser: Browser, page: Path) -> None:
    """Landmarks, headings in order, tables with captions and scopes, names for what is drawn."""
    browser.show(page)
    levels = browser.value(
        "[...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map((one) => +one.tagName[1])"
    )
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels)), levels
    assert browser.value("document.documentElement.lang") == "en"
    assert browser.value("document.title")
    assert browser.value("document.querySelectorAll('main').length") == 1
    count = browser.value("document.querySelectorAll('table').length")
    assert count == browser.value("document.querySelectorAll('table > caption:not(:empty)').length")
    assert browser.value("document.querySelectorAll('th:not([scope])').length") == 0
    assert browser.value("document.querySelectorAll('[role=img]:not([aria-label])').length") == 0
    doubled = "(() => { const ids = [...document.querySelectorAll('[id]')].map((one) => one.id)"
    assert browser.value(f"{doubled}; return ids.length - new Set(ids).size; }})()") == 0
    links = "[...document.querySelectorAll('a[href^=\"#\"]')]"
    assert browser.value(f"{links}.filter((one) => !document.querySelector(one.hash)).length") == 0


def check_keyboard(browser: Browser, page: Path) -> None:
    """The first Tab shows the skip link, Enter follows it, and Tab and Enter open what is folded."""
    browser.show(page)
    browser.press("Tab", 9)
    box = browser.value(
        "(() => { const r = document.activeElement.getBoundingClientRect(); return [r.left, r.top]; })()"
    )
    assert browser.value("document.activeElement.className") == "skip"
    assert box[0] >= 0 and box[1] >= 0
    browser.press("Enter", 13)
    browser.settle()
    assert browser.value("document.activeElement.tagName") == "MAIN"
    for _ in range(80):
        browser.press("Tab", 9)
        if browser.value("document.activeElement.tagName") == "SUMMARY":
            break
    else:
        pytest.fail("80 times Tab reach no summary")
    assert browser.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    before = browser.value("document.activeElement.parentElement.open")
    browser.press("Enter", 13)
    browser.settle()
    assert browser.value("document.activeElement.parentElement.open") is not before
