import torch
import torch.distributed as dist


class Buffer:
    """Moves tokens between the ranks of a group that its caller opened."""

    def __init__(self, group: dist.ProcessGroup, num_nvl_bytes: int = 0, num_rdma_bytes: int = 0,
                 low_latency: bool = False):
        self.group = group
        self.num_bytes = num_nvl_bytes + num_rdma_bytes
        self.low_latency = low_latency

    @staticmethod
    def rdma_size(num_tokens: int, hidden: int, num_ranks: int) -> int:
        return num_tokens * hidden * num_ranks * 4

    def dispatch(self, x: torch.Tensor) -> torch.Tensor:
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(self.group))]
        dist.all_gather(parts, x, group=self.group)
        return torch.cat(parts)

    def combine(self, x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        dist.all_reduce(x, group=self.group)
        return x

    def destroy(self):
        self.group = None
