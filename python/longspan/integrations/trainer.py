"""Hugging Face's Trainer over the ranks of a ContextParallel, for packed batches.

    from longspan.integrations.trainer import Trainer
    cp = ContextParallel(mesh["cp"])                            # or all ranks: ContextParallel()
    Trainer(model=model, args=args, train_dataset=documents, data_collator=DataCollatorWithFlattening(), context_parallel=cp).train()

The model has attn_implementation="longspan". Ranks of a group get the same batches and hold a part of each batch's tokens; groups get
different ones, as ranks of a plain Trainer do. Losses, gradients and the number of steps are those of one rank in place of each group.
"""

import torch
import torch.distributed as dist
import transformers
from accelerate.data_loader import prepare_data_loader

from longspan._mask import Mask
from longspan.integrations import transformers as integration

_TAKEN = {"input_ids", "labels", "position_ids", "attention_mask"}


class Trainer(transformers.Trainer):
    """transformers.Trainer, whose batches [1, T] are shared by the ranks of a ContextParallel."""

    def __init__(self, *arguments, context_parallel, **options):
        """context_parallel: a ContextParallel. Its groups have consecutive ranks, as those of the last dimension of a mesh have.
        arguments, options: those of transformers.Trainer. A batch has input_ids [1, T], labels that are not shifted, and
        position_ids, which tell where documents begin: DataCollatorWithFlattening makes such batches. DDP or FSDP averages the
        gradients.

        Raises NotImplementedError for what needs the outputs of all tokens on each rank (compute_metrics, compute_loss_func,
        label_smoothing_factor), and for models whose loss does not take num_items_in_batch."""
        self._cp = context_parallel
        super().__init__(*arguments, **options)
        refused = {"compute_metrics": self.compute_metrics, "compute_loss_func": self.compute_loss_func,
                   "label_smoothing_factor": self.args.label_smoothing_factor}
        for name, value in refused.items():
            if value:
                raise NotImplementedError(f"{name}: it needs the outputs of all tokens, of which a rank has a part")
        if not self.model_accepts_loss_kwargs:
            raise NotImplementedError(f"{type(self.model).__name__} does not take num_items_in_batch, by which ranks with different "
                                      "numbers of tokens find the same mean")
        if self.args.world_size != dist.get_world_size():
            raise ValueError(f"the Trainer sees {self.args.world_size} ranks of {dist.get_world_size()}: start them with torchrun or "
                             "accelerate, which set the environment's variables")
        if dist.get_process_group_ranks(self._cp.group) != list(range(self._first_rank, self._first_rank + self._cp.size)):
            raise ValueError("the ranks of a ContextParallel must be consecutive: make cp the last dimension of the mesh")

    @property
    def _first_rank(self):
        return dist.get_rank() - self._cp.rank

    def get_cp_size(self):
        """How many ranks share a batch: transformers.Trainer counts tokens and steps by it."""
        return self._cp.size

    def create_accelerator_and_postprocess(self):
        """The accelerator, which gives batches to groups and gathers their losses."""
        super().create_accelerator_and_postprocess()
        self.accelerator.prepare_data_loader = self._data_loader_of_group
        self.gather_function = self.accelerator.gather_for_metrics = self._losses_of_groups

    def _data_loader_of_group(self, loader, device_placement=None, slice_fn_for_dispatch=None):
        """Accelerator.prepare_data_loader(), with the groups in place of the ranks."""
        accelerator = self.accelerator
        if getattr(loader, "_is_accelerate_prepared", False):
            return loader
        if accelerator.dispatch_batches or hasattr(loader.batch_sampler, "rank"):
            raise NotImplementedError("batches that rank 0 dispatches, or that are balanced between ranks: the ranks of a group "
                                      "read the same batches")
        prepared = prepare_data_loader(
            loader, accelerator.device, num_processes=self.args.world_size // self._cp.size,
            process_index=self._first_rank // self._cp.size, split_batches=accelerator.split_batches,
            put_on_device=accelerator.device_placement if device_placement is None else device_placement,
            rng_types=accelerator.rng_types.copy(), dispatch_batches=False, even_batches=accelerator.even_batches,
            use_seedable_sampler=accelerator.use_seedable_sampler, data_seed=accelerator.dataloader_config.data_seed,
            non_blocking=accelerator.non_blocking, use_stateful_dataloader=accelerator.use_stateful_dataloader)
        accelerator._dataloaders.append(prepared)
        return prepared

    def _losses_of_groups(self, losses, use_gather_object=False):
        """Accelerator.gather_for_metrics(), with the groups in place of the ranks: the last batch may have fewer documents."""
        gathered = self.accelerator.gather(losses).view(self.args.world_size, -1)[::self._cp.size].flatten()
        state = self.accelerator.gradient_state
        return gathered[:state.remainder] if state.end_of_dataloader and state.remainder > 0 else gathered

    def _track_num_input_tokens(self, inputs):
        before = self.state.num_input_tokens_seen
        super()._track_num_input_tokens(inputs)  # of all ranks, with the same batch in each of a group
        self.state.num_input_tokens_seen = before + (self.state.num_input_tokens_seen - before) // self._cp.size

    def _prepare_context_parallel_inputs(self, model, inputs):
        unknown = sorted(set(inputs) - _TAKEN)
        if unknown:
            raise ValueError(f"the batch has {', '.join(unknown)}: longspan shares only {', '.join(sorted(_TAKEN))} between ranks")
        ids, mask = self._prepare_input(inputs["input_ids"]), inputs.get("attention_mask")
        if ids.shape[0] != 1 or mask is not None and not bool(mask.all()):
            raise ValueError(f"a batch of {ids.shape[0]} rows, or with padding: pack it into one, as DataCollatorWithFlattening does")
        positions = inputs.get("position_ids")
        mask = Mask.causal(ids.shape[1]) if positions is None else Mask.from_position_ids(positions)
        place = self._cp.place(mask, *self._heads(), self._dtype())
        shared = integration.shard_batch(place, ids, self._prepare_input(inputs.get("labels")))
        if positions is not None:
            shared["position_ids"] = place.shard(self._prepare_input(positions), 1)
        return lambda: integration.context_parallel(place), shared

    def _heads(self):
        """((query heads, KV heads), head_dim) of the model."""
        config = self.model.config.get_text_config()
        heads = config.num_attention_heads
        return ((heads, getattr(config, "num_key_value_heads", None) or heads),
                getattr(config, "head_dim", None) or config.hidden_size // heads)

    def _dtype(self):
        if self.args.bf16 or self.args.fp16:
            return torch.bfloat16 if self.args.bf16 else torch.float16
        return self.model.dtype

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        """The loss of the whole batch, on each rank of the group."""
        if not prediction_loss_only:
            raise NotImplementedError("predictions of all tokens: a rank has a part of them; evaluate() gives the loss")
        loss, _, _ = super().prediction_step(model, inputs, True, ignore_keys)
        if loss is not None:
            dist.all_reduce(loss, group=self._cp.group)
            loss = loss / self._cp.size
        return loss, None, None
