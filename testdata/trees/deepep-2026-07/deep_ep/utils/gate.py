import torch


def get_topk(num_tokens: int, num_experts: int, num_topk: int) -> torch.Tensor:
    return torch.rand(num_tokens, num_experts).topk(num_topk, dim=-1).indices
