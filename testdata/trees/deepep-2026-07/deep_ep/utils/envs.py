import inspect
import os
from typing import Tuple

import torch
import torch.distributed as dist

_local_rank = None


def get_local_rank() -> int:
    assert _local_rank is not None
    return _local_rank


def dist_print(text: str = ''):
    if get_local_rank() == 0:
        print(text, flush=True)
    dist.barrier()


def init_dist(local_rank: int, num_local_ranks: int, seed: int = 0) -> Tuple[int, int, dist.ProcessGroup]:
    """Opens the process group of a spawned rank; the rank destroys it."""
    global _local_rank
    _local_rank = local_rank

    num_nodes, node_rank = int(os.getenv('WORLD_SIZE', 1)), int(os.getenv('RANK', 0))
    on_gpu = torch.cuda.device_count() >= num_local_ranks
    params = {
        'backend': 'nccl' if on_gpu else 'gloo',
        'init_method': f'tcp://{os.getenv("MASTER_ADDR", "127.0.0.1")}:{os.getenv("MASTER_PORT", "8361")}',
        'world_size': num_nodes * num_local_ranks,
        'rank': node_rank * num_local_ranks + local_rank,
    }
    if on_gpu and 'device_id' in inspect.signature(dist.init_process_group).parameters:
        params['device_id'] = torch.device(f'cuda:{local_rank}')
    dist.init_process_group(**params)
    if on_gpu:
        torch.cuda.set_device(local_rank)
        torch.set_default_tensor_type(torch.cuda.FloatTensor)
    torch.manual_seed(seed + dist.get_rank())
    return dist.get_rank(), dist.get_world_size(), dist.new_group(list(range(params['world_size'])))
