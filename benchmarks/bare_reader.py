"""The least that reading streams costs in Python: an epoll loop that puts down bytes and times and reads nothing."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Sequence


def read_bare(port: int, prompts: Sequence[str], tokens: int) -> int:
    """Stream an answer to every prompt at once from `/generate` on the loopback address; the number of reads."""
    poller, open_ones, reads = select.epoll(), {}, 0
    arrived_s: list[float] = []
    pieces: list[bytes] = []
    try:
        for prompt in prompts:
            stream = socket.create_connection(("127.0.0.1", port))
            open_ones[stream.fileno()] = stream
            stream.sendall(_request(prompt, tokens))
            stream.setblocking(False)
            poller.register(stream.fileno(), select.EPOLLIN)
        while open_ones:
            for number, _ in poller.poll():
                piece = open_ones[number].recv(65536)
                arrived_s.append(time.perf_counter())
                pieces.append(piece)
                reads += 1
                if not piece:
                    poller.unregister(number)
                    open_ones.pop(number).close()
    finally:
        poller.close()
        for stream in open_ones.values():
            stream.close()
    return reads


def _request(prompt: str, tokens: int) -> bytes:
    sampling = {"max_new_tokens": tokens, "ignore_eos": True, "temperature": 0}
    body = json.dumps({"text": prompt, "sampling_params": sampling, "stream": True}).encode()
    head = ["POST /generate HTTP/1.1", "Host: 127.0.0.1", "Connection: close", "Content-Type: application/json"]
    return "\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode() + body
