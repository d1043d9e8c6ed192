"""The Trainer of Hugging Face Transformers on the backend `ddl`: a tiny language model learns to repeat.

The model is made on the spot; nothing is downloaded.

Needs:   pip install transformers accelerate
Run it:  ddlrun -np 2 python transformers_copy.py
"""

import argparse
import tempfile
from pathlib import Path

import ddl.torch
import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--batch", type=int, default=16, help="sequences of one step, over all ranks")
parser.add_argument("--save", type=Path, help="file for the trained weights")
parser.add_argument("--device", choices=("cpu", "gpu"), help="what computes; a GPU where there is one")
parser.add_argument("--use_fp16", action="store_true", help="float16, with the loss scaled; on a GPU")
options = parser.parse_args()
if options.device == "gpu" and not torch.cuda.is_available():
    raise SystemExit("--device=gpu: torch sees no GPU; install powerai-gpu, or use --device=cpu")

dist.init_process_group("ddl")  # first: the Trainer keeps the process group that it finds
rank, ranks = dist.get_rank(), dist.get_world_size()

device = ddl.torch.local_device(options.device)  # each rank has a GPU of its own
torch.manual_seed(1)
halves = torch.randint(1, 30, (512, 6))
sequences = torch.cat([halves, halves], dim=1)  # the second half repeats the first
dataset = [{"input_ids": sequence, "labels": sequence} for sequence in sequences]
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=32,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=16,
    )
)
with tempfile.TemporaryDirectory() as folder:
    trainer = Trainer(
        model,
        TrainingArguments(
            folder,
            use_cpu=device.type == "cpu",
            fp16=options.use_fp16,
            per_device_train_batch_size=options.batch // ranks,
            max_steps=options.steps,
            learning_rate=5e-3,
            lr_scheduler_type="constant",
            save_strategy="no",
            report_to="none",
            logging_steps=max(1, options.steps // 4),
            disable_tqdm=True,
            seed=1,
        ),
        train_dataset=dataset,
    )
    result = trainer.train()
if rank == 0:
    print(f"ranks {ranks}  loss {result.training_loss:.3f}")
    if options.save is not None:
        torch.save(model.state_dict(), options.save)
dist.destroy_process_group()
