"""Hugging Face's Trainer over the ranks of a ContextParallel, over gloo: the losses and the model of a plain Trainer."""

import os
import tempfile

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import ranks
from longspan.distributed import ContextParallel

pytest.importorskip("transformers")
pytest.importorskip("accelerate", reason="Hugging Face's Trainer needs the package accelerate")

DOCUMENTS = 13  # of a data set: batches of 4 and of 1
VOCABULARY = 50


class Documents(torch.utils.data.Dataset):
    def __len__(self):
        return DOCUMENTS

    def __getitem__(self, i):
        if i >= DOCUMENTS:
            raise IndexError(i)
        generator = torch.Generator().manual_seed(i)
        length = int(torch.randint(3, 40, (), generator=generator))
        return {"input_ids": torch.randint(VOCABULARY, (length,), generator=generator).tolist()}


def new_model(kind="Llama", **settings):
    import transformers
    from longspan.integrations import transformers as integration
    integration.register()
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=128, attn_implementation="longspan", **settings)
    return getattr(transformers, f"{kind}ForCausalLM")(config)


def settings_of(folder, **changed):
    """As torchrun and a user make them."""
    from transformers import TrainingArguments
    if dist.get_world_size() > 1:
        os.environ.update(RANK=str(dist.get_rank()), LOCAL_RANK=str(dist.get_rank()), WORLD_SIZE=str(dist.get_world_size()),
                          LOCAL_WORLD_SIZE=str(dist.get_world_size()), MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
    return TrainingArguments(folder, **{
        "use_cpu": True, "report_to": "none", "save_strategy": "no", "logging_steps": 1, "disable_tqdm": True,
        "per_device_train_batch_size": 4, "per_device_eval_batch_size": 4, "gradient_accumulation_steps": 2,
        "num_train_epochs": 2, "learning_rate": 0.3, "optim": "sgd", "include_num_input_tokens_seen": "all", **changed})


def train(cp_size, model, **changed):
    """(loss, norm of the gradients and tokens so far of each step, loss of the evaluation, parameters). cp_size 0: by a plain
    Trainer."""
    import transformers
    from longspan.integrations.trainer import Trainer
    with tempfile.TemporaryDirectory() as folder:
        options = {"model": new_model(**model), "args": settings_of(folder, **changed), "train_dataset": Documents(),
                   "eval_dataset": Documents(), "data_collator": transformers.DataCollatorWithFlattening()}
        if cp_size:
            mesh = init_device_mesh("cpu", (dist.get_world_size() // cp_size, cp_size), mesh_dim_names=("dp", "cp"))
            trainer = Trainer(**options, context_parallel=ContextParallel(mesh["cp"], limit_s=60))
        else:
            trainer = transformers.Trainer(**options)
        trainer.train()
        steps = [(step["loss"], step["grad_norm"], step["num_input_tokens_seen"]) for step in trainer.state.log_history if "grad_norm" in step]
        return steps, trainer.evaluate()["eval_loss"], [p.detach() for p in trainer.model.parameters()]


def check_same(ours, plain):
    """ours, plain: of train(), on all ranks."""
    steps, loss, parameters = plain[0]
    assert len(steps) > 2 and steps[-1][0] < steps[0][0]
    for of_rank in ours:
        assert torch.tensor(of_rank[0]).flatten().tolist() == pytest.approx(torch.tensor(steps).flatten().tolist(), rel=1e-4)
        assert of_rank[1] == pytest.approx(loss, rel=1e-4)
        for mine, theirs in zip(of_rank[2], parameters):
            torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)


def train_with(cp_size, model, changed):
    return train(cp_size, model, **changed)


@pytest.mark.parametrize("model, changed", [
    ({}, {}),
    ({"kind": "Mistral", "sliding_window": 9}, {"activation_checkpointing": True, "average_tokens_across_devices": False}),
])
def test_two_ranks_train_as_one(model, changed):
    check_same(ranks.run(2, train_with, 2, model, changed), ranks.run(1, train_with, 0, model, changed))


def test_two_groups_train_as_two_ranks():
    changed = {"max_steps": 3, "eval_strategy": "no"}
    check_same(ranks.run(4, train_with, 2, {}, changed), ranks.run(2, train_with, 0, {}, changed))


def refusals():
    import transformers
    from longspan.integrations.trainer import Trainer
    cp = ContextParallel(limit_s=60)
    with tempfile.TemporaryDirectory() as folder:
        def trainer_of(collator=transformers.DataCollatorWithFlattening(), changed={}, **options):
            return Trainer(new_model(), settings_of(folder, **changed), train_dataset=Documents(), data_collator=collator,
                           context_parallel=cp, **options)

        def padded(documents):
            longest = max(len(document["input_ids"]) for document in documents)
            rows = [document["input_ids"] + [0] * (longest - len(document["input_ids"])) for document in documents]
            return {"input_ids": torch.tensor(rows), "labels": torch.tensor(rows)}

        for error, words, call in [
            (NotImplementedError, "compute_metrics", lambda: trainer_of(compute_metrics=print)),
            (NotImplementedError, "compute_loss_func", lambda: trainer_of(compute_loss_func=print)),
            (NotImplementedError, "label_smoothing", lambda: trainer_of(changed={"label_smoothing_factor": 0.1})),
            (NotImplementedError, "balanced between ranks",
             lambda: trainer_of(changed={"train_sampling_strategy": "batch_rebalance"}).train()),
            (NotImplementedError, "evaluate", lambda: trainer_of().predict(Documents())),
            (ValueError, "4 rows", lambda: trainer_of(padded).train()),
            (ValueError, "has seq_idx", lambda: trainer_of(transformers.DataCollatorWithFlattening(return_seq_idx=True)).train()),
        ]:
            with pytest.raises(error, match=words):
                call()


def test_what_is_refused():
    ranks.run(2, refusals)
