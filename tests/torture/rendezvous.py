"""Hostile connections at the port where the two ranks of a job meet; the job must end as if alone."""

import os
import re
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

CASE = ["--strategy", "ring-p2p", "--ranks", "2", "--transport", "nccl", "--kernel", "cpu-flash", "--mask", "causal", "--seqlen", "64",
        "--heads", "2", "--head-dim", "16"]
GREETING = b"longspan" + struct.pack("<I", 2)  # then a nonce of 32 bytes
AT_ONCE = 8


def rank(t, number, port, out):
    environment = {name: value for name, value in os.environ.items() if not re.match("LONGSPAN_|TORCHELASTIC|SLURM|OMPI|PMIX", name)}
    environment |= {"RANK": str(number), "WORLD_SIZE": "2", "LOCAL_RANK": str(number), "LOCAL_WORLD_SIZE": "2",
                    "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port - 1), "LONGSPAN_JOB_TOKEN": "the token of this torture"}
    return t.run("run", *CASE, "--out", out, "--allow-skipped", env=environment)


def words_of(random):
    """(description, bytes to send) of a random stranger."""
    nonce, noise = random.randbytes(32), random.randbytes(random.choice([0, 1, 3, 4, 20, 300, 5000, 200000]))
    length = struct.pack("<I", random.choice([0, 1, 16, 17, 40, 1041, 1042, 1 << 20, 1 << 31, (1 << 32) - 1]))
    whole = GREETING + nonce + length + noise
    return random.choice([
        ("says nothing", b""),
        (f"says {len(noise)} random bytes", noise),
        (f"greets, announces {struct.unpack('<I', length)[0]} bytes and says {len(noise)}", whole),
        (f"cuts a handshake to {len(nonce)} bytes", whole[:len(nonce)]),
        ("speaks another version", b"longspan" + random.randbytes(4) + nonce + noise),
        ("speaks HTTP", b"GET / HTTP/1.1\r\nHost: \x1b[2J\r\n\r\n"),
        ("sends back what it hears", None),
    ])


def stranger(random, port, over):
    """A function that acts as one, for a thread, and what it does."""
    what, words = words_of(random)
    piece = random.choice([1, 7, 1 << 20])
    end = random.choice(["waits", "closes", "resets"])

    def act():
        while not over.is_set():
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
                    if words is None:
                        connection.sendall(connection.recv(4096))
                        connection.sendall(connection.recv(4096))
                    for at in range(0, min(len(words or b""), 5000 * piece), piece):
                        connection.sendall(words[at:at + piece])
                    if end == "waits":
                        over.wait()
                    elif end == "resets":
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            except OSError:
                time.sleep(0.005)  # nobody listens yet, or rank 0 has closed the connection

    return f"{what}, {piece} at a time, and {end}", act


def false_rank_0(random, port):
    """Listens at the port and answers the first rank that comes."""
    with socket.create_server(("127.0.0.1", port)) as door:
        guest, _ = door.accept()
        with guest:
            guest.sendall((words_of(random)[1] or b"")[:4096])
            guest.settimeout(0.2)
            try:
                guest.recv(4096)
            except OSError:
                pass


def fault_of(t, results):
    for number, result in enumerate(results):
        if fault := t.fault(result, allowed=(0,)):
            return f"rank {number}: {fault}: {result.stderr[-300:]}"
    return None if "0 measured, 1 skipped, 0 failed" in results[0].stderr else f"another result: {results[0].stderr[-300:]}"


def attempts(t):
    for number in range(1 << 30):
        # Another one than that of the same attempt in a process beside this one.
        port = 10000 + (t.random.randrange(7000) + os.getpid()) % 7000
        over = threading.Event()
        strangers = [stranger(t.random, port, over) for _ in range(AT_ONCE - 1)]
        with ThreadPoolExecutor(AT_ONCE + 2) as pool:
            try:
                if server_first := t.random.random() < 0.5:
                    server = pool.submit(false_rank_0, t.random, port)
                    rank_1 = pool.submit(rank, t, 1, port, f"out{number}")
                    server.result()
                rank_0 = pool.submit(rank, t, 0, port, f"out{number}")
                for _, act in strangers:
                    pool.submit(act)
                if not server_first:
                    time.sleep(t.random.uniform(0, 0.5))  # the strangers are there before rank 1
                    rank_1 = pool.submit(rank, t, 1, port, f"out{number}")
                fault = fault_of(t, [rank_0.result(), rank_1.result()])
            except OSError as error:  # another program has the port
                fault = None if "in use" in str(error) else str(error)
            finally:
                over.set()
        yield "a stranger's server answers rank 1 first" if server_first else "strangers come before rank 1", fault
        for what, _ in strangers:
            yield f"one {what}", fault
