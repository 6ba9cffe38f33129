"""Charts of the dashboard in a real browser."""

import time
from typing import Any

from browsing import busy_run, page_of
from dashboards import append, served
from driving import rated
from recorded_run import KEY, NEW, match, recording, trained, write_journal

EVENTS = recording().events


def marks(page: Any, colour: str) -> int:
    """Return how many marks of a colour a rating chart has."""
    return int(
        page.evaluate(
            """(colour) => {
              const probe = document.createElement("i");
              probe.style.color = `var(${colour})`;
              document.body.append(probe);
              const wanted = getComputedStyle(probe).color.match(/\\d+/g).map(Number);
              probe.remove();
              const canvas = document.querySelector("[data-ratings] canvas");
              const { data, width, height } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
              let found = 0, inside = false;
              for (let x = 0; x < width; x++) {
                let here = false;
                for (let y = 0; y < height; y++) {
                  const at = 4 * (y * width + x);
                  here ||= data[at + 3] === 255 && wanted.every((part, k) => data[at + k] === part);
                }
                found += here && !inside;
                inside = here;
              }
              return found;
            }""",
            colour,
        )
    )


def test_news_during_the_first_load_draw_one_chart(browser, tmp_path):
    """The news also bring a promotion that no rating has followed yet; it is marked too."""
    write_journal(tmp_path / "journal.sqlite", EVENTS)
    loads: list[str] = []

    def slow(route: Any) -> None:
        if not loads:
            append(tmp_path, busy_run(0))
            time.sleep(2)
        loads.append(route.request.url)
        route.continue_()

    with served(tmp_path) as url, page_of(browser, url) as page:
        page.route("**/curves/ratings/*", slow)
        page.goto(f"{url}/configuration/{KEY}")
        page.wait_for_selector("[data-ratings] canvas")
        while len(loads) < 2 or marks(page, "--good") < 2:
            page.wait_for_timeout(50)
        assert len(page.query_selector_all("[data-ratings] .uplot")) == 1


AXIS_TEXTS = """() => {
  window.drawn = new Map();  // canvas -> texts of its axes, since it was last cleared
  const { clearRect, fillText } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.clearRect = function (...box) {
    window.drawn.set(this.canvas, { right: [], center: [] });
    return clearRect.apply(this, box);
  };
  CanvasRenderingContext2D.prototype.fillText = function (text, ...at) {
    window.drawn.get(this.canvas)?.[this.textAlign]?.push(text);
    return fillText.call(this, text, ...at);
  };
}"""


def test_curves_have_telling_axes_in_the_order_of_recording(browser, tmp_path):
    """Numbers on an axis differ, a constant is in the middle of its own size, and steps are whole."""
    run = recording()
    for step in range(2, 5):
        metrics = {"steady": 1234.5 + step / 100, "fixed": 0.25, "bad": 0.0}
        run.add(trained(NEW, step).replace(metrics=metrics), subject=KEY)
    write_journal(tmp_path / "journal.sqlite", run.events)
    with served(tmp_path) as url, page_of(browser, url) as page:
        page.add_init_script(f"({AXIS_TEXTS})()")
        page.goto(f"{url}/training/{KEY}")
        tags = page.eval_on_selector_all("[data-tag]", "all => all.map(one => one.dataset.tag)")
        assert tags[:4] == ["train/rows", "train/steady", "train/fixed", "train/bad"]
        assert tags[4] == "evaluation/elo"
        texts = {}
        for tag in tags[:4]:
            page.wait_for_selector(f"[data-tag='{tag}'] canvas")
            texts[tag] = page.eval_on_selector(f"[data-tag='{tag}'] canvas", "one => window.drawn.get(one)")
    for tag, axes in texts.items():
        for numbers in axes.values():
            assert len(numbers) == len(set(numbers)) >= 2, (tag, numbers)
        assert all(number.isdigit() for number in axes["center"])
    bad = [float(number) for number in texts["train/bad"]["right"]]
    assert 0 <= min(bad) <= max(bad) <= 1
    fixed = [float(number) for number in texts["train/fixed"]["right"]]
    assert 0.2 <= min(fixed) <= max(fixed) <= 0.3


def test_random_members_are_points_without_a_line(browser, tmp_path):
    run = recording()
    for step in range(2, 6):
        results = (match(100 + step, 200), match(20 * step, 200, "member_1"))
        run.add(rated(5.0, *results, model=NEW, step=step), subject=KEY)
    write_journal(tmp_path / "journal.sqlite", run.events)
    with served(tmp_path) as url, page_of(browser, url) as page:
        page.goto(f"{url}/training/{KEY}")
        covered = {}
        for name in ("random", "member_1"):
            chart = f"[data-tag='evaluation/score/{name}']"
            page.locator(chart).scroll_into_view_if_needed()
            page.wait_for_selector(f"{chart} canvas")
            covered[name] = page.eval_on_selector(
                f"{chart} canvas",
                """canvas => {
                  const { width, height } = canvas;
                  const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
                  let columns = 0;
                  for (let x = 0; x < width; x++) {
                    let here = false;
                    for (let y = 0; y < height; y++) {
                      const [red, green] = data.slice(4 * (y * width + x));
                      here ||= data[4 * (y * width + x) + 3] > 200 && green - red > 60;
                    }
                    columns += here;
                  }
                  return columns / width;
                }""",
            )
    assert covered["random"] > 0.5
    assert 0 < covered["member_1"] < 0.3
