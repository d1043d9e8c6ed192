"""Where a test program's tensors are: on the host, on ../device, a stand-in for a GPU, or on a GPU."""

import os
import types

import torch
import torch.distributed as dist

_LIBRARY = os.environ.get("STANDIN_DEVICE")
#: DDL_TEST_DEVICE=cuda: a real GPU, which the ranks of a host share in turns.
DEVICE = "standin" if _LIBRARY else os.environ.get("DDL_TEST_DEVICE", "cpu")


class _Module(types.ModuleType):
    """What torch asks of torch.cuda, for that device."""

    Stream, Event = torch.Stream, torch.Event

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def is_initialized() -> bool:
        return True

    @staticmethod
    def device_count() -> int:
        return 1

    @staticmethod
    def current_device() -> int:
        return 0

    @staticmethod
    def current_stream(device: object = None) -> torch.Stream:
        return torch.accelerator.current_stream()

    @staticmethod
    def stream(stream: torch.Stream) -> torch.Stream:
        return stream

    @staticmethod
    def synchronize(device: object = None) -> None:
        torch.accelerator.synchronize()

    @staticmethod
    def is_autocast_enabled() -> bool:
        return False

    @staticmethod
    def get_amp_supported_dtype() -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]


def load_stand_in() -> None:
    """Makes torch know the device of that name."""
    torch.utils.rename_privateuse1_backend(DEVICE)
    torch._register_device_module(DEVICE, _Module(f"torch.{DEVICE}"))
    torch.ops.load_library(_LIBRARY)


def init_process_group() -> None:
    """Of the backend ddl, for both kinds of memory."""
    if DEVICE == "cuda":
        local = int(os.environ["OMPI_COMM_WORLD_LOCAL_RANK"])
        torch.cuda.set_device(local % torch.cuda.device_count())
        torch.set_default_device(DEVICE)
        dist.init_process_group("cpu:ddl,cuda:ddl", init_method="env://")
        return
    if _LIBRARY is None:
        dist.init_process_group("ddl", init_method="env://")
        return
    if os.environ.get("STAND_IN_DEVICES", "1") != "1":
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["OMPI_COMM_WORLD_LOCAL_RANK"]
    load_stand_in()
    torch.set_default_device(DEVICE)
    dist.init_process_group(f"cpu:ddl,{DEVICE}:ddl", init_method="env://")
