// Sets the chosen colours before the first paint, and changes them by the button.
"use strict";
(() => {
  const root = document.documentElement;
  const themes = ["", "dark", "light"];
  function choose(theme) { if (theme) root.dataset.theme = theme; else delete root.dataset.theme; }
  try { choose(localStorage.getItem("flyball-theme") ?? ""); } catch { /* without storage, the system's colours stay */ }

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    function label() { button.textContent = { dark: "Dark", light: "Light" }[root.dataset.theme] ?? "Auto"; }
    button.addEventListener("click", () => {
      const next = themes[(themes.indexOf(root.dataset.theme ?? "") + 1) % themes.length];
      choose(next);
      try { localStorage.setItem("flyball-theme", next); } catch { /* not kept */ }
      label();
      document.dispatchEvent(new CustomEvent("flyball:theme"));
    });
    label();
  });
})();
