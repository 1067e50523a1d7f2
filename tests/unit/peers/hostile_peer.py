"""A worker that runs the peer `fake` and spoils its answers, for tests of what the runner believes.

A folder for LONGSPAN_PEERS is made by folder_with(). Its worker.py calls serve() of this file.
"""
import json
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent


def folder_with(folder, peers, body):
    """Makes `folder` a folder of peers whose worker runs `body`, Python text that ends by calling serve(spoil)."""
    pathlib.Path(folder, "worker.py").write_text(
        f"import sys\nsys.path[:0] = [{str(peers)!r}, {str(HERE)!r}]\nfrom hostile_peer import serve\n{body}\n")
    return str(folder)


def write(data):
    while data:
        data = data[os.write(3, data):]


def serve(spoil):
    """spoil(worker, request, answer) returns the answer to give, or bytes, or None if it has written them itself. worker.length
    is that of the case."""
    import worker as real
    from fake import Adapter

    real.become_helper()
    worker = real.Worker(Adapter(), {})
    for line in sys.stdin:
        request = json.loads(line)
        if "problem" in request:
            worker.length = request["problem"]["tokens_q"]
        answer = spoil(worker, request, worker.handle(request))
        if answer is not None:
            write(answer if isinstance(answer, bytes) else json.dumps(answer).encode() + b"\n")
