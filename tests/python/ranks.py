"""Processes that are the ranks of a group, for tests: started once for each number of ranks, and given one function after another."""

import atexit
import multiprocessing.connection
import os
import tempfile
import traceback

LIMIT_S = 120  # of a function
_running = {}  # by number of ranks


def _work(rank, size, store, pipe):
    os.environ["LONGSPAN_THREADS"] = "1"
    import datetime

    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    cuda = torch.cuda.device_count() >= size
    if cuda:
        torch.cuda.set_device(rank)
    dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", init_method=f"file://{store}", rank=rank, world_size=size,
                            timeout=datetime.timedelta(seconds=60))
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((None, function(*arguments)))
        except Exception:
            pipe.send((f"on rank {rank}:\n{traceback.format_exc()}", None))


class Ranks:
    def __init__(self, size):
        self._folder = tempfile.TemporaryDirectory()
        context = multiprocessing.get_context("spawn")
        self._ends, self.processes = [], []
        for rank in range(size):
            mine, theirs = context.Pipe()
            process = context.Process(target=_work, args=(rank, size, f"{self._folder.name}/store", theirs), daemon=True)
            process.start()
            theirs.close()
            self._ends.append(mine)
            self.processes.append(process)

    def start(self, function, *arguments):
        for rank in range(len(self._ends)):
            self.start_on(rank, function, *arguments)

    def start_on(self, rank, function, *arguments):
        try:
            self._ends[rank].send((function, arguments))
        except Exception:
            self.stop()
            raise

    def results(self, ranks=None):
        """What the function gave on each rank. Raises the first failure, which a rank that dies is, too."""
        ends = self._ends if ranks is None else [self._ends[rank] for rank in ranks]
        results = {}
        while len(results) < len(ends):
            ready = multiprocessing.connection.wait([end for end in ends if end not in results], LIMIT_S)
            if not ready:
                self.stop()
                raise AssertionError(f"a rank does not answer within {LIMIT_S} s")
            for end in ready:
                try:
                    failure, results[end] = end.recv()
                except (EOFError, OSError):
                    rank = self._ends.index(end)
                    self.processes[rank].join(LIMIT_S)
                    failure = f"rank {rank} died with exit code {self.processes[rank].exitcode}"
                if failure:
                    self.stop()  # the others may be waiting in the middle of something
                    raise AssertionError(failure)
        return [results[end] for end in ends]

    def stop(self):
        for process in self.processes:
            process.kill()
            process.join()
        for size, ranks in list(_running.items()):
            if ranks is self:
                del _running[size]


def run(size, function, *arguments):
    """[function(*arguments) of each rank]. The function is one of a module, and raises nothing where all is well."""
    if size not in _running:
        _running[size] = Ranks(size)
    _running[size].start(function, *arguments)
    return _running[size].results()


@atexit.register
def stop_all():
    for ranks in list(_running.values()):
        ranks.stop()
