"""A real vLLM in its own process, from its own virtual environment. ``make test-vllm`` makes the environment."""

import atexit
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from language_models import small_base
from ports import free_port

from flyball.app.language.base_model import export_base
from flyball.app.store import MemoryStore

START_SECONDS = 600  # a busy machine needs minutes
OPTIONS = {
    "--dtype": "float32",
    "--max-model-len": "1024",
    "--max-loras": "8",
    "--max-lora-rank": "16",
    "--max-cpu-loras": "16",
    "--max-num-seqs": "64",
    "--max-num-batched-tokens": "8192",
    "--block-size": "32",
    "--logprobs-mode": "processed_logprobs",
}


def vllm_python() -> str | None:
    """Return the interpreter that has vLLM, or None."""
    return os.environ.get("FLYBALL_VLLM_PYTHON")


class VllmServer:
    """Serves a base model from a folder under a name.

    ``options`` replace the default options of the tests.

    Attributes:
        adapters: the folder for adapters of all tests that share the server.
    """

    def __init__(self, base: Path, name: str, log: Path, *, chunked: bool = False, **options: str) -> None:
        port = free_port()
        self.address = f"http://127.0.0.1:{port}"
        self.adapters = log.with_name("adapters")
        self._log = log
        chosen = OPTIONS | {"--" + key.replace("_", "-"): value for key, value in options.items()}
        flags = [word for option in chosen.items() for word in option]
        python = vllm_python()
        assert python is not None
        self._command = [
            *(python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(base), "--served-model-name", name),
            *("--host", "127.0.0.1", "--port", str(port), "--enforce-eager", "--enable-lora", *flags),
            "--enable-chunked-prefill" if chunked else "--no-enable-chunked-prefill",
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> "VllmServer":
        """Start the server, and wait until it is healthy."""
        environment = {
            name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "OMP_NUM_THREADS")
        }
        environment |= {
            "HF_HUB_OFFLINE": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
            "VLLM_SERVER_DEV_MODE": "1",
            "VLLM_NO_USAGE_STATS": "1",
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            assert self._process.poll() is None, self.log()
            try:
                urllib.request.urlopen(f"{self.address}/health", timeout=5).close()
            except (urllib.error.URLError, OSError):
                time.sleep(0.5)
            else:
                return self
        self.kill()
        raise AssertionError(f"not healthy in time:\n{self.log()}")

    def kill(self) -> None:
        """End the server and its engine at once, as kill -9 does."""
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


@cache
def shared_vllm() -> VllmServer:
    """Return a server of the tests' small base model. It runs until the tests end."""
    folder = Path(mkdtemp(prefix="vllm-"))
    base = small_base(MemoryStore())
    export_base(base, folder / "base")
    server = VllmServer(folder / "base", base.fingerprint, folder / "log")
    atexit.register(server.kill)
    return server.start()
