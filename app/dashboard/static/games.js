// Steps through a watched game by keys and plays it; in a person's game, keeps the keyboard on the board.
"use strict";
(() => {
  const PLAY_MS = 900;
  const KEYS = { ArrowLeft: "game-back", ArrowRight: "game-next", Home: "game-first", End: "game-last" };
  let playing = 0;
  let asking = false;

  // Asks for the part itself: just after a swap, htmx does not know the new links yet, and a click would load the page.
  function press(id) {
    const link = document.getElementById(id);
    if (link?.tagName !== "A") return false;
    if (!asking) {
      asking = true;
      htmx.ajax("GET", link.getAttribute("hx-get"), { target: "#game", swap: "outerHTML" })
        .catch(() => {}).finally(() => { asking = false; });
    }
    return true;
  }

  function show() {
    const button = document.getElementById("game-play");
    if (!button) return;
    button.setAttribute("aria-pressed", String(playing !== 0));
    button.setAttribute("aria-label", playing ? "Pause" : "Play");
    button.textContent = playing ? "pause" : "▶ play";
  }

  function toggle() {
    if (playing) {
      clearInterval(playing);
      playing = 0;
    } else {
      if (!press("game-next")) press("game-first"); // at the end: from the beginning
      playing = setInterval(() => {
        if (!press("game-next") && !document.getElementById("game-stop")) toggle();
      }, PLAY_MS);
    }
    show();
  }

  document.addEventListener("click", (event) => { if (event.target.id === "game-play") toggle(); });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
    if (event.target.closest("input, select, textarea")) return;
    if (event.key === " " && !event.target.closest("button, a") && document.getElementById("game-play")) {
      event.preventDefault();
      toggle();
    } else if (event.key in KEYS && document.getElementById("game")?.children.length) {
      event.preventDefault();
      press(KEYS[event.key]);
    }
  });
  document.addEventListener("htmx:afterSwap", show);

  // A person's game: arrows go to the next button in their direction, and the focus stays on the board after a move.
  const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  let atBoard = false;

  function middle(one) {
    const box = one.getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];
  }

  function neighbour(from, [right, down]) {
    const [x, y] = middle(from);
    let [nearest, least] = [null, Infinity];
    for (const one of document.querySelectorAll("#play .spot")) {
      const [across, low] = middle(one).map((at, k) => at - [x, y][k]);
      const along = across * right + low * down;
      const far = along + 2 * (Math.abs(across * down) + Math.abs(low * right));
      if (along > 1 && far < least) [nearest, least] = [one, far];
    }
    return nearest;
  }

  // The page's own look at the game ends when the person acts, because its answer would lose the picked piece.
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (event.target.closest("#play") && event.target.id !== "play-look") document.getElementById("play-look")?.remove();
  });
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { elt } = event.detail.requestConfig;
    if (elt.id === "play-look" && !elt.isConnected) event.detail.shouldSwap = false;
  });

  document.addEventListener("keydown", (event) => {
    const spot = event.target.closest("#play .spot");
    if (!spot || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
    if (event.key in ARROWS) neighbour(spot, ARROWS[event.key])?.focus();
    else if (event.key === " " && spot.tagName === "A") spot.click(); // links that look like buttons act like these
    else return;
    event.preventDefault();
  });
  document.addEventListener("htmx:beforeSwap", ({ detail: { target } }) => {
    if (target.id === "play") atBoard ||= target.contains(document.activeElement);
  });
  document.addEventListener("htmx:afterSwap", () => {
    if (!atBoard) return;
    // The attribute, because htmx sets the class of what it knew before a moment later.
    const wanted = ["[aria-pressed=true]", ".spot", ".buttons button"];
    const next = wanted.map((one) => document.querySelector(`#play ${one}`)).find(Boolean);
    if (!next) return; // the others are thinking
    next.focus({ preventScroll: true });
    atBoard = false;
  });
})();
