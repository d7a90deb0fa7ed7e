"""A stand-in for SGLang's server: same arguments, same endpoints, no model, made to fail on demand.

Run as an interpreter (`fake_interpreter`), it answers every call of `-m sglang.launch_server ...`
and of `questions.py`; a study that uses it needs the start method `spawn`.
Behaviour comes as JSON in the environment variable FAKE_SGLANG, so a study can set it in `engine.env`:

mode             "serve" (default), "never_ready", "die_at_start", "die_after", "hang_after", "port_in_use_once"
log              text written to the log before anything else happens
exit_code        of "die_at_start" and "die_after" (default 1); a negative one is a signal sent to itself
after_requests   measured requests answered before "die_after" or "hang_after" strike (default 3)
only_on          {"num_steps": 5, "tp_size": 2, ...}: the mode strikes only when all of these are so, else it serves
ready_after_s    time until /health answers 200 (default 0)
step_ms          time of one verify step, or of one token without speculation (default 1)
good_ids         aux ids under which drafts are good; with other ids they are bad (default: always good)
accept           [good, bad] chance that one draft is accepted (default [0.8, 0.2])
grandchildren    true: also start one sleeper in the same group and one in its own session
ignore_sigterm   true: SIGTERM does nothing
override         {"tp_size": 7, ...} put over what /server_info says
backends         [for topk 1, for a tree] attention backend that its arguments are resolved to
on_order         what the ranks do when a flush brings an order (into SPECSWEEP_CONTROL): "obey" (a trace too), "die"
                 (once, noted in the file `marker`), "error" (rank 0), "silent" (the last rank), "other layers" (they
                 say that they capture others), "hold" (part of the old state stays); without it they have no plugin
count_file       path; one line is appended per start: the launches of a study can be counted
questions        path; one line per question about arguments is appended: how many, and CUDA_VISIBLE_DEVICES
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

# files beside this one, which an interpreter finds that was started with this one
from fake_model import ENCODING, Model
from fake_pools import FakePools

VERSION = "0.5.23"
ARCHITECTURE_DEFAULT = (5, 4, 8)
TRIPLE = ("num_steps", "eagle_topk", "num_draft_tokens")


def parse_args(argv: list[str]) -> dict[str, Any]:
    """`--some-flag value` and `--switch` to a dictionary in snake_case, numbers as numbers."""
    args: dict[str, Any] = {}
    for i, word in enumerate(argv):
        if not word.startswith("--"):
            continue
        name, _, inline = word[2:].partition("=")
        following = argv[i + 1] if i + 1 < len(argv) else "--"
        value: Any = inline or (True if following.startswith("--") else following)
        if isinstance(value, str) and value.lstrip("-").isdigit():
            value = int(value)
        args[name.replace("-", "_")] = value
    return args


def resolve(args: dict[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
    """What SGLang makes of the speculative numbers (speculative_hook.py, `_handle_eagle_family`)."""
    info = {"tp_size": 1, "pp_size": 1, "base_gpu_id": 0, "speculative_algorithm": None, "api_key": None} | args
    steps, topk, tokens = (args.get(f"speculative_{name}") for name in TRIPLE)
    if info["speculative_algorithm"] is not None:
        if steps is None:
            steps, topk, tokens = ARCHITECTURE_DEFAULT
        if topk == 1 and tokens != steps + 1:
            log(
                "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when speculative_eagle_topk == 1"
            )
            tokens = steps + 1
    for name, value in zip(TRIPLE, (steps, topk, tokens), strict=True):
        info[f"speculative_{name}"] = value
    info.setdefault("max_running_requests", 48)
    if "backends" in plan:
        info.setdefault("attention_backend", plan["backends"][topk not in (None, 1)])
    return info


def log(text: str) -> None:
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    print(f"[{stamp}] {text}", file=sys.stderr, flush=True)


class FakeServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, info: dict[str, Any], plan: dict[str, Any], mode: str) -> None:
        self.info, self.plan, self.mode = info, plan, mode
        self.model = Model(info, plan)
        self.sequence = 0
        self.pools: FakePools | None = None
        self.started = time.monotonic()
        self.requests = 0
        self.running = 0
        self.lock = threading.Lock()
        host = info.get("host", "127.0.0.1")
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, info["port"]), Handler)

    @property
    def ready(self) -> bool:
        waited = time.monotonic() - self.started
        return self.mode != "never_ready" and waited >= self.plan.get("ready_after_s", 0)

    def strike(self) -> None:
        with self.lock:
            self.requests += 1
            count = self.requests
        if count > self.plan.get("after_requests", 3):
            if self.mode == "die_after":
                die(self.plan)
            if self.mode == "hang_after":
                time.sleep(3600)

    def take_order(self) -> None:
        """What our plugin does on every rank, without SGLang."""
        folder = Path(os.environ["SPECSWEEP_CONTROL"])
        try:
            order = json.loads((folder / "order.json").read_text(encoding=ENCODING))
        except OSError:
            return
        if order["sequence"] <= self.sequence:
            return
        self.sequence = order["sequence"]
        what, ranks = self.plan["on_order"], self.info["tp_size"]
        if what == "die" and not Path(self.plan["marker"]).exists():
            Path(self.plan["marker"]).touch()
            die({"exit_code": -9})
        error = "RuntimeError: no memory" if what == "error" else None
        running = {name: order[name] for name in TRIPLE} | {"layers_to_capture": [i + 1 for i in order["ids"]]}
        if what == "other layers":
            running["layers_to_capture"] = [1, 2, 3]
        if error is None:
            self.info |= {f"speculative_{name}": order[name] for name in TRIPLE}
            self.model = Model(self.info, self.plan)
            self.trace(order)
        for rank in range(ranks - (what == "silent")):
            answer = {"sequence": self.sequence, "rank": rank, "error": error, "elapsed_s": 0.01, "running": running}
            answer |= {"not_freed": ["draft_graphs"], "graphs_s": 0.005, "graphs_gb": 0.25} if what == "hold" else {}
            fresh = folder / f".answer-{rank}"
            fresh.write_text(json.dumps(answer), encoding=ENCODING)
            fresh.replace(folder / f"answer-{rank}.json")

    def trace(self, order: dict[str, Any]) -> None:
        """Begin or end a trace."""
        if order.get("trace"):
            self.pools = FakePools(order, self.model.chance)
        else:
            self.pools = None

    def server_info(self) -> dict[str, Any]:
        state: dict[str, Any] = {"last_gen_throughput": 100.0, "effective_max_running_requests_per_dp": 48}
        if self.model.steps:
            state["avg_spec_accept_length"] = 1.0 + self.model.steps * self.model.chance / 2
        extra = {"version": VERSION, "status": "ready", "internal_states": [state], "max_total_num_tokens": 4096}
        return self.info | {"launch_command": " ".join(sys.argv[1:])} | extra | self.plan.get("override", {})

    def loads(self) -> dict[str, Any]:
        load = {"dp_rank": 0, "num_running_reqs": self.running, "num_waiting_reqs": 0}
        return {"version": VERSION, "accelerator": None, "num_accelerators": 1, "loads": [load]}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeServer

    def log_message(self, format: str, *args: Any) -> None:
        log("INFO:     " + format % args)

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if not self.server.ready:
            self._reply(503, {"status": "starting"})
        elif path in ("/health", "/health_generate"):
            self._reply(200, None)
        elif path in ("/server_info", "/get_server_info"):
            self._reply(200, self.server.server_info())
        elif path == "/v1/loads":
            self._reply(200, self.server.loads())
        elif path == "/flush_cache":
            self._flush()
        else:
            self._reply(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.split("?")[0]
        if path == "/flush_cache":
            self._flush()
        elif path == "/freeze_gc":
            log("garbage collection frozen")
            self._reply(200, {})
        elif path == "/generate":
            self.server.strike()
            self._generate(json.loads(body))
        else:
            self._reply(404, {"detail": "Not Found"})

    def _flush(self) -> None:
        idle = self.server.running == 0
        if idle and self.server.pools is not None:
            self.server.pools.write()
        if idle and "on_order" in self.server.plan:
            self.server.take_order()
        self._reply(200 if idle else 400, None)

    def _generate(self, request: dict[str, Any]) -> None:
        prompt = request.get("text") or str(request.get("input_ids"))
        count = int(request.get("sampling_params", {}).get("max_new_tokens", 16))
        with self.server.lock:
            self.server.running += 1
        try:
            self._answer(prompt, count, stream=bool(request.get("stream")), request_id=request.get("rid") or "fake")
        finally:
            with self.server.lock:
                self.server.running -= 1

    def _answer(self, prompt: str, count: int, *, stream: bool, request_id: str) -> None:
        model, pause = self.server.model, self.server.plan.get("step_ms", 1) / 1000
        ids, rounds = model.ids(prompt, count), model.rounds(prompt, count)
        prompt_tokens = max(1, len(prompt) // 4)
        if self.server.pools is not None:
            with self.server.lock:
                self.server.pools.note(request_id, prompt_tokens, ids)
        if stream:
            self._start_stream()
        sent = 1
        time.sleep(pause)
        for done in range(len(rounds) + 1):
            if done:
                time.sleep(pause)
                sent += rounds[done - 1]
            answer = {"text": "x" * sent, "output_ids": ids[:sent]}
            answer["meta_info"] = model.meta(prompt_tokens, sent, rounds[:done], request_id)
            if done < len(rounds):
                answer["meta_info"]["finish_reason"] = None
            if stream:
                self._chunk(b"data: " + json.dumps(answer).encode() + b"\n\n")
        if stream:
            self._chunk(b"data: [DONE]\n\n")
            self._chunk(b"")
        else:
            self._reply(200, answer)

    def _start_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _reply(self, status: int, content: object) -> None:
        data = b"" if content is None else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def die(plan: dict[str, Any]) -> None:
    sys.stderr.flush()
    code = int(plan.get("exit_code", 1))
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


def start_grandchildren() -> None:
    for new_session in (False, True):
        subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], start_new_session=new_session)


def mode_of(plan: dict[str, Any], info: dict[str, Any]) -> str:
    only_on = plan.get("only_on", {})
    names = {name: f"speculative_{name}" for name in TRIPLE}
    hit = all(info.get(names.get(name, name)) == value for name, value in only_on.items())
    return plan.get("mode", "serve") if hit else "serve"


def read_plan() -> dict[str, Any]:
    plan: dict[str, Any] = json.loads(os.environ.get("FAKE_SGLANG") or "{}")
    return plan


def serve(argv: list[str]) -> None:
    plan = read_plan()
    if count_file := plan.get("count_file"):
        with Path(count_file).open("a", encoding=ENCODING) as lines:
            lines.write(json.dumps(argv) + "\n")
    info = resolve(parse_args(argv), plan)
    mode = mode_of(plan, info)
    if mode == "port_in_use_once":
        marker = Path(plan["marker"])
        mode = "serve" if marker.exists() else "die_at_start"
        marker.touch()
    if mode != "serve" and plan.get("log"):
        sys.stderr.write(plan["log"] + "\n")
    if plan.get("ignore_sigterm"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if plan.get("grandchildren"):
        start_grandchildren()
    if mode == "die_at_start":
        die(plan)
    log(f"server_args={info}")
    FakeServer(info, plan, mode).serve_forever()


def answer_question(argv: list[str]) -> None:
    """What `questions.py` would answer under this interpreter."""
    if argv[0] == "find":
        answer: dict[str, Any] = {"version": VERSION, "stand_ins": []}
    else:
        plan, settings = read_plan(), json.load(sys.stdin)
        if "questions" in plan:
            with Path(plan["questions"]).open("a", encoding=ENCODING) as lines:
                lines.write(json.dumps([len(settings), os.environ.get("CUDA_VISIBLE_DEVICES")]) + "\n")
        answer = {"rows": [{"error": None, "args": resolve(parse_args(words), plan)} for words in settings]}
    print(json.dumps(answer))


def main(argv: list[str]) -> None:
    if argv[:2] == ["-m", "sglang.launch_server"]:
        serve(argv[2:])
    elif argv and argv[0].endswith("questions.py"):
        answer_question(argv[1:])
    else:
        raise SystemExit(f"fake_sglang: no idea how to run {argv}")


if __name__ == "__main__":
    main(sys.argv[1:])
