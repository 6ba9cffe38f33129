// Sets the chosen colours before the first paint.
"use strict";
try {
  const theme = localStorage.getItem("flyball-theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch { /* without storage, the system's colours stay */ }
