// Steps through a game by keys, and plays it.
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
})();
