"""How ranks of context parallelism exchange data: over a process group of torch.distributed for tensors on the CPU, by NCCL
communicators of our own for tensors on GPUs."""

import ctypes
import datetime
import itertools
import os
import threading
import weakref

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from longspan import _core

if not dist.is_initialized():
    # The first step of an optimizer imports this module, whose functions keep the world's group, if there is one then, as a
    # default argument. destroy_process_group() could not end that group: GroupReference says what follows.
    import torch.distributed.nn.functional  # noqa: F401

_TAG = 0x4C53  # of our messages in the process group
_LOOKS_EVERY_S = 1.0


class GroupReference:
    """Does not keep the process group: a group that destroy_process_group() cannot end would leave threads of gloo behind that
    crash the process at exit, where they drop tensors of Python."""

    def __init__(self, group):
        self._group = weakref.ref(group)

    def __call__(self):
        group = self._group()
        if group is None:
            raise RuntimeError("the process group of this ContextParallel was destroyed: make another one with the new group")
        return group


class Transport:
    """The ranks of a group for tensors of one device. All ranks of the group make it together."""

    def __init__(self, group, limit_s, device, identifiers):
        """identifiers: bytes that rank 0 makes, and no other group has; all ranks get them."""
        self.rank, self.size = group.rank(), group.size()
        tensor = torch.zeros(len(identifiers), dtype=torch.uint8)
        if self.rank == 0:
            tensor = torch.frombuffer(bytearray(identifiers), dtype=torch.uint8)
        tensor = tensor.to(device_of_collectives(group, device))
        broadcast(group, limit_s, tensor)
        self.identifiers = bytes(tensor.tolist())
        self._store, self._limit_s = group.get_group_store(), limit_s
        self._key = "longspan/failure/" + self.identifiers[:64].hex()

    def tell(self, reason):
        """Leaves the reason of a failure where other ranks may find it. The first one counts."""
        self._ask(lambda: self._store.compare_set(self._key, "", f"rank {self.rank}: {reason}"))

    def heard(self):
        """The reason that some rank has left, or None."""
        return self._ask(lambda: self._store.get(self._key).decode() if self._store.check([self._key]) else None)

    @staticmethod
    def _ask(question):
        """Its answer; None if the store is gone or does not answer soon. It is asked in a thread, since the rank that has
        the store may hang."""
        answers = []

        def ask():
            try:
                answers.append(question())
            except Exception:  # the store is gone
                pass

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(2.0)
        return answers[0] if answers else None


def device_of_collectives(group, device):
    """Where tensors of a collective must be: the CPU if the group takes them there."""
    try:
        group._get_backend(torch.device("cpu"))
        return torch.device("cpu")
    except RuntimeError:
        return device


def wait_for(work, limit_s, rank, whom, heard=lambda: None):
    """Waits for work of the CPU. Raises RuntimeError that says whom `rank` has lost."""
    try:
        work.wait(datetime.timedelta(seconds=limit_s))
    except RuntimeError as error:
        text = " ".join(str(error).split())
        what = f"waited longer than {limit_s:g} s for" if "timed out" in text.lower() else "lost"
        raise RuntimeError(f"rank {rank} {what} {whom} ({heard() or text})") from None


# ---- collectives of the process group, with our limit: a thread of gloo would otherwise go on until the group's own ----

def _options(kind, limit_s):
    options = kind()
    options.timeout = datetime.timedelta(seconds=limit_s)
    return options


def _finish(work, tensor, group, limit_s):
    if tensor.is_cuda:
        work.wait()  # by the stream; PyTorch looks after it
    else:
        wait_for(work, limit_s, group.rank(), "a rank in a collective")


def broadcast(group, limit_s, tensor):
    """From rank 0."""
    _finish(group.broadcast([tensor], _options(c10d.BroadcastOptions, limit_s)), tensor, group, limit_s)


def all_reduce(group, limit_s, tensor):
    _finish(group.allreduce([tensor], _options(c10d.AllreduceOptions, limit_s)), tensor, group, limit_s)


def all_gather(group, limit_s, out, tensor):
    _finish(group._allgather_base(out, tensor, _options(c10d.AllgatherOptions, limit_s)), tensor, group, limit_s)


def all_to_all(group, limit_s, out, tensor, out_rows, rows):
    _finish(group.alltoall_base(out, tensor, out_rows, rows, _options(c10d.AllToAllOptions, limit_s)), tensor, group, limit_s)


# ---- the CPU ----

_numbers = itertools.count(1)
_carriers = weakref.WeakValueDictionary()  # by number


class Carried(Transport):
    """For tensors on the CPU: messages of the process group."""

    def __init__(self, group, limit_s):
        if device_of_collectives(group, None) is None:
            raise NotImplementedError(f"tensors on the CPU, and a process group of backend {dist.get_backend(group)}: it must "
                                      "have gloo for them; use init_process_group('cpu:gloo,cuda:nccl')")
        super().__init__(group, limit_s, torch.device("cpu"), os.urandom(16))
        self._group, self._transfers, self._last = GroupReference(group), {}, 0
        number = next(_numbers)
        _carriers[number] = self
        carrier = _core.Carrier(number, _start, _wait, _fail)
        self.group = _core.Group("group_carried", self.rank, self.size, ctypes.byref(carrier))

    def start(self, sends, receives):
        works, group = [], self._group()
        for act, messages in ((group.recv, receives), (group.send, sends)):
            for message in messages:
                memory = (ctypes.c_uint8 * message.bytes).from_address(message.data)
                tensor = torch.frombuffer(memory, dtype=torch.uint8)
                works.append((act([tensor], message.peer, _TAG), message.peer, tensor))
        self._last += 1
        self._transfers[self._last] = works
        return self._last

    def wait(self, transfer):
        for work, peer, _ in self._transfers.pop(transfer):
            wait_for(work, self._limit_s, self.rank, f"rank {peer}", self.heard)

    def fail(self, reason):
        self._transfers.clear()
        self.tell(reason)


_interrupts = threading.local()


def _noted(body):
    """A number of body; a failure is noted for the library, since no exception passes through it."""
    try:
        return body()
    except BaseException as error:
        if not isinstance(error, Exception):
            _interrupts.error = error
        _core.set_error(str(error) if isinstance(error, RuntimeError) else repr(error))
        return -1


def raise_interrupt():
    """Raises the KeyboardInterrupt or SystemExit that ended a message of this thread, if one did: after a call has failed."""
    error, _interrupts.error = getattr(_interrupts, "error", None), None
    if error is not None:
        raise error


def _carrier(number):
    found = _carriers.get(number)
    if found is None:
        raise RuntimeError("the longspan.distributed.ContextParallel of this plan is gone")
    return found


@_core.START
def _start(number, sends, send_count, receives, receive_count):
    return _noted(lambda: _carrier(number).start(sends[:send_count], receives[:receive_count]))


@_core.WAIT
def _wait(number, transfer):
    return _noted(lambda: _carrier(number).wait(transfer) or 0)


@_core.FAIL
def _fail(number, reason):
    _noted(lambda: _carrier(number).fail(reason.decode(errors="replace")) or 0)


# ---- GPUs ----

class Nccl(Transport):
    """For tensors on a GPU. A thread looks after the waits of the GPU, which nobody else may notice."""

    def __init__(self, group, limit_s, device):
        identifiers = ctypes.create_string_buffer(_core.NCCL_IDENTIFIERS)
        if group.rank() == 0:
            _core.call("nccl_identifiers", identifiers)
        super().__init__(group, limit_s, device, identifiers.raw)
        self.group = _core.Group("group_nccl", self.rank, self.size, self.identifiers, device.index, int(limit_s * 1000))
        threading.Thread(target=_look_after, args=(weakref.ref(self),), daemon=True).start()

    def look(self):
        """Ends the group if another rank has failed, or the GPU has waited too long. True while all is well."""
        reason = self.heard()
        if reason is not None:
            _core.call("group_fail", self.group.handle, reason.encode())
        try:
            _core.call("group_watch", self.group.handle)
        except RuntimeError as error:
            if reason is None:
                self.tell(str(error))
            return False
        return True


def _look_after(reference):
    pause = threading.Event()
    while True:
        pause.wait(_LOOKS_EVERY_S)
        transport = reference()
        if transport is None or not transport.look():
            return
        del transport
