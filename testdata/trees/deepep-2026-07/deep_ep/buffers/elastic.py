import torch
import torch.distributed as dist

from .legacy import Buffer


class ElasticBuffer(Buffer):
    """A Buffer whose ranks can wait for each other."""

    def __init__(self, group: dist.ProcessGroup, num_max_tokens: int):
        super().__init__(group, num_rdma_bytes=num_max_tokens)
        self.num_max_tokens = num_max_tokens

    def dispatch(self, x: torch.Tensor) -> torch.Tensor:
        assert x.size(0) <= self.num_max_tokens
        return super().dispatch(x)

    def barrier(self):
        dist.barrier(self.group)
