"""cudnn-fe: cuDNN's attention through its own front-end (nvidia-cudnn-frontend). Full, causal, windows, documents."""

PEER = {
    "description": "cuDNN through its own front-end",
    "framework": "torch",
    "package": "nvidia-cudnn-frontend",
    "device": "cuda",
    "passes": ["forward", "backward"],
    "masks": "full, causal, windows, documents",
    "colour": "#626a75",
}

import cudnn
import torch

from support.adapter import Peer, Plan, Unsupported, need_dtype, one_mask
from support.packed import unpacked_lse

TYPES = {"bf16": (torch.bfloat16, cudnn.data_type.BFLOAT16), "f16": (torch.float16, cudnn.data_type.HALF)}


class Graph:
    """One pass, compiled for one shape and kind of mask. It can be used with any tensors, and with any documents of the same
    number and longest length."""

    def __init__(self, handle, problem, bounds, documents, longest, forward):
        self.handle, self.forward = handle, forward
        dtype = TYPES[problem.dtype][1]
        graph = cudnn.pygraph(
            io_data_type=dtype, intermediate_data_type=cudnn.data_type.FLOAT, compute_data_type=cudnn.data_type.FLOAT,
            handle=handle)
        batch, dim = max(documents, 1), problem.head_dim
        self.inputs, self.outputs, lengths = [], [], {}
        offsets = {}
        if documents:
            column = lambda count, name, kind: graph.tensor(name=name, dim=[count, 1, 1, 1], stride=[1, 1, 1, 1], data_type=kind)
            lengths = {
                "use_padding_mask": True,
                "seq_len_q": column(batch, "seq_len_q", cudnn.data_type.INT32),
                "seq_len_kv": column(batch, "seq_len_kv", cudnn.data_type.INT32)}
            offsets = {h: column(batch + 1, f"offsets_{h}", cudnn.data_type.INT64) for h in {problem.heads_q, problem.heads_kv}}
            self.inputs += [lengths["seq_len_q"], lengths["seq_len_kv"], offsets[problem.heads_q], offsets[problem.heads_kv]]

        def shape(heads):  # [tokens, heads, head_dim] in cuDNN's order of axes
            return [batch, heads, longest, dim], [longest * heads * dim, dim, heads * dim, 1]

        def tensor(name, heads):
            dims, strides = shape(heads)
            made = graph.tensor(name=name, dim=dims, stride=strides, data_type=dtype)
            if documents:
                made.set_ragged_offset(offsets[heads])
            self.inputs.append(made)
            return made

        def result(made, heads):
            dims, strides = shape(heads)
            made.set_output(True).set_dim(dims).set_stride(strides)
            if documents:
                made.set_ragged_offset(offsets[heads])
            self.outputs.append(made)

        stats_shape = [batch, problem.heads_q, longest, 1], [problem.heads_q * longest, longest, 1, 1]
        left, right = bounds
        options = {
            "attn_scale": problem.scale, "diagonal_alignment": cudnn.diagonal_alignment.TOP_LEFT, "diagonal_band_left_bound": left,
            "diagonal_band_right_bound": right, **lengths}
        q, k, v = tensor("q", problem.heads_q), tensor("k", problem.heads_kv), tensor("v", problem.heads_kv)
        if forward:
            o, stats = graph.sdpa(name="sdpa", q=q, k=k, v=v, generate_stats=True, **options)
            result(o, problem.heads_q)
            stats.set_output(True).set_dim(stats_shape[0]).set_stride(stats_shape[1]).set_data_type(cudnn.data_type.FLOAT)
            self.outputs.append(stats)
        else:
            o, do = tensor("o", problem.heads_q), tensor("do", problem.heads_q)
            stats = graph.tensor(
                name="stats", dim=stats_shape[0], stride=stats_shape[1], data_type=cudnn.data_type.FLOAT)
            self.inputs.append(stats)
            totals = {"max_total_seq_len_q": problem.tokens_q, "max_total_seq_len_kv": problem.tokens_kv} if documents else {}
            gradients = graph.sdpa_backward(
                name="sdpa_backward", q=q, k=k, v=v, o=o, dO=do, stats=stats,
                use_deterministic_algorithm=problem.deterministic, **options, **totals)
            for gradient, heads in zip(gradients, (problem.heads_q, problem.heads_kv, problem.heads_kv)):
                result(gradient, heads)
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        graph.check_support()
        graph.build_plans()
        self.graph, self.workspace_bytes = graph, max(graph.get_workspace_size(), 1)

    def __call__(self, inputs, outputs):
        workspace = torch.empty(self.workspace_bytes, dtype=torch.uint8, device=outputs[0].device)
        tensors = dict(zip(self.inputs, inputs, strict=True)) | dict(zip(self.outputs, outputs, strict=True))
        cudnn.set_stream(handle=self.handle, stream=torch.cuda.current_stream().cuda_stream)
        self.graph.execute(tensors, workspace, handle=self.handle)


class CudnnPlan(Plan):
    def __init__(self, problem, graphs, boundaries):
        self.problem, self.graphs, self.boundaries = problem, graphs, boundaries
        self.mask, batch, self.longest = [], 1, problem.tokens_q
        if boundaries is not None:
            lengths = boundaries[1:] - boundaries[:-1]
            batch, self.longest = len(lengths), int(lengths.max())
            row = problem.head_dim * boundaries
            self.mask = [lengths.int(), lengths.int(), row * problem.heads_q, row * problem.heads_kv]
        self.stats_shape = (batch, problem.heads_q, self.longest, 1)

    def forward(self, q, k, v):
        self.saved = (q, k, v)
        self.o = torch.empty_like(q)
        self.stats = torch.empty(self.stats_shape, dtype=torch.float32, device=q.device)
        self.graphs[0]([*self.mask, q, k, v], [self.o, self.stats])
        return self.o

    def lse(self):
        stats = self.stats.squeeze(-1)
        return stats[0] if self.boundaries is None else unpacked_lse(stats, self.boundaries, self.problem.tokens_q)

    def backward(self, dout):
        gradients = [torch.empty_like(x) for x in self.saved]
        self.graphs[1]([*self.mask, *self.saved, self.o, dout, self.stats], gradients)
        return tuple(gradients)


class Adapter(Peer):
    heeds_deterministic = True

    def __init__(self):
        self.handle, self.graphs = None, {}

    def begin_case(self):
        self.graphs.clear()

    def versions(self):
        return {"nvidia-cudnn-frontend": cudnn.__version__, "cudnn": str(cudnn.backend_version())}

    def _graphs(self, problem, bounds, documents, longest):
        """The graphs of both passes, compiled once per case."""
        if self.handle is None:
            self.handle = cudnn.create_handle()
        made = []
        for forward in (True, False) if problem.backward else (True,):
            key = (repr(problem), bounds, documents, longest, forward)
            if key not in self.graphs:
                try:
                    self.graphs[key] = Graph(self.handle, problem, bounds, documents, longest, forward)
                except cudnn.cudnnGraphNotSupportedError as error:
                    raise Unsupported(f"cuDNN {cudnn.backend_version()} has no kernel: {' '.join(str(error).split())[:200]}")
            made.append(self.graphs[key])
        return made

    def check(self, problem, masks, device):
        """Whether cuDNN has a kernel for the shape is only known after building its graph, which `plan` does."""
        need_dtype(problem, *TYPES)
        mask = one_mask(masks)
        if mask.window() is None and mask.documents() is None:
            raise Unsupported("cannot express this mask; it supports full, causal, windows and documents")

    def plan(self, problem, masks, device):
        self.check(problem, masks, device)
        mask = masks[0]
        if mask.is_full():
            return CudnnPlan(problem, self._graphs(problem, (None, None), 0, problem.tokens_q), None)
        if window := mask.window():
            # cuDNN's left bound includes the diagonal: a row sees bound - 1 keys before it.
            left, right = (None if side < 0 else side for side in window)
            bounds = (None if left is None else left + 1, right)
            return CudnnPlan(problem, self._graphs(problem, bounds, 0, problem.tokens_q), None)
        boundaries, causal = mask.documents()
        boundaries = torch.tensor(boundaries, dtype=torch.int64, device=device)
        longest = int((boundaries[1:] - boundaries[:-1]).max())
        bounds = (None, 0 if causal else None)
        return CudnnPlan(problem, self._graphs(problem, bounds, len(boundaries) - 1, longest), boundaries)
